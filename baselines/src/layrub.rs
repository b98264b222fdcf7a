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
//!   reader: [`Policy::Layer`](crate::zhang::Policy::Layer).
//! - *hybrid*: both of these.
//!
//! Inter-layer swaps are written as the rows of a trace that can run. For intra-layer reuse only the bytes are counted:
//! a recorded operator computes both gradients at once, so no row could tell where one ends and the other begins. Where
//! an operator may write over its input, [`in_place`](sublet_core::rewrite::in_place) makes it do so.
//!
//! The bytes that are counted are those of all blocks that more than one operator accesses, except parameters and their
//! gradients. Masks have a bit for each element of 4 bytes; the paper keeps a byte. Cost: that of the policy, and
//! O(rows).

use sublet_core::Error;
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Kind, Op, Recorded, Row};

use crate::mirror::Mirror;
use crate::network::Network;
use crate::zhang;

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

/// Swaps activations as Layrub (Jin et al. 2018) does: out after their last forward reader, and back one operator ahead
/// of the next reader. Returns the rows, and the bytes that activations and gradients take in four cases: each has memory
/// of its own; gradients are written over activations; activations are swapped; or both. Blocks of fewer than
/// `least_bytes` bytes are not swapped.
///
/// # Errors
/// [`Error::Row`] for a trace that is no recording, such as one with copies or recomputed operators; [`Error::Device`] if
/// the device is not [sound](Device::is_sound); [`Error::TooManyBlocks`].
///
/// ```
/// use sublet_baselines::layrub::{self, Bytes};
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
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
/// let (swapped, bytes) = layrub::reuse(&recorded, &Device::symmetric(12e9), 1)?;
/// // The activation is needed while its gradient is written: no memory is shared. No block is idle: none is swapped.
/// assert_eq!((swapped.len(), bytes), (rows.len(), Bytes { separate: 128, intra: 128, inter: 128, hybrid: 128 }));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn reuse(recorded: &Recorded<'_>, device: &Device, least_bytes: u64) -> Result<(Vec<Row>, Bytes), Error> {
    if !device.is_sound() {
        return Err(Error::Device);
    }
    let network = Network::of(recorded)?;
    let rows = zhang::by_layers(&network, least_bytes);
    let mut layers = Layers { known: vec![Known::default(); recorded.blocks], mirror: Mirror::of(&network) };
    layers.classify();
    layers.pair();
    let [separate, intra] = layers.sums();
    let [inter, hybrid] = [false, true].map(|over| layers.peak(&rows, over));
    Ok((rows, Bytes { separate, intra, inter, hybrid }))
}

#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one question of the paper")]
struct Known {
    first: Option<usize>,
    /// The backward operator of a ReLU does not count, since it reads a mask instead.
    last: Option<usize>,
    is_shared: bool,
    is_parameter: bool,
    is_needed: bool,
    is_signed: bool,
    is_overwritten: bool,
    over: Option<usize>,
}

impl Known {
    const fn counts(&self) -> bool {
        self.is_shared && !self.is_parameter
    }
}

struct Layers<'n> {
    known: Vec<Known>,
    mirror: Mirror<'n>,
}

impl Layers<'_> {
    fn classify(&mut self) {
        let network = self.mirror.network;
        for operator in 0..network.accessing {
            let signs = self.kind(operator) == Kind::ReluBackward;
            let writes = |block| network.accesses(operator).any(|r| (r.event, r.block) == (Event::Write, block));
            let both = |r: Row| r.event == Event::Read && network.persistent[r.block as usize] && writes(r.block);
            let updates = operator >= self.mirror.forward && network.accesses(operator).any(both);
            for r in network.accesses(operator) {
                let known = &mut self.known[r.block as usize];
                let first = *known.first.get_or_insert(operator);
                known.last = if signs { known.last } else { Some(operator) };
                known.is_shared |= first != operator;
                known.is_parameter |= updates || network.persistent[r.block as usize];
                known.is_signed |= signs;
            }
        }
        for operator in self.mirror.forward..network.accessing {
            if self.kind(operator) == Kind::ReluBackward || self.makes_gradient_of_parameter(operator) {
                continue;
            }
            for r in network.accesses(operator).filter(|r| r.event == Event::Read) {
                let size = |block: u32| network.size[block as usize];
                let same = |w: Row| w.event == Event::Write && size(w.block) == size(r.block);
                self.known[r.block as usize].is_needed |= network.accesses(operator).any(same);
            }
        }
    }

    fn kind(&self, operator: usize) -> Kind {
        self.mirror.network.recorded.operator(self.mirror.network.operators[operator].op).kind
    }

    fn makes_gradient_of_parameter(&self, operator: usize) -> bool {
        let gradient = |r: Row| r.event == Event::Write && self.known[r.block as usize].is_parameter;
        self.mirror.network.accesses(operator).any(gradient)
    }

    /// An activation fits if the gradient's writer reads it, it has the same size, and nobody needs it later.
    fn pair(&mut self) {
        let network = self.mirror.network;
        for operator in self.mirror.forward..network.accessing {
            if self.kind(operator) != Kind::ReluBackward && !self.makes_gradient_of_parameter(operator) {
                continue;
            }
            for r in network.accesses(operator).filter(|r| r.event == Event::Write) {
                let gradient = r.block as usize;
                let known = self.known[gradient];
                if known.first != Some(operator) || !known.counts() || known.over.is_some() {
                    continue;
                }
                let can = |&block: &usize| {
                    let activation = self.known[block];
                    !activation.is_overwritten
                        && self.mirror.values[block].is_result
                        && network.size[block] == network.size[gradient]
                        && activation.last.is_none_or(|last| last <= operator)
                };
                let read = network.accesses(operator).filter(|r| r.event == Event::Read).map(|r| r.block as usize);
                if let Some(block) = read.into_iter().find(can) {
                    self.known[block].is_overwritten = true;
                    self.known[gradient].over = Some(block);
                }
            }
        }
    }

    fn mask(&self, block: usize) -> u64 {
        if self.known[block].is_signed { self.mirror.network.size[block].div_ceil(MASKED) } else { 0 }
    }

    /// First if each has memory of its own, then if gradients are written over activations.
    fn sums(&self) -> [u64; 2] {
        let Mirror { network, values, .. } = &self.mirror;
        let [mut separate, mut intra] = [0u64; 2];
        for (block, (v, known)) in values.iter().zip(&self.known).enumerate() {
            if !v.is_result || !known.counts() || v.maker.is_none_or(|maker| network.operators[maker].op == Op::None) {
                continue;
            }
            if !v.kept && v.last_forward.is_some_and(|last| self.kind(last) == Kind::Relu) {
                // A ReLU works in place.
                continue;
            }
            let size = network.size[block];
            separate = separate.saturating_add(size.saturating_mul(2));
            intra = intra.saturating_add(size).saturating_add(if known.is_needed { size } else { self.mask(block) });
        }
        [separate, intra]
    }

    fn peak(&self, rows: &[Row], over: bool) -> u64 {
        let mut last_free = vec![None; self.known.len()];
        for (i, r) in rows.iter().enumerate().filter(|(_, r)| r.event == Event::Free) {
            last_free[r.block as usize] = Some(i);
        }
        // Once freed and allocated again, a gradient takes memory of its own.
        let mut ended = vec![false; self.known.len()];
        let (mut load, mut most) = (0u64, 0u64);
        for (i, r) in rows.iter().enumerate() {
            let block = r.block as usize;
            let known = self.known[block];
            if !known.counts() {
                continue;
            }
            let size = self.mirror.network.size[block];
            let under = known.over.filter(|_| over && !ended[block]);
            match r.event {
                // A gradient that is written over an activation takes over its memory, and frees it in the end. Only
                // the activation's mask is added.
                Event::Malloc => {
                    load = load.saturating_add(under.map_or(size, |activation| self.mask(activation)));
                }
                // A gradient was written over the activation, and frees that memory: only the mask is freed here.
                Event::Free if over && known.is_overwritten && last_free[block] == Some(i) => {
                    load = load.saturating_sub(self.mask(block));
                }
                Event::Free => {
                    load = load.saturating_sub(size);
                    ended[block] |= under.is_some();
                }
                _ => {}
            }
            most = most.max(load);
        }
        most
    }
}
