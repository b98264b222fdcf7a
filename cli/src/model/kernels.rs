//! What an operator may do with the memory of its inputs, by the kernels that run it.
//!
//! *In place*: the output lies exactly over an input. This holds for kernels that read an element no later than they
//! write it, and for views, which then do nothing. *Parts*: what is put together lies where it ends up, and what is taken
//! apart stays where it is; the kernel copies it onto itself. *Overlap*: the output begins below the input and reaches
//! into it, as far as the kernel has read it (Blacker et al. 2020, "diagonal memory optimisation").

use clap::ValueEnum;

use super::walk::{self, Rows};
use super::{Model, Operator, Options, Tensor, Window};

/// The kernels that run a model, as far as they differ in what they allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Kernels {
    /// Only what holds for all of the others
    #[default]
    Portable,
    /// TFLM's reference kernels, portable C++
    Reference,
    /// Arm's for Cortex-M
    CmsisNn,
    /// Espressif's for ESP32-S3 and ESP32-P4
    EspNn,
}

impl Kernels {
    /// The name by which the command line and a model's metadata call them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Reference => "reference",
            Self::CmsisNn => "cmsis-nn",
            Self::EspNn => "esp-nn",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|kernels| kernels.name() == name)
    }

    /// How the kernel of such an operator copies rows where TFLM's reference kernel does as told; none where that is not
    /// known. Those of CMSIS-NN are `arm_pad_s8` and `arm_transpose_s8`.
    fn rows(self, kind: &str, reference: Rows) -> Option<Rows> {
        match (self, kind) {
            (Self::Portable | Self::CmsisNn, "PAD" | "PADV2") => Some(Rows::AtOnce),
            (Self::Portable | Self::CmsisNn, "TRANSPOSE") => None,
            _ => Some(reference),
        }
    }
}

/// A tensor that may lie in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) outer: u32,
    pub(crate) inner: u32,
    /// Where the inner one begins, in bytes from the begin of the outer one.
    pub(crate) at: u64,
}

// Names without underscores, in capitals: `LEAKYRELU` is TensorFlow's `LEAKY_RELU` and ONNX's `LeakyRelu`.

const VIEWS: &str = "RESHAPE SQUEEZE UNSQUEEZE EXPANDDIMS FLATTEN IDENTITY";
/// Operators that compute each element of the output from the element of the first input at its place.
const UNARY: &str = "\
    ABS BATCHNORMALIZATION CAST CEIL CELU CLIP COS ELU ERF EXP FLOOR GELU HARDSIGMOID HARDSWISH LEAKYRELU LOG LOGICALNOT \
    LOGISTIC MISH NEG NOT PRELU QUANTIZE RECIPROCAL RELU RELU0TO1 RELU6 RELUN1TO1 ROUND RSQRT SELU SIGMOID SIGN SIN \
    SOFTPLUS SOFTSIGN SQRT SQUARE TANH THRESHOLDEDRELU";
/// Operators that compute each element of the output from those of the first two inputs at its place.
const BINARY: &str = "\
    ADD AND DIV FLOORDIV FLOORMOD LOGICALAND LOGICALOR MAX MAXIMUM MIN MINIMUM MOD MUL OR POW SQUAREDDIFFERENCE SUB XOR";
/// The most pixels of an output that are looked at one by one: far more than a microcontroller holds.
const MOST_PIXELS: u64 = 1 << 20;

/// Whether TFLM has a kernel for an operator that the format knows by its name alone.
pub(super) fn is_of_tflm(custom: &str) -> bool {
    custom.starts_with("Signal") || ["TFLite_Detection_PostProcess", "CIRCULAR_BUFFER", "TFLM_DECODE"].contains(&custom)
}

/// Whether another compiler than the runtime's own planner decides where an operator's tensors lie: such as Vela for the
/// operators of Ethos-U, whose commands have addresses in them.
pub(crate) fn is_compiled(operator: &Operator) -> bool {
    operator.is_custom && !is_of_tflm(&operator.kind)
}

/// The tensors of such operators that the file's plan gives an offset.
pub(crate) fn compiled(model: &Model) -> impl Iterator<Item = (u32, u64)> {
    let plan = model.plan.as_deref().unwrap_or_default();
    let mut tensors: Vec<u32> = model
        .operators
        .iter()
        .filter(|o| is_compiled(o))
        .flat_map(|o| o.inputs.iter().chain(&o.outputs))
        .copied()
        .collect();
    tensors.sort_unstable();
    tensors.dedup();
    let placed = |tensor: u32| Some((tensor, u64::try_from(*plan.get(tensor as usize)?).ok()?));
    tensors.into_iter().filter(|&tensor| model.is_planned(tensor)).filter_map(placed)
}

/// The name of an operator's kind as the lists have it.
fn listed(kind: &str) -> String {
    kind.chars().filter(|&c| c != '_').map(|c| c.to_ascii_uppercase()).collect()
}

/// Whether a list of names has this one.
fn lists(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|known| known == name)
}

/// The outputs that may lie exactly over an input, in the order of preference.
pub(crate) fn in_place(model: &Model, operator: &Operator) -> Vec<Inside> {
    let kind = listed(&operator.kind);
    let &[output] = operator.outputs.as_slice() else { return Vec::new() };
    let most = match kind.as_str() {
        kind if lists(VIEWS, kind) || lists(UNARY, kind) || kind == "SOFTMAX" => 1,
        kind if lists(BINARY, kind) => 2,
        _ => return Vec::new(),
    };
    let inputs = operator.operands.iter().take(most).copied().flatten();
    let alike = |&input: &u32| {
        let of = |tensor| model.tensor(tensor).map(|t| (t.bytes, t.elements()));
        model.is_planned(input) && input != output && of(input) == of(output)
    };
    inputs.filter(alike).map(|outer| Inside { outer, inner: output, at: 0 }).collect()
}

/// The parts of what an operator puts together or takes apart, where each is one row that its kernel copies.
pub(crate) fn parts(model: &Model, operator: &Operator) -> Vec<Inside> {
    let Some((outer, parts)) = walk::parts(model, operator).filter(|_| model.for_tflm) else { return Vec::new() };
    let is_aligned = |&(part, at): &(u32, u64)| {
        model.is_planned(part) && model.is_planned(outer) && part != outer && at.is_multiple_of(model.alignment)
    };
    // A tensor that comes twice lies in one place.
    let once = |&(part, _): &(u32, u64)| parts.iter().filter(|&&(other, _)| other == part).count() == 1;
    parts.iter().copied().filter(is_aligned).filter(once).map(|(inner, at)| Inside { outer, inner, at }).collect()
}

/// Whether an operator computes each element of its output from the elements at the same place of its inputs.
pub(crate) fn is_elementwise(operator: &Operator) -> bool {
    let kind = listed(&operator.kind);
    lists(UNARY, &kind) || lists(BINARY, &kind)
}

/// How far below a dying input an output of an operator has to begin, in bytes, so that the kernel has read what it
/// writes over; none where nothing is known of the kernel.
pub(crate) fn distance(model: &Model, operator: &Operator, kernels: Kernels, [input, output]: [u32; 2]) -> Option<u64> {
    let (from, to) = (model.tensor(input)?, model.tensor(output)?);
    let kind = operator.kind.as_str();
    let distance = if is_elementwise(operator) {
        (kernels == Kernels::Reference && from.bytes == to.bytes).then_some(0)?
    } else if let Options::Window(window) = operator.options {
        let weights = operator.operands.get(1).copied().flatten().and_then(|weights| model.tensor(weights));
        let is_known = kernels == Kernels::Reference && operator.operands.first() == Some(&Some(input));
        windowed(kind, is_known.then_some(window)?, from, to, weights)?
    } else {
        let operand = operator.operands.iter().position(|&other| other == Some(input))?;
        let result = operator.outputs.iter().position(|&other| other == output)?;
        walk::distance(model, operator, (operand, result), |reference| kernels.rows(kind, reference))?
    };
    Some(distance.next_multiple_of(model.alignment)).filter(|&distance| distance < model.bytes(output))
}

/// The height, width and channels of a tensor that is one image; none for other tensors.
fn image(tensor: &Tensor) -> Option<[u64; 3]> {
    match *tensor.shape.as_slice() {
        [1, height, width, channels] if height > 0 && width > 0 && channels > 0 => Some([height, width, channels]),
        _ => None,
    }
}

/// How many pixels are put before an axis that has so many inputs and outputs, where the window has this size.
pub(super) fn padding(window: &Window, axis: usize, [inputs, outputs]: [u64; 2], size: u64) -> Option<u64> {
    let reach = outputs
        .checked_sub(1)?
        .checked_mul(window.stride[axis])?
        .checked_add(size.checked_sub(1)?.checked_mul(window.dilation[axis])? + 1)?;
    Some(if window.same { reach.saturating_sub(inputs) / 2 } else { 0 })
}

/// For a window that moves over an image: how far the kernel's writes run ahead of its reads, in bytes. At each element
/// of the output, in the order in which they are written, that is how many elements have been written, less the index
/// of the first element of the input that is still to be read; the most of these counts.
fn windowed(kind: &str, window: Window, from: &Tensor, to: &Tensor, weights: Option<&Tensor>) -> Option<u64> {
    let ([height, width, depth], [rows, columns, channels]) = (image(from)?, image(to)?);
    let element = from.bytes / (height.checked_mul(width)?.checked_mul(depth)?).max(1);
    let elements = rows.checked_mul(columns)?.checked_mul(channels)?;
    if element == 0 || to.bytes / elements != element || rows * columns > MOST_PIXELS {
        return None;
    }
    let [tall, wide] = match (window.size, weights.map(|w| w.shape.as_slice())) {
        (Some(size), _) => size,
        (None, Some(&[_, tall, wide, _])) => [tall, wide],
        _ => return None,
    };
    let above = padding(&window, 0, [height, rows], tall)?;
    let left = padding(&window, 1, [width, columns], wide)?;
    // The index of the first element that a pixel of the output reads.
    let base = |y: u64, x: u64| {
        let row = (y * window.stride[0]).saturating_sub(above).saturating_mul(width);
        row.saturating_add((x * window.stride[1]).saturating_sub(left)).saturating_mul(depth)
    };
    let mut most = 0;
    for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
        // The first element that a later pixel reads: of the next pixel to the right, or at the begin of the next row.
        let right = (x + 1 < columns).then(|| base(y, x + 1));
        let below = (y + 1 < rows).then(|| base(y + 1, 0));
        let later = right.into_iter().chain(below).min();
        let written = (y * columns + x) * channels;
        let last = written + channels;
        most = most.max(last.saturating_sub(later.unwrap_or(elements)));
        // The case before the pixel's last element is written: for that element the kernel reads the pixel's window
        // once more, a kernel other than a convolution over all channels from its own channel on.
        let own = match kind {
            "CONV_2D" => base(y, x),
            _ => base(y, x) + (channels - 1) / (channels / depth).max(1),
        };
        if channels > 1 {
            most = most.max((last - 1).saturating_sub(own.min(later.unwrap_or(u64::MAX))));
        }
    }
    most.checked_mul(element).map(|distance| distance.min(to.bytes))
}
