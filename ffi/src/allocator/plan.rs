//! Writes an allocator's plan as text, reads such a text, and makes an allocator follow a plan that was made elsewhere.

use core::ffi::{c_char, c_void};
use core::fmt::Write;

use sublet_core::{Block, Constraints, verify};

use super::{looked_at, sublet_allocator};
use crate::arguments::counted;
use crate::block::{self, sublet_block};
use crate::boundary::boundary;
use crate::error::{Failure, Text, sublet_error};
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::Needed;

/// Makes the allocator follow a plan that was made elsewhere: `blocks`, in the order in which an iteration allocates
/// them, and an offset in bytes for each. The plan is verified first, in a workspace of the size that
/// sublet_verify_workspace tells. If an offset is not a multiple of the allocator's alignment, the blocks are placed
/// anew, at multiples of it. The next request is then taken to be the first of the plan. But if the caller marks
/// iterations and none is under way, the first request after the next sublet_iteration_begin is taken to be the first
/// of the plan.
///
/// If `block_count` is 0, the allocator forgets its plan, as by sublet_forget. sublet_export_plan writes a text with
/// 0 blocks for an allocator without a plan.
///
/// Fails as sublet_verify does if the plan is not valid. SUBLET_STATUS_TOO_MANY_EVENTS: the plan has more blocks than
/// half the `events` of the allocator's parameters, since each block has a malloc and a free; the old plan stays.
/// SUBLET_STATUS_OUT_OF_MEMORY: there is no memory for the plan's arena; the allocator goes on without a plan.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_adopt(
    allocator: *mut sublet_allocator,
    blocks: *const sublet_block,
    block_count: usize,
    offsets: *const u64,
    workspace: *mut c_void,
    workspace_size: usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives.
        let handle = unsafe { looked_at(allocator, arguments)? };
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, offsets, mut room) = unsafe {
            let needed = Needed::workspace(verify::workspace(counted(block_count, 2)?)).and::<Block>(block_count);
            let blocks = arguments.input(blocks, block_count)?;
            let offsets = arguments.input_of(offsets, block_count, 2)?;
            (blocks, offsets, arguments.workspace(workspace, workspace_size, needed)?)
        };
        let blocks = block::blocks(&mut room, blocks)?;
        let scratch = room.workspace(verify::workspace(block_count));
        let plan = verify::verify(blocks, offsets, &Constraints::NONE, scratch)?;
        handle.inner.with(|inner| Ok(inner.allocator.adopt(&plan)?))
    })
}

/// Writes the plan that the allocator follows as CSV, `id,lower,upper,size,offset`, ended by a zero byte. Each line
/// has the number of a block, its `start` and `end` as in a sublet_block, its size and its offset, both in bytes.
/// sublet_plan_read can read the text, in another process too. Without a plan only the line of column names is written:
/// an allocator that adopts this text forgets its plan.
///
/// `needed`, which may be NULL, receives the bytes that the whole text takes with its zero byte. If `capacity` is less,
/// the text is cut, still ended by a zero byte, and the status is SUBLET_STATUS_BUFFER_TOO_SMALL. With a capacity of 0
/// only `needed` is written, and the call succeeds.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_export_plan(
    allocator: *mut sublet_allocator,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives, and for pointers that hold what their lengths say.
        let (handle, buffer, needed) = unsafe {
            let handle = looked_at(allocator, arguments)?;
            (handle, arguments.output(buffer, capacity)?, arguments.optional(needed)?)
        };
        let mut text = Text { buffer, len: 0 };
        handle.inner.with(|inner| {
            let (blocks, offsets) = inner.allocator.plan();
            // Writing to a `Text` does not fail.
            let _ = writeln!(text, "{HEADER}");
            for (id, (Block { start, end, size, .. }, offset)) in blocks.iter().zip(offsets).enumerate() {
                let _ = writeln!(text, "{id},{start},{end},{size},{offset}");
            }
            Ok(())
        })?;
        text.finish(1, needed)
    })
}

const HEADER: &str = "id,lower,upper,size,offset";

/// Reads a plan from the `bytes` bytes of a text as sublet_export_plan and `sublet plan` write it: its blocks in the
/// order of the lines, and an offset for each. The numbers in the column `id` are not used. `count` receives how many
/// blocks there are; with a capacity of 0 only `count` is written.
///
/// SUBLET_STATUS_PLAN_TEXT: the first line is not `id,lower,upper,size,offset`, or a later line is not five numbers
/// with commas between them. `lower` and `upper` must be below 2^32, and the other numbers below 2^64.
/// SUBLET_STATUS_BUFFER_TOO_SMALL: the text has more than `capacity` blocks, and `capacity` is not 0. Whether the plan
/// is valid is not checked here, but by sublet_verify and sublet_adopt.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_plan_read(
    text: *const c_char,
    bytes: usize,
    blocks: *mut sublet_block,
    offsets: *mut u64,
    capacity: usize,
    count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (text, blocks, offsets, count) = unsafe {
            let text = arguments.input(text.cast::<u8>(), bytes)?;
            let blocks = arguments.output_of(blocks, capacity, 4)?;
            (text, blocks, arguments.output(offsets, capacity)?, arguments.result(count)?)
        };
        let mut lines = Lines { rest: text.iter().copied(), line: 0 };
        lines.header()?;
        let mut places = blocks.iter_mut().zip(offsets);
        let mut found = 0;
        while let Some((block, offset)) = lines.next_block()? {
            if let Some((to, at)) = places.next() {
                (*to, *at) = (block, offset);
            }
            found += 1;
        }
        if capacity > 0 && capacity < found {
            return Err(Failure::new(S::BufferTooSmall, 4, found as u64, capacity as u64));
        }
        count.set(found);
        Ok(())
    })
}

struct Lines<B> {
    rest: B,
    /// Counted from 1.
    line: u32,
}

impl<B: Iterator<Item = u8>> Lines<B> {
    fn wrong(&self) -> Failure {
        Failure::new(S::PlanText, self.line, 0, 0)
    }

    /// A line feed, also after a carriage return, or the end of the text (`None`).
    fn end(&mut self, byte: Option<u8>) -> bool {
        matches!(byte, None | Some(b'\n')) || (byte == Some(b'\r') && matches!(self.rest.next(), None | Some(b'\n')))
    }

    fn header(&mut self) -> Result<(), Failure> {
        self.line = 1;
        let same = HEADER.bytes().all(|expected| self.rest.next() == Some(expected));
        let after = self.rest.next();
        if same && self.end(after) { Ok(()) } else { Err(self.wrong()) }
    }

    fn next_block(&mut self) -> Result<Option<(sublet_block, u64)>, Failure> {
        self.line = self.line.saturating_add(1);
        let mut numbers = [0u64; 5];
        for (column, number) in numbers.iter_mut().enumerate() {
            let mut digits = 0;
            loop {
                let byte = self.rest.next();
                let digit = byte.filter(u8::is_ascii_digit).map(|byte| u64::from(byte - b'0'));
                if let Some(digit) = digit {
                    let longer = number.checked_mul(10).and_then(|n| n.checked_add(digit));
                    *number = longer.ok_or(self.wrong())?;
                    digits += 1;
                } else if byte.is_none() && column == 0 && digits == 0 {
                    return Ok(None);
                } else if digits > 0 && if column < 4 { byte == Some(b',') } else { self.end(byte) } {
                    break;
                } else {
                    return Err(self.wrong());
                }
            }
        }
        let [_, lower, upper, size, offset] = numbers;
        let step = |n: u64| u32::try_from(n).map_err(|_| self.wrong());
        let block = sublet_block { start: step(lower)?, end: step(upper)?, size, alignment: 0, pin: 0, flags: 0 };
        Ok(Some((block, offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plan = Vec<(u32, u32, u64, u64)>;

    fn read(text: &str) -> Result<Plan, Failure> {
        let mut lines = Lines { rest: text.bytes(), line: 0 };
        lines.header()?;
        let mut plan = Plan::new();
        while let Some((block, offset)) = lines.next_block()? {
            plan.push((block.start, block.end, block.size, offset));
        }
        Ok(plan)
    }

    #[test]
    fn a_plan_is_read_or_the_line_is_named() {
        assert_eq!(read(HEADER), Ok(vec![]));
        let (first, last) = ((0, 3, 64, 0), (2, 5, u64::MAX, 128));
        for text in
            ["\n0,0,3,64,0\n7,2,5,18446744073709551615,128\n", "\r\n0,0,3,64,0\r\n1,2,5,18446744073709551615,128"]
        {
            assert_eq!(read(&format!("{HEADER}{text}")), Ok(vec![first, last]), "{text:?}");
        }
        for (line, text) in [
            (1, ",bank\n"),
            (1, "s\n"),
            (2, "\n\n"),
            (2, "\n0,0,3,64\n"),
            (2, "\n0,0,3,64,0,1\n"),
            (2, "\n0,0,3,64,\n"),
            (2, "\n0,0,4294967296,64,0\n"),
            (2, "\n0,0,3,18446744073709551616,0\n"),
            (2, "\n0,0,3,-1,0\n"),
            (3, "\n0,0,3,1,0\n 1,0,3,1,0\n"),
            (3, "\n0,0,3,1,0\n1,0"),
        ] {
            assert_eq!(read(&format!("{HEADER}{text}")), Err(Failure::new(S::PlanText, line, 0, 0)), "{text:?}");
        }
        assert_eq!(read(""), Err(Failure::new(S::PlanText, 1, 0, 0)));
    }
}
