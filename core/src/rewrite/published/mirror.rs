//! Recomputation by mirror counts: each operator is recomputed as often as its count says.
//!
//! Problem: given for each operator of the forward pass how often it may be recomputed, make a trace in which the
//! backward pass finds all that it reads.
//!
//! Paper: Chen et al. 2016, Algorithm 2. The paper builds a graph; here the graph is the recorded trace. The k-th run
//! of an operator reads the values of the k-th runs of those before it, or of their last runs if they have fewer. A
//! gradient reads those of the last runs.
//!
//! Steps: the forward pass runs as recorded. Before each operator of the backward pass come the runs that its inputs
//! need and that have not been made: lower runs first, in the order of the recording among themselves. Then, backwards
//! over the runs, each value's last reader is found. A block is allocated directly before the run that makes it and
//! freed directly after its last reader, if that comes before the value is recomputed.
//!
//! These are never recomputed: operators that may not be, such as random ones; accesses without an operator; operators
//! that change a block which is not managed, but for persistent blocks that they update, which the recomputation leaves
//! out; operators whose inputs are changed or freed before the last backward reader, or overwritten in place by another
//! operator. Operators that write to the same block are recomputed together. The results of what cannot be recomputed
//! are kept.
//!
//! The forward pass ends with the last operator that may be recomputed. Blocks that it makes, and that are freed in the
//! end, are managed here; all other rows are as recorded.
//!
//! Cost: O((depth + 1) · rows log rows), and as much workspace without the logarithm; depth is the largest mirror
//! count.

use crate::error::RowFault;
use crate::list::List;
use crate::rewrite::program::Program;
use crate::rewrite::writer::Writer;
use crate::table::{at, count, record};
use crate::trace::{Event, Kind, Op, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, sort};

/// The largest mirror count.
pub(in crate::rewrite) const DEEPEST: u32 = 31;

/// The bits that hold the number of a run; the operator is in the bits above.
const RUN_BITS: u32 = 5;

/// A mirror count within the limits.
pub(in crate::rewrite) const fn clamp(depth: u32) -> u32 {
    if depth == 0 {
        1
    } else if depth > DEEPEST {
        DEEPEST
    } else {
        depth
    }
}

record! {
    /// What is known of a block. Rows and operators are counted from 1, 0 is none.
    pub(in crate::rewrite) struct Value {
        /// Whether the forward pass makes it and it is freed in the end.
        pub(in crate::rewrite) managed: bool,
        /// The operator that makes it.
        pub(in crate::rewrite) maker: u32,
        /// The last operator of the forward pass that touches it.
        pub(in crate::rewrite) last_forward: u32,
        /// Whether the backward pass reads it.
        pub(in crate::rewrite) kept: bool,
        first_write: u32,
        last_write: u32,
    }
}

workspace! {
    pub(in crate::rewrite) struct Mirror<'a>(rows, blocks, depth; recorded: &Recorded<'a>, program: &'a Program<'a>) {
        tables {
            /// By operator: whether it cannot be recomputed.
            fixed: u32[rows],
            /// By operator: how often it is recomputed.
            count: u32[rows],
            /// By row of an access: its operator, and the next row that writes the same block, or 0.
            access: [u32; 2][rows],
            /// By operator: a bit for each run that has been made.
            made: u64[rows],
            /// The runs before an operator of the backward pass.
            batch: u32[(1 + depth) * rows],
            aside: u32[(1 + depth) * rows],
            /// By block: 1 + the last run that uses its present value.
            current: u32[blocks],
            change: u32[blocks],
        }
        records {
            /// By block.
            value: Value[blocks],
        }
        lists {
            /// The runs in their order: twice the operator, and 1 if it is recomputed.
            run: u32[(1 + depth) * rows],
            /// By value: the last run that uses it; the value that is made last comes first.
            until: u32[(1 + depth) * rows],
        }
        state {
            recorded: Recorded<'a> = *recorded,
            pub(in crate::rewrite) program: &'a Program<'a> = program,
            /// How many operators there are, and how many of them are in the forward pass.
            pub(in crate::rewrite) operators: u32 = 0,
            pub(in crate::rewrite) forward: u32 = 0,
        }
    }
}

/// An operator's run as a number: `rerun` says that it is recomputed.
pub(in crate::rewrite) const fn run_of(operator: u32, rerun: bool) -> u32 {
    2 * operator + rerun as u32
}

/// The operator of a run, and whether it is recomputed.
pub(in crate::rewrite) fn run(runs: &List<'_, u32>, i: u32) -> (u32, bool) {
    let run = runs.at(i).unwrap_or(0);
    (run / 2, !run.is_multiple_of(2))
}

impl<'a> Mirror<'a> {
    /// Finds the forward pass and the values of a program, which was made from these rows.
    pub(in crate::rewrite) fn new(
        recorded: &Recorded<'a>,
        program: &'a Program<'a>,
        depth: u32,
        scratch: &mut Workspace<'a>,
    ) -> Result<Self, Error> {
        let (rows, blocks) = (program.rows.len(), program.size.len());
        if u32::try_from(rows).map_or(true, |n| n >= 1 << (u32::BITS - RUN_BITS)) {
            return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
        }
        let mut mirror = Self::lend(rows, blocks, usize::try_from(depth).unwrap_or(0), recorded, program, scratch);
        mirror.find_operators();
        mirror.find_values();
        mirror.find_fixed();
        Ok(mirror)
    }

    pub(in crate::rewrite) fn value(&self, block: u32) -> Value {
        self.value.get(block)
    }

    /// The runs in their order; [`run`] reads them.
    pub(in crate::rewrite) const fn runs(&self) -> &List<'a, u32> {
        &self.run
    }

    /// What an operator computes.
    pub(in crate::rewrite) fn kind(&self, operator: u32) -> Kind {
        self.recorded.operator(self.program.op(operator)).kind
    }

    /// Sets how often an operator may be recomputed.
    pub(in crate::rewrite) fn set_count(&mut self, operator: u32, count: u32) {
        self.count[operator] = if self.fixed[operator] > 0 { 0 } else { count.min(DEEPEST) };
    }

    /// Whether a block that the forward pass makes is never recomputed.
    pub(in crate::rewrite) fn is_kept(&self, block: u32) -> bool {
        let value = self.value(block);
        value.managed && self.count[value.maker - 1] == 0
    }

    /// Lowers the mirror counts of the operators that make a block to `most`.
    pub(in crate::rewrite) fn lower_count(&mut self, block: u32, most: u32) {
        let mut row = self.value(block).first_write;
        while row > 0 {
            let [operator, next] = self.access[row - 1];
            self.count[operator] = self.count[operator].min(most);
            row = next;
        }
    }

    /// The block that this row makes, if it is managed.
    pub(in crate::rewrite) fn made_in(&self, row: u32) -> Option<u32> {
        let block = at(self.program.rows, row).block;
        let value = self.value(block);
        (value.managed && value.first_write == row + 1).then_some(block)
    }

    /// Finds the forward pass, and to which operator each access belongs.
    fn find_operators(&mut self) {
        self.operators = self.program.accessing;
        for operator in 0..self.operators {
            let op = self.program.op(operator);
            if matches!(op, Op::First(_)) && self.recorded.operator(op).rerun {
                self.forward = operator + 1;
            }
            for row in self.program.access_rows(operator) {
                self.access[row][0] = operator;
            }
        }
    }

    fn find_values(&mut self) {
        let rows = self.program.rows;
        for operator in 0..self.operators {
            let forward = operator < self.forward;
            for row in self.program.access_rows(operator) {
                let r = at(rows, row);
                let mut v = self.value(r.block);
                let touched = self.current[r.block] > 0;
                self.current[r.block] = 1;
                match r.event {
                    Event::Write if forward => {
                        if v.last_write > 0 {
                            self.access[v.last_write - 1][1] = row + 1;
                        } else {
                            (v.first_write, v.maker) = (row + 1, operator + 1);
                        }
                        v.managed |= !touched;
                        (v.last_write, v.last_forward) = (row + 1, operator + 1);
                    }
                    // A block that the backward pass writes, or whose first access is not a write, is not managed.
                    Event::Write => self.change[r.block] = 1,
                    _ if forward => v.last_forward = operator + 1,
                    _ => v.kept = true,
                }
                self.value.set(r.block, v);
            }
        }
        // Of the others, those that are freed, and not by the operator that makes them, are managed.
        for (row, r) in (0u32..).zip(rows).filter(|(_, r)| r.event == Event::Free) {
            let v = self.value(r.block);
            let workspace = v.maker > 0 && row < self.program.span(v.maker - 1)[1];
            self.change[r.block] |= if workspace { 1 } else { 2 };
        }
        for block in (0u32..).take(self.program.size.len()) {
            let v = self.value(block);
            self.value.set(block, Value { managed: v.managed && self.change[block] == 2, ..v });
        }
    }

    fn find_fixed(&mut self) {
        let rows = self.program.rows;
        let mut quiet = 0;
        for (row, r) in (0u32..).zip(rows) {
            if r.event == Event::Read && self.value(r.block).managed {
                quiet = row;
            }
        }
        // The next row that writes or frees each block, counted from 1.
        self.change.fill(0);
        let mut operator = self.operators;
        for row in (0..count(rows)).rev() {
            let r = at(rows, row);
            if operator > 0 && self.program.span(operator - 1)[1] == row + 1 {
                operator -= 1;
                self.fixed[operator] = u32::from(!self.may_recompute(operator, quiet));
            }
            if matches!(r.event, Event::Write | Event::Free) {
                self.change[r.block] = row + 1;
            }
        }
    }

    /// Whether an operator gives the same result at any time up to the row `quiet`, and changes nothing else.
    fn may_recompute(&self, operator: u32, quiet: u32) -> bool {
        let rows = self.program.rows;
        let [first, end] = self.program.span(operator);
        let op = self.program.op(operator);
        let may = matches!(op, Op::First(_)) && self.recorded.operator(op).rerun;
        let touches = |event: Event, block: u32| {
            self.program.access_rows(operator).any(|row| (at(rows, row).event, at(rows, row).block) == (event, block))
        };
        let own = |block: u32| {
            let has = |event| (first..end).any(|row| (at(rows, row).event, at(rows, row).block) == (event, block));
            has(Event::Malloc) && has(Event::Free)
        };
        may && self.program.access_rows(operator).all(|row| {
            let r = at(rows, row);
            let v = self.value(r.block);
            let changes = self.change[r.block] > 0 && self.change[r.block] <= quiet + 1;
            if v.managed {
                // All writers of a block run together, but no other operator may read what it held in between.
                touches(Event::Write, r.block) || v.last_write <= end
            } else if own(r.block) {
                true
            } else if touches(Event::Write, r.block) {
                self.program.is_persistent(r.block) && touches(Event::Read, r.block)
            } else {
                !changes
            }
        })
    }

    /// Makes mirror counts agree: operators that write to the same block get the same count.
    pub(in crate::rewrite) fn settle(&mut self) {
        loop {
            let mut lowered = false;
            for operator in 0..self.forward {
                let count = self.count[operator];
                for row in self.program.access_rows(operator) {
                    let r = at(self.program.rows, row);
                    let v = self.value(r.block);
                    if r.event != Event::Write || !v.managed || v.first_write == v.last_write {
                        continue;
                    }
                    let mut write = v.first_write;
                    while write > 0 {
                        let [other, next] = self.access[write - 1];
                        if self.count[other] > count {
                            self.count[other] = count;
                            lowered = true;
                        }
                        write = next;
                    }
                }
            }
            if !lowered {
                break;
            }
        }
    }

    /// Makes the order of the runs.
    pub(in crate::rewrite) fn order(&mut self) {
        self.made.fill(0);
        self.run.clear();
        for operator in 0..self.operators {
            if operator >= self.forward {
                self.runs_before(operator);
            }
            self.run.push(run_of(operator, false));
        }
    }

    /// Adds the runs that an operator of the backward pass needs.
    fn runs_before(&mut self, operator: u32) {
        let mut batch = self.ask(operator, u32::MAX, 0);
        let mut asked = 0;
        while asked < batch {
            let run = self.batch[asked];
            batch = self.ask(run >> RUN_BITS, run & DEEPEST, batch);
            asked += 1;
        }
        let key = |run: u32| u64::from(run & DEEPEST) << u32::BITS | u64::from(run >> RUN_BITS);
        sort::by_key(&mut self.batch, batch, &mut self.aside, key);
        for k in 0..batch {
            let operator = self.batch[k] >> RUN_BITS;
            self.run.push(run_of(operator, true));
        }
    }

    /// Adds to the batch the runs that make the blocks which an operator accesses, for its run of this number.
    fn ask(&mut self, operator: u32, run: u32, mut batch: u32) -> u32 {
        for row in self.program.access_rows(operator) {
            let v = self.value(at(self.program.rows, row).block);
            let mut write = if v.managed { v.first_write } else { 0 };
            while write > 0 {
                let [maker, next] = self.access[write - 1];
                let of_maker = run.min(self.count[maker]);
                if of_maker > 0 && self.made[maker] >> of_maker == 0 {
                    self.made[maker] |= 1 << of_maker;
                    self.batch[batch] = maker << RUN_BITS | of_maker;
                    batch += 1;
                }
                write = next;
            }
        }
        batch
    }

    /// Writes the rows of the runs.
    pub(in crate::rewrite) fn write(&mut self, out: &mut [Row]) -> Result<usize, Error> {
        self.find_last_uses();
        let rows = self.program.rows;
        let mut writer = Writer::new(out);
        // The rows of the recording are written up to here.
        let mut next = 0;
        for i in 0..self.run.len() {
            let (operator, rerun) = run(&self.run, i);
            let [first, end] = self.program.span(operator);
            // Recomputed operators come after the frees of the operator before, and before the mallocs of the next.
            while next < (if rerun { u32::MAX } else { first }) && next < count(rows) {
                let r = at(rows, next);
                let managed = self.value(r.block).managed;
                if rerun && (r.event.is_access() || r.event == Event::Malloc && !managed) {
                    break;
                }
                if !managed {
                    writer.push(r);
                }
                next += 1;
            }
            let op = match self.program.op(operator) {
                Op::First(k) if rerun => Op::Rerun(k),
                op => op,
            };
            for row in self.program.access_rows(operator) {
                if let Some(block) = self.made_in(row) {
                    self.current[block] = self.until.pop().unwrap_or(0);
                    writer.event(Event::Malloc, block, self.program.size[block], op);
                }
            }
            if rerun {
                self.write_recomputed(operator, op, &mut writer);
            } else {
                for row in first..end {
                    let r = at(rows, row);
                    if r.event.is_access() || !self.value(r.block).managed {
                        writer.push(r);
                    }
                }
                next = end;
            }
            for row in self.program.access_rows(operator) {
                let block = at(rows, row).block;
                if self.current[block] == i + 1 {
                    self.current[block] = 0;
                    writer.event(Event::Free, block, 0, Op::None);
                }
            }
        }
        for row in next..count(rows) {
            let r = at(rows, row);
            if !self.value(r.block).managed {
                writer.push(r);
            }
        }
        writer.end()
    }

    fn write_recomputed(&self, operator: u32, op: Op, writer: &mut Writer<'_>) {
        let rows = self.program.rows;
        let [first, end] = self.program.span(operator);
        for row in first..end {
            let r = at(rows, row);
            let of_block = |event| {
                let same = move |row| (at(rows, row).event, at(rows, row).block) == (event, r.block);
                (first..end).any(same)
            };
            let access = r.event.is_access();
            let updated =
                access && self.program.is_persistent(r.block) && of_block(Event::Read) && of_block(Event::Write);
            if !updated && (access || !self.value(r.block).managed) {
                writer.event(r.event, r.block, r.bytes, op);
            }
        }
    }

    /// Finds for each block that a run makes the last run that uses the value.
    fn find_last_uses(&mut self) {
        self.current.fill(0);
        self.until.clear();
        for i in (0..self.run.len()).rev() {
            for row in self.program.access_rows(run(&self.run, i).0).rev() {
                let block = at(self.program.rows, row).block;
                let v = self.value(block);
                if !v.managed {
                    continue;
                }
                if self.current[block] == 0 {
                    self.current[block] = i + 1;
                }
                if v.first_write == row + 1 {
                    self.until.push(self.current[block]);
                    self.current[block] = 0;
                }
            }
        }
    }
}
