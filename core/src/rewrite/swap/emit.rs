//! From positions to rows.
//!
//! The rows of the original stay, in their order; copies, frees and mallocs come at the boundaries. A block that is away
//! at the start is not allocated there.

use super::schedule::{Action, Schedule};
use crate::rewrite::writer::Writer;
use crate::table::{Table, at};
use crate::trace::{Event, Op, Row};
use crate::{Error, Workspace, WorkspaceLen};

/// Length of the workspace of [`rows`].
pub(super) const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: blocks }
}

/// Writes the rows of a schedule to `out` and returns how many they are; copies have the time of the row above
/// them until the trace is simulated. `begin` gets the row with which each segment begins, and the number of rows.
///
/// # Errors
/// [`Error::BufferTooSmall`] if `out` is too short.
pub(super) fn rows(
    schedule: &mut Schedule<'_>,
    begin: &mut Table<'_, u32>,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<usize, Error> {
    let c = schedule.candidates();
    let mut away_at_start = scratch.indices(c.size.len());
    for &gap in schedule.used() {
        let g = c.gap(gap);
        if schedule.is_away_at_start(gap, &g) {
            away_at_start[g.block] = 1;
        }
    }
    let mut writer = Writer::new(out);
    schedule.run(f64::INFINITY, |action| match action {
        Action::Segments(from, to) => {
            for g in from..to {
                begin[g] = u32::try_from(writer.len()).unwrap_or(u32::MAX);
                for row in c.first_row[g]..c.first_row[g + 1] {
                    let r = at(c.rows, row);
                    if r.event != Event::Malloc || away_at_start[r.block] == 0 {
                        writer.push(r);
                    }
                }
            }
        }
        Action::Out(version) => writer.event(Event::SwapOut, c.version(version).block, 0, Op::None),
        Action::Free(gap) => writer.event(Event::Free, c.gap(gap).block, 0, Op::None),
        Action::In(gap) => {
            let g = c.gap(gap);
            writer.event(Event::Malloc, g.block, c.size[g.block], Op::None);
            if g.kind.returns() {
                writer.event(Event::SwapIn, g.block, 0, Op::None);
            }
        }
    });
    begin[c.segments] = u32::try_from(writer.len()).unwrap_or(u32::MAX);
    writer.end()
}
