//! Groups of blocks that end or begin together, and how they are divided into events, for [`Tiling`](super::Tiling). At
//! an event, some blocks end and others of the same total size take their place.

/// A group of blocks is divided into a part that has the group's first block, and the rest. If the group has up to this
/// number of other blocks, all such parts are tried. Of a larger group only these parts are tried: the first block
/// alone, the first block with one other block, and all blocks without one block that is not the first.
const MOST_DIVIDED: u32 = 10;
/// [`Sums`] searches a group of blocks for the parts of a given total size. The search ends once it has looked at more
/// than this number of blocks. A block counts each time that it is looked at; so do blocks outside the group whose bits
/// are lower than that of its last member.
const MOST_STEPS: u32 = 500;

/// Some of the blocks that end in a section of time, or some of the blocks that begin in it. Bit i stands for the i-th
/// block, counted from 0, that ends (or begins) there. If more than 63 do, only two groups are possible: the one of all
/// of them, in which all 64 bits are set, and the empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(pub u64);

impl Group {
    pub(super) const NONE: Self = Self(0);
    const MANY: Self = Self(u64::MAX);

    pub(super) const fn all(n: u32) -> Self {
        if n < u64::BITS { Self((1 << n) - 1) } else { Self::MANY }
    }

    pub(super) fn has(self, i: u32) -> bool {
        self == Self::MANY || (i < u64::BITS && self.0 >> i & 1 == 1)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn members(self) -> impl Iterator<Item = u32> + Clone {
        (0..u64::BITS).filter(move |&i| self.0 >> i & 1 == 1)
    }

    /// The parts of the group that are tried: the blocks of such a part end together at one event, and others take
    /// their place. Each part has the group's first member, but not all members. Of a group with more than
    /// [`MOST_DIVIDED`] other members, only some of these parts are tried; of a group of more than 63 members, none.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        let first = Self(self.0 & self.0.wrapping_neg());
        let others = if self == Self::MANY { Self::NONE } else { self.without(first) };
        let n = others.0.count_ones();
        let many = if n > MOST_DIVIDED { 2 * n + 1 } else { (1 << n) - 1 };
        (0..if n == 0 { 0 } else { many }).map(move |number| {
            if n <= MOST_DIVIDED {
                return Self(first.0 | others.spread(number));
            }
            let one =
                others.spread(1u64.unbounded_shl(if number > n { number - n - 1 } else { number.wrapping_sub(1) }));
            Self(if number > n { self.0 & !one } else { first.0 | one })
        })
    }

    /// Selects members of the group: bit k of `which` stands for the group's k-th member, counted from 0. Returns the
    /// group's bits of the selected members. The group 0b1101 and `which` 0b101 give 0b1001: the first and the third
    /// member.
    fn spread(self, which: impl Into<u64>) -> u64 {
        let which = which.into();
        self.members().zip(0..).fold(0, |mask, (i, place)| mask | (which >> place & 1) << i)
    }
}

/// A search for the parts of a group of blocks whose sizes add up to a given sum. It finds none in a group of more than
/// 63 blocks.
pub(super) struct Sums {
    group: Group,
    /// The blocks of the group that are chosen so far, as in [`Group`]; the sum of their sizes is to be a given number
    /// of bytes.
    taken: u64,
    /// How many bytes are still to be chosen: the sum that the search is given, less the sizes of the blocks in
    /// `taken`.
    missing: u64,
    /// The block that the search looks at next, as the number of its bit in `taken`.
    place: u32,
    /// How many blocks the search has looked at, counted as for [`MOST_STEPS`].
    pub steps: u32,
}

impl Sums {
    pub(super) const fn new(group: Group, sum: u64) -> Self {
        let group = if group.0 == u64::MAX { Group::NONE } else { group };
        Self { group, taken: 0, missing: sum, place: 0, steps: 0 }
    }

    /// The next part of the group whose blocks' sizes add up to the given sum; `None` if there are no more, or if
    /// [`MOST_STEPS`] ends the search. `size` and `kind` take the number of a block's bit in the group. Blocks for
    /// which `kind` is equal are alike, and must have adjacent numbers. Of parts that differ only in which of several
    /// like blocks they hold, only one is returned.
    pub(super) fn next(&mut self, size: impl Fn(u32) -> u64, kind: impl Fn(u32) -> u32) -> Option<Group> {
        loop {
            // A part that is found gives up its last block before it is returned: so bytes are missing at the next
            // call.
            while self.missing > 0 && self.place < u64::BITS - self.group.0.leading_zeros() {
                if self.group.has(self.place) && size(self.place) <= self.missing {
                    self.taken |= 1 << self.place;
                    self.missing -= size(self.place);
                }
                self.place += 1;
                self.steps += 1;
            }
            let found = (self.missing == 0).then_some(Group(self.taken));
            let last = self.taken.checked_ilog2()?;
            if self.steps > MOST_STEPS {
                return None;
            }
            self.taken &= !(1 << last);
            self.missing += size(last);
            self.place = last + 1;
            while self.group.has(self.place) && kind(self.place) == kind(last) {
                self.place += 1;
            }
            if found.is_some() {
                return found;
            }
        }
    }
}
