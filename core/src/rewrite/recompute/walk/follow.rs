//! Scripts of runs whose order is given.
//!
//! Steps. Backwards over the runs, each value's last reader is found: what an operator writes without reading it begins
//! there. Then forwards, as the walk does, but that nothing is chosen: a value is freed directly after its last reader, and
//! what is not made again stays for as long as the walk would let it. Runs that read what is not there are no script.
//!
//! O(references of the runs), and as much workspace.

use super::{Step, Walk, Walked};
use crate::rewrite::graph::{Graph, Reference};
use crate::rewrite::recompute::mirror::Mirror;
use crate::rewrite::recompute::most_rows;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// What is known of the runs.
pub(in crate::rewrite::recompute) struct Lists<'a> {
    /// The segment of each operator.
    segment: Table<'a, u32>,
    /// By block: 1 + the last run that touches what it holds; first backwards, then forwards.
    last: Table<'a, u32>,
    /// 1 + the last run that touches what begins; what begins last comes first.
    until: Table<'a, u32>,
    begun: u32,
}

/// Length of the workspace of [`Lists`].
pub(in crate::rewrite::recompute) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: rows + blocks + most_rows(rows) }
}

impl<'a> Lists<'a> {
    pub(in crate::rewrite::recompute) fn new(graph: &Graph<'_>, scratch: &mut Workspace<'a>) -> Self {
        let rows = graph.rows.len();
        Self {
            segment: scratch.indices(rows),
            last: scratch.indices(graph.size.len()),
            until: scratch.indices(most_rows(rows)),
            begun: 0,
        }
    }

    /// Finds the segments of the operators.
    pub(in crate::rewrite::recompute) fn locate(&mut self, graph: &Graph<'_>, mirror: &Mirror<'_>) {
        let mut g = 0;
        for operator in 0..mirror.operators {
            while g + 1 < graph.segments && graph.first_row[g + 1] <= mirror.first_row(operator) {
                g += 1;
            }
            self.segment[operator] = g;
        }
    }

    /// Finds for each value that begins the last run that touches it; none if there is no room for them.
    fn find_last_uses(&mut self, graph: &Graph<'_>, mirror: &Mirror<'_>) -> Option<()> {
        self.last.fill(0);
        self.begun = 0;
        for i in (0..mirror.run_count()).rev() {
            let g = self.segment[mirror.run(i).0];
            for r in graph.references(g).filter(Reference::is_managed) {
                let last = self.last[r.block];
                self.last[r.block] = if last > 0 { last } else { i + 1 };
            }
            for r in graph.references(g).filter(|r| begins(graph, g, r)) {
                if usize::try_from(self.begun).map_or(true, |n| n >= self.until.len()) {
                    return None;
                }
                self.until[self.begun] = self.last[r.block];
                self.last[r.block] = 0;
                self.begun += 1;
            }
        }
        self.last.fill(0);
        Some(())
    }

    /// What begins with a segment has its last uses; how many bytes that is.
    fn begin(&mut self, graph: &Graph<'_>, g: u32) -> u64 {
        let beginning = || graph.references(g).filter(|r| begins(graph, g, r));
        self.begun = beginning().fold(self.begun, |begun, _| begun.saturating_sub(1));
        beginning().zip(self.begun..).fold(0, |bytes, (r, place)| {
            self.last[r.block] = self.until[place];
            graph.size[r.block].saturating_add(bytes)
        })
    }
}

/// Whether a segment writes a managed block that it does not read.
fn begins(graph: &Graph<'_>, g: u32, r: &Reference) -> bool {
    r.writes && r.is_managed() && graph.references(g).all(|other| other.writes || other.block != r.block)
}

impl Walk<'_> {
    /// Makes the script of the runs of a mirror; none if one reads what is not there, or there is no room for them.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times in ns"
    )]
    pub(in crate::rewrite::recompute) fn follow(
        &mut self,
        mirror: &Mirror<'_>,
        limit: u64,
        lists: &mut Lists<'_>,
    ) -> Option<Walked> {
        let graph = self.graph;
        lists.find_last_uses(graph, mirror)?;
        self.begin(limit, Walked::ANY);
        for i in 0..mirror.run_count() {
            let (operator, again) = mirror.run(i);
            let g = lists.segment[operator];
            let managed = Reference::is_managed;
            let missing = |r: Reference| managed(&r) && !r.writes && self.holds[r.block] != r.version + 1;
            if graph.references(g).any(missing) || again && !self.may_run_again(g) {
                return None;
            }
            let hands = graph.hands(g).filter(|_| self.in_place && !again);
            let new = lists.begin(graph, g);
            let handed = hands.filter(|&(giver, ..)| lists.last[giver] == i + 1).map_or(0, |hands| graph.size[hands.2]);
            let beside = if again { graph.local[g] } else { graph.most[g] };
            let load = self.load.wrapping_add(new.saturating_sub(handed)).wrapping_add(beside);
            let limit = self.limit.saturating_sub(self.held[self.now.min(graph.segments)]);
            if load.cast_signed() > limit.cast_signed() {
                self.walked.excess = self.walked.excess.max(load - limit);
            }
            for r in graph.references(g).filter(|r| managed(r) && r.writes) {
                self.put(r.block, r.version);
            }
            if again {
                self.recomputed += graph.duration[g] as f64;
                self.push(Step::Again(g))?;
            } else {
                self.load = self.load.wrapping_add(graph.left[g]);
                self.push(Step::First(g))?;
                self.now = g + 1;
            }
            for r in graph.references(g).filter(managed) {
                if lists.last[r.block] == i + 1 {
                    lists.last[r.block] = 0;
                    self.drop_block(r.block)?;
                }
            }
        }
        self.walked.delay = self.recomputed as u64;
        // Without accesses there are no runs, but rows all the same.
        (self.now == graph.segments).then_some(self.walked)
    }

    /// Whether a segment may run again, and what lives as recorded is still there for it.
    fn may_run_again(&self, g: u32) -> bool {
        let graph = self.graph;
        graph.may_run_again(g) && !graph.references(g).any(|r| !r.updated && graph.is_gone(&r, self.now))
    }
}
