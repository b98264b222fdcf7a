//! Groups of blocks that end or begin together, and how they are divided into events, for [`Tiling`](super::Tiling). At
//! an event, some blocks end and others of the same total size take their place.

/// In a larger group, only these are tried: the first alone, with one other, and all but one other.
const MOST_DIVIDED: u32 = 10;
const MOST_STEPS: u32 = 500;

/// Bit i is the i-th that ends or begins; with more than 63, all 64 bits are set or none.
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

    /// Bit k of `which` selects the k-th member: 0b1101 and 0b101 give 0b1001.
    fn spread(self, which: impl Into<u64>) -> u64 {
        let which = which.into();
        self.members().zip(0..).fold(0, |mask, (i, place)| mask | (which >> place & 1) << i)
    }
}

pub(super) struct Sums {
    group: Group,
    taken: u64,
    missing: u64,
    place: u32,
    /// How many blocks the search has looked at, counted as for [`MOST_STEPS`].
    pub steps: u32,
}

impl Sums {
    pub(super) const fn new(group: Group, sum: u64) -> Self {
        let group = if group.0 == u64::MAX { Group::NONE } else { group };
        Self { group, taken: 0, missing: sum, place: 0, steps: 0 }
    }

    /// Blocks of equal `kind` are alike and adjacent; of parts alike, one is returned.
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
