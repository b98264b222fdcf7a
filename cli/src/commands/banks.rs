//! `sublet plan --bank`: several memories, each with a capacity and a cost for each byte that is read or written.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use indicatif::ProgressBar;
use serde::Serialize;
use sublet_baselines::pools::executorch;
use sublet_core::place::banks::{self, Bank, Cost, Spot, Use};
use sublet_core::trace::Event;
use sublet_core::{Block, Constraints, Error, Overlap, verify};

use super::model;
use crate::args::{PlanArgs, SolveArgs};
use crate::failure::{Failure, InputError};
use crate::model::plan::{self, Planned};
use crate::model::{Means, Model};
use crate::output::{self, Layout, Memory};
use crate::problem::Problem;
use crate::report::{self, Picture};
use crate::text::bank::NamedBank;
use crate::text::table;
use sublet_core::owned::Scratch;

/// What `plan` prints. Sizes in bytes.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    input: &'a str,
    blocks: usize,
    /// The cost of the placement: the bytes of all accesses, each times the cost of a byte in its bank.
    cost: u128,
    /// A lower bound on the cost of every placement.
    lower_bound: u128,
    optimal: bool,
    verified: bool,
    banks: Vec<BankOutcome<'a>>,
}

#[derive(Debug, Serialize)]
struct BankOutcome<'a> {
    bank: &'a str,
    capacity: u64,
    blocks: usize,
    /// The highest end of a block in the bank.
    peak: u64,
    /// The bytes of all accesses to the bank's blocks.
    touched: u64,
}

/// Places the blocks in the banks, verifies the plan of each bank, writes the files that are asked for, and prints the
/// outcome.
///
/// # Errors
/// No placement is found; a file that cannot be written.
pub(crate) fn run(
    args: &PlanArgs,
    problem: Problem,
    model: Option<&Model>,
    constraints: &Constraints,
) -> Result<(), Failure> {
    if args.report.as_deref().is_some_and(|file| output::ends_in(file, "svg")) {
        return Err(Failure::Usage("banks are drawn as a page, a map for each: --report NAME.html".into()));
    }
    let named = args.banks();
    let given = given(named, constraints.alignment)?;
    let asks = |_: &&Model| args.model.means() != Means::default() || args.model.header.is_some();
    let mut planned = model.filter(asks).map(|model| model::for_banks(args, model)).transpose()?;
    let problem = planned.as_mut().map_or(problem, |planned| std::mem::take(&mut planned.problem));
    let uses = uses(&problem, named)?;
    let (mut cost, mut spots) = place(&problem, &uses, &given)?;
    if !problem.overlaps.is_empty() {
        // Blocks that lie over each other may all lie in the cheapest bank.
        cost.lower_bound = uses.iter().map(|u| u128::from(u.touched) * u128::from(cheapest(u, &given))).sum();
        move_to_cheaper(&problem, (&uses, &given), &args.solve, &mut spots);
        cost.cost =
            spots.iter().zip(&uses).map(|(s, u)| u128::from(u.touched) * u128::from(given[s.bank as usize].cost)).sum();
    }
    for bank in 0..given.len() {
        pack(&problem, &given, &args.solve, (bank, None), &mut spots);
    }
    let found = outcome(args, &problem, &given, (&uses, &spots), cost)?;
    if let Some(file) = &args.output {
        output::write(file, |out| write(&problem, named, &spots, out))?;
    }
    if let (Some(file), Some(model), Some(planned)) = (&args.model.header, model, &planned) {
        let layout = layout(args, planned, (&found, &given), &spots);
        output::write(file, |out| output::header(model, &layout, out))?;
    }
    if let Some(file) = &args.report {
        let title = problem.title().to_owned();
        let maps = maps(problem, &found, &spots)?;
        output::write(file, |out| report::banks(&title, &maps, out))?;
    }
    output::print(&found, args.json, &[&args.output, &args.report, &args.model.header], |out| found.text(out))
}

/// What a header tells of a plan for several memories.
fn layout<'a>(
    args: &'a PlanArgs,
    planned: &'a Planned,
    (found, given): (&Outcome<'a>, &[Bank]),
    spots: &[Spot],
) -> Layout<'a> {
    let memory = |(bank, given): (&BankOutcome<'a>, &Bank)| Memory {
        name: Some(bank.bank),
        bytes: bank.peak,
        alignment: given.alignment,
    };
    let place = |&place: &Option<(u32, u64)>| {
        let (block, at) = place?;
        let Spot { bank, offset } = spots[block as usize];
        Some((bank as usize, i32::try_from(offset + at).ok()?))
    };
    Layout {
        prefix: &args.model.prefix,
        kernels: planned.kernels.name(),
        memories: found.banks.iter().zip(given).map(memory).collect(),
        places: planned.places.iter().map(place).collect(),
        order: &planned.order,
    }
}

/// The cost of a byte in the cheapest bank that a block may lie in.
fn cheapest(used: &Use, banks: &[Bank]) -> u64 {
    (0..).zip(banks).filter(|&(k, _)| used.banks >> k & 1 > 0).map(|(_, bank): (u32, _)| bank.cost).min().unwrap_or(0)
}

/// How many blocks are tried in cheaper banks.
const MOST_MOVES: usize = 64;

/// Moves blocks to cheaper banks that have room for them if outputs reach into inputs there: those first for which most
/// is at stake.
fn move_to_cheaper(problem: &Problem, (uses, banks): (&[Use], &[Bank]), solve: &SolveArgs, spots: &mut [Spot]) {
    let stake = |i: usize| {
        let dearer = banks[spots[i].bank as usize].cost.saturating_sub(cheapest(&uses[i], banks));
        u128::from(uses[i].touched) * u128::from(dearer)
    };
    let mut dear: Vec<(u128, usize)> =
        (0..spots.len()).map(|i| (stake(i), i)).filter(|&(stake, _)| stake > 0).collect();
    dear.sort_unstable_by_key(|&(stake, i)| (std::cmp::Reverse(stake), i));
    let mut by_cost: Vec<usize> = (0..banks.len()).collect();
    by_cost.sort_by_key(|&k| banks[k].cost);
    for &(_, i) in dear.iter().take(MOST_MOVES) {
        let own = banks[spots[i].bank as usize].cost;
        let cheaper = by_cost.iter().filter(|&&k| banks[k].cost < own && uses[i].banks >> k & 1 > 0);
        let _ = cheaper.copied().any(|k| pack(problem, banks, solve, (k, Some(i)), spots));
    }
}

/// Packs a bank's blocks, and one more if that is told, as low as possible. Returns whether that was possible; a plan
/// that is no lower than the present one changes nothing.
fn pack(
    problem: &Problem,
    banks: &[Bank],
    solve: &SolveArgs,
    (bank, more): (usize, Option<usize>),
    spots: &mut [Spot],
) -> bool {
    let members: Vec<usize> = (0..spots.len()).filter(|&i| spots[i].bank as usize == bank || Some(i) == more).collect();
    let own = of_bank(problem, &members);
    let Bank { alignment, capacity, .. } = banks[bank];
    let constraints = Constraints { alignment, capacity: None };
    let Ok(solved) = plan::place(&own, constraints, solve, &ProgressBar::hidden()) else { return false };
    let end = |i: usize, offset: u64| offset.saturating_add(problem.blocks[i].size);
    let peak = members.iter().map(|&i| end(i, spots[i].offset)).max().unwrap_or(0);
    if solved.summary.peak > capacity || more.is_none() && solved.summary.peak >= peak {
        return false;
    }
    for (&i, &offset) in members.iter().zip(&solved.offsets) {
        spots[i] = Spot { bank: u32::try_from(bank).unwrap_or(u32::MAX), offset };
    }
    true
}

/// The problem of some blocks alone.
fn of_bank(problem: &Problem, members: &[usize]) -> Problem {
    let number: HashMap<u32, u32> =
        members.iter().zip(0..).filter_map(|(&i, k)| Some((u32::try_from(i).ok()?, k))).collect();
    let within = |o: &Overlap| {
        Some(Overlap { output: *number.get(&o.output)?, input: *number.get(&o.input)?, distance: o.distance })
    };
    Problem {
        blocks: members.iter().map(|&i| problem.blocks[i]).collect(),
        ids: members.iter().map(|&i| problem.ids[i].clone()).collect(),
        times: problem.times.clone(),
        overlaps: problem.overlaps.iter().filter_map(within).collect(),
        ..Problem::default()
    }
}

/// The banks in the form that `core` takes.
fn given(named: &[NamedBank], alignment: u64) -> Result<Vec<Bank>, Failure> {
    if named.len() > banks::MOST_BANKS {
        return Err(Failure::Usage(format!("there are {} banks; at most {}", named.len(), banks::MOST_BANKS)));
    }
    let is_twice = |k: &usize| named[..*k].iter().any(|b| b.name == named[*k].name);
    if let Some(k) = (0..named.len()).find(is_twice) {
        return Err(Failure::Usage(format!("two banks are called {}", named[k].name)));
    }
    let bank = |b: &NamedBank| Bank { capacity: b.capacity, cost: b.cost, alignment: alignment.max(b.alignment) };
    Ok(named.iter().map(bank).collect())
}

fn place(problem: &Problem, uses: &[Use], banks: &[Bank]) -> Result<(Cost, Vec<Spot>), Failure> {
    let mut scratch = Scratch::of(banks::workspace(problem.blocks.len()));
    let mut spots = vec![Spot::default(); problem.blocks.len()];
    let cost = banks::place(&problem.blocks, uses, banks, scratch.lend(), &mut spots).map_err(|e| match e {
        Error::NoBank { block, size, most, proved } => {
            let id = &problem.ids[block as usize];
            let left = format!("{id} of {size} bytes is left over; the largest bank that it may lie in has {most}");
            if proved {
                Failure::No(format!("no placement fits: that is proved; {left}"))
            } else {
                Failure::Unknown(format!("no placement was found, and none is proved impossible; {left}"))
            }
        }
        e => Failure::Input(InputError::file(&problem.name, problem.explain(&e))),
    })?;
    Ok((cost, spots))
}

/// By block: the bytes of all its accesses, and the banks that it may lie in. Every access is of the whole block;
/// without a trace each block is written once and read once. A block may lie in the bank that it names or, if it names
/// none, in every bank but those that only a DMA engine reaches.
fn uses(problem: &Problem, named: &[NamedBank]) -> Result<Vec<Use>, Failure> {
    let any = (0..).zip(named).filter(|(_, b)| !b.dma).fold(0, |mask: u32, (k, _)| mask | 1 << k);
    let mut uses = Vec::new();
    for (i, b) in problem.blocks.iter().enumerate() {
        let banks = match problem.banks.get(i).and_then(Option::as_ref) {
            None => any,
            Some(own) => {
                1 << named.iter().position(|b| b.name == *own).ok_or_else(|| {
                    let message = format!("block {} lies in the bank {own}, which no --bank names", problem.ids[i]);
                    Failure::Input(InputError::file(&problem.name, message))
                })?
            }
        };
        uses.push(Use { touched: b.size.saturating_mul(2), banks });
    }
    let Some(trace) = &problem.trace else { return Ok(uses) };
    for u in &mut uses {
        u.touched = 0;
    }
    let (mut residency_of, mut residencies) = (vec![0; trace.names.len()], 0);
    for row in &trace.rows {
        match row.event {
            Event::Malloc => {
                residency_of[row.block as usize] = residencies;
                residencies += 1;
            }
            Event::Free => {}
            _ => {
                let residency: usize = residency_of[row.block as usize];
                uses[residency].touched = uses[residency].touched.saturating_add(problem.blocks[residency].size);
            }
        }
    }
    Ok(uses)
}

/// Verifies that each block lies in a bank that it may lie in, and the plan of each bank.
fn outcome<'a>(
    args: &'a PlanArgs,
    problem: &Problem,
    given: &[Bank],
    (uses, spots): (&[Use], &[Spot]),
    cost: Cost,
) -> Result<Outcome<'a>, Failure> {
    let mut banks = Vec::new();
    for ((number, named), bank) in (0..).zip(args.banks()).zip(given) {
        let members: Vec<usize> = (0..spots.len()).filter(|&i| spots[i].bank == number).collect();
        if let Some(&i) = members.iter().find(|&&i| uses[i].banks >> number & 1 == 0) {
            let id = &problem.ids[i];
            return Err(Failure::No(format!("{id} may not lie in bank {}, please report it", named.name)));
        }
        let own = of_bank(problem, &members);
        let offsets: Vec<u64> = members.iter().map(|&i| spots[i].offset).collect();
        let constraints = Constraints { alignment: bank.alignment, capacity: Some(bank.capacity) };
        let mut scratch = Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
        let plan = own.verified(&offsets, &constraints, &mut scratch).map_err(|e| {
            Failure::No(format!("the plan of bank {} is invalid, please report it: {}", named.name, own.explain(&e)))
        })?;
        let touched = members.iter().fold(0, |sum: u64, &i| sum.saturating_add(uses[i].touched));
        let (bank, capacity) = (named.name.as_str(), named.capacity);
        banks.push(BankOutcome { bank, capacity, blocks: members.len(), peak: plan.peak(), touched });
    }
    let Cost { cost, lower_bound } = cost;
    let (input, blocks) = (args.input.as_str(), problem.blocks.len());
    Ok(Outcome { input, blocks, cost, lower_bound, optimal: cost == lower_bound, verified: true, banks })
}

/// What `verify` prints of a plan for several memories. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    blocks: usize,
    verified: bool,
    banks: Vec<BankVerdict>,
}

#[derive(Debug, Serialize)]
struct BankVerdict {
    bank: String,
    blocks: usize,
    /// The highest end of a block in the bank.
    peak: u64,
}

/// Verifies the plan of each bank. If `named` is not empty, each block must lie in one of its banks, within that bank's
/// capacity and at its alignment. A block that names a bank must lie in it.
///
/// # Errors
/// The first constraint that the plan breaks.
pub(super) fn verified(
    named: &[NamedBank],
    constraints: Constraints,
    problem: &Problem,
    (offsets, banks): (&[u64], &[String]),
) -> Result<Verdict, Failure> {
    for ((id, bank), own) in problem.ids.iter().zip(banks).zip(problem.banks.iter().chain(std::iter::repeat(&None))) {
        if let Some(own) = own.as_ref().filter(|own| *own != bank) {
            return Err(Failure::No(format!("block {id} lies in the bank {bank}, and is for {own} alone")));
        }
        if !named.is_empty() && named.iter().all(|b| b.name != *bank) {
            return Err(Failure::No(format!("block {id} lies in the bank {bank}, which no --bank names")));
        }
    }
    let of_plan: BTreeSet<&String> = banks.iter().collect();
    let verified = of_plan.into_iter().map(|bank| {
        let members: Vec<usize> = (0..banks.len()).filter(|&i| banks[i] == *bank).collect();
        let blocks: Vec<Block> = members.iter().map(|&i| problem.blocks[i]).collect();
        let offsets: Vec<u64> = members.iter().map(|&i| offsets[i]).collect();
        let given = named.iter().find(|b| b.name == *bank);
        let capacity = given.map(|b| b.capacity).or(constraints.capacity);
        let alignment = given.map_or(1, |b| b.alignment).max(constraints.alignment);
        let mut scratch = Scratch::of(verify::workspace(blocks.len()));
        let plan = verify::verify(&blocks, &offsets, &Constraints { alignment, capacity }, scratch.lend());
        let plan = plan.map_err(|e| {
            // The error names blocks by their numbers in the bank.
            let ids = members.iter().map(|&i| problem.ids[i].clone()).collect();
            let of_bank = Problem { ids, times: problem.times.clone(), ..Problem::default() };
            Failure::No(format!("bank {bank}: {}", of_bank.explain(&e)))
        })?;
        Ok(BankVerdict { bank: bank.clone(), blocks: members.len(), peak: plan.peak() })
    });
    Ok(Verdict { blocks: banks.len(), verified: true, banks: verified.collect::<Result<_, Failure>>()? })
}

impl Verdict {
    /// Prints the verdict, as one JSON object or as a few lines.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        output::print(self, json, &[], |out| self.text(out))
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "blocks    {}", self.blocks)?;
        for BankVerdict { bank, blocks, peak } in &self.banks {
            writeln!(out, "bank      {bank}: {blocks} blocks, peak {peak} bytes")?;
        }
        writeln!(out, "verified  yes")
    }
}

/// By bank: a title for its memory map, and the map as a page of HTML.
fn maps(mut problem: Problem, found: &Outcome<'_>, spots: &[Spot]) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let trace = problem.trace.take();
    let mut maps = Vec::new();
    let mut traced = trace;
    for (number, bank) in (0..).zip(&found.banks) {
        let BankOutcome { bank, capacity, peak, .. } = bank;
        let members: Vec<usize> = (0..spots.len()).filter(|&i| spots[i].bank == number).collect();
        let mut own = of_bank(&problem, &members);
        own.name.clone_from(&problem.name);
        own.trace = traced.take();
        let offsets: Vec<u64> = members.iter().map(|&i| spots[i].offset).collect();
        let mut scratch = Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
        let plan = own
            .verified(&offsets, &Constraints::NONE, &mut scratch)
            .map_err(|e| Failure::No(format!("the plan of bank {bank} is invalid, please report it: {e}")))?;
        let optimal = plan.is_optimal();
        let picture = Picture { problem: &own, plan: &plan, solver: "banks", optimal, rows: Vec::new(), run: None };
        let mut page = Vec::new();
        report::html(&picture, &mut page).map_err(|e| Failure::printing(&e))?;
        maps.push((format!("{bank}: {peak} of {capacity} bytes"), page));
        traced = own.trace.take();
    }
    Ok(maps)
}

impl Outcome<'_> {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "input     {}", self.input)?;
        writeln!(out, "blocks    {}", self.blocks)?;
        writeln!(out, "cost      {} byte accesses, at least {}", self.cost, self.lower_bound)?;
        for b in &self.banks {
            let BankOutcome { bank, capacity, blocks, peak, touched } = b;
            writeln!(
                out,
                "bank      {bank}: {blocks} blocks, peak {peak} of {capacity} bytes, {touched} bytes touched"
            )?;
        }
        writeln!(out, "verified  yes")
    }
}

/// Writes a plan with the bank of each block.
fn write(problem: &Problem, named: &[NamedBank], spots: &[Spot], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size,offset,bank")?;
    for ((id, block), spot) in problem.ids.iter().zip(&problem.blocks).zip(spots) {
        let (lower, upper) = (problem.time(block.start), problem.time(block.end));
        let bank = &named[spot.bank as usize].name;
        writeln!(out, "{id},{lower},{upper},{},{},{bank}", block.size, spot.offset)?;
    }
    Ok(())
}

/// What `compare` prints of several planners' placements in the same banks. The cost of a placement is the bytes of all
/// accesses, each times the cost of a byte in its bank.
#[derive(Debug, Serialize)]
struct Comparison<'a> {
    input: &'a str,
    blocks: usize,
    /// The bytes of all accesses.
    touched: u128,
    /// A lower bound on the cost of every placement.
    lower_bound: u128,
    planners: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    planner: &'static str,
    /// None where the planner finds no room for a block.
    cost: Option<u128>,
    /// The part of the bytes read and written that lies in the banks of least cost, in percent.
    fast_percent: Option<f64>,
}

/// Compares this planner's placement in the banks with the one that ExecuTorch's rules give, by cost.
///
/// # Errors
/// Blocks that fit in no bank.
pub(crate) fn compare(problem: &Problem, named: &[NamedBank], json: bool) -> Result<(), Failure> {
    if named.iter().any(|b| b.dma) {
        return Err(Failure::Usage("banked_greedy knows no memory that only a DMA engine reaches".into()));
    }
    // ExecuTorch aligns every tensor to 16 bytes.
    let given = given(named, 16)?;
    let uses = uses(problem, named)?;
    let (cost, spots) = place(problem, &uses, &given)?;
    let touched: u128 = uses.iter().map(|u| u128::from(u.touched)).sum();
    let least = given.iter().map(|b| b.cost).min().unwrap_or(0);
    let row = |planner, bank: Option<Vec<usize>>| {
        let sum = |price: &dyn Fn(&Bank, u64) -> u64| {
            let bank = bank.as_ref()?;
            Some(uses.iter().zip(bank).map(|(u, &k)| u128::from(u.touched) * u128::from(price(&given[k], 1))).sum())
        };
        let cost: Option<u128> = sum(&|b, _| b.cost);
        let fast: Option<u128> = sum(&|b, one| if b.cost == least { one } else { 0 });
        Row { planner, cost, fast_percent: fast.map(|fast| percent(fast, touched)) }
    };
    let mut fastest: Vec<usize> = (0..given.len()).collect();
    fastest.sort_by_key(|&k| given[k].cost);
    let capacities: Vec<u64> = fastest.iter().map(|&k| given[k].capacity).collect();
    let peer = executorch::banked_greedy(&problem.blocks, &capacities);
    let planners = vec![
        row("sublet", Some(spots.iter().map(|s| s.bank as usize).collect())),
        row("one-bank", one_bank(problem, &given)?.map(|k| vec![k; uses.len()])),
        row("executorch-banked-greedy", peer.map(|found| found.bank.iter().map(|&k| fastest[k]).collect())),
    ];
    let (input, blocks) = (problem.name.as_str(), problem.blocks.len());
    let found = Comparison { input, blocks, touched, lower_bound: cost.lower_bound, planners };
    output::print(&found, json, &[], |out| found.text(out))
}

/// The cheapest bank in which all blocks fit.
fn one_bank(problem: &Problem, banks: &[Bank]) -> Result<Option<usize>, Failure> {
    let mut fits = Vec::new();
    for (k, bank) in banks.iter().enumerate() {
        let uses = vec![Use { touched: 0, banks: 1 }; problem.blocks.len()];
        match place(problem, &uses, &[*bank]) {
            Ok(_) => fits.push(k),
            Err(Failure::No(_) | Failure::Unknown(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(fits.into_iter().min_by_key(|&k| banks[k].cost))
}

#[expect(clippy::cast_precision_loss, reason = "a share to be read")]
fn percent(part: u128, of: u128) -> f64 {
    if of == 0 { 100.0 } else { 100.0 * part as f64 / of as f64 }
}

impl Comparison<'_> {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}: {} blocks, {} bytes read and written\n", self.input, self.blocks, self.touched)?;
        let mut table = table::aligned(["", "cost", "over bound %", "in fast %"], 1..4);
        let bound = self.lower_bound;
        for row in &self.planners {
            let share = row.fast_percent.map_or("does not fit".into(), |p| format!("{p:.1}"));
            let over = row.cost.map_or(String::new(), |c| format!("{:.2}", percent(c, bound) - 100.0));
            table.add_row([row.planner, &row.cost.map_or(String::new(), |c| c.to_string()), &over, &share]);
        }
        table.add_row(["lower bound", &bound.to_string()]);
        writeln!(out, "{}", table.trim_fmt())
    }
}
