//! The shapes of a model whose inputs have other ones than its file says. Each operator makes its output's shape of those of its
//! operands, as the kernels of TensorFlow Lite do when they are prepared; operators whose operands keep their shapes keep theirs.

use std::collections::HashSet;

use super::{Model, Operator, Options, Tensor, Window};

/// The shape of an input, by its name.
pub(crate) type Given = (String, Vec<u64>);

/// Reads `NAME=1,76,32,1`.
pub(crate) fn parse(text: &str) -> Result<Given, String> {
    let expected = || format!("expected NAME=SIZE,SIZE,… with sizes of 1 or more, found {text}");
    let (name, sizes) = text.rsplit_once('=').ok_or_else(expected)?;
    let sizes = sizes.split(',').map(|size| size.trim().parse().ok().filter(|&size| size > 0));
    Ok((name.into(), sizes.collect::<Option<_>>().ok_or_else(expected)?))
}

/// Gives inputs these shapes, and all other tensors those that follow.
///
/// # Errors
/// No such input, or an operator of which it is not known here what it makes of its operands' shapes.
pub(crate) fn give(model: &mut Model, given: &[Given]) -> Result<(), String> {
    let [graph] = model.graphs.as_slice() else { return Err("a model of several graphs keeps its shapes".into()) };
    let (inputs, operators) = (graph.inputs.clone(), graph.operators.clone());
    let mut changed = HashSet::new();
    for (name, shape) in given {
        let is_named =
            |tensor: &Tensor| tensor.name == *name || tensor.name.split_once(':').is_some_and(|(_, own)| own == name);
        let found = inputs.iter().find(|&&input| model.tensor(input).is_some_and(is_named));
        let input = *found.ok_or_else(|| {
            let names: Vec<&str> = inputs.iter().filter_map(|&i| Some(model.tensor(i)?.name.as_str())).collect();
            format!("there is no input {name}; there are {}", names.join(", "))
        })?;
        if model.tensor(input).is_some_and(|tensor| tensor.shape.len() != shape.len()) {
            return Err(format!("input {name} has another number of dimensions"));
        }
        set(model, input, shape.clone())?;
        changed.insert(input);
    }
    for number in operators {
        let operator = &model.operators[number];
        if !operator.operands.iter().flatten().any(|operand| changed.contains(operand)) {
            continue;
        }
        let Some(&output) = operator.outputs.first().filter(|_| operator.outputs.len() == 1) else {
            return Err(unknown(operator));
        };
        let shape = of_output(model, operator).ok_or_else(|| unknown(operator))?;
        set(model, output, shape)?;
        changed.insert(output);
    }
    model.plan = None;
    Ok(())
}

fn unknown(operator: &Operator) -> String {
    format!("which shape operator {}, {}, makes of these is not known here", operator.number, operator.kind)
}

fn set(model: &mut Model, tensor: u32, shape: Vec<u64>) -> Result<(), String> {
    let tensor = &mut model.tensors[tensor as usize];
    let too_large = || format!("tensor {} is too large", tensor.name);
    let new = shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size)).ok_or_else(too_large)?;
    let old = tensor.elements().filter(|&old| old > 0).ok_or_else(too_large)?;
    let bytes = new.checked_mul(tensor.bytes).map(|bytes| bytes.div_ceil(old)).filter(|&bytes| bytes < 1 << 40);
    let bytes = bytes.ok_or_else(too_large)?;
    (tensor.bytes, tensor.shape, tensor.open) = (bytes, shape, false);
    Ok(())
}

/// The shape of the only output.
fn of_output(model: &Model, operator: &Operator) -> Option<Vec<u64>> {
    let operand = |place: usize| model.tensor(operator.operands.get(place).copied().flatten()?);
    let shape = |place: usize| operand(place).map(|tensor| tensor.shape.clone());
    let constant = |place: usize| operand(place).and_then(|tensor| tensor.constant.clone());
    let (input, old) = (shape(0)?, model.tensor(*operator.outputs.first()?)?.shape.clone());
    let at = |axis: i64| usize::try_from(if axis < 0 { axis + i64::try_from(input.len()).ok()? } else { axis }).ok();
    Some(match (operator.kind.as_str(), &operator.options) {
        ("CONV_2D" | "DEPTHWISE_CONV_2D" | "AVERAGE_POOL_2D" | "MAX_POOL_2D", Options::Window(window)) => {
            of_window(&operator.kind, window, <[u64; 4]>::try_from(input).ok()?, operand(1))?
        }
        ("FULLY_CONNECTED", _) => {
            let weights = shape(1)?;
            let (&units, &deep) = (weights.first()?, weights.get(1)?);
            if old.len() == input.len() && *input.last()? == deep {
                input[..input.len() - 1].iter().copied().chain([units]).collect()
            } else {
                let all = operand(0)?.elements()?;
                vec![all.checked_div(deep).filter(|batch| batch * deep == all)?, units]
            }
        }
        (
            "RELU" | "RELU6" | "RELU_N1_TO_1" | "LOGISTIC" | "TANH" | "SOFTMAX" | "LOG_SOFTMAX" | "QUANTIZE"
            | "DEQUANTIZE" | "CAST" | "ABS" | "NEG" | "EXP" | "LOG" | "SQRT" | "RSQRT" | "SQUARE" | "SIN" | "COS"
            | "FLOOR" | "CEIL" | "ROUND" | "LEAKY_RELU" | "ELU" | "HARD_SWISH" | "L2_NORMALIZATION",
            _,
        ) => input,
        ("ADD" | "SUB" | "MUL" | "DIV" | "MAXIMUM" | "MINIMUM" | "SQUARED_DIFFERENCE" | "PRELU", _) => {
            broadcast(&input, &shape(1)?)?
        }
        ("RESHAPE", _) => {
            let to = constant(1)?;
            let all = operand(0)?.elements()?;
            let told: u64 =
                to.iter().filter(|&&n| n >= 0).try_fold(1u64, |all, &n| all.checked_mul(u64::try_from(n).ok()?))?;
            let rest = all.checked_div(told)?;
            let open = to.iter().filter(|&&n| n < 0).count();
            let fits = if open == 1 { rest * told == all } else { open == 0 && told == all };
            let sizes = to.iter().map(|&n| u64::try_from(n).unwrap_or(rest));
            fits.then(|| sizes.collect())?
        }
        ("PAD" | "PADV2", _) => {
            let edges = constant(1)?;
            let pairs =
                edges.as_chunks::<2>().0.iter().map(|&[before, after]| u64::try_from(before.checked_add(after)?).ok());
            input.iter().zip(pairs).map(|(&size, edges)| size.checked_add(edges?)).collect::<Option<_>>()?
        }
        ("CONCATENATION", &Options::Axis(axis)) => {
            let parts: Option<Vec<_>> = (0..operator.operands.len()).map(shape).collect();
            together(&parts?, at(axis)?)?
        }
        ("TRANSPOSE", _) => constant(1)?.iter().map(|&axis| input.get(at(axis)?).copied()).collect::<Option<_>>()?,
        ("MEAN" | "SUM" | "REDUCE_MAX" | "REDUCE_MIN", _) => {
            let axes: Vec<usize> = constant(1)?.iter().map(|&axis| at(axis)).collect::<Option<_>>()?;
            let kept = |(axis, &size)| match (axes.contains(&axis), old.len() == input.len()) {
                (false, _) => Some(size),
                (true, true) => Some(1),
                (true, false) => None,
            };
            input.iter().enumerate().filter_map(kept).collect()
        }
        _ => return None,
    })
}

/// The shape of a convolution's or a pool's output.
fn of_window(kind: &str, window: &Window, input: [u64; 4], weights: Option<&Tensor>) -> Option<Vec<u64>> {
    let [batch, height, width, deep] = input;
    let weights = weights.and_then(|weights| <[u64; 4]>::try_from(weights.shape.as_slice()).ok());
    let (size, channels) = match (kind, weights, window.size) {
        ("CONV_2D", Some([channels, tall, wide, of]), _) if of == deep => ([tall, wide], channels),
        ("DEPTHWISE_CONV_2D", Some([_, tall, wide, channels]), _) if channels.is_multiple_of(deep) => {
            ([tall, wide], channels)
        }
        (_, None, Some(size)) => (size, deep),
        _ => return None,
    };
    let along = |axis: usize, length: u64| {
        let reach = if window.same { 0 } else { size[axis].checked_sub(1)?.checked_mul(window.dilation[axis])? };
        Some(length.checked_sub(reach).filter(|&l| l > 0)?.div_ceil(window.stride[axis].max(1)))
    };
    Some(vec![batch, along(0, height)?, along(1, width)?, channels])
}

/// The shape of parts that lie one behind the other along an axis.
fn together(parts: &[Vec<u64>], axis: usize) -> Option<Vec<u64>> {
    let mut whole = parts.first()?.clone();
    *whole.get_mut(axis)? = 0;
    for part in parts {
        let all = whole[axis].checked_add(*part.get(axis)?)?;
        whole[axis] = part[axis];
        if whole != *part {
            return None;
        }
        whole[axis] = all;
    }
    Some(whole)
}

/// The shape of an elementwise result.
fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let of = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let along = |axis| match (of(a, axis), of(b, axis)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(along).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule() {
        assert_eq!(together(&[vec![1, 2, 3], vec![1, 5, 3]], 1), Some(vec![1, 7, 3]));
        assert_eq!(
            [together(&[vec![1, 2], vec![2, 2]], 1), together(&[vec![1]], 1), together(&[], 0)],
            [None, None, None]
        );
        assert_eq!(broadcast(&[4, 1, 3], &[5, 1]), Some(vec![4, 5, 3]));
        assert_eq!((broadcast(&[2], &[3]), broadcast(&[], &[3])), (None, Some(vec![3])));
        let window = |same, dilation| Window { same, stride: [2, 1], dilation, size: Some([3, 2]) };
        assert_eq!(of_window("MAX_POOL_2D", &window(true, [1, 1]), [1, 9, 9, 4], None), Some(vec![1, 5, 9, 4]));
        assert_eq!(of_window("MAX_POOL_2D", &window(false, [1, 1]), [1, 9, 9, 4], None), Some(vec![1, 4, 8, 4]));
        assert_eq!(of_window("MAX_POOL_2D", &window(false, [2, 3]), [1, 9, 9, 4], None), Some(vec![1, 3, 6, 4]));
        assert_eq!(of_window("MAX_POOL_2D", &window(false, [2, 3]), [1, 4, 9, 4], None), None);
    }

    /// From the shapes of their inputs the models of the corpus get the shapes that are in their files, four times the batch takes
    /// four times the memory, and an operator that is not known is named.
    #[test]
    fn the_files_shapes_come_out_again() {
        let Some(folder) = std::env::var_os("SUBLET_DATA") else {
            eprintln!("skipped: shapes of the corpus' models; SUBLET_DATA is not set");
            return;
        };
        let read = |name: &str| {
            let file = std::path::Path::new(&folder).join(format!("edge/{name}.tflite"));
            crate::input::read_quietly(file.to_str().unwrap()).unwrap().model.unwrap().0
        };
        let given = |model: &Model, times: u64| -> Vec<Given> {
            let inputs = model.graphs[0].inputs.iter().map(|&i| &model.tensors[i as usize]);
            inputs.map(|t| (t.name.clone(), [&[t.shape[0] * times], &t.shape[1..]].concat())).collect()
        };
        for name in ["mlperf_vww_int8", "mlperf_resnet8_int8", "mlperf_kws_int8", "mlperf_ad01_int8", "person_detect"] {
            let (model, mut again) = (read(name), read(name));
            give(&mut again, &given(&model, 1)).unwrap_or_else(|e| panic!("{name}: {e}"));
            for (a, b) in model.tensors.iter().zip(&again.tensors) {
                assert_eq!((&a.shape, a.bytes), (&b.shape, b.bytes), "{name}: {}", a.name);
            }
        }
        let (model, mut four) = (read("mlperf_ad01_int8"), read("mlperf_ad01_int8"));
        give(&mut four, &given(&model, 4)).unwrap();
        assert!(model.tensors.iter().zip(&four.tensors).all(|(a, b)| b.bytes == 4 * a.bytes));
        let mut crop = read("hand_recrop");
        let asked = given(&crop, 1);
        assert!(give(&mut crop, &asked).unwrap_err().contains("STRIDED_SLICE"));
    }
}
