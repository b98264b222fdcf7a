//! Operators that run again so often as their mirror counts say.
//!
//! Problem: given for each operator of the forward pass how often it may run again, a trace in which the backward pass
//! finds what it reads.
//!
//! Paper: Chen et al. 2016, Algorithm 2. The paper builds a graph; here the graph is the recorded trace: the k-th run of an
//! operator reads the k-th runs of those before it, or their last ones where they have fewer, and a gradient reads the last
//! run of each.
//!
//! Steps: the forward pass runs as recorded. Before each operator of the backward pass come those runs that its inputs ask
//! for and that have not been made, lower runs first, and in the order of the recording among themselves. Then, backwards
//! over the runs, each value's last reader is found: a block is allocated directly before the run that makes it and freed
//! directly after its last reader, if that reads before the value is made once more.
//!
//! Never run again: operators that may not (random ones); accesses without an operator; those that change a block that
//! stays, but for persistent blocks that they update, which the second run leaves out; those that read what has been
//! changed or freed before the last backward reader, or what another operator then overwrites in place. Operators that
//! write to the same block run again together. What cannot run again keeps its results.
//!
//! The forward pass ends with the last operator that may run again. Blocks that it makes and that are freed in the end are
//! managed here; all other rows stay as they are.
//!
//! Cost: O((depth + 1) · rows log rows), and as much workspace without the logarithm; depth is the largest mirror count.

use crate::error::RowFault;
use crate::rewrite::writer::Writer;
use crate::table::{Table, at, count};
use crate::trace::recorded;
use crate::trace::{Event, Kind, Op, Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen, sort};

/// The largest mirror count.
pub(in crate::rewrite) const DEEPEST: u32 = 31;

/// A run is numbered in this many bits, after the operator.
const RUN_BITS: u32 = 5;

/// The largest mirror count that is asked for, within what there is.
pub(in crate::rewrite) const fn clamp(depth: u32) -> u32 {
    if depth == 0 {
        1
    } else if depth > DEEPEST {
        DEEPEST
    } else {
        depth
    }
}

pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize, depth: u32) -> WorkspaceLen {
    let runs = (1 + clamp(depth) as usize) * rows;
    WorkspaceLen { words: blocks + rows, indices: 6 * rows + 9 * blocks + 4 * runs }
}

/// What is known of a block. Rows and operators are counted from 1, 0 is none.
#[derive(Clone, Copy, Default)]
pub(in crate::rewrite) struct Value {
    /// It is made by the forward pass and freed in the end.
    pub(in crate::rewrite) managed: bool,
    /// The operator that makes it.
    pub(in crate::rewrite) maker: u32,
    /// The last operator of the forward pass that touches it.
    pub(in crate::rewrite) last_forward: u32,
    /// The backward pass reads it.
    pub(in crate::rewrite) kept: bool,
    first_write: u32,
    last_write: u32,
}

pub(in crate::rewrite) struct Mirror<'a> {
    recorded: Recorded<'a>,
    /// How many operators there are, and how many of them are in the forward pass.
    pub(in crate::rewrite) operators: u32,
    pub(in crate::rewrite) forward: u32,
    /// By operator: its first row, and the row after its last.
    span: Table<'a, [u32; 2]>,
    /// By operator: it cannot run again.
    fixed: Table<'a, u32>,
    /// By operator: how often it runs again.
    count: Table<'a, u32>,
    /// By row of an access: its operator, and the next row that writes the same block, or 0.
    access: Table<'a, [u32; 2]>,
    /// By block.
    pub(in crate::rewrite) size: Table<'a, u64>,
    value: Table<'a, [u32; 6]>,
    persistent: Table<'a, u32>,
    /// By operator: a bit for each run that is made.
    made: Table<'a, u64>,
    /// The runs in their order: twice the operator, and 1 if it is not the first.
    run: Table<'a, u32>,
    runs: u32,
    /// The runs before an operator of the backward pass.
    batch: Table<'a, u32>,
    aside: Table<'a, u32>,
    /// The last run that uses what is made, the last made first.
    until: Table<'a, u32>,
    /// By block: 1 + the last run that uses what it holds.
    current: Table<'a, u32>,
    change: Table<'a, u32>,
}

impl<'a> Mirror<'a> {
    pub(in crate::rewrite) fn new(
        recorded: &Recorded<'a>,
        depth: u32,
        scratch: &mut Workspace<'a>,
    ) -> Result<Self, Error> {
        let Recorded { rows, blocks, .. } = *recorded;
        let runs = (1 + clamp(depth) as usize) * rows.len();
        let mut mirror = Self {
            recorded: *recorded,
            operators: 0,
            forward: 0,
            span: scratch.index_records(rows.len()),
            fixed: scratch.indices(rows.len()),
            count: scratch.indices(rows.len()),
            access: scratch.index_records(rows.len()),
            size: scratch.words(blocks),
            value: scratch.index_records(blocks),
            persistent: scratch.indices(blocks),
            made: scratch.words(rows.len()),
            run: scratch.indices(runs),
            runs: 0,
            batch: scratch.indices(runs),
            aside: scratch.indices(runs),
            until: scratch.indices(runs),
            current: scratch.indices(blocks),
            change: scratch.indices(blocks),
        };
        mirror.find_operators()?;
        mirror.find_values();
        mirror.find_fixed();
        Ok(mirror)
    }

    pub(in crate::rewrite) fn value(&self, block: u32) -> Value {
        let [managed, maker, last_forward, kept, first_write, last_write] = self.value[block];
        Value { managed: managed > 0, maker, last_forward, kept: kept > 0, first_write, last_write }
    }

    fn set(&mut self, block: u32, v: Value) {
        self.value[block] =
            [u32::from(v.managed), v.maker, v.last_forward, u32::from(v.kept), v.first_write, v.last_write];
    }

    /// The first row of an operator.
    pub(in crate::rewrite) fn first_row(&self, operator: u32) -> u32 {
        self.span[operator][0]
    }

    /// How many runs there are.
    pub(in crate::rewrite) const fn run_count(&self) -> u32 {
        self.runs
    }

    /// The operator of a run, and whether it is not its first.
    pub(in crate::rewrite) fn run(&self, i: u32) -> (u32, bool) {
        (self.run[i] / 2, !self.run[i].is_multiple_of(2))
    }

    /// How long an operator takes, in ns.
    pub(in crate::rewrite) fn duration(&self, operator: u32) -> u64 {
        let [first, end] = self.span[operator];
        let rows = self.recorded.rows;
        at(rows, end.saturating_sub(1)).time_ns.saturating_sub(at(rows, first).time_ns)
    }

    /// Whether an operator stands for an access that has none.
    pub(in crate::rewrite) fn is_input(&self, operator: u32) -> bool {
        at(self.recorded.rows, self.span[operator][0]).op == Op::None
    }

    /// What an operator computes.
    pub(in crate::rewrite) fn kind(&self, operator: u32) -> Kind {
        self.recorded.operator(at(self.recorded.rows, self.span[operator][0]).op).kind
    }

    /// Whether a block is allocated at time 0 and never freed.
    pub(in crate::rewrite) fn is_persistent(&self, block: u32) -> bool {
        self.persistent[block] > 0
    }

    /// The accesses of an operator.
    pub(in crate::rewrite) fn accesses(&self, operator: u32) -> impl Iterator<Item = Row> + use<'a> {
        let rows = self.recorded.rows;
        self.rows_of(operator).map(move |row| at(rows, row))
    }

    /// Sets how often an operator may run again.
    pub(in crate::rewrite) fn set_count(&mut self, operator: u32, count: u32) {
        self.count[operator] = if self.fixed[operator] > 0 { 0 } else { count.min(DEEPEST) };
    }

    /// Whether a block that the forward pass makes is not made again.
    pub(in crate::rewrite) fn is_kept(&self, block: u32) -> bool {
        let value = self.value(block);
        value.managed && self.count[value.maker - 1] == 0
    }

    /// Lowers how often what makes a block may run again.
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
        let block = at(self.recorded.rows, row).block;
        let value = self.value(block);
        (value.managed && value.first_write == row + 1).then_some(block)
    }

    /// The rows of the accesses of an operator.
    pub(in crate::rewrite) fn rows_of(&self, operator: u32) -> impl DoubleEndedIterator<Item = u32> + use<'a> {
        let [first, end] = self.span[operator];
        let rows = self.recorded.rows;
        (first..end).filter(move |&row| at(rows, row).event.is_access())
    }

    fn find_operators(&mut self) -> Result<(), Error> {
        let Recorded { rows, blocks, .. } = self.recorded;
        if u32::try_from(rows.len()).map_or(true, |n| n >= 1 << (u32::BITS - RUN_BITS)) {
            return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
        }
        let mut end = 0;
        for (row, r) in (0u32..).zip(rows) {
            let refuse = Err(Error::Row { row, fault: RowFault::NotRecorded });
            if usize::try_from(r.block).map_or(true, |b| b >= blocks) {
                return refuse;
            }
            match r.event {
                Event::SwapIn | Event::SwapOut => return refuse,
                Event::Malloc if self.size[r.block] > 0 => return refuse,
                Event::Malloc => {
                    self.size[r.block] = r.bytes;
                    self.persistent[r.block] = u32::from(r.time_ns == 0);
                }
                Event::Free => self.persistent[r.block] = 0,
                Event::Read | Event::Write => {
                    if row >= end {
                        let after = usize::try_from(row).map_or(usize::MAX, |row| recorded::operator(rows, row));
                        end = u32::try_from(after).unwrap_or(u32::MAX);
                        self.span[self.operators] = [row, end];
                        self.operators += 1;
                        if matches!(r.op, Op::First(_)) && self.recorded.operator(r.op).again {
                            self.forward = self.operators;
                        }
                    }
                    self.access[row] = [self.operators - 1, 0];
                }
            }
        }
        Ok(())
    }

    fn find_values(&mut self) {
        let rows = self.recorded.rows;
        for operator in 0..self.operators {
            let forward = operator < self.forward;
            for row in self.rows_of(operator) {
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
                    // What the backward pass changes, or who does not begin with a write, stays as it is.
                    Event::Write => self.change[r.block] = 1,
                    _ if forward => v.last_forward = operator + 1,
                    _ => v.kept = true,
                }
                self.set(r.block, v);
            }
        }
        // Of those that are left, the ones that are freed, and not by the operator that makes them.
        for (row, r) in (0u32..).zip(rows).filter(|(_, r)| r.event == Event::Free) {
            let v = self.value(r.block);
            let workspace = v.maker > 0 && row < self.span[v.maker - 1][1];
            self.change[r.block] |= if workspace { 1 } else { 2 };
        }
        for block in (0u32..).take(self.recorded.blocks) {
            let v = self.value(block);
            self.set(block, Value { managed: v.managed && self.change[block] == 2, ..v });
        }
    }

    fn find_fixed(&mut self) {
        let rows = self.recorded.rows;
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
            if operator > 0 && self.span[operator - 1][1] == row + 1 {
                operator -= 1;
                self.fixed[operator] = u32::from(!self.can_run_again(operator, quiet));
            }
            if matches!(r.event, Event::Write | Event::Free) {
                self.change[r.block] = row + 1;
            }
        }
    }

    /// Whether an operator gives the same at any time up to the row `quiet`, and changes nothing else.
    fn can_run_again(&self, operator: u32, quiet: u32) -> bool {
        let rows = self.recorded.rows;
        let [first, end] = self.span[operator];
        let may = matches!(at(rows, first).op, Op::First(_)) && self.recorded.operator(at(rows, first).op).again;
        let touches = |event: Event, block: u32| {
            self.rows_of(operator).any(|row| (at(rows, row).event, at(rows, row).block) == (event, block))
        };
        let own = |block: u32| {
            let has = |event| (first..end).any(|row| (at(rows, row).event, at(rows, row).block) == (event, block));
            has(Event::Malloc) && has(Event::Free)
        };
        may && self.rows_of(operator).all(|row| {
            let r = at(rows, row);
            let v = self.value(r.block);
            let changes = self.change[r.block] > 0 && self.change[r.block] <= quiet + 1;
            if v.managed {
                // The writers of a block run together, but nobody else sees what it held in between.
                touches(Event::Write, r.block) || v.last_write <= end
            } else if own(r.block) {
                true
            } else if touches(Event::Write, r.block) {
                self.persistent[r.block] > 0 && touches(Event::Read, r.block)
            } else {
                !changes
            }
        })
    }

    /// Makes the counts agree: those who write to the same block run equally often.
    pub(in crate::rewrite) fn settle(&mut self) {
        loop {
            let mut lowered = false;
            for operator in 0..self.forward {
                let count = self.count[operator];
                for row in self.rows_of(operator) {
                    let r = at(self.recorded.rows, row);
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

    /// Puts the runs into their order.
    pub(in crate::rewrite) fn order(&mut self) {
        self.made.fill(0);
        self.runs = 0;
        for operator in 0..self.operators {
            if operator >= self.forward {
                self.runs_before(operator);
            }
            self.push_run(2 * operator);
        }
    }

    fn push_run(&mut self, run: u32) {
        self.run[self.runs] = run;
        self.runs += 1;
    }

    /// The runs that an operator of the backward pass asks for.
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
            self.push_run(2 * operator + 1);
        }
    }

    /// Adds to the batch what makes the blocks that an operator touches, for its run of this number.
    fn ask(&mut self, operator: u32, run: u32, mut batch: u32) -> u32 {
        for row in self.rows_of(operator) {
            let v = self.value(at(self.recorded.rows, row).block);
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
        let mut made = self.find_last_uses();
        let rows = self.recorded.rows;
        let mut writer = Writer::new(out);
        // The rows of the recording are written up to here.
        let mut next = 0;
        for i in 0..self.runs {
            let (operator, again) = self.run(i);
            let [first, end] = self.span[operator];
            // What runs again comes after the frees of the operator before, but before the mallocs of the next.
            while next < (if again { u32::MAX } else { first }) && next < count(rows) {
                let r = at(rows, next);
                let managed = self.value(r.block).managed;
                if again && (r.event.is_access() || r.event == Event::Malloc && !managed) {
                    break;
                }
                if !managed {
                    writer.push(r);
                }
                next += 1;
            }
            let op = match at(rows, first).op {
                Op::First(k) if again => Op::Again(k),
                op => op,
            };
            for row in self.rows_of(operator) {
                if let Some(block) = self.made_in(row) {
                    made -= 1;
                    self.current[block] = self.until[made];
                    writer.event(Event::Malloc, block, self.size[block], op);
                }
            }
            if again {
                self.write_again(operator, op, &mut writer);
            } else {
                for row in first..end {
                    let r = at(rows, row);
                    if r.event.is_access() || !self.value(r.block).managed {
                        writer.push(r);
                    }
                }
                next = end;
            }
            for row in self.rows_of(operator) {
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

    fn write_again(&self, operator: u32, op: Op, writer: &mut Writer<'_>) {
        let rows = self.recorded.rows;
        let [first, end] = self.span[operator];
        for row in first..end {
            let r = at(rows, row);
            let of_block = |event| {
                let same = move |row| (at(rows, row).event, at(rows, row).block) == (event, r.block);
                (first..end).any(same)
            };
            let access = r.event.is_access();
            let updated = access && self.persistent[r.block] > 0 && of_block(Event::Read) && of_block(Event::Write);
            if !updated && (access || !self.value(r.block).managed) {
                writer.event(r.event, r.block, r.bytes, op);
            }
        }
    }

    /// Finds for each block that a run makes the last run that uses it; returns how many are made.
    fn find_last_uses(&mut self) -> u32 {
        self.current.fill(0);
        let mut made = 0;
        for i in (0..self.runs).rev() {
            for row in self.rows_of(self.run[i] / 2).rev() {
                let block = at(self.recorded.rows, row).block;
                let v = self.value(block);
                if !v.managed {
                    continue;
                }
                if self.current[block] == 0 {
                    self.current[block] = i + 1;
                }
                if v.first_write == row + 1 {
                    self.until[made] = self.current[block];
                    made += 1;
                    self.current[block] = 0;
                }
            }
        }
        made
    }
}
