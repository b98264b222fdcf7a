//! What the means have done to the stays of a rewritten trace.

use sublet_core::VerifiedSchedule;
use sublet_core::trace::{Event, Op, Row, liveness};

use crate::scratch::Scratch;

/// What is special about a stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Its value is made again by an operator that runs again.
    Again = 1,
    /// It is a mask of a rectifier, a bit for each element of its block.
    Mask = 2,
    /// It takes over the memory of another in place.
    InPlace = 4,
}

impl Mark {
    pub(crate) const ALL: [Self; 3] = [Self::Again, Self::Mask, Self::InPlace];
}

/// The marks of each stay, in the order of the mallocs, as bits.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<u8>);

impl Marks {
    /// Of a schedule whose blocks are numbered below `blocks`, and their masks from there on.
    pub(crate) fn of(schedule: &VerifiedSchedule<'_>, blocks: usize) -> Self {
        let rows = schedule.rows();
        let mallocs = rows.iter().filter(|r| r.event == Event::Malloc);
        let mut marks: Vec<u8> = mallocs.map(|r| Self::by_row(r, blocks)).collect();
        let mut lives = schedule.plan().blocks().to_vec();
        let mut part_of = vec![0; marks.len()];
        let mut scratch = Scratch::of(liveness::merge_workspace(2 * blocks));
        // The rows were verified, and so have stays.
        if liveness::merge(rows, 2 * blocks, scratch.lend(), &mut lives, &mut part_of).is_ok() {
            let mut seen = vec![false; marks.len()];
            for (mark, &part_of) in marks.iter_mut().zip(&part_of) {
                if std::mem::replace(&mut seen[part_of as usize], true) {
                    *mark |= Mark::InPlace as u8;
                }
            }
        }
        Self(marks)
    }

    fn by_row(malloc: &Row, blocks: usize) -> u8 {
        let again = if matches!(malloc.op, Op::Again(_)) { Mark::Again as u8 } else { 0 };
        again | if malloc.block as usize >= blocks { Mark::Mask as u8 } else { 0 }
    }

    /// The bits of each stay.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.0
    }

    /// How many stays have a mark.
    pub(crate) fn count(&self, mark: Mark) -> usize {
        self.0.iter().filter(|&&bits| bits & mark as u8 > 0).count()
    }
}
