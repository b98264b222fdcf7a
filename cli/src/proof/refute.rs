//! Proves that no plan of an instance fits in a capacity. `VeriPB`, a program of others, checks the proof (Gocht 2022;
//! Bogaerts, Gocht, `McCreesh` and Nordström 2023). docs/proofs.md says which formula has no solution.
//!
//! Problem: is there a plan within a capacity? The search of `core` says no and shows nothing. This search is slower
//! and writes down why.
//!
//! Steps:
//! 1. For each pair of blocks that are alive together, one variable says which of them is below. Blocks that lie one
//!    above the other are a *chain*. The chain below a block gives it a least offset, and likewise the chain above it a
//!    greatest end.
//! 2. A chain that is higher than the capacity gives a clause: not all of its pairs lie like this. The clause is the
//!    sum of the inequalities of its pairs, divided by the capacity. Likewise, if the chain below a block i, the blocks
//!    i and j, and the chain above j are together higher than the capacity, then i is not below j: j is below i.
//! 3. The rest is a solver for clauses (Marques-Silva and Sakallah 1999; Moskewicz et al. 2001): decisions,
//!    propagation, a learned clause for each conflict, which follows by unit propagation and is written as such.
//!
//! Ties: of equally active pairs the first. Limits: chains do not use alignments, and all orders of blocks that are
//! alike are searched, so that proofs grow quickly with the number of blocks. Cost: O(pairs) for each propagation that
//! moves a block.

use std::io::{self, Write};

use crate::interrupt::Until;

/// A block; the n-th row of the instance is the n-th item.
pub(crate) struct Item {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
}

/// How the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No plan fits; the proof is written.
    Proved,
    /// A plan fits, as far as chains can tell.
    Fits,
    /// The allowed conflicts are used up, or the time is.
    GivenUp,
}

const NONE: usize = usize::MAX;
/// The conflicts of the shortest run between two restarts.
const RUN: u64 = 64;
/// How much the first conflict adds to the activity of its pairs; after each conflict this step grows by one part in
/// `GROWTH`.
const STEP: u64 = 1 << 20;
const GROWTH: u64 = 20;
/// When the step is above this, all activities and the step are scaled down by the same factor, to keep within 64 bits.
const MOST_STEP: u64 = 1 << 50;

/// Why a pair lies as it does.
#[derive(Clone)]
enum Reason {
    Decision,
    Clause(usize),
    /// This chain would be higher than the capacity if the pair lay the other way round.
    Chain(Vec<Literal>),
}

/// A literal: twice the pair, plus 1 if its second block is below its first.
type Literal = usize;

/// What is known of the blocks in one direction: from the ground up, or from the capacity down.
struct Side {
    /// By block: the bytes of its chain between the block and the ground, or between it and the capacity.
    room: Vec<u64>,
    /// By block: the literal of the pair of this block and the next one of its chain towards the ground, or the
    /// capacity.
    by: Vec<usize>,
    /// The changes so far: a block, and its `room` and its `by` from before the change.
    trail: Vec<(usize, u64, usize)>,
}

struct Search<'a, W: Write> {
    items: &'a [Item],
    capacity: u64,
    proof: W,
    /// The number of constraints so far. The first are those of the formula: one for each block, which keeps it below
    /// the capacity, then two for each pair.
    constraints: u64,
    pairs: Vec<(usize, usize)>,
    /// By two blocks i and j, at i * n + j: the index of their pair; `NONE` if they are never alive together.
    pair_of: Vec<usize>,
    /// By pair: 0 if unknown, 1 if the first block is below the second, -1 if the second is below the first.
    value: Vec<i8>,
    level: Vec<usize>,
    reason: Vec<Reason>,
    activity: Vec<u64>,
    step: u64,
    trail: Vec<Literal>,
    /// By decision: how long the trails of the search, of `below` and of `above` were before it.
    limits: Vec<(usize, usize, usize)>,
    /// How many literals of the trail have been propagated.
    done: usize,
    clauses: Vec<Vec<Literal>>,
    watches: Vec<Vec<usize>>,
    below: Side,
    above: Side,
}

/// Searches for a plan within `capacity` for at most `conflicts` conflicts and no longer than `until`; writes the
/// formula and the proof.
///
/// # Errors
/// As the writers.
pub(crate) fn prove(
    items: &[Item],
    capacity: u64,
    conflicts: u64,
    until: Until,
    formula: &mut dyn Write,
    proof: &mut dyn Write,
) -> io::Result<End> {
    let n = items.len();
    let mut pairs = Vec::new();
    let mut pair_of = vec![NONE; n * n];
    for (i, a) in items.iter().enumerate() {
        for (j, b) in items.iter().enumerate().skip(i + 1) {
            if a.start < b.end && b.start < a.end {
                pair_of[i * n + j] = pairs.len();
                pair_of[j * n + i] = pairs.len();
                pairs.push((i, j));
            }
        }
    }
    write_formula(items, &pairs, capacity, formula)?;
    let constraints = (n + 2 * pairs.len()) as u64;
    writeln!(proof, "pseudo-Boolean proof version 3.0\nf {constraints} ;")?;
    let share = |bytes: u64| {
        let share = u128::from(bytes) * u128::from(STEP) / u128::from(capacity.max(1));
        u64::try_from(share).unwrap_or(STEP)
    };
    let side = || Side { room: vec![0; n], by: vec![NONE; n], trail: Vec::new() };
    let mut search = Search {
        items,
        capacity,
        proof,
        constraints,
        value: vec![0; pairs.len()],
        level: vec![0; pairs.len()],
        reason: vec![Reason::Decision; pairs.len()],
        activity: pairs.iter().map(|&(i, j)| share(items[i].size + items[j].size)).collect(),
        step: STEP,
        trail: Vec::new(),
        limits: Vec::new(),
        done: 0,
        clauses: Vec::new(),
        watches: vec![Vec::new(); 2 * pairs.len()],
        below: side(),
        above: side(),
        pairs,
        pair_of,
    };
    let end = search.run(conflicts, until)?;
    let conclusion = if end == End::Proved { "UNSAT : -1" } else { "NONE" };
    writeln!(search.proof, "output NONE ;\nconclusion {conclusion} ;\nend pseudo-Boolean proof ;")?;
    Ok(end)
}

/// The bits of a block's offset that may be 1: from the bit of its alignment up to the highest bit of the capacity.
fn bits(item: &Item, capacity: u64) -> std::ops::Range<u32> {
    item.alignment.trailing_zeros()..u64::BITS - capacity.leading_zeros()
}

fn write_formula(items: &[Item], pairs: &[(usize, usize)], capacity: u64, out: &mut dyn Write) -> io::Result<()> {
    let variables = pairs.len() + items.iter().map(|item| bits(item, capacity).len()).sum::<usize>();
    writeln!(out, "* #variable= {variables} #constraint= {}", items.len() + 2 * pairs.len())?;
    let offset = |out: &mut dyn Write, i: usize, sign: char| -> io::Result<()> {
        for bit in bits(&items[i], capacity) {
            write!(out, "{sign}{} o{i}_{bit} ", 1u128 << bit)?;
        }
        Ok(())
    };
    for (i, item) in items.iter().enumerate() {
        offset(out, i, '-')?;
        writeln!(out, ">= {} ;", i128::from(item.size) - i128::from(capacity))?;
    }
    for &(i, j) in pairs {
        offset(out, j, '+')?;
        offset(out, i, '-')?;
        writeln!(out, "-{capacity} b{i}_{j} >= {} ;", i128::from(items[i].size) - i128::from(capacity))?;
        offset(out, i, '+')?;
        offset(out, j, '-')?;
        writeln!(out, "+{capacity} b{i}_{j} >= {} ;", items[j].size)?;
    }
    Ok(())
}

impl<W: Write> Search<'_, W> {
    fn run(&mut self, conflicts: u64, until: Until) -> io::Result<End> {
        if let Some(i) = (0..self.items.len()).find(|&i| self.items[i].size > self.capacity) {
            self.chain(&[], i)?;
            return Ok(End::Proved);
        }
        let (mut seen, mut left, mut restarts) = (0, RUN, 1u64);
        // Every pair is looked at once before the first decision.
        let mut conflict = self.propagate()?;
        loop {
            if let Some(clause) = conflict {
                seen += 1;
                left = left.saturating_sub(1);
                if self.limits.is_empty() {
                    writeln!(self.proof, "rup >= 1 ;")?;
                    return Ok(End::Proved);
                }
                self.learn(clause)?;
            } else if seen >= conflicts || until.is_over() {
                return Ok(End::GivenUp);
            } else if left == 0 && !self.limits.is_empty() {
                restarts += 1;
                left = RUN * luby(restarts);
                self.back_to(0);
            } else {
                let open = (0..self.pairs.len()).filter(|&p| self.value[p] == 0);
                let Some(p) = open.reduce(|a, b| if self.activity[b] > self.activity[a] { b } else { a }) else {
                    return Ok(End::Fits);
                };
                self.limits.push((self.trail.len(), self.below.trail.len(), self.above.trail.len()));
                let (i, j) = self.pairs[p];
                let up = |i: usize, j: usize| self.below.room[i] + self.above.room[j];
                self.assign(2 * p + usize::from(up(j, i) < up(i, j)), Reason::Decision)?;
            }
            conflict = self.propagate()?;
        }
    }

    fn is_true(&self, l: Literal) -> bool {
        self.value[l / 2] == if l.is_multiple_of(2) { 1 } else { -1 }
    }

    fn is_false(&self, l: Literal) -> bool {
        self.is_true(l ^ 1)
    }

    /// The literal that says that i is below j.
    fn literal(&self, i: usize, j: usize) -> Literal {
        2 * self.pair_of[i * self.items.len() + j] + usize::from(i > j)
    }

    /// The lower and the upper block of a literal.
    fn blocks(&self, l: Literal) -> (usize, usize) {
        let (i, j) = self.pairs[l / 2];
        if l.is_multiple_of(2) { (i, j) } else { (j, i) }
    }

    fn assign(&mut self, l: Literal, reason: Reason) -> io::Result<()> {
        if self.limits.is_empty() {
            // A literal that holds without decisions is written to the proof at once.
            let with = self.clause_of(l, &reason)?.1;
            writeln!(self.proof, "rup +1 {} >= 1 ;", self.name(l))?;
            self.constraints += 1;
            self.forget(with)?;
        }
        self.value[l / 2] = if l.is_multiple_of(2) { 1 } else { -1 };
        self.level[l / 2] = self.limits.len();
        self.reason[l / 2] = reason;
        self.trail.push(l);
        Ok(())
    }

    fn back_to(&mut self, level: usize) {
        let (trail, below, above) = self.limits[level];
        self.limits.truncate(level);
        for l in self.trail.drain(trail..) {
            self.value[l / 2] = 0;
        }
        self.done = trail;
        self.below.undo(below);
        self.above.undo(above);
    }

    /// Propagates until nothing follows any more. Returns a clause whose literals are all false, if there is one, and
    /// the number of its constraint if it was written for this.
    fn propagate(&mut self) -> io::Result<Option<(Vec<Literal>, Option<u64>)>> {
        loop {
            while self.done < self.trail.len() {
                let l = self.trail[self.done];
                self.done += 1;
                if let Some(c) = self.visit(l ^ 1)? {
                    return Ok(Some((self.clauses[c].clone(), None)));
                }
                let (i, j) = self.blocks(l);
                if let Some(chain) = self.move_up(i, j).or_else(|| self.move_down(i, j)) {
                    return self.chain(&chain, NONE).map(Some);
                }
            }
            let before = self.trail.len();
            for p in 0..self.pairs.len() {
                if self.value[p] != 0 {
                    continue;
                }
                let (a, b) = self.pairs[p];
                for (i, j) in [(a, b), (b, a)] {
                    let used = self.below.room[i] + self.items[i].size + self.items[j].size + self.above.room[j];
                    if used > self.capacity {
                        if self.value[p] != 0 {
                            // The other way round is impossible too, as was concluded above.
                            let chain = self.chains(i, j);
                            return self.chain(&chain, NONE).map(Some);
                        }
                        let chain = self.chains(i, j);
                        self.assign(self.literal(j, i), Reason::Chain(chain))?;
                    }
                }
            }
            if self.trail.len() == before {
                return Ok(None);
            }
        }
    }

    /// Visits the clauses that watch `l`, which has become false. Each watches another literal, or implies one, or
    /// fails; returns the one that fails.
    fn visit(&mut self, l: Literal) -> io::Result<Option<usize>> {
        let mut watching = std::mem::take(&mut self.watches[l]);
        let (mut kept, mut failed) = (0, None);
        for at in 0..watching.len() {
            let c = watching[at];
            watching[kept] = c;
            kept += 1;
            if failed.is_some() {
                continue;
            }
            if self.clauses[c][0] == l {
                self.clauses[c].swap(0, 1);
            }
            let first = self.clauses[c][0];
            if self.is_true(first) {
                continue;
            }
            let other = (2..self.clauses[c].len()).find(|&k| !self.is_false(self.clauses[c][k]));
            if let Some(k) = other {
                self.clauses[c].swap(1, k);
                let watched = self.clauses[c][1];
                self.watches[watched].push(c);
                kept -= 1;
            } else if self.is_false(first) {
                failed = Some(c);
            } else {
                self.assign(first, Reason::Clause(c))?;
            }
        }
        watching.truncate(kept);
        self.watches[l] = watching;
        Ok(failed)
    }

    /// Raises j, since i lies below it, and the blocks above j; returns the pairs of a chain that is too high, if there
    /// is one.
    fn move_up(&mut self, i: usize, j: usize) -> Option<Vec<Literal>> {
        let mut todo = vec![(i, j)];
        while let Some((i, j)) = todo.pop() {
            let room = self.below.room[i] + self.items[i].size;
            if room <= self.below.room[j] {
                continue;
            }
            let l = self.literal(i, j);
            self.below.set(j, room, l);
            if room + self.items[j].size + self.above.room[j] > self.capacity {
                return Some(self.too_high(j));
            }
            for k in 0..self.items.len() {
                if self.pair_of[j * self.items.len() + k] != NONE && self.is_true(self.literal(j, k)) {
                    todo.push((j, k));
                }
            }
        }
        None
    }

    fn move_down(&mut self, i: usize, j: usize) -> Option<Vec<Literal>> {
        let mut todo = vec![(i, j)];
        while let Some((i, j)) = todo.pop() {
            let room = self.above.room[j] + self.items[j].size;
            if room <= self.above.room[i] {
                continue;
            }
            let l = self.literal(i, j);
            self.above.set(i, room, l);
            if room + self.items[i].size + self.below.room[i] > self.capacity {
                return Some(self.too_high(i));
            }
            for k in 0..self.items.len() {
                if self.pair_of[i * self.items.len() + k] != NONE && self.is_true(self.literal(k, i)) {
                    todo.push((k, i));
                }
            }
        }
        None
    }

    /// The pairs of the chains through block i, or of a ring if one of them returns to its start.
    fn too_high(&self, i: usize) -> Vec<Literal> {
        match (self.below.walk(i, |l| self.blocks(l).0), self.above.walk(i, |l| self.blocks(l).1)) {
            (Ok(ring), _) => ring.into_iter().rev().collect(),
            (_, Ok(ring)) => ring,
            (Err(below), Err(above)) => below.into_iter().rev().chain(above).collect(),
        }
    }

    /// The pairs of the whole chain that there would be if block i were below block j: those of the chain from offset 0
    /// up to i, the pair of i and j, and those of the chain from j up to the capacity.
    fn chains(&self, i: usize, j: usize) -> Vec<Literal> {
        let below = self.below.walk(i, |l| self.blocks(l).0).unwrap_or_else(|chain| chain);
        let above = self.above.walk(j, |l| self.blocks(l).1).unwrap_or_else(|chain| chain);
        below.into_iter().rev().chain([self.literal(i, j)]).chain(above).collect()
    }

    /// Writes the sum of a chain's inequalities; returns the clause that follows, and the number of its constraint. An
    /// empty chain stands for the block `only`.
    fn chain(&mut self, chain: &[Literal], only: usize) -> io::Result<(Vec<Literal>, Option<u64>)> {
        let n = self.items.len();
        let (bottom, top) = match (chain.first(), chain.last()) {
            (Some(&first), Some(&last)) => (self.blocks(first).0, self.blocks(last).1),
            _ => (only, only),
        };
        write!(self.proof, "pol")?;
        for (k, &l) in chain.iter().enumerate() {
            write!(self.proof, " {}{}", n + 1 + l, if k > 0 { " +" } else { "" })?;
        }
        // A ring ends where it begins: its ends need no inequalities.
        if chain.is_empty() || bottom != top {
            write!(self.proof, " {}{}", top + 1, if chain.is_empty() { "" } else { " +" })?;
            for bit in bits(&self.items[bottom], self.capacity) {
                write!(self.proof, " o{bottom}_{bit} {} * +", 1u128 << bit)?;
            }
        }
        writeln!(self.proof, " {} d s ;", self.capacity)?;
        self.constraints += 1;
        let mut clause: Vec<Literal> = chain.iter().map(|l| l ^ 1).collect();
        clause.sort_unstable();
        clause.dedup();
        Ok((clause, Some(self.constraints)))
    }

    /// The clause that implies `l`, and the number of its constraint if it was written for this.
    fn clause_of(&mut self, l: Literal, reason: &Reason) -> io::Result<(Vec<Literal>, Option<u64>)> {
        match reason {
            Reason::Decision => Ok((vec![l], None)),
            Reason::Clause(c) => Ok((self.clauses[*c].clone(), None)),
            Reason::Chain(chain) => self.chain(chain, NONE),
        }
    }

    fn forget(&mut self, constraint: Option<u64>) -> io::Result<()> {
        constraint.map_or(Ok(()), |id| writeln!(self.proof, "del id {id} ;"))
    }

    fn name(&self, l: Literal) -> String {
        let (i, j) = self.pairs[l / 2];
        format!("{}b{i}_{j}", if l.is_multiple_of(2) { "" } else { "~" })
    }

    /// Learns from a clause that has failed: resolves it with reasons until one literal of the last decision is left.
    fn learn(&mut self, (clause, written): (Vec<Literal>, Option<u64>)) -> io::Result<()> {
        let mut temporary: Vec<u64> = written.into_iter().collect();
        let now = self.limits.len();
        let mut marked = vec![false; self.pairs.len()];
        let (mut learned, mut open) = (Vec::new(), 0);
        let (mut clause, mut at) = (clause, self.trail.len());
        let decided = loop {
            for &l in &clause {
                let p = l / 2;
                if self.is_true(l) || marked[p] || self.level[p] == 0 {
                    continue;
                }
                marked[p] = true;
                self.activity[p] += self.step;
                if self.level[p] == now {
                    open += 1;
                } else {
                    learned.push(l);
                }
            }
            if open == 0 {
                // The conflict does not depend on the last decision.
                break None;
            }
            at = (0..at).rev().find(|&k| marked[self.trail[k] / 2]).unwrap_or(0);
            let l = self.trail[at];
            open -= 1;
            if open == 0 {
                break Some(l ^ 1);
            }
            let reason = std::mem::replace(&mut self.reason[l / 2], Reason::Decision);
            let (next, id) = self.clause_of(l, &reason)?;
            self.reason[l / 2] = reason;
            temporary.extend(id);
            clause = next;
        };
        let Some(first) = decided else { unreachable!("every conflict has a literal of the last level") };
        learned.sort_unstable_by_key(|l| std::cmp::Reverse(self.level[l / 2]));
        let back = learned.first().map_or(0, |l| self.level[l / 2]);
        learned.insert(0, first);
        let text: Vec<String> = learned.iter().map(|&l| format!("+1 {}", self.name(l))).collect();
        writeln!(self.proof, "rup {} >= 1 ;", text.join(" "))?;
        self.constraints += 1;
        for constraint in temporary {
            self.forget(Some(constraint))?;
        }
        self.back_to(back);
        self.step += self.step / GROWTH;
        if self.step > MOST_STEP {
            self.activity.iter_mut().for_each(|activity| *activity /= MOST_STEP / STEP);
            self.step /= MOST_STEP / STEP;
        }
        let reason = Reason::Clause(self.clauses.len());
        if learned.len() > 1 {
            for &l in &learned[..2] {
                self.watches[l].push(self.clauses.len());
            }
        }
        self.clauses.push(learned);
        self.assign(first, reason)
    }
}

impl Side {
    fn set(&mut self, i: usize, room: u64, by: usize) {
        self.trail.push((i, self.room[i], self.by[i]));
        (self.room[i], self.by[i]) = (room, by);
    }

    fn undo(&mut self, len: usize) {
        for (i, room, by) in self.trail.drain(len..).rev() {
            (self.room[i], self.by[i]) = (room, by);
        }
    }

    /// The pairs from a block along its chain to the end of this side, as `Err`; or as `Ok` the pairs of a ring, if the
    /// way returns to a block.
    fn walk(&self, from: usize, next: impl Fn(usize) -> usize) -> Result<Vec<Literal>, Vec<Literal>> {
        let (mut way, mut blocks) = (Vec::new(), vec![from]);
        let mut i = from;
        while self.by[i] != NONE {
            way.push(self.by[i]);
            i = next(self.by[i]);
            if let Some(k) = blocks.iter().position(|&b| b == i) {
                return Ok(way.split_off(k));
            }
            blocks.push(i);
        }
        Err(way)
    }
}

/// The i-th number, from 1 on, of Luby's sequence: 1, 1, 2, 1, 1, 2, 4, …
fn luby(mut i: u64) -> u64 {
    loop {
        let k = u64::BITS - i.leading_zeros();
        if i == (1 << k) - 1 {
            return 1 << (k - 1);
        }
        i -= (1 << (k - 1)) - 1;
    }
}
