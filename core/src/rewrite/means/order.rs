//! Reordering: operators run in another order, in which each reads the same values as in the recording.
//!
//! Another order helps because the order decides when values can be freed. Recordings update parameters at the end of
//! an iteration, and all gradients live until then. If each parameter is updated as soon as its gradient is complete,
//! the gradient is freed before the next is made. Then fewer bytes are alive in the backward pass, and the other means
//! reach lower limits.
//!
//! Steps:
//! 1. An operator waits for the last writer of what it reads, and for the writer and all readers of what it overwrites.
//!    Operators that are [`ordered`](crate::trace::Operator::ordered) also wait for the ordered one before them. A
//!    block that is read before it is written counts as written where it is allocated.
//! 2. [`Reordering::Early`]: the recorded order, but an operator that lowers the bytes alive runs as soon as it can, if
//!    it needs no more bytes than the max load of the recorded order. [`Reordering::Late`]: the same with operators that
//!    do not raise them, so that those that do come late, when recomputation has freed what they are beside.
//!    [`Reordering::LeastLoad`]: a search that begins with the first, for the order whose highest load is least
//!    ([`order`]).
//! 3. Rows are written in this order. A block is allocated before the first operator that accesses it and freed after
//!    the last. Between the accesses of an operator stand only the mallocs and frees that the recording has there.
//!
//! The other means take the result as their recording. It has the same events as the recording, in another order and
//! at other times.
//!
//! Cost: O(rows · ready operators) for [`Reordering::Early`]; an operator is ready once it waits for no other. The
//! search of [`Reordering::LeastLoad`] does less for longer traces.

use crate::id::Id;
use crate::rewrite::ids::BlockId;
use crate::rewrite::program::Program;
use crate::rewrite::writer::Writer;
use crate::table::{Table, at, count};
use crate::trace::order::{self, Early, Model, Options};
use crate::trace::{Event, Op, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, sort};

/// How to find an order of operators that needs less memory than the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reordering {
    /// The recorded order, but operators that free memory run as early as they can.
    Early,
    /// The recorded order, but operators that add no memory run as early as they can, so that those that do come late.
    Late,
    /// The order with the least max load (the most bytes alive at one step) that a search finds.
    LeastLoad,
}

impl Reordering {
    /// The name of this order of operators, for people to read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early updates",
            Self::Late => "late growth",
            Self::LeastLoad => "least max load",
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both are small")]
const fn effort(rows: usize) -> Options {
    let rows = if rows == 0 { 1 } else { rows };
    let (states, width) = (REMEMBERED / rows, WORK / rows / rows);
    // At most the default of the search.
    let (states, width) = (if states < 20_000 { states } else { 20_000 }, if width < 64 { width } else { 64 });
    Options { states: states as u32, width: width as u32 }
}

/// At most this / rows sets of operators: in a longer trace each takes more memory.
const REMEMBERED: usize = 100_000_000;
/// At most this / rows² sets for each length; with 0 there is no beam search.
const WORK: usize = 1_000_000_000;

workspace! {
    struct Mover<'a>(rows, blocks) {
        tables {
            malloc_row[BlockId]: u32[blocks],
            users[BlockId]: u32[blocks],
            resident[BlockId]: u32[blocks],
            /// 1 if its first access is a read, 2 a write, 0 none.
            begins[BlockId]: u32[blocks],
            freed[BlockId]: u32[blocks],
            /// 1 + the next row of the block, and 1 + its next write; 0 where there is none.
            next: [u32; 2][rows],
            operator: u32[rows],
            order: u32[rows],
        }
        state {
            operators: u32 = 0,
        }
    }
}

/// Two for each access, and one from each operator that is [`ordered`](crate::trace::Operator::ordered).
const fn edges(rows: usize) -> usize {
    3 * rows
}

pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks)
        .and(Mover::workspace(rows, blocks))
        .and(Model::workspace(blocks, rows, rows, edges(rows)))
        .and(order::search_workspace(blocks, rows, effort(rows)))
}

pub(in crate::rewrite) fn rewrite(
    recorded: &Recorded<'_>,
    goal: Reordering,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
    stops: &mut dyn FnMut() -> bool,
) -> Result<bool, Error> {
    let Recorded { rows, blocks, .. } = *recorded;
    if rows.iter().all(|r| recorded.is_ordered(r.op)) {
        return Ok(false);
    }
    let mut scratch = scratch.reborrow();
    let program = Program::new(rows, blocks, &mut scratch)?;
    let mut mover = Mover::lend(rows.len(), blocks, &mut scratch);
    mover.find_touches(&program);
    let mut model = mover.model(recorded, &program, &mut scratch);
    sort::identity(&mut mover.order, mover.operators);
    match goal {
        Reordering::Early => order::early(&model, Early::Lowers, &mut mover.order, &mut scratch),
        Reordering::Late => order::early(&model, Early::DoesNotRaise, &mut mover.order, &mut scratch),
        Reordering::LeastLoad => {
            order::early(&model, Early::Lowers, &mut mover.order, &mut scratch.reborrow());
            let found = order::search(&mut model, 0, effort(rows.len()), &mut mover.order, scratch, stops);
            if found.max_load == found.given {
                return Ok(false);
            }
        }
    }
    let mut writer = Writer::new(out);
    mover.write(&program, &model, &mut writer);
    let written = writer.end()?;
    let differs = |(new, old): (&Row, &Row)| (new.event, new.block, new.op) != (old.event, old.block, old.op);
    debug_assert_eq!(written, rows.len());
    Ok(out.iter().zip(rows).any(differs))
}

impl Mover<'_> {
    fn find_touches(&mut self, program: &Program<'_>) {
        self.operators = program.accessing;
        for operator in 0..program.operators {
            for row in program.first_row[operator]..program.first_row[operator + 1] {
                self.operator[row] = operator;
            }
        }
        for (row, r) in (0u32..).zip(program.rows) {
            let block = r.block_id();
            match r.event {
                Event::Malloc => self.malloc_row[block] = row,
                Event::Free => self.freed[block] = 1,
                Event::Read if self.begins[block] == 0 => self.begins[block] = 1,
                Event::Write if self.begins[block] == 0 => self.begins[block] = 2,
                _ => {}
            }
        }
        // For each block: the entry of `next` that an access would get if it came before all rows looked at so far. The
        // memory of `users` and `resident`, which are not needed yet, is used for this.
        let (next, next_write) = (&mut self.users, &mut self.resident);
        for row in (0..count(program.rows)).rev() {
            let r = at(program.rows, row);
            let Some(writes) = touch(&self.begins, program, &r) else { continue };
            self.next[row] = [next[r.block_id()], next_write[r.block_id()]];
            next[r.block_id()] = row + 1;
            if writes {
                next_write[r.block_id()] = row + 1;
            }
        }
        self.users.fill(0);
        self.resident.fill(0);
    }

    fn model<'m>(&self, recorded: &Recorded<'_>, program: &Program<'_>, scratch: &mut Workspace<'m>) -> Model<'m> {
        let rows = program.rows.len();
        let mut model = Model::lend(self.freed.len(), rows, rows, edges(rows), scratch);
        for block in program.blocks() {
            // A persistent block adds the same bytes to the load in every order.
            let persistent = program.is_persistent(block);
            model.tensor(block.number(), program.size[block], persistent, self.freed[block] == 0);
        }
        for operator in 0..self.operators {
            model.operator(operator, 0);
            for r in program.rows_of(operator).filter(|r| !program.is_persistent(r.block_id())) {
                if touch(&self.begins, program, &r).is_some() {
                    model.touches(r.block);
                }
            }
        }
        // The operators that have to keep their order among themselves, in the recorded order.
        let keeps_place = |operator: u32| recorded.is_ordered(program.op(operator));
        let mut in_turn = (0..self.operators).filter(|&operator| keeps_place(operator)).peekable();
        for operator in 0..self.operators {
            if in_turn.next_if_eq(&operator).is_some()
                && let Some(&next) = in_turn.peek()
            {
                model.before(operator, next);
            }
            for (row, r) in (program.first_row[operator]..).zip(program.rows_of(operator)) {
                if let Some(writes) = touch(&self.begins, program, &r) {
                    self.each_waiting(row, operator, writes, |next| model.before(operator, next));
                }
            }
        }
        model.finish();
        model
    }

    fn each_waiting(&self, row: u32, operator: u32, writes: bool, mut tell: impl FnMut(u32)) {
        let [next, next_write] = self.next[row];
        let mut following = if writes { next } else { next_write };
        while let Some(row) = following.checked_sub(1) {
            let other = self.operator[row];
            if other != operator && other < self.operators {
                tell(other);
            }
            if !writes || following == next_write {
                break;
            }
            following = self.next[row][0];
        }
    }

    fn write(&mut self, program: &Program<'_>, model: &Model<'_>, writer: &mut Writer<'_>) {
        for &r in program.rows.iter().filter(|r| r.event == Event::Malloc && program.is_persistent(r.block_id())) {
            self.resident[r.block_id()] = 1;
            writer.push(r);
        }
        for operator in 0..self.operators {
            touched(model, operator).for_each(|block| self.users[block] += 1);
        }
        // A block that is allocated at time 0 counts as there from the start, so no other row may get that time.
        let soonest = program.end_time.min(1);
        let mut time_ns = 0;
        for place in 0..self.operators {
            let operator = self.order[place];
            let span = program.span(operator);
            let begin = program.access_time[operator];
            time_ns += begin.saturating_sub(program.time[operator]);
            for block in touched(model, operator) {
                self.users[block] -= 1;
                if self.resident[block] == 0 && !(span[0]..span[1]).contains(&self.malloc_row[block]) {
                    self.allocate(program, block, time_ns.max(soonest), writer);
                }
            }
            for r in program.rows_in(operator) {
                let now = (time_ns + r.time_ns.saturating_sub(begin)).max(soonest);
                let block = r.block_id();
                match r.event {
                    Event::Malloc if self.resident[block] == 0 => self.allocate(program, block, now, writer),
                    Event::Free if self.users[block] == 0 && self.resident[block] > 0 => {
                        self.free(block, now, writer);
                    }
                    Event::Read | Event::Write => writer.push(Row { time_ns: now, ..r }),
                    _ => {}
                }
            }
            time_ns += program.duration(operator);
            for block in touched(model, operator) {
                if self.users[block] == 0 && self.freed[block] > 0 && self.resident[block] > 0 {
                    self.free(block, time_ns.max(soonest), writer);
                }
            }
        }
        for operator in self.operators..program.operators {
            for r in program.rows_of(operator) {
                let block = r.block_id();
                match r.event {
                    Event::Malloc if self.resident[block] == 0 => {
                        self.allocate(program, block, program.end_time, writer);
                    }
                    Event::Free if self.resident[block] > 0 => self.free(block, program.end_time, writer),
                    _ => {}
                }
            }
        }
        writer.end_at(program.end_time);
    }

    fn allocate(&mut self, program: &Program<'_>, block: BlockId, time_ns: u64, writer: &mut Writer<'_>) {
        self.resident[block] = 1;
        writer.push(Row { time_ns, ..at(program.rows, self.malloc_row[block]) });
    }

    fn free(&mut self, block: BlockId, time_ns: u64, writer: &mut Writer<'_>) {
        self.resident[block] = 0;
        writer.push(Row { time_ns, bytes: 0, block: block.number(), op: Op::None, event: Event::Free });
    }
}

fn touched(model: &Model<'_>, operator: u32) -> impl Iterator<Item = BlockId> {
    model.touched(operator).iter().map(|&block| BlockId::of(block))
}

/// A malloc counts as a write if no write comes first, a free as a read if nothing accesses the block.
fn touch(begins: &Table<'_, u32, BlockId>, program: &Program<'_>, r: &Row) -> Option<bool> {
    match r.event {
        Event::Read => Some(false),
        Event::Write => Some(true),
        Event::Malloc => (begins[r.block_id()] < 2 && !program.is_persistent(r.block_id())).then_some(true),
        _ => (begins[r.block_id()] == 0).then_some(false),
    }
}

#[cfg(test)]
mod tests;
