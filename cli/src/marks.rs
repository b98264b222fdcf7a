//! What the means have done to the stays of a rewritten trace.

use std::collections::HashSet;

use sublet_core::VerifiedSchedule;
use sublet_core::trace::{Event, Op, Row};

use crate::problem::Trace;

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

/// The marks of each stay, in the order of the mallocs, as bits.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<u8>);

impl Marks {
    /// Of a schedule that was made from this trace.
    pub(crate) fn of(schedule: &VerifiedSchedule<'_>, trace: &Trace) -> Self {
        let workspaces: HashSet<u32> = Self::inside(&trace.rows).map(|(_, r)| r.block).collect();
        let rows = schedule.rows();
        // What is freed inside an operator that has no such row is handed over to what is allocated next.
        let takers: HashSet<usize> = Self::inside(rows)
            .filter(|(_, r)| r.event == Event::Free && !workspaces.contains(&r.block))
            .map(|(i, _)| i + 1)
            .collect();
        let mallocs = rows.iter().enumerate().filter(|(_, r)| r.event == Event::Malloc);
        let in_place = |i| if takers.contains(&i) { Mark::InPlace as u8 } else { 0 };
        Self(mallocs.map(|(i, r)| Self::by_row(r, trace.names.len()) | in_place(i)).collect())
    }

    /// The mallocs and frees between the accesses of an operator, and which rows they are.
    fn inside(rows: &[Row]) -> impl Iterator<Item = (usize, &Row)> {
        let access = |r: &&Row| matches!(r.event, Event::Read | Event::Write);
        let mut before = Op::None;
        rows.iter().enumerate().filter(move |&(i, r)| {
            if access(&r) {
                before = r.op;
                return false;
            }
            matches!(r.event, Event::Malloc | Event::Free)
                && before != Op::None
                && rows[i..].iter().find(access).is_some_and(|next| next.op == before)
        })
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
