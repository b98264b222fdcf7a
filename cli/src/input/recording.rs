//! Turns the events of an allocator that knows only addresses into a trace.
//!
//! When an address is allocated a second time, it is another block. A block that was allocated before the recording
//! began shows when it is freed, or at the end if it is still in use; its malloc is put before all other events. Blocks
//! are numbered in the order of their mallocs.

use std::collections::HashMap;

use sublet_core::trace::{Event, Op, Row};

use crate::problem::{BadRow, Problem};

/// The events so far.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The rows of all events. The blocks that were allocated during the recording are numbered from 0.
    late: Vec<Row>,
    /// How many blocks were allocated during the recording.
    late_blocks: u32,
    /// The sizes of blocks from before the recording.
    early: Vec<u64>,
    /// The rows in `late` that free a block from before the recording: their `block` is an index into `early`.
    early_frees: Vec<usize>,
    /// By address that was seen: the block from the recording that lies there now, if there is one.
    at: HashMap<u64, Option<u32>>,
    begin_ns: Option<u64>,
    now_ns: u64,
}

/// Why an event cannot follow the events before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The address is allocated already.
    AllocatedTwice,
    /// The address was freed already.
    FreedTwice,
    /// More events than 32 bits can count as steps.
    TooMany,
}

impl Recording {
    /// Adds the malloc of `address`. Times may be a little out of order, as threads write them: the order of the events
    /// counts. A block of no bytes is left out.
    pub(super) fn alloc(&mut self, time_ns: u64, address: u64, bytes: u64) -> Result<(), Fault> {
        if bytes == 0 {
            return Ok(());
        }
        if let Some(Some(_)) = self.at.get(&address) {
            return Err(Fault::AllocatedTwice);
        }
        let block = self.late_blocks;
        self.push(time_ns, Event::Malloc, block, bytes)?;
        self.at.insert(address, Some(block));
        self.late_blocks += 1;
        Ok(())
    }

    /// Adds the free of `address`, which has that many bytes.
    pub(super) fn free(&mut self, time_ns: u64, address: u64, bytes: u64) -> Result<(), Fault> {
        if bytes == 0 {
            return Ok(());
        }
        match self.at.insert(address, None) {
            Some(Some(block)) => self.push(time_ns, Event::Free, block, 0),
            Some(None) => Err(Fault::FreedTwice),
            None => {
                let early = u32::try_from(self.early.len()).map_err(|_| Fault::TooMany)?;
                self.early.push(bytes);
                self.early_frees.push(self.late.len());
                self.push(time_ns, Event::Free, early, 0)
            }
        }
    }

    /// Tells that `address` is in use when the recording ends, whether its malloc was seen or not. Returns whether the
    /// block was unknown.
    pub(super) fn in_use(&mut self, address: u64, bytes: u64) -> bool {
        let is_new = bytes > 0 && !self.at.contains_key(&address);
        if is_new {
            self.early.push(bytes);
            self.at.insert(address, None);
        }
        is_new
    }

    /// How many blocks are known from before the recording.
    pub(super) fn early(&self) -> usize {
        self.early.len()
    }

    /// Whether nothing was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.late.is_empty() && self.early.is_empty()
    }

    /// The trace, with the blocks from before the recording in front.
    pub(super) fn into_problem(mut self, name: &str) -> Result<Problem, BadRow> {
        let before = u32::try_from(self.early.len()).unwrap_or(u32::MAX);
        let mut early_frees = self.early_frees.iter().peekable();
        for (i, row) in self.late.iter_mut().enumerate() {
            if early_frees.next_if(|&&f| f == i).is_none() {
                row.block = row.block.saturating_add(before);
            }
        }
        let malloc = |(block, &bytes): (u32, &u64)| row(0, Event::Malloc, block, bytes);
        let mut rows: Vec<Row> = (0..).zip(&self.early).map(malloc).collect();
        rows.append(&mut self.late);
        let names = (0..before.saturating_add(self.late_blocks)).map(|n| n.to_string()).collect();
        Problem::of_trace(name, rows, names)
    }

    fn push(&mut self, time_ns: u64, event: Event, block: u32, bytes: u64) -> Result<(), Fault> {
        if u32::try_from(self.late.len() + self.early.len()).is_err() {
            return Err(Fault::TooMany);
        }
        let begin = *self.begin_ns.get_or_insert(time_ns);
        self.now_ns = self.now_ns.max(time_ns.saturating_sub(begin));
        self.late.push(row(self.now_ns, event, block, bytes));
        Ok(())
    }
}

fn row(time_ns: u64, event: Event, block: u32, bytes: u64) -> Row {
    Row { time_ns, bytes, block, op: Op::None, event }
}

impl Fault {
    /// What is wrong, with the address as the file writes it.
    pub(super) fn explain(self, address: &str) -> String {
        match self {
            Self::AllocatedTwice => format!("address {address} is allocated, but it is allocated already"),
            Self::FreedTwice => format!("address {address} is freed, but it was freed already"),
            Self::TooMany => "expected fewer events: they are counted in 32 bits".into(),
        }
    }
}
