//! What an operator may do with the memory of its inputs, and which operators ask for more.
//!
//! An operator may do two things. *In place*: the output lies exactly over an input. This holds for kernels that read
//! an element no later than they write it, as elementwise ones do whoever wrote them; and for views, which then do
//! nothing. *Overlap*: the output begins below the input and reaches into it, as far as the kernel has read it. This
//! holds for TFLM's reference kernels only, which go over the output row by row (Blacker et al. 2020, "diagonal
//! memory").

use super::{Model, Operator, Tensor, Window};

const VIEWS: [&str; 3] = ["RESHAPE", "SQUEEZE", "EXPAND_DIMS"];
const UNARY: [&str; 21] = [
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RELU_0_TO_1",
    "LEAKY_RELU",
    "PRELU",
    "LOGISTIC",
    "TANH",
    "HARD_SWISH",
    "ELU",
    "ABS",
    "NEG",
    "EXP",
    "SQRT",
    "RSQRT",
    "SQUARE",
    "LOG",
    "FLOOR",
    "CEIL",
    "ROUND",
    "QUANTIZE",
];
const BINARY: [&str; 7] = ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"];
/// The most pixels of an output that are looked at one by one: far more than a microcontroller holds.
const MOST_PIXELS: u64 = 1 << 20;

/// Operators whose kernels may ask for memory when they are prepared: in TFLM's reference kernels and in those for
/// Cortex-M, Ethos-U and Xtensa.
const ASKING: [&str; 24] = [
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
    "SVDF",
    "ADD",
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BATCH_MATMUL",
    "MEAN",
    "SUM",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "STRIDED_SLICE",
    "PAD",
    "RESIZE_BILINEAR",
    "SignalRFFT",
    "SignalIrfft",
    "SignalFftAutoScale",
    "SignalFilterBank",
    "SignalStacker",
    "DETECTION_POSTPROCESS",
    "ethos-u",
];

/// Whether an operator's kernel may ask for memory that the model does not tell of.
pub(crate) fn may_ask(kind: &str) -> bool {
    ASKING.contains(&kind) || kind.starts_with("Signal") || kind == "TFLite_Detection_PostProcess"
}

/// The pairs of an input and an output that may be one memory, in the order of preference.
pub(crate) fn in_place(model: &Model, operator: &Operator) -> Vec<(u32, u32)> {
    // ONNX has the same names in mixed case.
    let kind = operator.kind.to_ascii_uppercase();
    let (&[output], kind) = (operator.outputs.as_slice(), kind.as_str()) else { return Vec::new() };
    let most = match kind {
        _ if VIEWS.contains(&kind) || UNARY.contains(&kind) || kind == "SOFTMAX" => 1,
        _ if BINARY.contains(&kind) => 2,
        _ => return Vec::new(),
    };
    let inputs = operator.inputs.iter().take(most);
    let alike = |&input: &u32| {
        let bytes = |tensor| model.tensor(tensor).map(|t| t.bytes);
        model.is_planned(input) && input != output && bytes(input) == bytes(output)
    };
    inputs.copied().filter(alike).map(|input| (input, output)).collect()
}

/// Whether an operator computes each element of its output from the elements at the same place of its inputs.
pub(crate) fn is_elementwise(operator: &Operator) -> bool {
    UNARY.contains(&operator.kind.as_str()) || BINARY.contains(&operator.kind.as_str())
}

/// How far below a dying input the output of an operator has to begin, in bytes, so that TFLM's reference kernel has
/// read what it writes over; none where nothing is known of the kernel.
pub(crate) fn distance(model: &Model, operator: &Operator, input: u32) -> Option<u64> {
    let kind = operator.kind.as_str();
    let &[output] = operator.outputs.as_slice() else { return None };
    let (from, to) = (model.tensor(input)?, model.tensor(output)?);
    if is_elementwise(operator) && from.bytes == to.bytes {
        return Some(0);
    }
    if operator.inputs.first() != Some(&input) {
        return None;
    }
    let weights = operator.inputs.get(1).and_then(|&weights| model.tensor(weights));
    let distance = windowed(kind, operator.window?, from, to, weights)?;
    Some(distance.next_multiple_of(model.alignment))
}

/// The height and width, and the channels of an image of one batch.
fn image(tensor: &Tensor) -> Option<[u64; 3]> {
    match *tensor.shape.as_slice() {
        [1, height, width, channels] if height > 0 && width > 0 && channels > 0 => Some([height, width, channels]),
        _ => None,
    }
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
    let padding = |outputs: u64, at: usize, size: u64, inputs: u64| {
        let reach = (outputs - 1)
            .checked_mul(window.stride[at])?
            .checked_add(size.checked_sub(1)?.checked_mul(window.dilation[at])? + 1)?;
        Some(if window.same { reach.saturating_sub(inputs) / 2 } else { 0 })
    };
    let (above, left) = (padding(rows, 0, tall, height)?, padding(columns, 1, wide, width)?);
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
        // once more, a depthwise kernel from its own channel on.
        let own = match kind {
            "DEPTHWISE_CONV_2D" => base(y, x) + (channels - 1) / (channels / depth).max(1),
            _ => base(y, x),
        };
        if channels > 1 {
            most = most.max((last - 1).saturating_sub(own.min(later.unwrap_or(u64::MAX))));
        }
    }
    most.checked_mul(element).map(|distance| distance.min(to.bytes))
}
