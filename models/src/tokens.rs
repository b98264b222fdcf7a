//! Layers over the rows of a matrix, as transformers have them: an example has many rows, one for each token or patch.

use crate::builder::{Builder, Kernel, Matrix, REAL, Step, Value, Weights};

impl Builder {
    /// Notes a layer whose backward pass is one operator of this name. It reads the gradient of `y` and the values in
    /// `reads`, and computes the gradients of the values in `of`. The last argument is how many floating-point
    /// operations it takes, and whether it may work in place. There is room for five values in `reads` and three in
    /// `of`.
    pub(crate) fn undone(
        &mut self,
        name: &'static str,
        y: Value,
        reads: &[Value],
        of: &[Value],
        (flops, in_place): (u64, bool),
    ) {
        let some = |values: &[Value], i: usize| values.get(i).copied();
        let reads = core::array::from_fn(|i| some(reads, i));
        let of = core::array::from_fn(|i| some(of, i));
        self.note(Step::Fused { name, y, reads, of, flops, in_place });
    }

    /// How many rows the matrix `x` has. Each of its numbers takes `element` bytes.
    pub(crate) const fn rows(x: Matrix, element: u64) -> u64 {
        x.value.bytes / (x.columns * element)
    }

    /// A linear map of each row of `x` to a row of `columns` numbers. Each number takes `element` bytes.
    pub(crate) fn mapped(&mut self, x: Matrix, columns: u64, bias: bool, element: u64) -> Matrix {
        let count = Self::rows(x, element);
        let weight = self.parameter(x.columns * columns * element);
        let bias = bias.then(|| self.parameter(columns * element));
        let y = self.result(count * columns * element);
        let flops = 2 * count * x.columns * columns;
        let weights = Weights { weight, bias, columns };
        let x = x.value;
        if let Some(bias) = bias {
            self.emit(Kernel::forward("addmm"), &[bias, x, weight], &[y], flops);
            self.note(Step::Linear { x, weights, y, flops });
        } else {
            self.emit(Kernel::forward("mm"), &[x, weight], &[y], flops);
            self.note(Step::MatMul { x, weights, y, flops });
        }
        Matrix { value: y, columns }
    }

    /// Layer norm: each row gets the mean 0 and the standard deviation 1, and is scaled and shifted.
    pub(crate) fn layer_norm(&mut self, x: Matrix, element: u64) -> Matrix {
        let (count, parameter) = (Self::rows(x, element), x.columns * element);
        let (y, deviation) = (self.result(x.value.bytes), self.constant(count * REAL));
        let [weight, bias] = [self.parameter(parameter), self.parameter(parameter)];
        let mean = self.constant(count * REAL);
        self.emit(Kernel::forward("native_layer_norm"), &[x.value, weight, bias], &[y, mean, deviation], 0);
        let of = [x.value, weight, bias];
        self.undone("native_layer_norm_backward", y, &[x.value, mean, deviation, weight], &of, (0, true));
        Matrix { value: y, ..x }
    }

    /// Root mean square norm: each row is divided by the root of its mean square, and scaled.
    pub(crate) fn square_norm(&mut self, x: Matrix, element: u64) -> Matrix {
        let (y, deviation) = (self.result(x.value.bytes), self.constant(Self::rows(x, element) * REAL));
        let weight = self.parameter(x.columns * element);
        self.emit(Kernel::forward("_fused_rms_norm"), &[x.value, weight], &[y, deviation], 0);
        self.undone("_fused_rms_norm_backward", y, &[x.value, deviation, weight], &[x.value, weight], (0, true));
        Matrix { value: y, ..x }
    }

    /// An activation: a function of each element, whose backward pass reads the input.
    pub(crate) fn bent(&mut self, x: Value, [forward, backward]: [&'static str; 2]) -> Value {
        let y = self.result(x.bytes);
        self.emit(Kernel::forward(forward), &[x], &[y], 0);
        self.undone(backward, y, &[x], &[x], (0, true));
        y
    }

    /// Two linear maps of each row: to `columns` numbers and back, with a GELU between them.
    pub(crate) fn feed_forward(&mut self, x: Matrix, columns: u64, element: u64) -> Matrix {
        let wide = self.mapped(x, columns, true, element);
        let value = self.bent(wide.value, ["gelu", "gelu_backward"]);
        self.mapped(Matrix { value, ..wide }, x.columns, true, element)
    }
}
