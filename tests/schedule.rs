//! The verifier of rewritten traces against a judge that shares no code with it: they accept the same traces, with the
//! same times. Small networks are rewritten at random, by swaps, recomputation, masks and in-place reuse, and then
//! often spoiled.

use crate::judge;

use std::collections::HashMap;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;
use sublet_core::simulate::{Device, Run, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Recorded, Row};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Constraints, Error, Workspace};
use sublet_tests::instance;
use sublet_tests::rewritten::{Network, rewrite, spoil};

const CASES: usize = 4000;

/// A rewritten network with a plan.
struct Case {
    network: Network,
    rewritten: Vec<Row>,
    offsets: Vec<u64>,
    cyclic: bool,
}

impl Case {
    fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        let network = Network::draw(rng);
        let mut rewritten = network.rows.clone();
        for _ in 0..rng.random_range(1..=3) {
            rewrite(&network, &mut rewritten, rng);
        }
        if rng.random_ratio(1, 4) {
            spoil(&network, &mut rewritten, rng);
        }
        // The times of a rewritten trace are not used, but must not decrease.
        let mut now = 0;
        for r in &mut rewritten {
            now = now.max(r.time_ns);
            r.time_ns = now;
        }
        let offsets = offsets(&rewritten, rng);
        Self { network, rewritten, offsets, cyclic: rng.random_ratio(1, 2) }
    }

    fn recorded(&self) -> Recorded<'_> {
        self.network.recorded()
    }

    fn verify(&self) -> Result<(Run, u64), Error> {
        let (rewritten, recorded) = (&self.rewritten, self.recorded());
        let residencies = liveness::residencies(rewritten);
        let len = verify::schedule_workspace(recorded.rows.len(), recorded.blocks, residencies);
        let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
        let (mut blocks, mut names) = (vec![Block::default(); residencies], vec![Residency::default(); residencies]);
        let mut timings = vec![Timing::default(); rewritten.len()];
        let verified = verify::schedule(
            &recorded,
            rewritten,
            &self.offsets,
            (&Device::symmetric(12e9), self.cyclic),
            &Constraints::NONE,
            Workspace::new(&mut words, &mut indices),
            Room { timings: &mut timings, blocks: &mut blocks, names: &mut names },
        )?;
        Ok((*verified.run(), verified.plan().peak()))
    }

    fn json(&self) -> Value {
        judge::case(&self.recorded(), &self.rewritten, &self.offsets, self.cyclic)
    }
}

/// Offsets for the residencies. If a block is allocated right after another of its size is freed, it mostly gets the
/// offset of that one; otherwise it gets bytes of its own.
fn offsets(rows: &[Row], rng: &mut Xoshiro256PlusPlus) -> Vec<u64> {
    let mut end = 0;
    let mut current = HashMap::new();
    let mut offsets = Vec::new();
    let mut freed = None;
    for r in rows {
        if r.event == Event::Malloc {
            let own = freed.and_then(|b| current.get(&b).copied()).filter(|_| rng.random_ratio(9, 10));
            let offset = own.filter(|&(_, bytes)| bytes == r.bytes).map_or(end, |(offset, _)| offset);
            end = end.max(offset + r.bytes);
            current.insert(r.block, (offset, r.bytes));
            offsets.push(offset);
        }
        freed = (r.event == Event::Free).then_some(r.block);
    }
    offsets
}

#[test]
fn the_verifier_accepts_what_the_judge_accepts_and_takes_as_long() {
    const SKIPPED: &str = "the verifier of rewritten traces is not held against a judge";
    let mut rng = instance::rng(1);
    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut rng)).collect();
    let questions: Vec<Value> = cases.iter().map(Case::json).collect();
    let Some(verdicts) = judge::ask(SKIPPED, &questions) else {
        return;
    };
    let valid = verdicts.iter().flatten().count();
    assert!((CASES / 4..CASES * 3 / 4).contains(&valid), "{valid} of {CASES} cases are valid: too one-sided");
    let with = |key: &str| verdicts.iter().flatten().filter(|v| v[key].as_f64() > Some(0.0)).count();
    assert!(with("recomputed_ns") > CASES / 50 && with("swapped_bytes") > CASES / 50);
    for (case, verdict) in cases.iter().zip(verdicts) {
        let found = case.verify();
        let Some(verdict) = verdict else {
            assert!(found.is_err(), "accepted, but the judge refuses {}", case.json());
            continue;
        };
        let (run, footprint) = found.unwrap_or_else(|e| panic!("{e}, but the judge accepts {}", case.json()));
        assert_eq!(verdict["footprint"], footprint, "{}", case.json());
        assert_eq!(verdict["peak_load"], run.peak_load, "{}", case.json());
        assert_eq!(verdict["swapped_bytes"], run.swapped_bytes, "{}", case.json());
        assert_eq!(verdict["recomputed_ns"], run.recomputed_ns, "{}", case.json());
        let time = verdict["time_ns"].as_f64().unwrap();
        assert!((time - run.time_ns).abs() <= 1.0 + 1e-5 * time, "{} {}", run.time_ns, case.json());
    }
}
