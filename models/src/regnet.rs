//! `RegNetX` of Radosavovic et al. 2020: residual networks whose sizes were found by a search.
//!
//! Four stages of residual bottlenecks whose middle convolution has groups. The numbers of blocks and their widths are
//! those that were published.

use crate::builder::{Builder, REAL};
use crate::convolution::Filter;
use crate::resnet::{bottleneck, unit};
use crate::{Image, Network, Setting, Unbuildable, check_batch};

/// A `RegNetX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegNet {
    /// How many multiplications one image takes, in units of 10⁸: 4 for `RegNetX`-400MF, 16 for `RegNetX`-1.6GF. It is
    /// 4, 8, 16, 32, 80, 160 or 320.
    pub tenths: u32,
}

/// For each stage, how many blocks it has and how many channels; and how many channels a group of the grouped
/// convolutions has.
type Shape = ([u32; 4], [u64; 4], u64);

impl RegNet {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A size that was not published, or a batch size that is 0 or above 65,536.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        let (blocks, widths, group) = self.shape()?;
        let mut b = Builder::new(setting);
        let x = b.images(3, Image::ImageNet.side());
        let x = unit(&mut b, x, Filter { channels: 32, side: 3, stride: 2, bias: false }, 1);
        let mut x = b.relu(x);
        for (blocks, width) in blocks.into_iter().zip(widths) {
            for block in 0..blocks {
                let stride = if block == 0 { 2 } else { 1 };
                let middle = Filter { channels: width, side: 3, stride, bias: false };
                x = bottleneck(&mut b, x, middle, width / group.min(width), width);
            }
        }
        let x = b.mean(x);
        let scores = b.linear(x, Image::ImageNet.classes());
        Ok(b.classify(scores, REAL))
    }

    /// The published shape.
    fn shape(self) -> Result<Shape, Unbuildable> {
        Ok(match self.tenths {
            4 => ([1, 2, 7, 12], [32, 64, 160, 400], 16),
            8 => ([1, 3, 7, 5], [64, 128, 288, 672], 16),
            16 => ([2, 4, 10, 2], [72, 168, 408, 912], 24),
            32 => ([2, 6, 15, 2], [96, 192, 432, 1008], 48),
            80 => ([2, 5, 15, 1], [80, 240, 720, 1920], 120),
            160 => ([2, 6, 13, 1], [256, 512, 896, 2048], 128),
            320 => ([2, 7, 13, 1], [336, 672, 1344, 2520], 168),
            tenths => {
                return Err(Unbuildable(format!(
                    "no RegNetX has {tenths}: there are 4, 8, 16, 32, 80, 160 and 320, in 0.1 GF"
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roofline;

    fn build(tenths: u32, batch: u32) -> Result<Network, Unbuildable> {
        RegNet { tenths }.build(&Setting { batch, training: true, device: Roofline::GTX1080TI })
    }

    #[test]
    fn they_have_the_parameters_that_were_published() {
        // Of torchvision's regnet_x_400mf, 800mf, 1_6gf, 3_2gf, 8gf, 16gf and 32gf.
        for (tenths, published) in [
            (4, 5_495_976),
            (8, 7_259_656),
            (16, 9_190_136),
            (32, 15_296_552),
            (80, 39_572_648),
            (160, 54_278_536),
            (320, 107_811_560),
        ] {
            let network = build(tenths, 1).unwrap();
            let updated = network.operators.iter().filter(|o| o.name == "_fused_sgd_");
            let bytes = updated.map(|o| network.tensors[o.inputs[0] as usize].bytes);
            // Sizes are rounded up to 512 bytes: the tensor of a parameter has room for up to 127 numbers more than the
            // parameter has.
            let (least, most) =
                bytes.fold((0, 0), |(least, most), bytes| (least + (bytes - 508) / 4, most + bytes / 4));
            assert!((least..=most).contains(&published), "{tenths}: {least} to {most}");
            assert!(network.trace().is_ok());
        }
        assert!(build(31, 1).is_err() && build(32, 0).is_err());
    }

    #[test]
    fn they_take_the_arithmetic_that_they_are_called_by() {
        // A multiplication and its addition take 1 ns; memory traffic and launches take no time.
        let device = Roofline { flops_per_s: 2e9, bytes_per_s: 1e30, launch_ns: 0, ..Roofline::GTX1080TI };
        for (tenths, published) in
            [(4, 410), (8, 800), (16, 1600), (32, 3180), (80, 7990), (160, 15_940), (320, 31_740)]
        {
            let network = RegNet { tenths }.build(&Setting { batch: 1, training: false, device }).unwrap();
            let ns: u64 = network.operators.iter().map(|o| o.time_ns).sum();
            assert!((ns / 1_000_000).abs_diff(published) <= published / 50, "{tenths}: {ns}");
        }
    }
}
