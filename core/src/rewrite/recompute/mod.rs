//! Recomputation: values are freed and made again by the operators that made them.

mod walk;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::graph::{Graph, Owner};
use super::writer::Writer;
use crate::table::Table;
use crate::trace::{Event, Op, Row};
use crate::{Error, Workspace, WorkspaceLen};
pub(super) use walk::{Absence, Walked};
use walk::{Script, Step, Taste, Walk};

/// The most rows that a rewritten trace has.
pub(super) const fn most_rows(rows: usize) -> usize {
    4 * rows
}

/// The most steps of a script.
const fn most_steps(rows: usize) -> usize {
    most_rows(rows)
}

/// Length of the workspace of a [`Recomputer`] for a trace of so many rows and block numbers.
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    walk::workspace(rows, blocks)
        .and(WorkspaceLen { words: blocks, indices: most_steps(rows) })
}

/// Length of the workspace of [`Recomputer::rows`].
pub(super) const fn rows_workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 2 * blocks }
}

/// Powers of the distance, and parts of what is owed, that are tried.
const TASTES: [Taste; 9] = {
    const fn taste(distance: u32, owed: f64) -> Taste {
        Taste { distance, owed }
    }
    [
        taste(2, 0.5),
        taste(1, 0.5),
        taste(0, 0.5),
        taste(2, 1.0),
        taste(1, 1.0),
        taste(0, 1.0),
        taste(2, 0.1),
        taste(1, 0.1),
        taste(0, 0.1),
    ]
};

/// How often a walk is repeated with the virtual uses of the one before.
const ROUNDS: u32 = 4;

/// The least limit is told up to the original peak over 2 to the power of this.
const NEAR: u32 = 9;

/// The pass at work.
pub(super) struct Recomputer<'a> {
    graph: &'a Graph<'a>,
    walk: Walk<'a>,
    /// The best script for the last limit.
    best: Script<'a>,
    /// The weights before they are disturbed.
    kept: Table<'a, u64>,
    random: SplitMix64,
}

impl<'a> Recomputer<'a> {
    pub(super) fn new(graph: &'a Graph<'a>, least: u64, seed: u64, scratch: &mut Workspace<'a>) -> Self {
        let (rows, blocks) = (graph.rows.len(), graph.size.len());
        Self {
            graph,
            walk: Walk::new(graph, least, scratch),
            best: Script::new(rows, scratch),
            kept: scratch.words(blocks),
            random: SplitMix64::seed_from_u64(seed),
        }
    }

    /// What is held back from the limit, by segment.
    pub(super) fn held(&mut self) -> &mut Table<'a, u64> {
        self.walk.hold()
    }

    pub(super) fn clear_absences(&mut self) {
        self.walk.clear_absences();
    }

    pub(super) fn add_absence(&mut self, absence: Absence) {
        self.walk.add_absence(absence);
    }

    /// Makes the best script found for a limit by about `work`.
    pub(super) fn plan(&mut self, limit: u64, work: u64) -> Option<Walked> {
        let rank = |w: &Walked| (w.excess, w.recomputed);
        let mut least: Option<Walked> = None;
        let mut best_taste = TASTES[0];
        let mut best_round = 0;
        self.walk.work = 0;
        self.walk.weight().fill(f64::to_bits(1.0));
        for taste in TASTES {
            self.walk.forget();
            for round in 0..ROUNDS {
                let Some(found) = self.walk.walk(taste, limit) else { break };
                if least.is_none_or(|least| rank(&found) < rank(&least)) {
                    least = Some(found);
                    (best_taste, best_round) = (taste, round);
                    self.best.copy(self.walk.script());
                }
                if found == Walked::default() {
                    return least;
                }
                self.walk.remember();
            }
            if self.walk.work > work {
                break;
            }
        }
        let mut least = least?;
        // Back to where the best was found.
        self.walk.forget();
        for _ in 0..=best_round {
            self.walk.walk(best_taste, limit)?;
            self.walk.remember();
        }
        let mut present = least;
        while self.walk.work < work {
            self.disturb();
            let found = self.walk.walk(best_taste, limit);
            match found {
                Some(found) if rank(&found) <= rank(&present) => {
                    present = found;
                    self.walk.remember();
                    if rank(&found) < rank(&least) {
                        least = found;
                        self.best.copy(self.walk.script());
                    }
                }
                _ => self.restore_weights(),
            }
        }
        Some(least)
    }

    /// Makes the script of the least limit below `most` that one taste reaches: halves what lies between.
    pub(super) fn least(&mut self, most: u64) -> Option<u64> {
        let (mut low, mut high) = (0, most);
        let mut least = None;
        self.walk.weight().fill(f64::to_bits(1.0));
        while high - low > most >> NEAR {
            let limit = low + (high - low) / 2;
            self.walk.forget();
            let mut found = false;
            for _ in 0..ROUNDS {
                found = self.walk.walk(TASTES[0], limit).is_some_and(|walked| walked.excess == 0);
                if found {
                    break;
                }
                self.walk.remember();
            }
            if found {
                (high, least) = (limit, Some(limit));
                self.best.copy(self.walk.script());
            } else {
                low = limit;
            }
        }
        least
    }

    /// Other weights for some blocks.
    fn disturb(&mut self) {
        let weight = self.walk.weight();
        let blocks = u32::try_from(weight.len()).unwrap_or(u32::MAX);
        for b in 0..blocks {
            self.kept[b] = weight[b];
        }
        // From one block to a part of all.
        let share = self.random.next_u64() % 5;
        let mut i = 0;
        while i < blocks {
            let random = self.random.next_u64();
            let unit = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
            weight[i] = f64::to_bits(f64::from_bits(weight[i]) * libm::exp(2.0 * unit - 1.0));
            let stride = blocks >> (2 * share).min(8);
            i += 1 + u32::try_from(random & 0xffff_ffff).unwrap_or(0) % stride.max(1);
        }
    }

    fn restore_weights(&mut self) {
        let weight = self.walk.weight();
        for b in 0..u32::try_from(weight.len()).unwrap_or(u32::MAX) {
            weight[b] = self.kept[b];
        }
    }

    /// Writes the rows of the best script and returns how many they are; what runs again has the time of the row above
    /// it.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if `out` is too short.
    pub(super) fn rows(&self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        let mut scratch = scratch;
        let graph = self.graph;
        let blocks = graph.size.len();
        let mut writer = Writer::new(out);
        let mut there = scratch.indices(blocks);
        let mut left_out = scratch.indices(blocks);
        for step in self.best.steps() {
            let (g, again) = match step {
                Step::First(g) => (g, false),
                Step::Again(g) => (g, true),
                Step::Free(block) => {
                    there[block] = 0;
                    writer.event(Event::Free, block, 0, Op::None);
                    continue;
                }
            };
            let op = graph.rows_of(g).find(|r| r.event.is_access()).map_or(Op::None, |r| r.op);
            let op = if let (true, Op::First(k)) = (again, op) { Op::Again(k) } else { op };
            for r in graph.references(g) {
                if r.writes && graph.is_managed(r.block) && there[r.block] == 0 {
                    there[r.block] = 1;
                    writer.event(Event::Malloc, r.block, graph.size[r.block], op);
                }
                left_out[r.block] = u32::from(again && r.updated);
            }
            for r in graph.rows_of(g) {
                let stays = match (r.event, graph.owner(r.block)) {
                    (Event::Malloc | Event::Free, Owner::Managed) => false,
                    (Event::Malloc | Event::Free, Owner::Recorded) => !again,
                    (Event::Malloc | Event::Free, Owner::Local) => true,
                    _ => left_out[r.block] == 0,
                };
                if stays && again {
                    let op = if r.op == Op::None { Op::None } else { op };
                    writer.event(r.event, r.block, r.bytes, op);
                } else if stays {
                    writer.push(r);
                }
            }
        }
        writer.end()
    }
}
