//! The MLP-Mixer of Tolstikhin et al. 2021: linear maps over the patches of an image, then over their channels.

use crate::builder::{Builder, Kernel, Maps, Matrix, REAL};
use crate::convolution::Filter;
use crate::{Image, Network, Setting, Unbuildable, check, check_batch};

/// An MLP-Mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixer {
    /// How many blocks of two feed-forward layers there are, one above the other.
    pub layers: u32,
    /// How many numbers represent a patch. The hidden layer has half as many in the linear maps over patches, and four
    /// times as many in the linear maps over channels.
    pub width: u32,
    /// The side of a patch in pixels. It divides 224, the side of an image.
    pub patch: u32,
}

impl Default for Mixer {
    /// The network that the paper calls B/16.
    fn default() -> Self {
        Self { layers: 12, width: 768, patch: 16 }
    }
}

impl Mixer {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A patch that does not divide the image, an odd width, or a number that is 0 or too large, the batch size
    /// included.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        check("the number of layers", self.layers, 4096)?;
        check("the width", self.width, 1 << 16)?;
        check("the patch", self.patch, 224)?;
        if !Image::ImageNet.side().is_multiple_of(self.patch.into()) || !self.width.is_multiple_of(2) {
            return Err(Unbuildable(format!(
                "a patch of {} has to divide 224, and a width of {} to be even",
                self.patch, self.width
            )));
        }
        let mut b = Builder::new(setting);
        let images = b.images(3, Image::ImageNet.side());
        let (width, side) = (u64::from(self.width), u64::from(self.patch));
        let maps = b.convolution(images, Filter { channels: width, side, stride: side, bias: true });
        let patches = maps.side * maps.side;
        let mut x = Matrix { value: maps.value, columns: width };
        for _ in 0..self.layers {
            let h = b.layer_norm(x, REAL);
            let h = transposed(&mut b, h, patches);
            let h = b.feed_forward(h, width / 2, REAL);
            let h = transposed(&mut b, h, width);
            x.value = b.add(x.value, h.value);
            let h = b.layer_norm(x, REAL);
            let h = b.feed_forward(h, 4 * width, REAL);
            x.value = b.add(x.value, h.value);
        }
        let x = b.layer_norm(x, REAL);
        let x = b.mean(Maps { value: x.value, channels: width, side: maps.side });
        let scores = b.linear(x, Image::ImageNet.classes());
        Ok(b.classify(scores, REAL))
    }
}

/// A copy with rows and columns exchanged; its rows have `columns` numbers.
fn transposed(b: &mut Builder, x: Matrix, columns: u64) -> Matrix {
    let y = b.result(x.value.bytes);
    b.emit(Kernel::forward("clone"), &[x.value], &[y], 0);
    b.undone("clone", y, &[], &[x.value], (0, false));
    Matrix { value: y, columns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roofline;
    use sublet_core::trace::Storage;

    fn build(of: Mixer, training: bool) -> Result<Network, Unbuildable> {
        of.build(&Setting { batch: 2, training, device: Roofline::GTX1080TI })
    }

    #[test]
    fn it_has_the_parameters_that_were_published() {
        // S/32, B/16 and L/16 have 19, 59 and 207 million (table 1); B/16 has 59,880,472 to the last.
        let published = [(8, 512, 32, 19), (12, 768, 16, 59), (24, 1024, 16, 207)];
        for (layers, width, patch, millions) in published {
            let network = build(Mixer { layers, width, patch }, false).unwrap();
            let persistent = network.tensors.iter().filter(|t| t.storage == Storage::Persistent);
            let parameters: u64 = persistent.map(|t| t.bytes / 4).sum();
            assert!(parameters.abs_diff(millions * 1_000_000) <= 1_500_000, "{parameters}");
            if layers == 12 {
                // Memory comes in pieces: 12 biases of 196 numbers take 256, and 1000 take 1024.
                assert_eq!(parameters, 59_880_472 + 12 * (256 - 196) + 24);
            }
        }
    }

    #[test]
    fn every_parameter_is_updated_and_the_trace_is_one() {
        let network = build(Mixer::default(), true).unwrap();
        let count = |name| network.operators.iter().filter(|o| o.name == name).count();
        let persistent = network.tensors.iter().filter(|t| t.storage == Storage::Persistent).count();
        assert_eq!(2 * count("_fused_sgd_"), persistent);
        assert_eq!([count("gelu"), count("native_layer_norm"), count("clone")], [24, 25, 48]);
        assert!(network.trace().is_ok());
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let net = Mixer::default();
        for wrong in [
            Mixer { patch: 15, ..net },
            Mixer { patch: 0, ..net },
            Mixer { width: 511, ..net },
            Mixer { layers: 0, ..net },
        ] {
            assert!(build(wrong, true).is_err(), "{wrong:?}");
        }
    }
}
