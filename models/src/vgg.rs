//! The networks of Simonyan and Zisserman 2014: convolutions of 3 × 3 in five groups, and three linear layers.
//!
//! For CIFAR they are those of Zagoruyko's `cifar.torch`: batch norm after every convolution, dropout after all
//! convolutions but the last of a group, and two linear layers, of which the first has 512 outputs.

use crate::builder::{Builder, Matrix, REAL};
use crate::convolution::Filter;
use crate::{Image, Network, Setting, Unbuildable, check_batch};

/// A network of Simonyan and Zisserman 2014.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vgg {
    /// Layers with weights: 11, 13, 16 or 19.
    pub depth: u32,
    /// The images that it classifies.
    pub image: Image,
}

impl Vgg {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A depth that no such network has, or a batch size that is 0 or above 65,536.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        let groups = match self.depth {
            11 => [1, 1, 2, 2, 2],
            13 => [2, 2, 2, 2, 2],
            16 => [2, 2, 3, 3, 3],
            19 => [2, 2, 4, 4, 4],
            depth => {
                return Err(Unbuildable(format!("no VGG network has {depth} layers: there are 11, 13, 16 and 19")));
            }
        };
        let cifar = self.image == Image::Cifar;
        let mut b = Builder::new(setting);
        b.relu_keeps_input = self.image == Image::Cifar;
        let mut x = b.images(3, self.image.side());
        for (layers, channels) in groups.into_iter().zip([64, 128, 256, 512, 512]) {
            for layer in 1..=layers {
                x = b.convolution(x, Filter { channels, side: 3, stride: 1, bias: true });
                if cifar {
                    x = b.batch_norm(x);
                }
                x = b.relu(x);
                if cifar && layer < layers {
                    x.value = b.dropout(x.value);
                }
            }
            x = b.max_pool(x, 2);
        }
        let mut x = Builder::flatten(x);
        if cifar {
            x.value = b.dropout(x.value);
            let y = b.linear(x, 512);
            let y = b.batch_norm_matrix(y);
            x = active(&mut b, y);
        } else {
            for _ in 0..2 {
                let y = b.linear(x, 4096);
                x = active(&mut b, y);
            }
        }
        let scores = b.linear(x, self.image.classes());
        Ok(b.classify(scores, REAL))
    }
}

/// A `ReLU` and dropout.
fn active(b: &mut Builder, x: Matrix) -> Matrix {
    let y = b.relu_matrix(x);
    Matrix { value: b.dropout(y.value), ..y }
}
