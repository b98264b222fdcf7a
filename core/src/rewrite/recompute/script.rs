//! What runs, runs again and is freed, one after the other.

use crate::Workspace;
use crate::table::Table;

/// What a step of a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A segment runs as recorded.
    First(u32),
    /// A segment runs again.
    Again(u32),
    /// A managed block is freed.
    Free(u32),
}

impl Step {
    const fn of(bits: u32) -> Self {
        match bits & !WHICH {
            AGAIN => Self::Again(bits & WHICH),
            FREE => Self::Free(bits & WHICH),
            _ => Self::First(bits & WHICH),
        }
    }
}

/// Steps as they are kept: what, and which.
const AGAIN: u32 = 1 << 30;
const FREE: u32 = 2 << 30;
const WHICH: u32 = AGAIN - 1;

/// Steps that were taken.
pub(super) struct Script<'a> {
    steps: Table<'a, u32>,
    len: u32,
}

impl<'a> Script<'a> {
    pub(super) fn new(rows: usize, scratch: &mut Workspace<'a>) -> Self {
        Self { steps: scratch.indices(super::most_steps(rows)), len: 0 }
    }

    /// False if there is no room for another step.
    pub(super) fn push(&mut self, step: Step) -> bool {
        let room = usize::try_from(self.len).is_ok_and(|len| len < self.steps.len());
        if room {
            self.steps[self.len] = match step {
                Step::First(g) => g,
                Step::Again(g) => AGAIN | g,
                Step::Free(b) => FREE | b,
            };
            self.len += 1;
        }
        room
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn capacity(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.steps.first(self.len).iter().map(|&step| Step::of(step))
    }

    /// A step of the script.
    pub(super) fn step(&self, i: u32) -> Option<Step> {
        (i < self.len).then(|| Step::of(self.steps[i]))
    }

    pub(super) fn copy(&mut self, other: &Self) {
        for i in 0..other.len {
            self.steps[i] = other.steps[i];
        }
        self.len = other.len;
    }
}
