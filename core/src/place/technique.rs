//! The techniques of the exact search, by name, so that each can be turned off.
//!
//! The optimum is the same without any of them; but the search takes longer to find or to prove it. They are turned off
//! to see what each is worth, and to find the one that is at fault when an answer is wrong.

/// A technique of the exact search that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Technique {
    /// Blocks with the same lifetime, size and alignment, and with no given offset, could change places in a plan. So
    /// the search gives them one order from the bottom up: plans with two of them in the other order are not looked at.
    Twins,
    /// Two ranges of time are searched one after the other if no block that is still to be placed crosses from one to
    /// the other.
    Components,
    /// The next block is chosen at a time whose blocks have made many nodes of the search tree fail.
    Failures,
    /// A run of the search ends after a number of nodes. The next run tries the blocks in another order: their
    /// lifetimes and sizes, by which they are sorted, are changed at random.
    Restarts,
    /// Blocks are preferred that keep the top of the placed blocks level. Where the top is level over a range of time,
    /// these are blocks that begin or end with the range, as they leave no notch there. They are preferred more if
    /// their own top is as high as the top of the placed blocks beside the range.
    Level,
    /// In a long search, every second run begins near the best plan so far: it tries blocks in the order of their
    /// offsets there, changed a little at random.
    Guidance,
    /// States of the search that were shown to have no placement are kept, and fail at once when they come again.
    Nogoods,
}

impl Technique {
    /// Every technique.
    pub const ALL: [Self; 7] =
        [Self::Twins, Self::Components, Self::Failures, Self::Restarts, Self::Level, Self::Guidance, Self::Nogoods];

    /// The name of the technique: one word in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Twins => "twins",
            Self::Components => "components",
            Self::Failures => "failures",
            Self::Restarts => "restarts",
            Self::Level => "level",
            Self::Guidance => "guidance",
            Self::Nogoods => "nogoods",
        }
    }

    /// The technique of this name; `None` if no technique has it.
    ///
    /// ```
    /// use sublet_core::place::Technique;
    /// assert!(Technique::ALL.iter().all(|&t| Technique::named(t.name()) == Some(t)));
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }
}

/// A set of techniques of the exact search; by default all of them. Bit k of the number stands for the technique at
/// index k of [`Technique::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques(u16);

impl Techniques {
    /// All techniques.
    pub const ALL: Self = Self(u16::MAX);

    /// The set without `technique`.
    ///
    /// ```
    /// use sublet_core::place::{Technique, Techniques};
    /// let fewer = Techniques::ALL.without(Technique::Nogoods);
    /// assert!(!fewer.has(Technique::Nogoods) && fewer.has(Technique::Twins));
    /// ```
    #[must_use]
    pub const fn without(self, technique: Technique) -> Self {
        Self(self.0 & !(1 << technique as u16))
    }

    /// Whether `technique` is in the set.
    #[must_use]
    pub const fn has(self, technique: Technique) -> bool {
        self.0 >> technique as u16 & 1 == 1
    }
}

impl Default for Techniques {
    fn default() -> Self {
        Self::ALL
    }
}
