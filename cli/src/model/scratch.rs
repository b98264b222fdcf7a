//! The scratch that kernels ask for when TFLM prepares them, by the formulas of their sources of August 2026. Those of
//! CMSIS-NN depend on the processor: the most of Armv6-M, of DSP instructions and of Helium counts. Those of ESP-NN are
//! for ESP32-S3.

use super::kernels::{Kernels, padding};
use super::{Element, Model, Operator, Options, Tensor};

/// What a kernel asks for: the bytes of each buffer; none where it may ask for memory, and it is not known for how much.
pub(crate) fn asked(model: &Model, operator: &Operator, kernels: Kernels) -> Option<Vec<u64>> {
    let shapes = Shapes { model, operator };
    match kernels {
        Kernels::Reference => reference(shapes),
        Kernels::CmsisNn => cmsis_nn(shapes).or_else(|| reference(shapes)),
        Kernels::EspNn => esp_nn(shapes).or_else(|| reference(shapes)),
        // What the reference kernels ask for the others ask for too, or for more.
        Kernels::Portable => {
            let [reference, cmsis_nn, esp_nn] =
                [Kernels::Reference, Kernels::CmsisNn, Kernels::EspNn].map(|own| asked(model, operator, own));
            (reference == cmsis_nn && reference == esp_nn).then_some(reference?)
        }
    }
}

/// What the kernels of a model ask for.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Operators, and the bytes of each buffer that they ask for.
    pub(crate) known: Vec<(u32, u64)>,
    /// The kinds of operators that may ask for more than that.
    pub(crate) may_ask: Vec<String>,
}

/// What is known of the kernels' sources.
pub(crate) fn of_model(model: &Model, kernels: Kernels) -> Scratch {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (number, operator) in (0..).zip(&model.operators) {
        let all = asked(model, operator, kernels).or_else(|| {
            unknown.push(operator.kind.clone());
            reference(Shapes { model, operator })
        });
        known.extend(all.into_iter().flatten().filter(|&bytes| bytes > 0).map(|bytes| (number, bytes.min(MOST))));
    }
    unknown.sort_unstable();
    unknown.dedup();
    Scratch { known, may_ask: unknown }
}

#[derive(Clone, Copy)]
struct Shapes<'a> {
    model: &'a Model,
    operator: &'a Operator,
}

impl<'a> Shapes<'a> {
    fn operand(self, place: usize) -> Option<&'a Tensor> {
        self.model.tensor(self.operator.operands.get(place).copied().flatten()?)
    }

    fn output(self) -> Option<&'a Tensor> {
        self.model.tensor(*self.operator.outputs.first()?)
    }

    /// Whether the first operand has elements of this kind.
    fn is(self, element: Element) -> bool {
        self.operand(0).is_some_and(|input| input.element == element)
    }

    fn is_int(self) -> bool {
        self.is(Element::Int8) || self.is(Element::Int16)
    }
}

/// No kernel asks for so much: where a made-up shape leads to more, this is taken, and sums stay within 64 bits.
const MOST: u64 = 1 << 34;

fn elements(tensor: &Tensor) -> u64 {
    tensor.elements().unwrap_or(MOST).min(MOST)
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |all: u64, &factor| all.saturating_mul(factor)).min(MOST)
}

/// TFLM's reference kernels.
fn reference(of: Shapes<'_>) -> Option<Vec<u64>> {
    let rank = |tensor: &Tensor| 4 * tensor.shape.len() as u64;
    let axes = || of.operand(1).map(elements).map(|axes| axes.saturating_mul(4));
    Some(match of.operator.kind.as_str() {
        // Weights of 4 bits are unpacked.
        "CONV_2D" | "DEPTHWISE_CONV_2D" | "FULLY_CONNECTED" => {
            of.operand(1).filter(|weights| weights.element == Element::Int4).map(elements).into_iter().collect()
        }
        "TRANSPOSE_CONV" => {
            let sum = [(Element::Int8, 4), (Element::Int16, 8)];
            let output = of.output()?;
            let sum = sum.into_iter().find(|&(element, _)| output.element == element);
            sum.map(|(_, bytes)| elements(output).saturating_mul(bytes)).into_iter().collect()
        }
        "MEAN" | "SUM" => {
            let sums = of.is_int().then_some(elements(of.output()?).saturating_mul(4));
            sums.into_iter().chain([rank(of.operand(0)?), axes()?]).collect()
        }
        "REDUCE_MAX" | "REDUCE_MIN" | "REDUCE_ALL" => vec![rank(of.operand(0)?), axes()?],
        "SVDF" => {
            let batch = *of.operand(0)?.shape.first()?;
            let filters = product(&[batch, *of.operand(1)?.shape.first()?, 4]);
            let units = product(&[batch, *of.output()?.shape.last()?, 4]);
            if of.is(Element::Float32) { vec![filters] } else { vec![filters, units] }
        }
        "UNIDIRECTIONAL_SEQUENCE_LSTM" => {
            let cell = of.operand(19)?;
            vec![elements(cell).saturating_mul(if cell.element == Element::Int16 { 2 } else { 4 }); 4]
        }
        "MIRROR_PAD" => vec![rank(of.operand(0)?); 2],
        "ADD_N" | "BATCH_MATMUL" | "TFLite_Detection_PostProcess" => return None,
        // As many values as the transform is long; its output has one complex number more than half of them.
        "SignalRfft" => {
            let output = of.output()?;
            let bytes = if output.element == Element::Int16 { 2 } else { 4 };
            vec![output.shape.last()?.saturating_sub(2).saturating_mul(bytes)]
        }
        "ethos-u" => {
            let bases = (of.operator.operands.len() + of.operator.outputs.len()) as u64;
            vec![8 * bases, 8 * bases]
        }
        _ if of.operator.is_custom && !of.operator.kind.starts_with("Signal") => return None,
        _ => Vec::new(),
    })
}

/// A convolution or a pool: its input is `height` × `width` × `deep`, its window `tall` × `wide`, its output `rows` × `columns` ×
/// `channels`. The padding is that above and left.
struct Image {
    height: u64,
    width: u64,
    deep: u64,
    tall: u64,
    wide: u64,
    rows: u64,
    columns: u64,
    channels: u64,
    padding: [u64; 2],
    stride: [u64; 2],
    dilation: [u64; 2],
}

fn image(of: Shapes<'_>) -> Option<Image> {
    let Options::Window(own) = of.operator.options else { return None };
    let three = |tensor: &Tensor| <[u64; 4]>::try_from(tensor.shape.as_slice()).ok().map(|[_, h, w, c]| [h, w, c]);
    let (input, output) = (three(of.operand(0)?)?, three(of.output()?)?);
    let window = own.size.or_else(|| three(of.operand(1)?).map(|[h, w, _]| [h, w]))?;
    let edge = |axis: usize| padding(&own, axis, [input[axis], output[axis]], window[axis]);
    let padding = [edge(0)?, edge(1)?];
    let ([height, width, deep], [tall, wide], [rows, columns, channels]) = (input, window, output);
    let (stride, dilation) = (own.stride, own.dilation);
    Some(Image { height, width, deep, tall, wide, rows, columns, channels, padding, stride, dilation })
}

fn cmsis_nn(of: Shapes<'_>) -> Option<Vec<u64>> {
    let kind = of.operator.kind.as_str();
    let is_own = ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "SVDF", "TRANSPOSE_CONV"]
        .contains(&kind)
        || kind == "UNIDIRECTIONAL_SEQUENCE_LSTM";
    if !is_own || of.is(Element::Float32) {
        return None;
    }
    // Of weights of 4 bits and activations of 16 nothing is said here.
    let is_int8 = of.is(Element::Int8) && of.operand(1).is_none_or(|weights| weights.element != Element::Int4);
    let unknown = || reference(of).filter(|_| false);
    if !is_int8 {
        return unknown();
    }
    Some(match kind {
        "CONV_2D" => vec![cmsis_convolution(&image(of)?)],
        "DEPTHWISE_CONV_2D" => {
            let Image { deep, tall, wide, channels, padding, dilation, .. } = image(of)?;
            let is_plain = deep == channels && dilation == [1, 1];
            let is_small = [tall, wide] == [3, 3] && padding.iter().all(|&edge| edge <= 1);
            let dsp = if is_plain && !is_small { product(&[deep, tall, wide, 2]) } else { 0 };
            let helium = if is_plain { product(&[4, 124, tall, wide]) } else { 0 };
            let turned = if deep == 1 && channels > 1 {
                let whole = Image { dilation: [1, 1], ..image(of)? };
                cmsis_convolution(&whole).saturating_add(product(&[channels, tall, wide]))
            } else {
                0
            };
            vec![dsp.max(helium).max(turned)]
        }
        "FULLY_CONNECTED" => {
            let (output, weights) = (of.output()?, of.operand(1)?);
            let channels = *output.shape.last()?;
            if output.shape.len() > 2 && weights.shape.last()?.is_multiple_of(4) {
                let per_tensor = (weights.scales <= 1).then_some(channels.saturating_mul(8));
                per_tensor.into_iter().chain([weights.shape.last()?.saturating_mul(4)]).collect()
            } else {
                vec![channels.saturating_mul(4)]
            }
        }
        "AVERAGE_POOL_2D" => vec![of.operand(0)?.shape.last()?.saturating_mul(4)],
        "SVDF" => {
            let sums = of.operand(1)?.shape.first()?.saturating_mul(4);
            reference(of)?.into_iter().chain([sums]).collect()
        }
        "TRANSPOSE_CONV" => return unknown(),
        _ => reference(of)?,
    })
}

/// The most that `arm_convolve_wrapper_s8_get_buffer_size` gives on any processor.
fn cmsis_convolution(image: &Image) -> u64 {
    let &Image { height, width, deep, tall, wide, columns, padding, stride, dilation, .. } = image;
    if padding == [0, 0] && [tall, wide] == [1, 1] && dilation == [1, 1] {
        return if stride == [1, 1] { deep.saturating_mul(4) } else { 0 };
    }
    let column = product(&[deep, tall, wide]);
    let whole = (4 * column.next_multiple_of(4)).max(4 * column.next_multiple_of(16));
    if !(height == 1 && dilation[1] == 1 && tall == 1 && product(&[stride[1], deep]).is_multiple_of(4)) {
        return whole;
    }
    // One row: of Helium the most of the left and the right border.
    let all = (columns.saturating_sub(1).saturating_mul(stride[1]).saturating_add(wide)).saturating_sub(width);
    let uneven = all % 2;
    let pixels = |edge: u64| if edge > 0 { edge.div_ceil(stride[1].max(1)).max(1) } else { 0 };
    let (left, right) = (pixels(padding[1]), pixels(padding[1] + uneven));
    if left + right > columns {
        return whole;
    }
    let left_edge = padding[1] * deep;
    let right_edge = if uneven > 0 { right * deep } else { left_edge };
    let row = wide.saturating_mul(deep);
    whole.max((row + left_edge).max(row.saturating_sub(deep) + right_edge))
}

fn esp_nn(of: Shapes<'_>) -> Option<Vec<u64>> {
    let kind = of.operator.kind.as_str();
    if !of.is(Element::Int8) || !["CONV_2D", "DEPTHWISE_CONV_2D", "SOFTMAX"].contains(&kind) {
        return None;
    }
    Some(vec![match kind {
        "SOFTMAX" => of.operand(0)?.shape.last()?.saturating_mul(4),
        "CONV_2D" => esp_convolution(&image(of)?),
        _ => esp_depthwise(&image(of)?),
    }])
}

/// `esp_nn_get_conv_scratch_size_esp32s3`.
fn esp_convolution(image: &Image) -> u64 {
    let &Image { height, width, deep, tall, wide, rows, columns, channels, padding, stride, .. } = image;
    let margin = 64;
    if [tall, wide] == [1, 1] && padding == [0, 0] && stride == [1, 1] {
        let padded = deep.next_multiple_of(8);
        let turned = if height * width < 8 { 0 } else { 16 * padded };
        let copy = if deep.is_multiple_of(8) { 0 } else { product(&[width, height, padded]) };
        return copy + product(&[padded, channels]) + turned + margin;
    }
    let (row, window) = (wide * deep, product(&[wide, tall, deep]));
    if row < 16 && window >= 16 {
        let aligned = window.next_multiple_of(16);
        return channels * 4 + 16 + product(&[channels, aligned]) + 16 + aligned + margin;
    }
    let copy = if padding == [0, 0] { 0 } else { product(&[width + 2 * padding[1], height + 2 * padding[0], deep]) };
    let weights = product(&[wide, tall, deep.next_multiple_of(16), channels]);
    let aligned = product(&[row.next_multiple_of(16), tall, channels]);
    let right = (columns * stride[1] + wide).saturating_sub(1 + width);
    let below = (rows * stride[0] + tall).saturating_sub(1 + height);
    let border = if right > 0 || below > 0 { product(&[width + right, height + below, deep]) } else { 0 };
    copy + weights + aligned + border + margin + 4 * channels
}

/// `esp_nn_get_depthwise_conv_scratch_size_esp32s3`.
fn esp_depthwise(image: &Image) -> u64 {
    let &Image { height, width, deep, tall, wide, rows, columns, channels, padding, stride, .. } = image;
    let multiplier = channels / deep.max(1);
    let (weights, input) = (product(&[wide, tall, deep, multiplier]), product(&[width, height, deep]));
    if multiplier == 1 && deep.is_multiple_of(8) {
        if [tall, wide] != [3, 3] {
            let all = 2 * (weights + input);
            return if all <= 48 << 10 { all + 32 } else { 2 * weights + product(&[2, width, tall, deep]) + 32 };
        }
        if deep.is_multiple_of(16) {
            let beyond = |outputs: u64, at: usize, inputs: u64| (outputs * stride[at] + 2).saturating_sub(inputs);
            let [high, broad] = if padding == [0, 0] {
                [beyond(rows, 0, height), beyond(columns, 1, width)]
            } else {
                [2 * padding[0], 2 * padding[1]]
            };
            if [high, broad] == [0, 0] {
                return weights + 16;
            }
            let whole = product(&[width + broad, height + high, deep]);
            return weights + 16 + if whole <= 40 << 10 { whole } else { product(&[width + broad, tall, deep]) };
        }
        if deep < 12 {
            return 2 * (weights + input) + 32;
        }
        let padded = deep.next_multiple_of(16);
        let broad = 2 * padding[1] + (columns * stride[1] + 2).saturating_sub(width);
        let high = 2 * padding[0] + (rows * stride[0] + 2).saturating_sub(height);
        return 9 * padded + product(&[width + broad, height + high, padded]) + product(&[columns, rows, padded]) + 64;
    }
    if multiplier == 1 && deep > 3 {
        let padded = deep.next_multiple_of(8);
        let filter = (2 * product(&[wide, tall, padded])).next_multiple_of(16);
        let output = (filter + 2 * product(&[width, height, padded])).next_multiple_of(16);
        let bias = (output + product(&[columns, rows, padded])).next_multiple_of(16);
        return bias + 12 * padded + 16;
    }
    if multiplier > 0 && multiplier.is_multiple_of(4) { 2 * (weights + input) + 32 } else { 32 }
}
