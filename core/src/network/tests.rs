//! Random networks run twice: with storage of its own for each tensor, and by their plan, in an arena where a tensor's
//! storage is filled with a poison value when it is bound. Each operator must read the same values in both runs.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::{
    Access, Action, Memory, Needed, Network, Operator, Output, Planned, RecordNeeded, Recording, Step, Use, plan,
    record,
};
use crate::error::AccessFault;
use crate::rewrite::fit::{Means, Options, Using};
use crate::simulate::{Device, Timing};
use crate::trace::liveness::Residency;
use crate::trace::{self, Event, Op, Row};
use crate::{Block, Error, Workspace};

const LINE: u64 = 64;
const POISON: u64 = 0x7ff8_dead_dead_dead;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

#[derive(Default)]
struct Pass {
    memories: Vec<Memory>,
    operators: Vec<Operator>,
    accesses: Vec<Access>,
}

impl Pass {
    fn memory(&mut self, bytes: u64, kept: bool, scratch: bool) -> u32 {
        self.memories.push(Memory { bytes, kept, scratch });
        self.memories.len() as u32 - 1
    }

    fn operator(&mut self, time_ns: u64, again: bool, accesses: &[(u32, Use)]) {
        let op = self.operators.len() as u32;
        self.operators.push(Operator { time_ns, rerun: again });
        self.accesses.extend(accesses.iter().map(|&(memory, how)| Access { op, memory, how }));
    }

    fn network(&self) -> Network<'_> {
        Network { memories: &self.memories, operators: &self.operators, accesses: &self.accesses }
    }

    fn record<T>(&self, alignment: u64, body: impl FnOnce(&Recording<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let needed = RecordNeeded::of(self.memories.len(), self.accesses.len());
        let (mut words, mut indices) = (vec![7; needed.workspace.words], vec![7; needed.workspace.indices]);
        let (mut rows, mut owners) = (vec![Row::default(); needed.rows], vec![7; needed.memories]);
        let mut known = vec![trace::Operator::default(); self.operators.len()];
        let scratch = Workspace::new(&mut words, &mut indices);
        body(&record(&self.network(), alignment, scratch, &mut rows, &mut known, &mut owners)?)
    }

    fn plan(&self, options: &Options) -> Result<(Planned, Vec<Step>), Error> {
        self.record(options.alignment, |recording| {
            let limited = options.limit < u64::MAX;
            let (needed, most) = (recording.needed(limited), Needed::most(self.accesses.len(), limited));
            let (len, longest) = (needed.lengths, most.lengths);
            assert!(
                len.rows <= longest.rows && len.timings <= longest.timings && len.residencies <= longest.residencies
            );
            assert_eq!(needed.workspace.max(most.workspace), most.workspace);
            plan_recording(recording, options)
        })
    }

    fn run(&self, steps: Option<&[Step]>) -> Vec<u64> {
        let size = |m: u32| self.memories[m as usize].bytes.div_ceil(LINE) as usize;
        let mut own: Vec<Vec<u64>> = (0..self.memories.len() as u32).map(|m| vec![u64::from(m); size(m)]).collect();
        let mut arena = vec![POISON; 1 << 16];
        let mut bound: BTreeMap<u32, usize> = BTreeMap::new();
        let mut host: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut steps = steps.unwrap_or_default().iter().peekable();
            for op in 0..self.operators.len() as u32 {
                while let Some(step) = steps.next_if(|s| s.before <= op) {
                    match step.action {
                        Action::Bind { memory, offset } => {
                            let at = usize::try_from(offset / LINE).unwrap();
                            assert_eq!(offset % LINE, 0);
                            bound.insert(memory, at);
                            arena[at..at + size(memory)].fill(POISON);
                        }
                        Action::Run { op } => self.operate(op, &mut own, &mut arena, &bound, &mut Vec::new()),
                        Action::CopyOut { memory, host_offset } => {
                            let at = bound[&memory];
                            host.insert(host_offset, arena[at..at + size(memory)].to_vec());
                        }
                        Action::CopyIn { memory, host_offset } => {
                            let at = bound[&memory];
                            arena[at..at + size(memory)].copy_from_slice(&host[&host_offset]);
                        }
                    }
                }
                self.operate(op, &mut own, &mut arena, &bound, &mut seen);
            }
            assert!(steps.next().is_none(), "steps after the last operator");
            seen.extend(own.iter().zip(&self.memories).filter(|(_, m)| m.kept).map(|(o, _)| o[0]));
        }
        seen
    }

    fn operate(
        &self,
        op: u32,
        own: &mut [Vec<u64>],
        arena: &mut [u64],
        bound: &BTreeMap<u32, usize>,
        seen: &mut Vec<u64>,
    ) {
        let mut value = u64::from(op) + 1;
        for a in self.accesses.iter().filter(|a| a.op == op) {
            let n = self.memories[a.memory as usize].bytes.div_ceil(LINE) as usize;
            let cells = match bound.get(&a.memory) {
                Some(&at) => &mut arena[at..at + n],
                None => &mut own[a.memory as usize],
            };
            if a.how == Use::Read {
                value = cells.iter().fold(value, |v, &c| mix(v, c));
                seen.push(value);
            } else {
                cells.fill(mix(value, u64::from(a.memory)));
            }
        }
    }
}

fn training(random: &mut Random) -> Pass {
    let mut pass = Pass::default();
    let layers = 3 + random.below(8) as usize;
    let updates = random.below(2) == 0;
    let data = pass.memory(1 + random.below(900), false, false);
    pass.operator(10, false, &[(data, Use::Write)]);
    let mut tops = vec![data];
    let mut backward: Vec<Vec<(u32, Use)>> = Vec::new();
    for i in 0..layers {
        let bottom = tops[i];
        let weight = pass.memory(64, true, false);
        let diff = pass.memory(64, true, false);
        let in_place = i > 0 && random.below(4) == 0;
        let top = if in_place { bottom } else { pass.memory(1 + random.below(900), false, false) };
        let scratch = pass.memory(1 + random.below(900), false, true);
        let mut accesses = vec![(bottom, Use::Read), (weight, Use::Read)];
        if random.below(3) == 0 {
            accesses.push((tops[random.below(tops.len() as u64) as usize], Use::Read));
        }
        if random.below(2) == 0 {
            accesses.extend([(scratch, Use::Write), (scratch, Use::Read)]);
        }
        accesses.push((top, if in_place { Use::Write } else { Use::Overwrite }));
        pass.operator(1 + random.below(50), random.below(5) > 0, &accesses);
        tops.push(top);
        backward.push(vec![
            (bottom, Use::Read),
            (scratch, Use::Write),
            (scratch, Use::Read),
            (weight, Use::Read),
            (diff, Use::Write),
        ]);
    }
    let mut gradient = pass.memory(1 + random.below(900), false, false);
    pass.operator(5, true, &[(tops[layers], Use::Read), (gradient, Use::Write)]);
    for accesses in backward.iter().rev() {
        let next = pass.memory(1 + random.below(900), false, false);
        let mut accesses = accesses.clone();
        accesses.extend([(gradient, Use::Read), (next, Use::Write)]);
        pass.operator(1 + random.below(50), true, &accesses);
        if updates {
            let [(diff, _), (weight, _)] = [accesses[4], accesses[3]];
            pass.operator(5, true, &[(diff, Use::Read), (weight, Use::Write)]);
        }
        gradient = next;
    }
    pass
}

fn options(limit: u64) -> Options {
    Options { work: 200, ..super::options(limit, None) }
}

fn plan_recording(recording: &Recording<'_>, options: &Options) -> Result<(Planned, Vec<Step>), Error> {
    let needed = recording.needed(options.limit < u64::MAX);
    let (mut words, mut indices) = (vec![7; needed.workspace.words], vec![7; needed.workspace.indices]);
    let len = needed.lengths;
    let mut steps = vec![Step::default(); len.timings];
    let output = Output {
        rows: &mut vec![Row::default(); len.rows],
        timings: &mut vec![Timing::default(); len.timings],
        blocks: &mut vec![Block::default(); len.residencies],
        names: &mut vec![Residency::default(); len.residencies],
        offsets: &mut vec![0; len.residencies],
    };
    let planned = plan(recording, options, Workspace::new(&mut words, &mut indices), output, &mut steps)?;
    steps.truncate(planned.steps);
    Ok((planned, steps))
}

#[test]
fn a_plan_computes_what_was_recorded() {
    let mut random = Random(1);
    let mut less = 0;
    for _ in 0..60 {
        let pass = training(&mut random);
        let stock = pass.run(None);
        let (planned, steps) = pass.plan(&options(u64::MAX)).unwrap();
        assert_eq!(pass.run(Some(&steps)), stock);
        assert!(steps.iter().all(|s| matches!(s.action, Action::Bind { .. })));
        assert!(planned.peak <= planned.planned_bytes + LINE * pass.accesses.len() as u64);
        less += usize::from(planned.peak < planned.planned_bytes);
    }
    assert!(less > 55, "{less}");
}

#[test]
fn within_a_limit_it_computes_the_same() {
    let mut random = Random(2);
    let (mut runs, mut copies) = (0, 0);
    for round in 0..60 {
        let pass = training(&mut random);
        let stock = pass.run(None);
        let mut asked = options(1);
        if round % 2 == 0 {
            let device = Device { out_latency: 0.0, in_latency: 0.0, ..Device::symmetric(1e9) };
            asked = Options { work: asked.work, ..super::options(1, Some(device)) };
            asked.using = Using::NONE.with(Means::Swap);
        }
        // What is needed at once, and the least limit that is known to work, if that is higher.
        let Err(Error::Impossible { needed, .. }) = pass.plan(&asked) else { panic!("one byte is enough") };
        asked.limit = needed;
        if let Err(Error::OverLimit { least, .. }) = pass.plan(&asked) {
            asked.limit = least;
        }
        let (planned, steps) = pass.plan(&asked).unwrap();
        assert!(planned.peak <= asked.limit);
        assert_eq!(pass.run(Some(&steps)), stock);
        runs += steps.iter().filter(|s| matches!(s.action, Action::Run { .. })).count();
        copies += steps.iter().filter(|s| matches!(s.action, Action::CopyIn { .. })).count();
    }
    assert!(runs > 20 && copies > 0, "{runs} runs, {copies} copies");
}

#[test]
fn two_residencies_that_share_memory_are_seen() {
    let mut random = Random(3);
    let (mut seen, mut spoiled) = (0, 0);
    for _ in 0..40 {
        let pass = training(&mut random);
        let stock = pass.run(None);
        let (_, steps) = pass.plan(&options(u64::MAX)).unwrap();
        let mut wrong = steps.clone();
        // All memories of the arena are bound to offset 0.
        for step in &mut wrong {
            if let Action::Bind { offset, .. } = &mut step.action {
                *offset = 0;
            }
        }
        spoiled += 1;
        seen += usize::from(pass.run(Some(&wrong)) != stock);
    }
    assert_eq!(seen, spoiled);
}

#[test]
fn what_is_read_first_stays() {
    let mut pass = Pass::default();
    let state = pass.memory(640, false, false);
    let own = pass.memory(640, false, false);
    pass.operator(1, true, &[(state, Use::Read), (own, Use::Write)]);
    pass.operator(1, true, &[(own, Use::Read), (state, Use::Write)]);
    let (planned, steps) = pass.plan(&options(u64::MAX)).unwrap();
    assert_eq!((planned.planned_bytes, planned.kept_bytes, steps.len()), (640, 640, 1));
}

fn layers(updated: bool) -> Pass {
    let n = 20;
    let mut pass = Pass::default();
    let data: Vec<u32> = (0..=n).map(|_| pass.memory(64, false, false)).collect();
    let weights: Vec<u32> = (0..n).map(|_| pass.memory(64, true, false)).collect();
    let gradients: Vec<u32> = (0..=n).map(|_| pass.memory(64, false, false)).collect();
    pass.operator(1, false, &[(data[0], Use::Overwrite)]);
    for i in 0..n {
        pass.operator(1, true, &[(data[i], Use::Read), (weights[i], Use::Read), (data[i + 1], Use::Overwrite)]);
    }
    pass.operator(1, true, &[(data[n], Use::Read), (gradients[n], Use::Overwrite)]);
    for i in (0..n).rev() {
        let reads = [gradients[i + 1], data[i], weights[i]].map(|memory| (memory, Use::Read));
        pass.operator(1, true, &[&reads[..], &[(gradients[i], Use::Overwrite)]].concat());
        pass.operator(
            1,
            true,
            &[(gradients[i + 1], Use::Read), (weights[i], if updated { Use::Write } else { Use::Read })],
        );
    }
    pass
}

#[test]
fn what_is_kept_takes_no_memory_of_the_arena() {
    for limit in [u64::MAX, 640, 320] {
        let [read, updated] = [false, true].map(|updated| layers(updated).plan(&options(limit)).unwrap());
        let runs = |steps: &[Step]| steps.iter().filter(|s| matches!(s.action, Action::Run { .. })).count();
        assert_eq!((updated.0.peak, runs(&updated.1)), (read.0.peak, runs(&read.1)), "{limit}");
        assert_eq!((updated.0.max_load, updated.0.original_load), (read.0.max_load, read.0.original_load), "{limit}");
        let ends = updated.1.iter().map(|s| if let Action::Bind { offset, .. } = s.action { offset + 64 } else { 0 });
        assert_eq!(ends.max(), Some(updated.0.peak), "{limit}");
    }
    let [read, updated] = [false, true].map(|updated| layers(updated).plan(&options(128)).unwrap_err());
    assert_eq!(read, updated);
}

#[test]
fn of_scratch_nothing_outlives_an_operator() {
    for (scratch, peak) in [(true, 640), (false, 1280)] {
        let mut pass = Pass::default();
        let between = pass.memory(640, false, false);
        let buffer = pass.memory(640, false, scratch);
        pass.operator(1, true, &[(buffer, Use::Write), (buffer, Use::Read)]);
        pass.operator(1, true, &[(between, Use::Write)]);
        pass.operator(1, true, &[(between, Use::Read)]);
        pass.operator(1, true, &[(buffer, Use::Write), (buffer, Use::Read)]);
        assert_eq!(pass.plan(&options(u64::MAX)).unwrap().0.peak, peak);
    }
    // An operator reads a scratch memory before it writes it.
    let mut pass = Pass::default();
    let buffer = pass.memory(640, false, true);
    pass.operator(1, true, &[(buffer, Use::Write)]);
    pass.operator(1, true, &[(buffer, Use::Read)]);
    let (_, steps) = pass.plan(&options(u64::MAX)).unwrap();
    assert_eq!(steps.len(), 1);
}

fn rerun(by_itself: Use, later: Use) -> Pass {
    let mut pass = Pass::default();
    let kept = pass.memory(64, true, false);
    let data = pass.memory(64, false, false);
    let [a, b, c] = [(); 3].map(|()| pass.memory(6400, false, false));
    pass.operator(1, false, &[(data, Use::Write)]);
    pass.operator(1, true, &[(kept, by_itself), (data, Use::Read), (a, Use::Write)]);
    pass.operator(1, true, &[(a, Use::Read), (b, Use::Write)]);
    pass.operator(1, true, &[(b, Use::Read), (c, Use::Write)]);
    pass.operator(1, true, &[(c, Use::Read), (kept, later)]);
    pass.operator(1, true, &[(a, Use::Read), (data, Use::Read)]);
    // An update of the kept memory after all other operators does not keep operator 1 from being recomputed.
    pass.operator(1, true, &[(kept, Use::Write)]);
    pass
}

#[test]
fn what_is_kept_is_updated_once_and_read_as_it_was() {
    let (planned, steps) = rerun(Use::Read, Use::Read).plan(&options(13_000)).unwrap();
    assert!(planned.peak <= 13_000 && steps.iter().any(|s| s.action == Action::Run { op: 1 }));
    // Operator 1 reads the memory as it was: it may be recomputed until operator 4 updates it, and not after.
    let (planned, steps) = rerun(Use::Read, Use::Write).plan(&options(13_000)).unwrap();
    let runs: Vec<u32> = steps.iter().filter(|s| s.action == Action::Run { op: 1 }).map(|s| s.before).collect();
    assert!(planned.peak <= 13_000 && !runs.is_empty() && runs.iter().all(|&before| before <= 4), "{runs:?}");
    for by_itself in [Use::Write, Use::Overwrite] {
        let found = rerun(by_itself, Use::Read).plan(&options(13_000));
        assert!(matches!(found, Err(Error::OverLimit { .. } | Error::Impossible { .. })), "{by_itself:?}");
    }
}

#[test]
fn memory_of_no_bytes_hinders_no_operator_unless_it_is_to_be_kept() {
    for (kept, again) in [(false, true), (true, false)] {
        let mut pass = rerun(Use::Read, Use::Read);
        let gone = pass.memory(0, kept, false);
        let first = pass.accesses.iter().position(|a| a.op == 1).unwrap();
        pass.accesses.insert(first, Access { op: 1, memory: gone, how: Use::Write });
        assert_eq!(pass.plan(&options(13_000)).is_ok(), again, "{kept}");
    }
}

#[test]
fn a_write_reads_what_is_left_of_the_iteration() {
    for (how, again) in [(Use::Write, false), (Use::Overwrite, true)] {
        let mut pass = Pass::default();
        let [a, b] = [pass.memory(640, false, false), pass.memory(6400, false, false)];
        pass.operator(1, true, &[(a, Use::Write)]);
        pass.operator(1, true, &[(b, Use::Write)]);
        pass.operator(1, true, &[(b, Use::Read)]);
        pass.operator(1, true, &[(a, how)]);
        pass.operator(1, true, &[(a, Use::Read)]);
        let is_read = |r: &Row| r.op == Op::First(3) && r.event == Event::Read;
        let reads = pass.record(LINE, |recording| Ok(recording.rows.iter().any(is_read)));
        assert_eq!(reads, Ok(!again));
    }
}

#[test]
fn an_operator_takes_its_time_whatever_it_uses() {
    let mut pass = Pass::default();
    let (kept, data) = (pass.memory(64, true, false), pass.memory(64, false, false));
    pass.operator(3, true, &[]);
    pass.operator(5, true, &[(data, Use::Write)]);
    pass.operator(70, true, &[]);
    pass.operator(900, true, &[(kept, Use::Read)]);
    pass.operator(20_000, true, &[(data, Use::Read)]);
    pass.operator(400_000, true, &[(kept, Use::Read)]);
    pass.operator(1_000_000, true, &[]);
    for limit in [u64::MAX, 64] {
        let time_ns = pass.plan(&options(limit)).unwrap().0.run.time_ns;
        assert!((time_ns - 1_420_978.0).abs() < 1e-9, "{limit}: {time_ns}");
    }
}

/// What an operator reads of itself is no read, nor is the first write to a scratch memory: both would keep it from
/// running again.
#[test]
fn an_operator_reads_only_what_others_have_written() {
    let mut pass = Pass::default();
    let (data, scratch) = (pass.memory(64, false, false), pass.memory(64, false, true));
    let [a, b, c] = [(); 3].map(|()| pass.memory(6400, false, false));
    let own = [(scratch, Use::Write), (scratch, Use::Read), (scratch, Use::Write)];
    pass.operator(1, false, &[(data, Use::Write)]);
    pass.operator(1, true, &[&own[..], &[(data, Use::Read), (a, Use::Write), (a, Use::Read)]].concat());
    pass.operator(1, true, &[&own[..], &[(a, Use::Read), (b, Use::Write)]].concat());
    pass.operator(1, true, &[(b, Use::Read), (c, Use::Write)]);
    pass.operator(1, true, &[(c, Use::Read)]);
    pass.operator(1, true, &[(a, Use::Read), (data, Use::Read)]);
    let accesses = |recording: &Recording<'_>| {
        let of = |op| move |r: &&Row| r.op == Op::First(op) && r.event.is_access();
        let told = |op| recording.rows.iter().filter(of(op)).map(|r| (recording.memories[r.block as usize], r.event));
        Ok([1, 2].map(|op| told(op).collect::<Vec<_>>()))
    };
    let [first, second] = pass.record(LINE, accesses).unwrap();
    assert_eq!(first, [(data, Event::Read), (scratch, Event::Write), (a, Event::Write)]);
    assert_eq!(second, [(a, Event::Read), (scratch, Event::Write), (b, Event::Write)]);
    let stock = pass.run(None);
    let (planned, steps) = pass.plan(&options(13_000)).unwrap();
    assert!(planned.peak <= 13_000 && steps.iter().any(|s| s.action == Action::Run { op: 1 }));
    assert_eq!(pass.run(Some(&steps)), stock);
}

/// Operator 1 makes a memory of zeros, operator 2 writes a part of it.
#[test]
fn what_others_write_later_is_not_made_anew_alone() {
    for (how, again) in [(Use::Write, &[1, 2][..]), (Use::Overwrite, &[2])] {
        let mut pass = Pass::default();
        let data = pass.memory(64, false, false);
        let [a, b, c] = [(); 3].map(|()| pass.memory(6400, false, false));
        pass.operator(1, false, &[(data, Use::Write)]);
        pass.operator(1, true, &[(a, Use::Overwrite)]);
        pass.operator(1, true, &[(data, Use::Read), (a, how)]);
        pass.operator(1, true, &[(a, Use::Read), (b, Use::Write)]);
        pass.operator(1, true, &[(b, Use::Read), (c, Use::Write)]);
        pass.operator(1, true, &[(c, Use::Read)]);
        pass.operator(1, true, &[(a, Use::Read), (data, Use::Read)]);
        let (planned, steps) = pass.plan(&options(13_000)).unwrap();
        let run = |step: &Step| if let Action::Run { op } = step.action { Some(op) } else { None };
        assert!(planned.peak <= 13_000);
        assert_eq!(steps.iter().filter_map(run).collect::<Vec<_>>(), again, "{how:?}");
    }
}

/// Each operator makes a memory, and reads one of the `back` before.
fn tangled(random: &mut Random, operators: u32, back: u64) -> Pass {
    let mut pass = Pass::default();
    for k in 0..operators {
        let own = pass.memory(1 + random.below(9000), false, false);
        let read = (own.saturating_sub(1 + random.below(back) as u32), Use::Read);
        let accesses = if k == 0 { vec![(own, Use::Write)] } else { vec![read, (own, Use::Write)] };
        pass.operator(1 + random.below(50), random.below(3) == 0, &accesses);
    }
    pass
}

#[test]
fn the_seed_and_the_work_decide_what_is_found() {
    let mut random = Random(4);
    let device = Device { out_latency: 0.0, in_latency: 0.0, ..Device::symmetric(1e12) };
    let (mut by_seed, mut by_seed_within, mut by_work) = (0, 0, 0);
    for _ in 0..4 {
        let long = tangled(&mut random, 150, 100);
        let planned = |seed| long.plan(&Options { seed, ..super::options(u64::MAX, None) }).unwrap();
        by_seed += usize::from(planned(1) != planned(2));
        let pass = tangled(&mut random, 120, 12);
        let limit = pass.plan(&options(u64::MAX)).unwrap().0.original_load * 7 / 10;
        let within = |seed, work| pass.plan(&Options { seed, work, ..super::options(limit, Some(device)) });
        by_seed_within += usize::from(within(1, 200) != within(2, 200));
        by_work += usize::from(within(1, 200) != within(1, 1));
    }
    assert!(by_seed > 0 && by_seed_within > 0 && by_work > 0, "{by_seed}, {by_seed_within}, {by_work}");
}

#[test]
fn accesses_that_cannot_be() {
    let mut pass = Pass::default();
    let a = pass.memory(64, false, false);
    pass.operator(1, true, &[(a, Use::Write)]);
    pass.operator(1, true, &[(a, Use::Read)]);
    let refused = |access: Access| {
        let mut wrong = Pass { accesses: pass.accesses.clone(), ..Pass::default() };
        wrong.memories.clone_from(&pass.memories);
        wrong.operators.clone_from(&pass.operators);
        wrong.accesses.push(access);
        wrong.plan(&options(u64::MAX)).unwrap_err()
    };
    let access = |op, memory| Access { op, memory, how: Use::Read };
    assert_eq!(refused(access(1, 1)), Error::Access { access: 2, fault: AccessFault::UnknownMemory });
    assert_eq!(refused(access(2, 0)), Error::Access { access: 2, fault: AccessFault::UnknownOperator });
    assert_eq!(refused(access(0, 0)), Error::Access { access: 2, fault: AccessFault::OutOfOrder });
    let odd = Options { alignment: 48, ..options(u64::MAX) };
    assert_eq!(pass.plan(&odd).unwrap_err(), Error::Alignment { block: None, alignment: 48 });
    assert_eq!(Pass::default().plan(&options(u64::MAX)).unwrap().0.peak, 0);
}

#[test]
fn a_plan_has_the_alignment_of_its_recording() {
    let mut pass = Pass::default();
    let a = pass.memory(100, true, false);
    let b = pass.memory(200, false, false);
    pass.operator(1, true, &[(a, Use::Read), (b, Use::Write)]);
    pass.operator(1, true, &[(b, Use::Read)]);
    let planned = |alignment| {
        let other = Options { alignment, ..options(u64::MAX) };
        pass.record(64, |recording| plan_recording(recording, &other))
    };
    assert_eq!(planned(64).unwrap().0.peak, 256);
    assert_eq!(planned(4096), planned(64));
}

#[test]
fn the_most_that_is_needed_is_enough_for_networks_of_few_memories() {
    let (rows, blocks) = (super::residency::most_rows(10_000), 5_000);
    let few = Needed::for_lengths(rows, blocks, Needed::unlimited(rows, blocks), false);
    let most = Needed::most(10_000, false);
    assert_eq!(most.workspace.max(few.workspace), most.workspace);
}
