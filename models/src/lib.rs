//! Networks of any depth and batch size, as the static graphs that [`sublet_core::trace::graph`] makes traces of.
//!
//! A model is a function that calls layers. `builder` turns each layer into operators and notes how it is undone;
//! after the last layer the notes are read backwards, which gives the backward pass and the update of every parameter:
//! one iteration of training, at the level of operators at which frameworks record it, with the names that `PyTorch`
//! gives them. Times are those of a [`Roofline`].
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

/// The setting of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Examples in one iteration; at least 1.
    pub batch: u32,
    /// Whether it has a backward pass and an update.
    pub training: bool,
    /// The device whose times the operators have.
    pub device: Roofline,
}

/// The images that a network is for.
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

/// Why there is no such network, as a sentence.
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

/// Refuses an empty batch.
fn check_batch(setting: &Setting) -> Result<(), Unbuildable> {
    check("the batch size", setting.batch, 1 << 16)
}
