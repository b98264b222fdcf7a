//! What every method of placement begins and ends with: it checks its arguments, and compares its peak with the capacity.

use core::ops::ControlFlow;

use super::interval::Sweep;
use super::solver::{Options, Summary, Watch};
use crate::error::Buffer;
use crate::table::at;
use crate::{Block, Error, Workspace, WorkspaceLen, block, sort};

/// Blocks that have passed all checks, and what every method begins with.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) blocks: &'a [Block],
    pub(super) sweep: Sweep<'a>,
    pub(super) lower_bound: u64,
    pub(super) is_pinned: bool,
}

pub(super) fn prepare<'a>(
    blocks: &'a [Block],
    options: &Options,
    needed: WorkspaceLen,
    scratch: &mut Workspace<'a>,
    offsets: &[u64],
) -> Result<Problem<'a>, Error> {
    let pinned = block::check(blocks, options.constraints.alignment)?;
    if offsets.len() != blocks.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got: offsets.len() });
    }
    scratch.check(needed)?;
    if pinned > 0 {
        check_pins(blocks, &mut scratch.reborrow())?;
    }
    let sweep = Sweep::new(blocks, scratch.split(Sweep::workspace(blocks.len())))?;
    Ok(Problem { blocks, sweep, lower_bound: sweep.max_load().max(pinned), is_pinned: pinned > 0 })
}

fn check_pins(blocks: &[Block], scratch: &mut Workspace<'_>) -> Result<(), Error> {
    let mut pins = scratch.indices(blocks.len());
    let mut aside = scratch.indices(blocks.len());
    let mut pin_count = 0;
    for (i, _) in (0u32..).zip(blocks).filter(|(_, b)| b.pin.is_some()) {
        pins[pin_count] = i;
        pin_count += 1;
    }
    let offset = |i: u32| at(blocks, i).pin.unwrap_or(0);
    sort::by_key(&mut pins, pin_count, &mut aside, offset);
    for p in 0..pin_count {
        let low = pins[p];
        let end = offset(low).saturating_add(at(blocks, low).size);
        for high in (p + 1..pin_count).map(|q| pins[q]).take_while(|&high| offset(high) < end) {
            if at(blocks, low).collides(&at(blocks, high)) {
                return Err(Error::PinsOverlap { first: low.min(high), second: low.max(high) });
            }
        }
    }
    Ok(())
}

pub(super) fn tell(watch: Watch<'_>, now: &Summary, stopped: &mut bool) -> ControlFlow<()> {
    let flow = watch(now);
    *stopped |= flow.is_break();
    flow
}

pub(super) fn finish(summary: Summary, options: &Options) -> Result<Summary, Error> {
    let Summary { peak, lower_bound, .. } = summary;
    match options.constraints.capacity {
        Some(capacity) if peak > capacity => Err(Error::OverCapacity { peak, lower_bound, capacity }),
        _ => Ok(summary),
    }
}

pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// `alignment` is a power of two; 0 if the multiple does not fit 64 bits.
pub(crate) fn align_up(offset: u64, alignment: u64) -> u64 {
    offset.wrapping_add(alignment - 1) & !(alignment - 1)
}

pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
