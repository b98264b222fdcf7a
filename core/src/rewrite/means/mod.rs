//! The means of saving memory: their list, and a file or a folder for each.
//!
//! There are two kinds:
//! - means that rewrite a trace without regard to a memory limit: [`order`], [`mask`], [`in_place`]. `rewrite` applies
//!   the last two, masks first: masks change which blocks are alive, and in-place reuse depends on that;
//! - means that are planned to keep the memory within a limit: [`swap`], [`recompute`]. The fit combines them.

pub mod in_place;
pub mod mask;
pub(in crate::rewrite) mod order;
pub(in crate::rewrite) mod recompute;
pub(in crate::rewrite) mod swap;

use crate::error::Buffer;
use crate::simulate::Device;
use crate::trace::{Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen};

macro_rules! means {
    ($($(#[$doc:meta])* $means:ident = $bit:literal $name:literal: $about:literal,)*) => {
        /// A means of saving memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Means {
            $($(#[$doc])* $means = $bit,)*
        }

        impl Means {
            /// All means of saving memory.
            pub const ALL: &'static [Self] = &[$(Self::$means),*];

            /// The name of the means, for people and on the command line.
            ///
            /// ```
            /// use sublet_core::rewrite::fit::Means;
            /// assert!(Means::ALL.iter().all(|&m| Means::named(m.name()) == Some(m)));
            /// ```
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$means => $name,)*
                }
            }

            /// What the means does, in one line for people.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$means => $about,)*
                }
            }
        }
    };
}

means! {
    /// Blocks are copied to the host and freed while they are idle, and copied back.
    Swap = 1 "swap": "blocks are copied to the host and freed while nothing uses them, and copied back",
    /// Values are freed, and recomputed before they are read again.
    Recompute = 2 "recompute": "values are freed, and recomputed before their next use",
    /// Outputs are written over inputs that nobody needs any more, by operators that can do so ([`in_place`]).
    InPlace = 4 "in-place": "outputs are written over inputs that nothing reads later",
    /// The gradient of a ReLU reads only the sign of each element, kept as one bit, in place of the block that the ReLU
    /// read or wrote ([`mask`]).
    Relu = 8 "relu": "one bit for each element is kept of values that only a ReLU's gradient reads",
    /// The operators run in another order; those that are [`ordered`](crate::trace::Operator::ordered) keep their order
    /// among themselves.
    Order = 32 "order": "operators run in another order, updates of parameters right after their gradients",
}

impl Means {
    /// The means of saving memory that has this [`name`](Self::name); none if no means has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|m| m.name() == name)
    }
}

/// A set of means of saving memory.
///
/// ```
/// use sublet_core::rewrite::fit::{Means, Using};
/// use sublet_core::simulate::Device;
/// let swap = Using::NONE.with(Means::Swap);
/// assert!(swap.has(Means::Swap) && !swap.has(Means::Recompute));
/// assert_eq!(Using::of_bits(1), Some(swap));
/// let jetson = Device::named("jetson-orin").unwrap();
/// assert_eq!(Using::ALL.on(&jetson), Using::ALL.without(Means::Swap));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Using(u32);

impl Using {
    /// The empty set: no means of saving memory.
    pub const NONE: Self = Self(0);
    /// All means of saving memory.
    pub const ALL: Self = {
        let (mut bits, mut i) = (0, 0);
        while i < Means::ALL.len() {
            bits |= Means::ALL[i] as u32;
            i += 1;
        }
        Self(bits)
    };

    /// The set of the means whose bits are set in `bits`; none if `bits` has a bit that stands for no means.
    #[must_use]
    pub const fn of_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// This set with one more means of saving memory.
    #[must_use]
    pub const fn with(self, means: Means) -> Self {
        Self(self.0 | means as u32)
    }

    /// This set without one means of saving memory.
    #[must_use]
    pub const fn without(self, means: Means) -> Self {
        Self(self.0 & !(means as u32))
    }

    /// The union of two sets: the means that are in this one, in the other or in both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The means of saving memory that are in this set and not in the other.
    #[must_use]
    pub const fn minus(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether a means of saving memory is in this set.
    #[must_use]
    pub const fn has(self, means: Means) -> bool {
        self.0 & means as u32 > 0
    }

    /// Whether every means of saving memory in the other set is also in this one.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// The means of this set that can save memory on `device`: without swaps if the device shares its memory with the
    /// host, or if the host has no room for blocks.
    #[must_use]
    pub fn on(self, device: &Device) -> Self {
        let stays = device.integrated || device.host_capacity == Some(0);
        if stays { self.without(Means::Swap) } else { self }
    }
}

#[derive(Clone, Copy)]
pub(in crate::rewrite) struct Rewritten<'s> {
    pub(in crate::rewrite) rows: &'s [Row],
    pub(in crate::rewrite) shared: &'s [Row],
    pub(in crate::rewrite) in_place: bool,
}

/// One and a half times: room for a mask, three rows, in every six rows. A trace that needs more gets none.
pub(in crate::rewrite) const fn most_rows(rows: usize) -> usize {
    rows + rows / 2
}

pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    mask::workspace(rows, blocks).max(in_place::workspace(rows, most_rows(rows), blocks))
}

/// `original` has the sizes that in-place reuse compares; `shared` needs twice the rows of `masked`.
pub(in crate::rewrite) fn rewrite<'s>(
    recorded: &Recorded<'s>,
    original: &Recorded<'_>,
    (using, alignment): (Using, u64),
    mut scratch: Workspace<'_>,
    [masked, shared]: [&'s mut [Row]; 2],
) -> Result<Rewritten<'s>, Error> {
    let mut made = Rewritten { rows: recorded.rows, shared: recorded.rows, in_place: false };
    if using.has(Means::Relu) {
        match mask::rewrite(recorded, recorded.rows, scratch.reborrow(), masked) {
            Ok(n) if n > recorded.rows.len() => {
                let rows = masked.get_mut(..n).unwrap_or_default();
                for r in rows.iter_mut().filter(|r| recorded.masked(r.block).is_some()) {
                    r.bytes = r.bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
                }
                made.rows = rows;
            }
            Ok(_) | Err(Error::BufferTooSmall { buffer: Buffer::Rows, .. }) => {}
            Err(e) => return Err(e),
        }
    }
    made.shared = made.rows;
    if using.has(Means::InPlace) {
        let n = in_place::rewrite(original, made.rows, scratch, shared)?;
        made.shared = shared.get(..n).unwrap_or_default();
        made.in_place = true;
    }
    Ok(made)
}
