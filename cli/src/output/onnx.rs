//! Writes an ONNX model with its operators in another order. All other bytes stay as they are.

use std::ops::Range;

use prost::DecodeError;
use prost::encoding::{DecodeContext, decode_key, decode_varint, skip_field};

use crate::failure::InputError;

/// The field of a model that holds its graph, and that of a graph that holds an operator.
const GRAPH: u32 = 7;
const NODE: u32 = 1;

/// The model, with these operators of its graph, by their numbers in the file, in this order. Those that are not among
/// them, which are computed from constants alone, come first.
///
/// # Errors
/// Bytes that are no ONNX model, or one whose graph comes in parts.
pub(crate) fn reorder(file: &str, model: &[u8], order: &[u32]) -> Result<Vec<u8>, InputError> {
    let fault = |message: String| InputError::file(file, message);
    let broken = |e: DecodeError| fault(format!("this is no ONNX model: {e}"));
    let graphs: Vec<_> =
        fields(model, 0..model.len()).map_err(broken)?.into_iter().filter(|f| f.tag == GRAPH).collect();
    let [graph] = graphs.as_slice() else {
        return Err(fault(format!("the model has its graph in {} parts, and cannot be reordered", graphs.len())));
    };
    let mut content = &model[graph.bytes.clone()];
    decode_key(&mut content).and_then(|_| decode_varint(&mut content)).map_err(broken)?;
    let inside = fields(model, graph.bytes.end - content.len()..graph.bytes.end).map_err(broken)?;
    let nodes: Vec<&Field> = inside.iter().filter(|f| f.tag == NODE).collect();
    let mut is_ordered = vec![false; nodes.len()];
    for &number in order {
        is_ordered[number as usize] = true;
    }
    let constant = (0..nodes.len()).filter(|&number| !is_ordered[number]);
    let mut next = constant.chain(order.iter().map(|&number| number as usize)).map(|number| nodes[number]);

    let mut written = model[..graph.bytes.end - content.len()].to_vec();
    for field in &inside {
        let field = if field.tag == NODE { next.next().unwrap_or(field) } else { field };
        written.extend(&model[field.bytes.clone()]);
    }
    written.extend(&model[graph.bytes.end..]);
    Ok(written)
}

struct Field {
    tag: u32,
    /// Its key, its length and its content.
    bytes: Range<usize>,
}

/// The fields of the message in this part of some bytes.
fn fields(bytes: &[u8], part: Range<usize>) -> Result<Vec<Field>, DecodeError> {
    let mut rest = &bytes[part.clone()];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let begin = part.end - rest.len();
        let (tag, kind) = decode_key(&mut rest)?;
        skip_field(kind, tag, &mut rest, DecodeContext::default())?;
        found.push(Field { tag, bytes: begin..part.end - rest.len() });
    }
    Ok(found)
}
