//! Turns layers into operators. Each layer of a model emits the operators that compute it and notes a [`Step`], from
//! which `backward` makes the backward pass.
//!
//! A [`Value`] is what a layer passes to the next: a tensor, or a part of one, with a gradient of its own. Numbers have
//! 4 bytes, except in the functions that are told how many bytes a number has. Sizes of tensors are rounded up to a
//! multiple of 512 bytes, as frameworks' allocators do. Times follow from the bytes that kernels move, which are not
//! rounded.

use sublet_core::trace::{self, Kind};
use sublet_core::trace::{Storage, Tensor};

use crate::Setting;
use crate::network::{Network, Operator, Phase};

/// Bytes of a real number.
pub(crate) const REAL: u64 = 4;
/// Bytes of a label or an index.
pub(crate) const INDEX: u64 = 8;
/// Sizes of tensors are rounded up to a multiple of this many bytes, as frameworks' allocators do.
const PIECE: u64 = 512;

/// The result of a layer, or a parameter: a tensor or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) tensor: u32,
    /// Bytes that a kernel moves to read or write it.
    pub(crate) bytes: u64,
    /// The index of the value's gradient in [`Builder::gradients`].
    pub(crate) key: usize,
    pub(crate) wants_gradient: bool,
}

/// Feature maps: batch × channels × side × side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    pub(crate) value: Value,
    pub(crate) channels: u64,
    pub(crate) side: u64,
}

/// A matrix with the same number of rows for each example, often one; each row has `columns` numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) value: Value,
    pub(crate) columns: u64,
}

/// The parameters of a linear map or a convolution. `columns` is how many numbers a row of the output has, or how many
/// channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) weight: Value,
    pub(crate) bias: Option<Value>,
    pub(crate) columns: u64,
}

/// A parameter that training updates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) value: Value,
    pub(crate) momentum: Value,
}

/// What a batch norm reads and writes for each channel: its weight and bias, the running mean and variance, and the
/// mean and deviation of the batch, which are saved for its gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statistics {
    pub(crate) weight: Value,
    pub(crate) bias: Value,
    pub(crate) running: [Value; 2],
    pub(crate) saved: [Value; 2],
}

/// A layer of the forward pass, with what its backward pass needs: its inputs, its result `y`, and other values that
/// the backward pass reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Convolution {
        x: Value,
        weights: Weights,
        y: Value,
        flops: u64,
    },
    BatchNorm {
        x: Value,
        statistics: Statistics,
        y: Value,
    },
    /// The gradient of a ReLU needs the signs of `kept`, which is the input x or the output y.
    Relu {
        x: Value,
        y: Value,
        kept: Value,
    },
    MaxPool {
        x: Value,
        y: Value,
        indices: Value,
    },
    LocalResponseNorm {
        x: Value,
        scale: Value,
        y: Value,
    },
    Mean {
        x: Value,
        y: Value,
    },
    /// x · W + b.
    Linear {
        x: Value,
        weights: Weights,
        y: Value,
        flops: u64,
    },
    /// x · W, without a bias.
    MatMul {
        x: Value,
        weights: Weights,
        y: Value,
        flops: u64,
    },
    /// a + b. The gradient of each of them is the gradient of y.
    Add {
        a: Value,
        b: Value,
        y: Value,
    },
    /// The sum a + b, written over a.
    AddInPlace {
        a: Value,
        b: Value,
    },
    Mul {
        a: Value,
        b: Value,
        y: Value,
    },
    Dropout {
        x: Value,
        mask: Value,
        y: Value,
    },
    FusedDropout {
        x: Value,
        mask: Value,
        y: Value,
    },
    Sigmoid {
        x: Value,
        y: Value,
    },
    Tanh {
        x: Value,
        y: Value,
    },
    Chunk {
        whole: Value,
        parts: [Value; 4],
    },
    /// The channels of a and then those of b, copied to a tensor of their own.
    Concatenation {
        a: Value,
        b: Value,
        y: Value,
    },
    /// A layer whose backward pass is one operator, called `name`. It computes the gradients of the values in `of` from
    /// the gradient of y and the values in `reads`.
    Fused {
        name: &'static str,
        y: Value,
        reads: [Option<Value>; 5],
        of: [Option<Value>; 3],
        flops: u64,
        in_place: bool,
    },
    LogSoftmax {
        x: Value,
        y: Value,
    },
    Loss {
        x: Value,
        labels: Value,
        y: Value,
        total_weight: Value,
    },
}

/// A kernel: its name, the phase in which it runs, and whether it may be recomputed, work in place and the like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    pub(crate) phase: Phase,
    pub(crate) may: trace::Operator,
}

impl Kernel {
    pub(crate) const fn forward(name: &'static str) -> Self {
        let may = trace::Operator { in_place: false, rerun: true, ordered: true, kind: Kind::Other, element: 4 };
        Self { name, phase: Phase::Forward, may }
    }

    /// A kernel of the backward pass or of the update, which is not recomputed.
    pub(crate) const fn backward(name: &'static str) -> Self {
        let may = trace::Operator { in_place: false, rerun: false, ordered: true, kind: Kind::Other, element: 4 };
        Self { name, phase: Phase::Backward, may }
    }

    pub(crate) const fn in_place(mut self) -> Self {
        self.may.in_place = true;
        self
    }

    pub(crate) const fn kind(mut self, kind: Kind) -> Self {
        self.may.kind = kind;
        self
    }
}

/// A network that is being built.
pub(crate) struct Builder {
    pub(crate) setting: Setting,
    pub(crate) network: Network,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) steps: Vec<Step>,
    /// By key of a value ([`Value::key`]): its gradient so far; none if it has none yet.
    pub(crate) gradients: Vec<Option<Value>>,
    /// Whether the gradient of a ReLU reads the input of the ReLU, as in SINGA, with which Zhang et al. 2019 trained on
    /// CIFAR. If false, it reads the output, as in `PyTorch`.
    pub(crate) relu_keeps_input: bool,
    /// Whether the backward operator of local response normalization also reads a tensor of zeros. Automatic
    /// differentiation makes it as the gradient of the scales, which are a second output of the layer; Caffe does not.
    pub(crate) scales_get_gradients: bool,
}

impl Builder {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self {
            setting: *setting,
            network: Network::default(),
            parameters: Vec::new(),
            steps: Vec::new(),
            gradients: Vec::new(),
            relu_keeps_input: false,
            scales_get_gradients: false,
        }
    }

    pub(crate) fn batch(&self) -> u64 {
        self.setting.batch.into()
    }

    fn value(&mut self, bytes: u64, storage: Storage, wants_gradient: bool) -> Value {
        let tensor = u32::try_from(self.network.tensors.len()).expect("fewer tensors than 32 bits count");
        self.network.tensors.push(Tensor { bytes: bytes.next_multiple_of(PIECE), storage });
        self.part(tensor, bytes, wants_gradient)
    }

    /// A new value of `bytes` bytes that is a tensor that exists already, or a part of it.
    pub(crate) fn part(&mut self, tensor: u32, bytes: u64, wants_gradient: bool) -> Value {
        self.gradients.push(None);
        Value { tensor, bytes, key: self.gradients.len() - 1, wants_gradient: wants_gradient && self.setting.training }
    }

    /// A new tensor for the result of a kernel. In training it has a gradient.
    pub(crate) fn result(&mut self, bytes: u64) -> Value {
        self.value(bytes, Storage::Transient, true)
    }

    /// A new tensor that a kernel writes and that has no gradient, such as a mask.
    pub(crate) fn constant(&mut self, bytes: u64) -> Value {
        self.value(bytes, Storage::Transient, false)
    }

    /// A new tensor for an input or a result of the iteration, which stays to the end of the iteration. It has no
    /// gradient.
    pub(crate) fn given(&mut self, bytes: u64) -> Value {
        self.value(bytes, Storage::Iteration, false)
    }

    pub(crate) fn parameter(&mut self, bytes: u64) -> Value {
        let value = self.value(bytes, Storage::Persistent, true);
        if self.setting.training {
            let momentum = self.value(bytes, Storage::Persistent, false);
            self.parameters.push(Parameter { value, momentum });
        }
        value
    }

    /// Adds an operator without workspace. Its time follows from `flops` and from the bytes that it reads and writes.
    pub(crate) fn emit(&mut self, kernel: Kernel, reads: &[Value], writes: &[Value], flops: u64) {
        let bytes = reads.iter().chain(writes).map(|v| v.bytes).sum();
        self.emit_with(kernel, reads, writes, self.setting.device.time_ns(flops, bytes), 0);
    }

    pub(crate) fn emit_with(
        &mut self,
        kernel: Kernel,
        reads: &[Value],
        writes: &[Value],
        time_ns: u64,
        workspace: u64,
    ) {
        let tensors = |values: &[Value]| values.iter().map(|v| v.tensor).collect();
        self.network.operators.push(Operator {
            name: kernel.name,
            phase: kernel.phase,
            may: kernel.may,
            inputs: tensors(reads),
            outputs: tensors(writes),
            workspace,
            time_ns,
        });
    }

    pub(crate) fn note(&mut self, step: Step) {
        if self.setting.training {
            self.steps.push(step);
        }
    }

    /// The images of a batch.
    pub(crate) fn images(&mut self, channels: u64, side: u64) -> Maps {
        let value = self.given(self.batch() * channels * side * side * REAL);
        Maps { value, channels, side }
    }

    pub(crate) fn batch_norm(&mut self, x: Maps) -> Maps {
        Maps { value: self.normalized(x.value, x.channels), ..x }
    }

    /// Batch norm over the columns of a matrix.
    pub(crate) fn batch_norm_matrix(&mut self, x: Matrix) -> Matrix {
        Matrix { value: self.normalized(x.value, x.columns), ..x }
    }

    fn normalized(&mut self, x: Value, channels: u64) -> Value {
        let bytes = channels * REAL;
        let [weight, bias] = [self.parameter(bytes), self.parameter(bytes)];
        let running = [(); 2].map(|()| self.value(bytes, Storage::Persistent, false));
        let y = self.result(x.bytes);
        let kernel = Kernel::forward("native_batch_norm");
        let reads = [x, weight, bias, running[0], running[1]];
        let saved = [(); 2].map(|()| self.constant(bytes));
        if self.setting.training {
            self.emit(kernel, &reads, &[y, saved[0], saved[1], running[0], running[1]], 0);
            self.note(Step::BatchNorm { x, statistics: Statistics { weight, bias, running, saved }, y });
        } else {
            self.emit(kernel.in_place(), &reads, &[y, saved[0], saved[1]], 0);
        }
        y
    }

    pub(crate) fn relu(&mut self, x: Maps) -> Maps {
        Maps { value: self.rectified(x.value), ..x }
    }

    pub(crate) fn relu_matrix(&mut self, x: Matrix) -> Matrix {
        Matrix { value: self.rectified(x.value), ..x }
    }

    fn rectified(&mut self, x: Value) -> Value {
        let y = self.result(x.bytes);
        self.emit(Kernel::forward("relu").in_place().kind(Kind::Relu), &[x], &[y], 0);
        let kept = if self.relu_keeps_input { x } else { y };
        self.note(Step::Relu { x, y, kept });
        y
    }

    /// The maximum of each window, and its index. The side of the output is that of the input divided by the stride,
    /// rounded up.
    pub(crate) fn max_pool(&mut self, x: Maps, stride: u64) -> Maps {
        self.max_pool_to(x, x.side.div_ceil(stride))
    }

    /// As [`max_pool`](Self::max_pool), with `side` windows on a side.
    pub(crate) fn max_pool_to(&mut self, x: Maps, side: u64) -> Maps {
        let outputs = self.batch() * x.channels * side * side;
        let (y, indices) = (self.result(outputs * REAL), self.constant(outputs * INDEX));
        self.emit(Kernel::forward("max_pool2d_with_indices"), &[x.value], &[y, indices], 0);
        self.note(Step::MaxPool { x: x.value, y, indices });
        Maps { value: y, side, ..x }
    }

    /// Local response normalization: each element is divided by a power of a scale. The scale is computed from the
    /// elements at the same place in neighbouring maps, and is kept for the backward pass.
    pub(crate) fn local_response_norm(&mut self, x: Maps) -> Maps {
        let (y, scale) = (self.result(x.value.bytes), self.constant(x.value.bytes));
        self.emit(Kernel::forward("lrn"), &[x.value], &[y, scale], 0);
        self.note(Step::LocalResponseNorm { x: x.value, scale, y });
        Maps { value: y, ..x }
    }

    /// The mean of every map.
    pub(crate) fn mean(&mut self, x: Maps) -> Matrix {
        let y = self.result(self.batch() * x.channels * REAL);
        self.emit(Kernel::forward("mean"), &[x.value], &[y], 0);
        self.note(Step::Mean { x: x.value, y });
        Matrix { value: y, columns: x.channels }
    }

    /// The maps of each example as one row of a matrix, without a copy.
    pub(crate) fn flatten(x: Maps) -> Matrix {
        Matrix { value: x.value, columns: x.channels * x.side * x.side }
    }

    /// The parameters of a linear map from rows of `rows` numbers to rows of `columns` numbers.
    pub(crate) fn weights(&mut self, rows: u64, columns: u64, bias: bool) -> Weights {
        let weight = self.parameter(rows * columns * REAL);
        Weights { weight, bias: bias.then(|| self.parameter(columns * REAL)), columns }
    }

    pub(crate) fn linear(&mut self, x: Matrix, columns: u64) -> Matrix {
        let weights = self.weights(x.columns, columns, true);
        self.affine(x, weights)
    }

    /// x · W + b, or x · W if `weights` has no bias. The matrix has one row for each example.
    pub(crate) fn affine(&mut self, x: Matrix, weights: Weights) -> Matrix {
        let Weights { weight, bias, columns } = weights;
        let y = self.result(self.batch() * columns * REAL);
        let flops = 2 * self.batch() * x.columns * columns;
        if let Some(bias) = bias {
            self.emit(Kernel::forward("addmm"), &[bias, x.value, weight], &[y], flops);
            self.note(Step::Linear { x: x.value, weights, y, flops });
        } else {
            self.emit(Kernel::forward("mm"), &[x.value, weight], &[y], flops);
            self.note(Step::MatMul { x: x.value, weights, y, flops });
        }
        Matrix { value: y, columns }
    }

    pub(crate) fn add(&mut self, a: Value, b: Value) -> Value {
        let y = self.result(a.bytes);
        self.emit(Kernel::forward("add").in_place(), &[a, b], &[y], 0);
        self.note(Step::Add { a, b, y });
        y
    }

    /// a ← a + b: the end of a residual branch.
    pub(crate) fn add_in_place(&mut self, a: Maps, b: Maps) -> Maps {
        self.emit(Kernel::forward("add_").in_place(), &[a.value, b.value], &[a.value], 0);
        self.note(Step::AddInPlace { a: a.value, b: b.value });
        a
    }

    pub(crate) fn mul(&mut self, a: Value, b: Value) -> Value {
        let y = self.result(a.bytes);
        self.emit(Kernel::forward("mul").in_place(), &[a, b], &[y], 0);
        self.note(Step::Mul { a, b, y });
        y
    }

    /// Dropout: in training the input times a random, scaled mask; otherwise the input itself.
    pub(crate) fn dropout(&mut self, x: Value) -> Value {
        if !self.setting.training {
            return x;
        }
        let mask = self.constant(x.bytes);
        let mut random = Kernel::forward("bernoulli_");
        random.may.rerun = false;
        self.emit(random, &[], &[mask], 0);
        self.emit(Kernel::forward("div_").in_place(), &[mask], &[mask], 0);
        let y = self.result(x.bytes);
        self.emit(Kernel::forward("mul").in_place(), &[x, mask], &[y], 0);
        self.note(Step::Dropout { x, mask, y });
        y
    }

    /// As [`dropout`](Self::dropout), by one operator, with a mask of one byte for each element.
    pub(crate) fn fused_dropout(&mut self, x: Value) -> Value {
        if !self.setting.training {
            return x;
        }
        let (y, mask) = (self.result(x.bytes), self.constant(x.bytes / REAL));
        let mut random = Kernel::forward("native_dropout").in_place();
        random.may.rerun = false;
        self.emit(random, &[x], &[y, mask], 0);
        self.note(Step::FusedDropout { x, mask, y });
        y
    }

    pub(crate) fn sigmoid(&mut self, x: Value) -> Value {
        let y = self.result(x.bytes);
        self.emit(self.elementwise("sigmoid", x), &[x], &[y], 0);
        self.note(Step::Sigmoid { x, y });
        y
    }

    pub(crate) fn tanh(&mut self, x: Value) -> Value {
        let y = self.result(x.bytes);
        self.emit(self.elementwise("tanh", x), &[x], &[y], 0);
        self.note(Step::Tanh { x, y });
        y
    }

    /// A kernel that computes each element of its output from one of its input `x`. It may work in place if `x` is a
    /// whole tensor, not a part of one.
    fn elementwise(&self, name: &'static str, x: Value) -> Kernel {
        let whole =
            self.network.tensors.get(x.tensor as usize).is_some_and(|t| t.bytes == x.bytes.next_multiple_of(PIECE));
        if whole { Kernel::forward(name).in_place() } else { Kernel::forward(name) }
    }

    /// Four equal parts of a value, without a copy.
    pub(crate) fn chunk(&mut self, whole: Value) -> [Value; 4] {
        let parts = [(); 4].map(|()| self.part(whole.tensor, whole.bytes / 4, true));
        self.note(Step::Chunk { whole, parts });
        parts
    }

    /// The channels of b after those of a.
    pub(crate) fn concatenate(&mut self, a: Maps, b: Maps) -> Maps {
        let y = self.result(a.value.bytes + b.value.bytes);
        self.emit(Kernel::forward("cat"), &[a.value, b.value], &[y], 0);
        self.note(Step::Concatenation { a: a.value, b: b.value, y });
        Maps { value: y, channels: a.channels + b.channels, ..a }
    }

    pub(crate) fn zeros(&mut self, bytes: u64) -> Value {
        let zeros = self.constant(bytes);
        self.emit(Kernel::forward("zeros"), &[], &[zeros], 0);
        zeros
    }

    /// Softmax and the mean negative log-likelihood of the labels.
    pub(crate) fn loss(&mut self, x: Matrix, labels: Value) -> Value {
        let y = self.result(x.value.bytes);
        self.emit(Kernel::forward("_log_softmax").in_place(), &[x.value], &[y], 0);
        self.note(Step::LogSoftmax { x: x.value, y });
        let (loss, total_weight) = (self.result(REAL), self.constant(REAL));
        self.emit(Kernel::forward("nll_loss_forward"), &[y, labels], &[loss, total_weight], 0);
        self.note(Step::Loss { x: y, labels, y: loss, total_weight });
        loss
    }

    /// Ends a classifier. In training it adds the loss, with a label for each row of scores, the backward pass and the
    /// update; otherwise the scores are the result. A score takes `element` bytes.
    pub(crate) fn classify(mut self, scores: Matrix, element: u64) -> Network {
        if self.setting.training {
            let labels = self.given(Self::rows(scores, element) * INDEX);
            let loss = self.loss(scores, labels);
            self.finish(loss)
        } else {
            self.keep(scores.value);
            self.network
        }
    }

    /// Marks a value as a result: it lives to the end of the iteration.
    pub(crate) fn keep(&mut self, value: Value) {
        self.network.tensors[value.tensor as usize].storage = Storage::Iteration;
    }
}
