//! The scratch that kernels ask for when TFLM prepares them, by the formulas of their sources of August 2026. Those of
//! CMSIS-NN depend on the processor: the most of Armv6-M, of DSP instructions and of Helium counts. Those of ESP-NN are
//! for ESP32-S3.

use super::kernels::{Kernels, padding};
use super::{Element, Model, Operator, Options, Tensor, Window};

/// What a kernel asks for: the bytes of each buffer; none where it may ask for memory, and it is not known for how much.
pub(crate) fn asked(model: &Model, operator: &Operator, kernels: Kernels) -> Option<Vec<u64>> {
    let shapes = Shapes { model, operator };
    match kernels {
        Kernels::Reference => reference(shapes),
        Kernels::CmsisNn => cmsis_nn(shapes),
        Kernels::EspNn => esp_nn(shapes),
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

fn four(tensor: &Tensor) -> Option<[u64; 4]> {
    tensor.shape.as_slice().try_into().ok()
}

fn image(of: Shapes<'_>) -> Option<Image> {
    let Options::Window(own) = of.operator.options else { return None };
    let three = |tensor: &Tensor| four(tensor).map(|[_, h, w, c]| [h, w, c]);
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
    // The first operand of a transposed convolution is the shape of its output.
    let element = of.operand(if kind == "TRANSPOSE_CONV" { 2 } else { 0 }).map(|input| input.element);
    if !is_own || element == Some(Element::Float32) {
        return reference(of);
    }
    // Of weights of 4 bits and activations of 16 nothing is said here.
    if element != Some(Element::Int8) || of.operand(1).is_some_and(|weights| weights.element == Element::Int4) {
        return None;
    }
    Some(match kind {
        "CONV_2D" => {
            let image = image(of)?;
            vec![cmsis_convolution(&image, of.operand(1)?.shape.last() != Some(&image.deep))]
        }
        "DEPTHWISE_CONV_2D" => {
            let image = image(of)?;
            let Image { deep, tall, wide, channels, padding, dilation, .. } = image;
            let is_plain = deep == channels && dilation == [1, 1] && of.operand(0)?.shape.first() == Some(&1);
            let is_small = [tall, wide] == [3, 3] && padding.iter().all(|&edge| edge <= 1);
            let dsp = if is_plain && !is_small { product(&[deep, tall, wide, 2]) } else { 0 };
            let helium = if is_plain { product(&[4, 124, tall, wide]) } else { 0 };
            let turned = if deep == 1 && channels > 1 {
                cmsis_convolution(&image, false).saturating_add(product(&[channels, tall, wide]))
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
        "TRANSPOSE_CONV" => cmsis_transposed(of)?,
        // An LSTM keeps one of the reference kernel's four buffers in registers.
        _ => reference(of)?.into_iter().skip(1).collect(),
    })
}

/// The most that `arm_convolve_wrapper_s8_get_buffer_size` gives on any processor: of Helium, whose rows for images of
/// one row are shorter.
fn cmsis_convolution(image: &Image, is_grouped: bool) -> u64 {
    let &Image { deep, tall, wide, padding, stride, dilation, .. } = image;
    if !is_grouped && padding == [0, 0] && [tall, wide] == [1, 1] && dilation == [1, 1] {
        return if stride == [1, 1] { deep.saturating_mul(4) } else { 0 };
    }
    4 * product(&[deep, tall, wide]).next_multiple_of(16)
}

/// `arm_transpose_conv_s8_get_buffer_size` of Helium, and a copy of the weights: where pixels come to lie at most two apart, the
/// kernel is a convolution.
fn cmsis_transposed(of: Shapes<'_>) -> Option<Vec<u64>> {
    let Options::Window(Window { stride: [down, right], .. }) = of.operator.options else { return None };
    let ([channels, tall, wide, deep], [.., width, _]) = (four(of.operand(1)?)?, four(of.operand(2)?)?);
    Some(if down.max(right) <= 2 && deep > 16 {
        vec![4 * product(&[deep, tall, wide]).next_multiple_of(16), product(&[channels, tall, wide, deep])]
    } else {
        let row = product(&[width.saturating_sub(1), right]).saturating_add(wide.max(down));
        vec![product(&[row, channels, tall.max(down), 4])]
    })
}

fn esp_nn(of: Shapes<'_>) -> Option<Vec<u64>> {
    let kind = of.operator.kind.as_str();
    if !of.is(Element::Int8) || !["CONV_2D", "DEPTHWISE_CONV_2D", "SOFTMAX"].contains(&kind) {
        return reference(of);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Input, weights, output, stride and dilation; and the most that CMSIS-NN's own functions of July 2026 give, as they
    /// are compiled for a Cortex-M0+, M4 and M55.
    #[test]
    fn cmsis_nn_asks_for_what_its_own_functions_give() {
        type Case<'a> = (&'a str, [&'a [u64]; 3], [u64; 2], [u64; 2], &'a [u64]);
        const ONE: [u64; 2] = [1, 1];
        let cases: [Case<'_>; 10] = [
            ("CONV_2D", [&[1, 10, 37, 1], &[6, 5, 1, 1], &[1, 10, 19, 6]], [1, 2], ONE, &[64]),
            ("CONV_2D", [&[1, 12, 25, 16], &[8, 1, 1, 8], &[1, 12, 9, 8]], [1, 3], ONE, &[64]),
            ("CONV_2D", [&[1, 1, 36, 2], &[8, 1, 1, 2], &[1, 1, 12, 8]], [2, 3], ONE, &[0]),
            ("DEPTHWISE_CONV_2D", [&[1, 1, 15, 64], &[1, 1, 2, 64], &[1, 1, 14, 64]], ONE, ONE, &[992]),
            ("DEPTHWISE_CONV_2D", [&[2, 6, 7, 2], &[1, 3, 5, 2], &[2, 6, 3, 2]], [1, 3], ONE, &[0]),
            ("DEPTHWISE_CONV_2D", [&[1, 1, 15, 1], &[1, 1, 1, 10], &[1, 1, 15, 10]], [3, 1], [2, 1], &[74]),
            ("TRANSPOSE_CONV", [&[1, 12, 14, 17], &[40, 1, 2, 17], &[1, 24, 28, 40]], [2, 2], ONE, &[192, 1360]),
            ("TRANSPOSE_CONV", [&[1, 1, 5, 16], &[18, 1, 5, 16], &[1, 3, 15, 18]], [3, 3], ONE, &[3672]),
            ("FULLY_CONNECTED", [&[1, 1, 4], &[34, 4], &[1, 1, 34]], ONE, ONE, &[272, 16]),
            ("FULLY_CONNECTED", [&[2, 24], &[38, 24], &[2, 38]], ONE, ONE, &[152]),
        ];
        for (kind, shapes, stride, dilation, bytes) in cases {
            let of = |shape: &[u64], element| Tensor { shape: shape.into(), element, ..Tensor::default() };
            let tensors = shapes.iter().map(|shape| of(shape, Element::Int8)).chain([of(&[4], Element::Int32)]);
            let mut model = Model { tensors: tensors.collect(), ..Model::default() };
            let operands = if kind == "TRANSPOSE_CONV" { [3, 1, 0] } else { [0, 1, 3] }.map(Some).into();
            let options = Options::Window(Window { same: true, stride, dilation, size: None });
            let operator = Operator { kind: kind.into(), operands, outputs: vec![2], options, ..Operator::default() };
            assert_eq!(asked(&model, &operator, Kernels::CmsisNn).as_deref(), Some(bytes), "{kind} {shapes:?}");
            for (element, bytes) in [(Element::Int16, None), (Element::Float32, Some([].as_slice()))] {
                for changed in [0, 2] {
                    model.tensors[changed].element = element;
                }
                assert_eq!(asked(&model, &operator, Kernels::CmsisNn).as_deref(), bytes, "{kind} {element:?}");
            }
        }
    }
}
