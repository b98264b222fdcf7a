//! Networks of any depth and batch size, as the static graphs that [`sublet_core::trace::Graph`] makes traces of.
//!
//! A model is a function that calls layers. `builder` turns each layer into operators, and notes what its backward pass
//! needs. After the last layer `backward` goes through these notes from the last to the first, and adds the backward
//! pass and an update of every parameter. The result is one iteration of training. Its operators are those that a
//! framework records, with the names that `PyTorch` gives them. The time of each operator is computed by a
//! [`Roofline`].
//!
//! Everything is deterministic: the same arguments give the same graph, byte for byte, on every platform.
//!
//! ```
//! use sublet_models::{ResNet, Roofline, Setting};
//! let setting = Setting { batch: 32, training: true, device: Roofline::GTX1080TI };
//! let network = ResNet { depth: 50, ..ResNet::default() }.build(&setting)?;
//! assert_eq!(network.operators.iter().filter(|o| o.name == "convolution").count(), 53);
//! # Ok::<(), sublet_models::Unbuildable>(())
//! ```

mod alexnet;
mod backward;
mod builder;
mod convolution;
mod lstm;
mod mixer;
mod network;
mod regnet;
mod resnet;
mod roofline;
mod tokens;
mod transformer;
mod unet;
mod vgg;

pub use alexnet::AlexNet;
pub use lstm::Lstm;
pub use mixer::Mixer;
pub use network::{Network, Operator, Phase, Trace};
pub use regnet::RegNet;
pub use resnet::{ResNet, Stages, WideResNet};
pub use roofline::Roofline;
pub use transformer::{Block, Transformer};
pub use unet::UNet;
pub use vgg::Vgg;

use std::fmt;

/// How an iteration is run: with which batch, for training or not, on which device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How many examples one iteration has: 1 to 65,536.
    pub batch: u32,
    /// Whether the iteration has a backward pass and updates the parameters.
    pub training: bool,
    /// The device for which the times of the operators are computed.
    pub device: Roofline,
}

/// The images that a network classifies, and into how many classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Image {
    /// 224 × 224, three channels, 1000 classes.
    #[default]
    ImageNet,
    /// 32 × 32, three channels, 10 classes.
    Cifar,
}

impl Image {
    const fn side(self) -> u64 {
        match self {
            Self::ImageNet => 224,
            Self::Cifar => 32,
        }
    }

    const fn classes(self) -> u64 {
        match self {
            Self::ImageNet => 1000,
            Self::Cifar => 10,
        }
    }
}

/// The error that a network cannot be built. Its text is a sentence that says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbuildable(pub(crate) String);

impl fmt::Display for Unbuildable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unbuildable {}

/// Refuses a number that is not between 1 and `most`.
fn check(what: &str, n: u32, most: u32) -> Result<(), Unbuildable> {
    if (1..=most).contains(&n) { Ok(()) } else { Err(Unbuildable(format!("{what} is {n}; it has to be 1 to {most}"))) }
}

/// Refuses a batch size that is 0 or above 65,536.
fn check_batch(setting: &Setting) -> Result<(), Unbuildable> {
    check("the batch size", setting.batch, 1 << 16)
}
