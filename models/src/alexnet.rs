//! The network of Krizhevsky, Sutskever and Hinton 2012 in one tower: five convolutions and three linear layers.
//!
//! The shapes are those of the paper and of Caffe's `bvlc_alexnet`. Images have 227 × 227 pixels. The convolutions make
//! 96, 256, 384, 384 and 256 maps. The first convolution and the poolings have no padding. Local response normalization
//! comes after the ReLU and before the pooling. The paper splits the second, fourth and fifth convolution over two
//! GPUs. Here each of them reads all maps, as in Krizhevsky's single tower of 2014 and in Chainer's example. So the
//! network has 62,378,344 parameters in place of 60,965,224.

use crate::builder::{Builder, Maps, Matrix, REAL};
use crate::convolution::Filter;
use crate::{Network, Setting, Unbuildable, check_batch};

/// The side of an image in pixels: 55 windows of 11 pixels, 4 apart.
const SIDE: u64 = 227;

/// The network of Krizhevsky et al., which classifies `ImageNet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AlexNet {
    /// Whether a framework without automatic differentiation runs the network, such as Caffe. If not, each
    /// normalization counts its scales as a second output. They have no gradient, so its backward operator reads zeros
    /// in place of one: a tensor of the size of the maps, beside the five that this operator reads and writes anyway.
    pub by_layers: bool,
}

impl AlexNet {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A batch size that is 0 or above 65,536.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        let mut b = Builder::new(setting);
        b.scales_get_gradients = !self.by_layers;
        let x = b.images(3, SIDE);
        let first = Filter { channels: 96, side: 11, stride: 4, bias: true };
        let x = b.convolution_to(x, first, windows(SIDE, 11, 4));
        let x = b.relu(x);
        let x = b.local_response_norm(x);
        let x = pool(&mut b, x);
        let x = convolution(&mut b, x, 256, 5);
        let x = b.local_response_norm(x);
        let x = pool(&mut b, x);
        let x = convolution(&mut b, x, 384, 3);
        let x = convolution(&mut b, x, 384, 3);
        let x = convolution(&mut b, x, 256, 3);
        let x = pool(&mut b, x);
        let mut x = Builder::flatten(x);
        for _ in 0..2 {
            let y = b.linear(x, 4096);
            let y = b.relu_matrix(y);
            x = Matrix { value: b.fused_dropout(y.value), ..y };
        }
        let scores = b.linear(x, 1000);
        Ok(b.classify(scores, REAL))
    }
}

/// How many windows lie beside each other on a side, without padding. All figures are in pixels.
const fn windows(side: u64, window: u64, stride: u64) -> u64 {
    (side - window) / stride + 1
}

/// A convolution whose maps have the side of its input, and a ReLU.
fn convolution(b: &mut Builder, x: Maps, channels: u64, side: u64) -> Maps {
    let y = b.convolution(x, Filter { channels, side, stride: 1, bias: true });
    b.relu(y)
}

/// The maximum of each window of 3 × 3. The windows are 2 apart, so that neighbours overlap by one row or column.
fn pool(b: &mut Builder, x: Maps) -> Maps {
    b.max_pool_to(x, windows(x.side, 3, 2))
}
