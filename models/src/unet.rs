//! The network of Ronneberger et al. 2015, which gives each pixel a class.
//!
//! Down: four times two convolutions of 3 × 3, then pooling. At the bottom two more convolutions. Up: four times a
//! transposed convolution, whose maps are joined with those of the same side from the way down, then two convolutions.
//! Convolutions are padded and have batch norm, as in the versions that are used today.

use crate::builder::{Builder, Maps, Matrix, REAL};
use crate::convolution::Filter;
use crate::{Network, Setting, Unbuildable, check, check_batch};

/// The network of Ronneberger et al.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UNet {
    /// The side of an image in pixels, a multiple of 16.
    pub side: u32,
    /// Channels of the first convolution; each pooling doubles them.
    pub width: u32,
    /// How many classes a pixel has.
    pub classes: u32,
}

impl Default for UNet {
    fn default() -> Self {
        Self { side: 224, width: 64, classes: 2 }
    }
}

/// How often the sides are halved.
const POOLED: usize = 4;

impl UNet {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A side that cannot be halved four times, or a number that is 0 or too large, the batch size included.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        check("the side", self.side, 1 << 12)?;
        check("the width", self.width, 1 << 10)?;
        check("the number of classes", self.classes, 1 << 12)?;
        if !self.side.is_multiple_of(1 << POOLED) {
            return Err(Unbuildable(format!("a side of {} cannot be halved {POOLED} times", self.side)));
        }
        let mut b = Builder::new(setting);
        let mut x = b.images(3, self.side.into());
        let mut channels = u64::from(self.width);
        let mut kept = Vec::new();
        for _ in 0..POOLED {
            x = twice(&mut b, x, channels);
            kept.push(x);
            x = b.max_pool(x, 2);
            channels *= 2;
        }
        x = twice(&mut b, x, channels);
        while let Some(before) = kept.pop() {
            channels /= 2;
            let wide = b.transposed_convolution(x, channels, 2);
            let both = b.concatenate(before, wide);
            x = twice(&mut b, both, channels);
        }
        let scores = b.convolution(x, Filter { channels: self.classes.into(), side: 1, stride: 1, bias: true });
        Ok(b.classify(Matrix { value: scores.value, columns: scores.channels }, REAL))
    }
}

/// Two convolutions, each with batch norm and a `ReLU`.
fn twice(b: &mut Builder, mut x: Maps, channels: u64) -> Maps {
    for _ in 0..2 {
        let y = b.convolution(x, Filter { channels, side: 3, stride: 1, bias: false });
        let y = b.batch_norm(y);
        x = b.relu(y);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roofline;

    fn setting(training: bool) -> Setting {
        Setting { batch: 2, training, device: Roofline::GTX1080TI }
    }

    #[test]
    fn it_has_the_layers_that_were_published() {
        let network = UNet::default().build(&setting(true)).unwrap();
        let count = |name| network.operators.iter().filter(|o| o.name == name).count();
        // "In total the network has 23 convolutional layers", four of them transposed.
        assert_eq!(count("convolution"), 23);
        assert_eq!(count("convolution_backward"), 23);
        assert_eq!([count("cat"), count("max_pool2d_with_indices")], [4, 4]);
        // A weight and a bias for each of 18 norms, 5 biases and 23 weights.
        assert_eq!(count("_fused_sgd_"), 2 * 18 + 5 + 23);
        assert!(network.trace().is_ok());
    }

    #[test]
    fn what_the_way_down_made_is_kept_for_the_way_back() {
        let network = UNet::default().build(&setting(false)).unwrap();
        let cat = network.operators.iter().rposition(|o| o.name == "cat").unwrap();
        let made = |tensor: u32| network.operators.iter().position(|o| o.outputs.contains(&tensor)).unwrap();
        // The last `cat` reads what the first two convolutions made, and what the transposed convolution right before
        // it made.
        let inputs = network.operators[cat].inputs.clone();
        assert_eq!([made(inputs[0]), made(inputs[1])], [5, cat - 1]);
        let bytes = |tensor: u32| network.tensors[tensor as usize].bytes;
        assert_eq!([bytes(inputs[0]), bytes(inputs[1])], [2 * 64 * 224 * 224 * 4; 2]);
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let net = UNet::default();
        for wrong in
            [UNet { side: 100, ..net }, UNet { side: 0, ..net }, UNet { width: 0, ..net }, UNet { classes: 0, ..net }]
        {
            assert!(wrong.build(&setting(true)).is_err(), "{wrong:?}");
        }
    }
}
