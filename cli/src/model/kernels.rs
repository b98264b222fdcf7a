//! What an operator may do with the memory of its inputs, and which operators ask for more.
//!
//! An operator may do two things. *In place*: the output lies exactly over an input. This holds for kernels that read
//! an element no later than they write it, as elementwise ones do whoever wrote them; and for views, which then do
//! nothing. *Overlap*: the output begins below the input and reaches into it, as far as the kernel has read it. This
//! holds for TFLM's reference kernels only, which go over the output row by row (Blacker et al. 2020, "diagonal
//! memory").

use super::{Model, Operator, Tensor, Window};

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

/// Operators whose kernels may ask for memory when they are prepared: in TFLM's reference kernels and in those for
/// Cortex-M, Ethos-U and Xtensa.
const ASKING: [&str; 25] = [
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
    "SVDF",
    "ADD",
    "ADD_N",
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

/// What TFLM's reference kernels are known to ask for: operators, and the bytes that each needs besides its operands. A
/// `TRANSPOSE_CONV` of integers asks for a sum for each element of its output: 4 bytes where the element has 8 bits,
/// 8 bytes where it has 16.
pub(crate) fn known_scratch(model: &Model) -> Vec<(u32, u64)> {
    let asked = |(number, operator): (u32, &Operator)| {
        let &[output] = operator.outputs.as_slice() else { return None };
        let Tensor { bytes, shape, .. } = model.tensor(output).filter(|_| operator.kind == "TRANSPOSE_CONV")?;
        let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        let sum = [(1, 4), (2, 8)].into_iter().find(|&(element, _)| elements.checked_mul(element) == Some(*bytes))?.1;
        elements.checked_mul(sum).filter(|&asked| asked > 0).map(|asked| (number, asked))
    };
    (0..).zip(&model.operators).filter_map(asked).collect()
}

/// The name of an operator's kind as the lists have it.
fn listed(kind: &str) -> String {
    kind.chars().filter(|&c| c != '_').map(|c| c.to_ascii_uppercase()).collect()
}

/// Whether a list of names has this one.
fn lists(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|known| known == name)
}

/// The pairs of an input and an output that may be one memory, in the order of preference.
pub(crate) fn in_place(model: &Model, operator: &Operator) -> Vec<(u32, u32)> {
    let kind = listed(&operator.kind);
    let &[output] = operator.outputs.as_slice() else { return Vec::new() };
    let most = match kind.as_str() {
        kind if lists(VIEWS, kind) || lists(UNARY, kind) || kind == "SOFTMAX" => 1,
        kind if lists(BINARY, kind) => 2,
        _ => return Vec::new(),
    };
    let inputs = operator.leading.into_iter().take(most).flatten();
    let alike = |&input: &u32| {
        let of = |tensor| model.tensor(tensor).map(|t| (t.bytes, t.shape.iter().product::<u64>()));
        model.is_planned(input) && input != output && of(input) == of(output)
    };
    inputs.filter(alike).map(|input| (input, output)).collect()
}

/// Whether an operator computes each element of its output from the elements at the same place of its inputs.
pub(crate) fn is_elementwise(operator: &Operator) -> bool {
    let kind = listed(&operator.kind);
    lists(UNARY, &kind) || lists(BINARY, &kind)
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

/// The height, width and channels of a tensor that is one image; none for other tensors.
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
