//! Convolutions: plain, in groups, and transposed.

use crate::builder::{Builder, Kernel, Maps, REAL, Step, Value, Weights};

/// A convolution's shape: its output channels, the side of its window and its stride, both in elements, and whether it
/// has a bias.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(crate) channels: u64,
    pub(crate) side: u64,
    pub(crate) stride: u64,
    pub(crate) bias: bool,
}

impl Builder {
    /// A convolution that is padded so that the side of its output is that of its input divided by the stride, rounded
    /// up.
    pub(crate) fn convolution(&mut self, x: Maps, filter: Filter) -> Maps {
        self.convolution_to(x, filter, x.side.div_ceil(filter.stride))
    }

    /// A convolution whose output maps have the side `side`. Its padding is whatever that takes.
    pub(crate) fn convolution_to(&mut self, x: Maps, filter: Filter, side: u64) -> Maps {
        self.convolution_by(x, filter, side, x.channels * filter.side * filter.side)
    }

    /// A convolution in groups: each output channel reads the input channels of its group alone.
    pub(crate) fn grouped_convolution(&mut self, x: Maps, filter: Filter, groups: u64) -> Maps {
        let taps = x.channels / groups * filter.side * filter.side;
        self.convolution_by(x, filter, x.side.div_ceil(filter.stride), taps)
    }

    /// A transposed convolution: its output has the side of its input times the stride. The window is as wide as the
    /// stride, so that each element of the output is computed from one element of each input channel.
    pub(crate) fn transposed_convolution(&mut self, x: Maps, channels: u64, stride: u64) -> Maps {
        let weight = self.parameter(x.channels * channels * stride * stride * REAL);
        let bias = Some(self.parameter(channels * REAL));
        self.convolved(x, Weights { weight, bias, columns: channels }, x.side * stride, x.channels)
    }

    /// A convolution whose output maps have the side `side`. Each element of the output is a sum of `taps` products.
    fn convolution_by(&mut self, x: Maps, filter: Filter, side: u64, taps: u64) -> Maps {
        let weight = self.parameter(filter.channels * taps * REAL);
        let bias = filter.bias.then(|| self.parameter(filter.channels * REAL));
        self.convolved(x, Weights { weight, bias, columns: filter.channels }, side, taps)
    }

    fn convolved(&mut self, x: Maps, weights: Weights, side: u64, taps: u64) -> Maps {
        let Weights { weight, bias, columns: channels } = weights;
        let outputs = self.batch() * side * side * channels;
        let y = self.result(outputs * REAL);
        let flops = 2 * outputs * taps;
        let reads: Vec<Value> = [Some(x.value), Some(weight), bias].into_iter().flatten().collect();
        self.emit_convolution(Kernel::forward("convolution"), &reads, &[y], flops);
        self.note(Step::Convolution { x: x.value, weights, y, flops });
        Maps { value: y, channels, side }
    }

    /// Adds an operator that has the device's workspace for convolutions; otherwise as [`emit`](Self::emit).
    pub(crate) fn emit_convolution(&mut self, kernel: Kernel, reads: &[Value], writes: &[Value], flops: u64) {
        let bytes = reads.iter().chain(writes).map(|v| v.bytes).sum();
        let device = self.setting.device;
        self.emit_with(kernel, reads, writes, device.time_ns(flops, bytes), device.convolution_workspace);
    }
}
