//! Residual networks: He et al. 2015 with bottlenecks, and the wide ones of Zagoruyko and Komodakis 2016.
//!
//! A bottleneck network of depth d has (d − 2) / 3 blocks in four stages. He et al. publish how many blocks each stage
//! has for 50, 101 and 152 layers, and in 2016 for 200. Two later papers use deeper networks, and spread the blocks in
//! different ways. Chen et al. 2016 deepen every stage; here the stages keep the proportions 3 : 4 : 6 : 3 that they
//! have with 50 layers. Jin et al. 2018 (Layrub) deepen the second and the third stage: the network files that they
//! publish have 3, 57, 270 and 3 blocks for 1001 layers, and 3, 83, 416 and 3 for 1517.

use crate::builder::{Builder, Maps, REAL};
use crate::convolution::Filter;
use crate::{Image, Network, Setting, Unbuildable, check, check_batch};

/// The deepest network that is built.
const DEEPEST: u32 = 100_000;

/// A residual network of He et al. 2015.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNet {
    /// Layers with weights: 18, 34, or 3 n + 2 from 14 on.
    pub depth: u32,
    /// The images that the network classifies. For CIFAR it begins with a convolution of 3 × 3 and has no pooling
    /// before the stages.
    pub image: Image,
    /// How the blocks are spread over the stages.
    pub stages: Stages,
}

/// How the blocks of a deep network are spread over its four stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stages {
    /// As He et al. published it for 18, 34, 50, 101, 152 and 200 layers; `Even` for all other depths.
    #[default]
    Published,
    /// In the proportions 3 : 4 : 6 : 3. Networks of 18 and 34 layers have the published stages all the same.
    Even,
    /// 3, 4 and 3 blocks in the first, second and fourth stage, and all others in the third, as He et al. deepen 50
    /// layers to 101. At least 35 layers; those of 18 and 34 have the published stages all the same.
    Third,
    /// This many blocks in each stage: (depth − 2) / 3 together, and at least one in each. Not for 18 and 34 layers.
    Blocks([u32; 4]),
}

impl Default for ResNet {
    fn default() -> Self {
        Self { depth: 50, image: Image::ImageNet, stages: Stages::Published }
    }
}

impl ResNet {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A depth that no network of this kind has, `stages` that do not go with the depth, or a batch size that is 0 or
    /// above 65,536.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        let blocks = self.blocks()?;
        let bottlenecks = ![18, 34].contains(&self.depth);
        let mut b = Builder::new(setting);
        b.relu_keeps_input = self.image == Image::Cifar;
        let x = b.images(3, self.image.side());
        let (side, stride) = if self.image == Image::ImageNet { (7, 2) } else { (3, 1) };
        let x = unit(&mut b, x, Filter { channels: 64, side, stride, bias: false }, 1);
        let mut x = b.relu(x);
        if self.image == Image::ImageNet {
            x = b.max_pool(x, 2);
        }
        for (stage, (blocks, width)) in blocks.into_iter().zip([64, 128, 256, 512]).enumerate() {
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let filter = Filter { channels: width, side: 3, stride, bias: false };
                x = if bottlenecks {
                    bottleneck(&mut b, x, filter, 1, 4 * width)
                } else {
                    basic_block(&mut b, x, filter)
                };
            }
        }
        let x = b.mean(x);
        let scores = b.linear(x, self.image.classes());
        Ok(b.classify(scores, REAL))
    }

    /// How many blocks each stage has.
    fn blocks(self) -> Result<[u32; 4], Unbuildable> {
        check("the depth", self.depth, DEEPEST)?;
        let published = self.stages == Stages::Published;
        match self.depth {
            18 | 34 if matches!(self.stages, Stages::Blocks(_)) => {
                return Err(Unbuildable(format!(
                    "{} layers are no bottlenecks, of which there are so many",
                    self.depth
                )));
            }
            18 => return Ok([2, 2, 2, 2]),
            34 => return Ok([3, 4, 6, 3]),
            101 if published => return Ok([3, 4, 23, 3]),
            152 if published => return Ok([3, 8, 36, 3]),
            200 if published => return Ok([3, 24, 36, 3]),
            depth if depth < 14 || depth % 3 != 2 => {
                return Err(Unbuildable(format!(
                    "no residual network has {depth} layers: there are 18, 34, and 3 n + 2 from 14 on, such as {}",
                    (depth.max(14) - 2) / 3 * 3 + 2
                )));
            }
            _ => {}
        }
        let blocks = (self.depth - 2) / 3;
        if let Stages::Blocks(given) = self.stages {
            let together: u64 = given.into_iter().map(u64::from).sum();
            return if together == u64::from(blocks) && !given.contains(&0) {
                Ok(given)
            } else {
                Err(Unbuildable(format!("{} layers are {blocks} blocks, at least one in each stage", self.depth)))
            };
        }
        if self.stages == Stages::Third {
            return match blocks.checked_sub(10).filter(|&third| third > 0) {
                Some(third) => Ok([3, 4, third, 3]),
                None => Err(Unbuildable(format!(
                    "{} layers are too few to deepen the third stage alone: at least 35",
                    self.depth
                ))),
            };
        }
        // The stages with the largest remainders get the blocks that rounding leaves; of equal ones the earlier stage.
        let shares = [3, 4, 6, 3].map(|share| u64::from(blocks) * share);
        let mut stages = shares.map(|s| u32::try_from(s / 16).unwrap_or_default());
        let mut left = blocks - stages.iter().sum::<u32>();
        let mut order = [0, 1, 2, 3];
        order.sort_by_key(|&i| core::cmp::Reverse(shares[i] % 16));
        for i in order {
            stages[i] += u32::from(left > 0);
            left = left.saturating_sub(1);
        }
        Ok(stages)
    }
}

/// A convolution in `groups` groups, and batch norm.
pub(crate) fn unit(b: &mut Builder, x: Maps, filter: Filter, groups: u64) -> Maps {
    let y = b.grouped_convolution(x, filter, groups);
    b.batch_norm(y)
}

/// A bottleneck: three convolutions, and the addition of the shortcut. The first has a window of 1 × 1. The second is
/// `middle`, in `groups` groups. The third has a window of 1 × 1 and `channels` output channels.
pub(crate) fn bottleneck(b: &mut Builder, x: Maps, middle: Filter, groups: u64, channels: u64) -> Maps {
    let one = Filter { side: 1, stride: 1, ..middle };
    let y = unit(b, x, one, 1);
    let y = b.relu(y);
    let y = unit(b, y, middle, groups);
    let y = b.relu(y);
    let y = unit(b, y, Filter { channels, ..one }, 1);
    end_of_block(b, x, y, middle.stride)
}

/// A block of two convolutions, and the addition of the shortcut.
fn basic_block(b: &mut Builder, x: Maps, first: Filter) -> Maps {
    let y = unit(b, x, first, 1);
    let y = b.relu(y);
    let y = unit(b, y, Filter { stride: 1, ..first }, 1);
    end_of_block(b, x, y, first.stride)
}

/// Ends a block: adds its input `x` (the shortcut) to the result `y` of its convolutions, and a ReLU. Where `x` has
/// another shape than `y`, a convolution of 1 × 1 and a batch norm give it the shape of `y` first.
fn end_of_block(b: &mut Builder, x: Maps, y: Maps, stride: u64) -> Maps {
    let projection = Filter { channels: y.channels, side: 1, stride, bias: false };
    let shortcut = if x.channels == y.channels && stride == 1 { x } else { unit(b, x, projection, 1) };
    let sum = b.add_in_place(y, shortcut);
    b.relu(sum)
}

/// A wide residual network for CIFAR, with batch norm and `ReLU` before the convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideResNet {
    /// Layers with weights: 6 n + 4.
    pub depth: u32,
    /// The widening factor: the three stages have 16, 32 and 64 channels times this.
    pub width: u32,
}

impl WideResNet {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A depth or width that no network of this kind has, or a batch size that is 0 or above 65,536.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        check("the depth", self.depth, DEEPEST)?;
        check("the width", self.width, 4096)?;
        if self.depth < 10 || self.depth % 6 != 4 {
            let nearest = (self.depth.max(10) - 4) / 6 * 6 + 4;
            return Err(Unbuildable(format!(
                "no wide residual network has {} layers: there are 6 n + 4 from 10 on, such as {nearest}",
                self.depth
            )));
        }
        let mut b = Builder::new(setting);
        let x = b.images(3, Image::Cifar.side());
        let mut x = b.convolution(x, Filter { channels: 16, side: 3, stride: 1, bias: false });
        for (stage, width) in [16, 32, 64].into_iter().enumerate() {
            for block in 0..(self.depth - 4) / 6 {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                x = wide_block(&mut b, x, width * u64::from(self.width), stride);
            }
        }
        let x = b.batch_norm(x);
        let x = b.relu(x);
        let x = b.mean(x);
        let scores = b.linear(x, Image::Cifar.classes());
        Ok(b.classify(scores, REAL))
    }
}

fn wide_block(b: &mut Builder, x: Maps, channels: u64, stride: u64) -> Maps {
    let normal = b.batch_norm(x);
    let active = b.relu(normal);
    let first = Filter { channels, side: 3, stride, bias: false };
    let y = b.convolution(active, first);
    let y = b.batch_norm(y);
    let y = b.relu(y);
    let y = b.convolution(y, Filter { stride: 1, ..first });
    let shortcut =
        if x.channels == channels && stride == 1 { x } else { b.convolution(active, Filter { side: 1, ..first }) };
    Maps { value: b.add(y.value, shortcut.value), ..y }
}
