//! The backward pass: the steps ([`Step`]) from the last to the first, each of which computes the gradients of the
//! values that it read. Then every parameter is updated, by stochastic gradient descent with momentum.
//!
//! A value that several layers read gets a gradient from each of them. Each further gradient is added to the sum of
//! those before it as soon as it is computed, as automatic differentiation does it. The gradients of parameters stay
//! allocated to the end of the iteration.

use sublet_core::trace::Kind;

use crate::builder::{Builder, Kernel, REAL, Step, Value};
use crate::network::{Network, Phase};

impl Builder {
    /// Adds the backward pass, which begins with the gradient of `loss`, and an update of every parameter. Returns the
    /// network.
    pub(crate) fn finish(mut self, loss: Value) -> Network {
        let seed = self.constant(REAL);
        self.emit(Kernel::backward("ones_like"), &[], &[seed], 0);
        self.gradients[loss.key] = Some(seed);
        while let Some(step) = self.steps.pop() {
            self.undo(step);
        }
        let update = Kernel { phase: Phase::Update, ..Kernel::backward("_fused_sgd_").in_place() };
        for i in 0..self.parameters.len() {
            let parameter = self.parameters[i];
            if let Some(gradient) = self.gradients[parameter.value.key] {
                self.keep(gradient);
                let operands = [parameter.value, gradient, parameter.momentum];
                self.emit(update, &operands, &operands, 0);
            }
        }
        self.network
    }

    /// Adds `gradient` to the gradient that `value` has so far. Does nothing if the value wants no gradient.
    fn give(&mut self, value: Value, gradient: Value) {
        if !value.wants_gradient {
            return;
        }
        let sum = match self.gradients[value.key] {
            None => gradient,
            Some(before) => {
                let sum = self.constant(value.bytes);
                self.emit(Kernel::backward("add").in_place(), &[before, gradient], &[sum], 0);
                sum
            }
        };
        self.gradients[value.key] = Some(sum);
    }

    /// Adds an operator that reads `reads` and computes the gradient of the value `of`. Returns this gradient.
    fn through(&mut self, kernel: Kernel, reads: &[Value], of: Value, flops: u64) -> Value {
        let gradient = self.constant(of.bytes);
        self.emit(kernel, reads, &[gradient], flops);
        gradient
    }

    fn undo(&mut self, step: Step) {
        let y = match step {
            Step::Chunk { whole, parts } => return self.undo_chunk(whole, parts),
            Step::AddInPlace { a, b } => {
                // The sum is in the memory of `a`, so the gradient that is kept for `a` is that of the sum. It is the
                // gradient of `b` too.
                if let Some(gradient) = self.gradients[a.key] {
                    self.give(b, gradient);
                }
                return;
            }
            Step::Convolution { y, .. }
            | Step::BatchNorm { y, .. }
            | Step::Relu { y, .. }
            | Step::MaxPool { y, .. }
            | Step::LocalResponseNorm { y, .. }
            | Step::Mean { y, .. }
            | Step::Linear { y, .. }
            | Step::MatMul { y, .. }
            | Step::Add { y, .. }
            | Step::Mul { y, .. }
            | Step::Dropout { y, .. }
            | Step::FusedDropout { y, .. }
            | Step::Sigmoid { y, .. }
            | Step::Tanh { y, .. }
            | Step::Concatenation { y, .. }
            | Step::Fused { y, .. }
            | Step::LogSoftmax { y, .. }
            | Step::Loss { y, .. } => y,
        };
        // A value on which the loss does not depend has no gradient.
        let Some(gradient) = self.gradients[y.key].take() else { return };
        self.undo_from(step, gradient);
    }

    fn undo_from(&mut self, step: Step, gradient: Value) {
        match step {
            Step::Convolution { .. } | Step::BatchNorm { .. } | Step::Linear { .. } | Step::MatMul { .. } => {
                self.undo_weighted(step, gradient);
            }
            Step::Relu { x, kept, .. } => {
                let kernel = Kernel::backward("threshold_backward").in_place().kind(Kind::ReluBackward);
                self.undo_by(kernel, &[gradient, kept], x);
            }
            Step::MaxPool { x, indices, .. } => {
                let kernel = Kernel::backward("max_pool2d_with_indices_backward");
                self.undo_by(kernel, &[gradient, x, indices], x);
            }
            Step::LocalResponseNorm { x, scale, y } => {
                let before = self.constant(x.bytes);
                let time_ns = self.setting.device.time_ns(0, 5 * x.bytes);
                let mut reads = vec![gradient, x, y, scale];
                if self.scales_get_gradients {
                    // The zeros are an input of the operator, but the kernel does not read them: its time counts five
                    // tensors, not six.
                    let zeros = self.constant(x.bytes);
                    self.emit(Kernel::backward("zeros"), &[], &[zeros], 0);
                    reads.push(zeros);
                }
                self.emit_with(Kernel::backward("lrn_backward"), &reads, &[before], time_ns, 0);
                self.give(x, before);
            }
            Step::Mean { x, .. } => {
                // Each element of the gradient is read once for each element of its map, so that the kernel reads as
                // many bytes as it writes.
                let spread = Value { bytes: x.bytes, ..gradient };
                self.undo_by(Kernel::backward("div"), &[spread], x);
            }
            Step::Add { a, b, .. } => {
                self.give(a, gradient);
                self.give(b, gradient);
            }
            Step::Mul { a, b, .. } => {
                let mul = Kernel::backward("mul").in_place();
                for (of, other) in [(b, a), (a, b)] {
                    if of.wants_gradient {
                        self.undo_by(mul, &[gradient, other], of);
                    }
                }
            }
            Step::Dropout { x, mask, .. } => {
                self.undo_by(Kernel::backward("mul").in_place(), &[gradient, mask], x);
            }
            Step::FusedDropout { x, mask, .. } => {
                let kernel = Kernel::backward("native_dropout_backward").in_place();
                self.undo_by(kernel, &[gradient, mask], x);
            }
            Step::Sigmoid { x, y } => {
                self.undo_by(Kernel::backward("sigmoid_backward").in_place(), &[gradient, y], x);
            }
            Step::Tanh { x, y } => {
                self.undo_by(Kernel::backward("tanh_backward").in_place(), &[gradient, y], x);
            }
            Step::LogSoftmax { x, y } => {
                let kernel = Kernel::backward("_log_softmax_backward_data").in_place();
                self.undo_by(kernel, &[gradient, y], x);
            }
            Step::Loss { x, labels, total_weight, .. } => {
                let reads = [gradient, x, labels, total_weight];
                self.undo_by(Kernel::backward("nll_loss_backward"), &reads, x);
            }
            Step::Fused { name, reads, of, flops, in_place, .. } => {
                let of: Vec<Value> = of.into_iter().flatten().filter(|of| of.wants_gradient).collect();
                let gradients: Vec<Value> = of.iter().map(|of| self.constant(of.bytes)).collect();
                let reads: Vec<Value> = [Some(gradient)].into_iter().chain(reads).flatten().collect();
                let kernel = Kernel::backward(name);
                self.emit(if in_place { kernel.in_place() } else { kernel }, &reads, &gradients, flops);
                of.iter().zip(gradients).for_each(|(&of, gradient)| self.give(of, gradient));
            }
            Step::Concatenation { a, b, .. } => {
                // The gradient of each input is a part of the result's gradient, and nothing is copied.
                for of in [a, b] {
                    let part = self.part(gradient.tensor, of.bytes, false);
                    self.give(of, part);
                }
            }
            Step::Chunk { .. } | Step::AddInPlace { .. } => {}
        }
    }

    /// Adds an operator that computes the gradient of `x` from `reads`, and adds its result to the gradient of `x`.
    fn undo_by(&mut self, kernel: Kernel, reads: &[Value], x: Value) {
        let before = self.through(kernel, reads, x, 0);
        self.give(x, before);
    }

    /// Undoes a layer with parameters: adds the operators that compute the gradients of its parameters and of its
    /// input.
    fn undo_weighted(&mut self, step: Step, gradient: Value) {
        match step {
            Step::Convolution { x, weights, flops, .. } => {
                let before = x.wants_gradient.then(|| self.constant(x.bytes));
                let weight = self.constant(weights.weight.bytes);
                let bias = weights.bias.map(|b| self.constant(b.bytes));
                let writes: Vec<Value> = [before, Some(weight), bias].into_iter().flatten().collect();
                // The gradient of the weights takes as many flops as the forward pass, and so does that of the input.
                let flops = if before.is_some() { 2 * flops } else { flops };
                let reads = [gradient, x, weights.weight];
                self.emit_convolution(Kernel::backward("convolution_backward"), &reads, &writes, flops);
                if let Some(before) = before {
                    self.give(x, before);
                }
                self.give(weights.weight, weight);
                if let (Some(parameter), Some(bias)) = (weights.bias, bias) {
                    self.give(parameter, bias);
                }
            }
            Step::BatchNorm { x, statistics, .. } => {
                let [mean, variance] = statistics.running;
                let [saved_mean, saved_deviation] = statistics.saved;
                let reads = [gradient, x, statistics.weight, mean, variance, saved_mean, saved_deviation];
                let (before, weight, bias) =
                    (self.constant(x.bytes), self.constant(mean.bytes), self.constant(mean.bytes));
                let kernel = Kernel::backward("native_batch_norm_backward").in_place();
                self.emit(kernel, &reads, &[before, weight, bias], 0);
                self.give(x, before);
                self.give(statistics.weight, weight);
                self.give(statistics.bias, bias);
            }
            Step::Linear { x, weights, flops, .. } => {
                let mm = Kernel::backward("mm");
                let before = x.wants_gradient.then(|| self.through(mm, &[gradient, weights.weight], x, flops));
                let weight = self.through(mm, &[gradient, x], weights.weight, flops);
                if let Some(parameter) = weights.bias {
                    let bias = self.through(Kernel::backward("sum"), &[gradient], parameter, 0);
                    self.give(parameter, bias);
                }
                if let Some(before) = before {
                    self.give(x, before);
                }
                self.give(weights.weight, weight);
            }
            Step::MatMul { x, weights, flops, .. } => {
                let mm = Kernel::backward("mm");
                let weight = self.through(mm, &[gradient, x], weights.weight, flops);
                if x.wants_gradient {
                    let before = self.through(mm, &[gradient, weights.weight], x, flops);
                    self.give(x, before);
                }
                self.give(weights.weight, weight);
            }
            _ => {}
        }
    }

    /// Adds an operator that joins the gradients of the parts to one tensor, which is the gradient of the whole.
    fn undo_chunk(&mut self, whole: Value, parts: [Value; 4]) {
        let gradients: Vec<Value> = parts.iter().filter_map(|p| self.gradients[p.key].take()).collect();
        let gradient = self.through(Kernel::backward("cat"), &gradients, whole, 0);
        self.give(whole, gradient);
    }
}
