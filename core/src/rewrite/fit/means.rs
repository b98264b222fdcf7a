//! What memory is saved by.

use crate::simulate::Device;

/// A means of saving memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Means {
    /// Blocks leave for the host while they are idle.
    Swap,
    /// Values are freed, and recomputed by the operators that made them.
    Recompute,
    /// Outputs are written over inputs that nobody needs any more, where the operator can ([`in_place`](super::super::means::in_place)).
    InPlace,
    /// Of what a rectifier reads or writes a bit for each element is kept ([`relu`](super::super::means::mask)).
    Relu,
    /// Activations leave after their last forward reader and are back one operator ahead: the layers' rule of Jin et al.
    /// 2018, to compare with.
    Layer,
    /// Operators run in another order, where they do not [keep their place](crate::trace::Operator::ordered)
    /// (`means/order`).
    Order,
}

impl Means {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Swap, Self::Recompute, Self::InPlace, Self::Relu, Self::Layer, Self::Order];

    /// What people call it.
    ///
    /// ```
    /// use sublet_core::rewrite::fit::Means;
    /// assert!(Means::ALL.iter().all(|&m| Means::named(m.name()) == Some(m)));
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swap => "swap",
            Self::Recompute => "recompute",
            Self::InPlace => "in-place",
            Self::Relu => "relu",
            Self::Layer => "layer",
            Self::Order => "order",
        }
    }

    /// The means of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    const fn bit(self) -> u32 {
        match self {
            Self::Swap => 1,
            Self::Recompute => 2,
            Self::InPlace => 4,
            Self::Relu => 8,
            Self::Layer => 16,
            Self::Order => 32,
        }
    }
}

/// A set of means.
///
/// ```
/// use sublet_core::rewrite::fit::{Means, Using};
/// use sublet_core::simulate::Device;
/// let swap = Using::NONE.with(Means::Swap);
/// assert!(swap.has(Means::Swap) && !swap.has(Means::Recompute));
/// let jetson = Device::named("jetson-orin").unwrap();
/// assert_eq!(Using::ALL.on(&jetson), Using::ALL.without(Means::Swap));
/// // What is there to compare with is to be asked for.
/// assert!(!Using::ALL.has(Means::Layer));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Using(u32);

impl Using {
    /// None.
    pub const NONE: Self = Self(0);
    /// All that one would use together: each but [`Means::Layer`], which swapping is better than.
    pub const ALL: Self =
        Self::NONE.with(Means::Swap).with(Means::Recompute).with(Means::InPlace).with(Means::Relu).with(Means::Order);

    /// With a means.
    #[must_use]
    pub const fn with(self, means: Means) -> Self {
        Self(self.0 | means.bit())
    }

    /// Without a means.
    #[must_use]
    pub const fn without(self, means: Means) -> Self {
        Self(self.0 & !means.bit())
    }

    /// Whether a means is among them.
    #[must_use]
    pub const fn has(self, means: Means) -> bool {
        self.0 & means.bit() > 0
    }

    /// Those that save memory on a device: nothing leaves one that has no host beside it.
    #[must_use]
    pub fn on(self, device: &Device) -> Self {
        let stays = device.integrated || device.host_capacity == Some(0);
        if stays { self.without(Means::Swap).without(Means::Layer) } else { self }
    }
}
