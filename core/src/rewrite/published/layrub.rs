//! Layrub: memory managed by whole layers.
//!
//! Problem: how many bytes do a network's activations and their gradients take, if memory is managed by whole layers,
//! as in Caffe?
//!
//! Paper: Jin et al. 2018, Layrub. Its parts, and what they are on a recorded trace:
//!
//! - the *Tracer* counts how many layers still have to read an activation. Here these are the operators of the forward
//!   pass that read it; the count is 0 after the last one.
//! - *intra-layer*: the gradient of an activation is written over it. A layer computes the gradient of its parameters
//!   first, then that of its data (the coordinated order); after that nothing needs the activation. Excluded are
//!   operators that need the activation while the gradient is written: local response normalization, batch norm, scale,
//!   product, maximum. The trace shows them: the backward operator reads the activation and writes a block of its size.
//!   But an operator is not excluded if it also makes the gradient of a parameter, as it may read the activation for
//!   that alone. Nor is the gradient of a ReLU, for which a mask (the signs of the activation) is kept.
//! - *inter-layer*: activations are copied out after their last forward reader, and back one operator ahead of the next
//!   reader: [`Policy::Layer`].
//! - *hybrid*: both of these.
//!
//! Inter-layer swaps are written as the rows of a trace that can run. For intra-layer reuse only the bytes are counted:
//! a recorded operator computes both gradients at once, so no row could tell where one ends and the other begins. Where
//! an operator may write over its input, [`in_place`](crate::rewrite::means::in_place) makes it do so.
//!
//! The bytes that are counted are those of all blocks that more than one operator accesses, except parameters and their
//! gradients. Masks have a bit for each element of 4 bytes; the paper keeps a byte. Cost: that of the policy, and
//! O(rows).

use super::mirror::Mirror;
use crate::rewrite::gaps::{Gaps, Swappable};
use crate::rewrite::ids::BlockId;
use crate::rewrite::means::swap::{Policy, Swapper};
use crate::rewrite::program::Program;
use crate::rewrite::values::Values;
use crate::simulate::Device;
use crate::table::record;
use crate::trace::{Event, Kind, Op, Recorded, Row, liveness};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block};

/// A ReLU's mask has one bit for each element of 4 bytes.
const MASKED: u64 = 32;

/// The bytes that activations and their gradients take: sums over all of them for `separate` and `intra`, and the most
/// that are alive at once for `inter` and `hybrid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The bytes of all activations and gradients if each has memory of its own, as in Caffe. But a ReLU writes its
    /// output over its input, if the backward pass does not read the input: that input is not counted.
    pub separate: u64,
    /// The bytes of all activations, gradients and bit masks if gradients are written over activations where they may
    /// be: intra-layer reuse in Layrub (Jin et al. 2018).
    pub intra: u64,
    /// The most bytes of activations and gradients at once if activations are swapped to the host: inter-layer reuse in
    /// Layrub (Jin et al. 2018).
    pub inter: u64,
    /// The most bytes of activations and gradients at once if activations are swapped to the host and gradients are
    /// written over activations: hybrid reuse in Layrub (Jin et al. 2018).
    pub hybrid: u64,
}

/// Length of the workspace that [`reuse`] needs for a recording of `rows` rows with `blocks` block numbers.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let policy = Gaps::workspace(rows, blocks).and(Swapper::workspace(rows, blocks));
    let means = Values::workspace(rows, blocks).and(Mirror::workspace(rows, blocks, 1)).and(Layers::workspace(blocks));
    Program::workspace(rows, blocks).and(policy.max(means)).max(liveness::workspace(blocks))
}

/// The most rows that [`reuse`] writes for the recording `rows`. Swapping a block between two accesses adds four rows:
/// a copy out, a free, a malloc and a copy in.
#[must_use]
pub fn most_rows(rows: &[Row]) -> usize {
    rows.len() + 4 * rows.iter().filter(|r| r.event.is_access()).count()
}

/// Swaps activations as Layrub (Jin et al. 2018) does: out after their last forward reader, and back one operator ahead
/// of the next reader. Writes the rows to `out`. Returns how many rows there are, and the bytes that activations and
/// gradients take in four cases: each has memory of its own; gradients are written over activations; activations are
/// swapped; or both. Blocks of fewer than `least_bytes` bytes are not swapped.
///
/// # Errors
/// [`Error::Row`] for a trace that is no recording, such as one with copies or recomputed operators, and for one of 2²⁷
/// rows or more; [`Error::Device`] if the device is not [sound](Device::is_sound); [`Error::TooManyBlocks`];
/// [`Error::BufferTooSmall`] if `out` or the workspace is too short.
///
/// ```
/// use sublet_core::rewrite::published::layrub::{self, Bytes};
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
/// use sublet_core::Workspace;
/// let row = |event, block, op| {
///     let bytes = if event == Event::Malloc { 64 } else { 0 };
///     Row { time_ns: 1, bytes, block, op: Op::First(op), event }
/// };
/// // Block 0 is an activation. Only operator 1 reads it, which writes its gradient, block 1 of the same size.
/// let rows = [
///     row(Event::Malloc, 0, 0), row(Event::Write, 0, 0),
///     row(Event::Malloc, 1, 1), row(Event::Read, 0, 1), row(Event::Write, 1, 1), row(Event::Free, 0, 1),
///     row(Event::Malloc, 2, 2), row(Event::Read, 1, 2), row(Event::Write, 2, 2), row(Event::Free, 1, 2),
/// ];
/// let operators = [true, false, false].map(|rerun| Operator { rerun, ..Operator::default() });
/// let recorded = Recorded { rows: &rows, operators: &operators, blocks: 3 };
/// let len = layrub::workspace(rows.len(), 3);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut out = vec![Row::default(); layrub::most_rows(&rows)];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let (n, bytes) = layrub::reuse(&recorded, &Device::symmetric(12e9), 1, scratch, &mut out)?;
/// // The activation is needed while its gradient is written: no memory is shared. No block is idle: none is swapped.
/// assert_eq!((n, bytes), (rows.len(), Bytes { separate: 128, intra: 128, inter: 128, hybrid: 128 }));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn reuse(
    recorded: &Recorded<'_>,
    device: &Device,
    least_bytes: u64,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<(usize, Bytes), Error> {
    block::check_count(recorded.blocks)?;
    scratch.check(workspace(recorded.rows.len(), recorded.blocks))?;
    if !device.is_sound() {
        return Err(Error::Device);
    }
    // The policy relies on rows that can follow each other.
    liveness::check(recorded.rows, recorded.blocks, scratch.reborrow())?;
    let mut scratch = scratch.reborrow();
    let program = Program::new(recorded.rows, recorded.blocks, &mut scratch)?;
    let n = inter(&program, device, least_bytes, scratch.reborrow(), out)?;
    let rows = out.get(..n).unwrap_or_default();
    let mut scratch = scratch.reborrow();
    let values = Values::new(recorded, &program, &mut scratch);
    let mut scratch = scratch.reborrow();
    let mirror = Mirror::new(&values, 1, &mut scratch)?;
    let mut layers = Layers::lend(recorded.blocks, *recorded, mirror, &mut scratch);
    layers.classify();
    layers.pair();
    let [separate, intra] = layers.sums();
    Ok((n, Bytes { separate, intra, inter: layers.peak(rows, false), hybrid: layers.peak(rows, true) }))
}

fn inter(
    program: &Program<'_>,
    device: &Device,
    least_bytes: u64,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<usize, Error> {
    let mut scratch = scratch.reborrow();
    let gaps = Gaps::new(program, Swappable { least_bytes, keep_persistent: false }, &mut scratch);
    let mut scratch = scratch.reborrow();
    let mut swapper = Swapper::new(&gaps, device, 1, &mut scratch);
    swapper.plan(Policy::Layer, u64::MAX, 0);
    swapper.rows(out)
}

record! {
    struct Known {
        first: Option<u32>,
        /// The backward operator of a ReLU does not count, since it reads a mask instead.
        last: Option<u32>,
        is_shared: bool,
        is_parameter: bool,
        is_needed: bool,
        is_signed: bool,
        is_overwritten: bool,
        over: Option<BlockId>,
        /// Once freed and allocated again, the gradient takes memory of its own.
        has_ended: bool,
        last_free: Option<u32>,
    }
}

impl Known {
    const fn counts(&self) -> bool {
        self.is_shared && !self.is_parameter
    }
}

workspace! {
    struct Layers<'a>(blocks; recorded: Recorded<'a>, mirror: Mirror<'a>) {
        records {
            known[BlockId]: Known[blocks],
        }
        state {
            recorded: Recorded<'a> = recorded,
            mirror: Mirror<'a> = mirror,
        }
    }
}

impl Layers<'_> {
    fn classify(&mut self) {
        let mirror = &self.mirror;
        let program = mirror.values.program;
        for operator in 0..mirror.operators {
            let signs = self.kind(operator) == Kind::ReluBackward;
            let writes = |block: u32| program.accesses(operator).any(|r| (r.event, r.block) == (Event::Write, block));
            let both = |r: Row| r.event == Event::Read && program.is_persistent(r.block_id()) && writes(r.block);
            let updates = operator >= mirror.forward && program.accesses(operator).any(both);
            for r in program.accesses(operator) {
                let known = self.known.get(r.block_id());
                let first = known.first.unwrap_or(operator);
                let found = Known {
                    first: Some(first),
                    last: if signs { known.last } else { Some(operator) },
                    is_shared: known.is_shared || first != operator,
                    is_parameter: known.is_parameter || updates || program.is_persistent(r.block_id()),
                    is_signed: known.is_signed || signs,
                    ..known
                };
                self.known.set(r.block_id(), found);
            }
        }
        for operator in mirror.forward..mirror.operators {
            if self.kind(operator) == Kind::ReluBackward || self.makes_gradient_of_parameter(operator) {
                continue;
            }
            for r in program.accesses(operator).filter(|r| r.event == Event::Read) {
                let same = |w: Row| w.event == Event::Write && program.size[w.block_id()] == program.size[r.block_id()];
                if program.accesses(operator).any(same) {
                    self.known.set(r.block_id(), Known { is_needed: true, ..self.known.get(r.block_id()) });
                }
            }
        }
    }

    fn kind(&self, operator: u32) -> Kind {
        self.recorded.operator(self.mirror.values.program.op(operator)).kind
    }

    fn makes_gradient_of_parameter(&self, operator: u32) -> bool {
        let gradient = |r: Row| r.event == Event::Write && self.known.get(r.block_id()).is_parameter;
        self.mirror.values.program.accesses(operator).any(gradient)
    }

    /// An activation fits if the gradient's writer reads it, it has the same size, and nobody needs it later.
    fn pair(&mut self) {
        let mirror = &self.mirror;
        let program = mirror.values.program;
        for operator in mirror.forward..mirror.operators {
            if self.kind(operator) != Kind::ReluBackward && !self.makes_gradient_of_parameter(operator) {
                continue;
            }
            for gradient in program.accesses(operator).filter(|r| r.event == Event::Write).map(|r| r.block_id()) {
                let known = self.known.get(gradient);
                if known.first != Some(operator) || !known.counts() || known.over.is_some() {
                    continue;
                }
                let can = |r: &Row| {
                    let activation = self.known.get(r.block_id());
                    r.event == Event::Read
                        && !activation.is_overwritten
                        && mirror.value(r.block_id()).is_result
                        && program.size[r.block_id()] == program.size[gradient]
                        && activation.last.is_none_or(|last| last <= operator)
                };
                if let Some(block) = program.accesses(operator).find(can).map(|r| r.block_id()) {
                    self.known.set(block, Known { is_overwritten: true, ..self.known.get(block) });
                    self.known.set(gradient, Known { over: Some(block), ..known });
                }
            }
        }
    }

    fn mask(&self, block: BlockId) -> u64 {
        let size = self.mirror.values.program.size[block];
        if self.known.get(block).is_signed { size.div_ceil(MASKED) } else { 0 }
    }

    /// First if each has memory of its own, then if gradients are written over activations.
    fn sums(&self) -> [u64; 2] {
        let mirror = &self.mirror;
        let program = mirror.values.program;
        let [mut separate, mut intra] = [0u64; 2];
        for block in program.blocks() {
            let (v, known) = (mirror.value(block), self.known.get(block));
            if !v.is_result || !known.counts() || v.maker.is_none_or(|maker| program.op(maker) == Op::None) {
                continue;
            }
            if !v.kept && v.last_forward.is_some_and(|last| self.kind(last) == Kind::Relu) {
                // A ReLU works in place.
                continue;
            }
            let size = program.size[block];
            separate = separate.saturating_add(size.saturating_mul(2));
            intra = intra.saturating_add(size).saturating_add(if known.is_needed { size } else { self.mask(block) });
        }
        [separate, intra]
    }

    fn peak(&mut self, rows: &[Row], over: bool) -> u64 {
        for (row, r) in (0u32..).zip(rows).filter(|(_, r)| r.event == Event::Free) {
            self.known.set(r.block_id(), Known { last_free: Some(row), ..self.known.get(r.block_id()) });
        }
        let (mut load, mut most) = (0u64, 0u64);
        for (row, r) in (0u32..).zip(rows) {
            let known = self.known.get(r.block_id());
            if !known.counts() {
                continue;
            }
            let size = self.mirror.values.program.size[r.block_id()];
            let under = known.over.filter(|_| over && !known.has_ended);
            match r.event {
                // A gradient that is written over an activation takes over its memory, and frees it in the end. Only
                // the activation's mask is added.
                Event::Malloc => {
                    load = load.saturating_add(under.map_or(size, |activation| self.mask(activation)));
                }
                // A gradient was written over the activation, and frees that memory: only the mask is freed here.
                Event::Free if over && known.is_overwritten && known.last_free == Some(row) => {
                    load = load.saturating_sub(self.mask(r.block_id()));
                }
                Event::Free => {
                    load = load.saturating_sub(size);
                    self.known.set(r.block_id(), Known { has_ended: known.has_ended || under.is_some(), ..known });
                }
                _ => {}
            }
            most = most.max(load);
        }
        most
    }
}
