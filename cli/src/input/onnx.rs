//! Reads ONNX models. Of the format's protocol buffers only the messages with operators and shapes are declared here.
//!
//! Weights, and what is computed from weights alone, take no memory in the arena. The file has to have the shape of
//! every other value, as `sublet.onnx` in Python records it, or `onnx.shape_inference` infers it if all dimensions of
//! the inputs are fixed. Otherwise the model is refused with the value's name. Graphs inside of an operator are not planned; what they read of the outer
//! graph counts as read by the operator. Nor are the bodies of functions that the file defines.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::BufRead;

use prost::Message;

use super::{Format, Recognised, unreadable};
use crate::failure::InputError;
use crate::model::traced;
use crate::model::{Graph, Model, Operator, Tensor, cell_name};
use crate::problem::Problem;

/// The key under which `sublet.onnx` in Python notes how long an operator takes, in ns.
const TIME: &str = "sublet.time_ns";
/// The first byte of a model: the field with the version number. No text begins with it.
const BEGIN: u8 = 0x08;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "25")]
    functions: Vec<FunctionProto>,
}

/// An operator that the file defines by others.
#[derive(Clone, PartialEq, Message)]
struct FunctionProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "10")]
    domain: String,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "13")]
    value_info: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "15")]
    sparse_initializer: Vec<SparseTensorProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeProto>,
    #[prost(string, tag = "7")]
    domain: String,
    #[prost(message, repeated, tag = "9")]
    metadata: Vec<EntryProto>,
}

/// What a tool has noted of an operator.
#[derive(Clone, PartialEq, Message)]
struct EntryProto {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(message, optional, tag = "6")]
    g: Option<GraphProto>,
    #[prost(message, repeated, tag = "11")]
    graphs: Vec<GraphProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(string, tag = "8")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct SparseTensorProto {
    #[prost(message, optional, tag = "1")]
    values: Option<TensorProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor_type: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    elem_type: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<ShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ShapeProto {
    #[prost(message, repeated, tag = "1")]
    dim: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DimensionProto {
    #[prost(int64, optional, tag = "1")]
    dim_value: Option<i64>,
}

/// How an ONNX model is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "of ONNX (.onnx)",
    help: "\
             or an .onnx that has all shapes",
    by: Recognised::Bytes(|begin| begin.first() == Some(&BEGIN), |file, reader| read(file, reader)),
};

/// Reads a model.
pub(super) fn read(file: &str, mut reader: impl BufRead) -> Result<Problem, InputError> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    let fault = |message: String| InputError::file(file, message);
    let model = ModelProto::decode(bytes.as_slice()).map_err(|e| fault(format!("this is no ONNX model: {e}")))?;
    let graph = model.graph.ok_or_else(|| fault("the ONNX model has no graph".into()))?;
    traced::problem(file, read_graph(&graph, &model.functions).map_err(fault)?, bytes)
}

/// The values of a graph that take memory, by their names.
#[derive(Default)]
struct Values<'a> {
    numbers: HashMap<&'a str, u32>,
    /// The types that the file tells; none for what is no tensor.
    types: HashMap<&'a str, Option<&'a TensorTypeProto>>,
    constants: HashSet<&'a str>,
    tensors: Vec<Tensor>,
}

impl<'a> Values<'a> {
    /// The number of a value; none for a constant, and for an operand that is left out.
    fn number(&mut self, name: &'a str) -> Result<Option<u32>, String> {
        if name.is_empty() || self.constants.contains(name) {
            return Ok(None);
        }
        if let Some(&number) = self.numbers.get(name) {
            return Ok(Some(number));
        }
        let (bytes, shape) = self.shape(name)?;
        let number = u32::try_from(self.tensors.len()).map_err(|_| "there are too many tensors".to_owned())?;
        self.tensors.push(Tensor { name: cell_name(self.tensors.len(), name), bytes, shape, ..Tensor::default() });
        self.numbers.insert(name, number);
        Ok(Some(number))
    }

    /// The bytes and the dimensions of a value.
    fn shape(&self, name: &str) -> Result<(u64, Vec<u64>), String> {
        match self.types.get(name) {
            Some(None) => Err(format!("{name} is no tensor: sequences, maps and optional values are not planned")),
            Some(Some(tensor)) if bits(tensor.elem_type).is_none() && tensor.elem_type > 0 => {
                Err(format!("tensor {name} has the type {} of ONNX, whose size is not known", tensor.elem_type))
            }
            told => told.copied().flatten().and_then(shape).ok_or_else(|| {
                format!(
                    "the shape of tensor {name} is not known, or larger than any memory; python -m sublet.onnx records the shapes of a run: docs/embedded.md, ONNX"
                )
            }),
        }
    }

    fn list(&mut self, names: impl Iterator<Item = &'a str>) -> Result<Vec<u32>, String> {
        let (mut seen, mut list) = (HashSet::new(), Vec::new());
        for name in names {
            list.extend(self.number(name)?.filter(|&number| seen.insert(number)));
        }
        Ok(list)
    }
}

fn read_graph(graph: &GraphProto, functions: &[FunctionProto]) -> Result<Model, String> {
    let functions: HashSet<String> = functions.iter().map(|f| kind(&f.domain, &f.name)).collect();
    let mut values = Values::default();
    values.constants.extend(graph.initializer.iter().map(|t| t.name.as_str()));
    let sparse = graph.sparse_initializer.iter().filter_map(|t| t.values.as_ref());
    values.constants.extend(sparse.map(|t| t.name.as_str()));
    for info in graph.value_info.iter().chain(&graph.output).chain(&graph.input) {
        if let Some(told) = &info.r#type {
            values.types.insert(&info.name, told.tensor_type.as_ref());
        }
    }
    let inputs = values.list(graph.input.iter().map(|info| info.name.as_str()))?;
    let (mut operators, mut with_graphs) = (Vec::new(), BTreeSet::new());
    let mut written: HashSet<u32> = inputs.iter().copied().collect();
    let read = graph.node.iter().flat_map(|node| node.input.iter().map(String::as_str).chain(inner_reads(node)));
    let read: HashSet<&str> = read.chain(graph.output.iter().map(|info| info.name.as_str())).collect();
    for (node, number) in graph.node.iter().zip(0u32..) {
        let inner = inner_reads(node);
        let constant = |name: &String| name.is_empty() || values.constants.contains(name.as_str());
        let folds = !node.input.is_empty() && inner.is_empty() && !is_random(node);
        if node.op_type == "Constant" || (folds && node.input.iter().all(constant)) {
            values.constants.extend(node.output.iter().map(String::as_str));
            continue;
        }
        let known: Vec<&str> = inner.into_iter().filter(|name| values.numbers.contains_key(name)).collect();
        let reads = values.list(node.input.iter().map(String::as_str).chain(known))?;
        if let Some(&early) = reads.iter().find(|t| !written.contains(t)) {
            return Err(format!(
                "an operator {} reads tensor {} before it is written",
                node.op_type, values.tensors[early as usize].name
            ));
        }
        // What nobody reads may have a shape that nobody knows: old models have a mask of each dropout.
        let outputs = node.output.iter().map(String::as_str);
        let outputs: Vec<&str> = outputs.filter(|name| read.contains(name) || values.shape(name).is_ok()).collect();
        let outputs = values.list(outputs.into_iter())?;
        if let Some(&twice) = outputs.iter().find(|&&t| !written.insert(t)) {
            return Err(format!("tensor {} is written twice", values.tensors[twice as usize].name));
        }
        let kind = kind(&node.domain, &node.op_type);
        if functions.contains(&kind) || node.attribute.iter().any(|a| a.g.is_some() || !a.graphs.is_empty()) {
            with_graphs.insert(kind.clone());
        }
        let operands = node.input.iter().map(|name| values.numbers.get(name.as_str()).copied()).collect();
        let is_pure = !functions.contains(&kind) && is_pure(node);
        operators.push(Operator {
            kind,
            number,
            inputs: reads,
            operands,
            outputs,
            time_ns: time_ns(node)?,
            is_pure,
            ..Operator::default()
        });
    }
    if operators.is_empty() {
        return Err("the model has no operators".into());
    }
    let outputs = values.list(graph.output.iter().map(|info| info.name.as_str()))?;
    if let Some(&never) = outputs.iter().find(|t| !written.contains(t)) {
        return Err(format!("no operator writes the output {}", values.tensors[never as usize].name));
    }
    let own = Graph { tensors: 0..values.tensors.len(), operators: 0..operators.len(), inputs, outputs };
    let inner = with_graphs.into_iter().collect();
    Ok(Model {
        tensors: values.tensors,
        operators,
        graphs: vec![own],
        alignment: 1,
        inner,
        tells_pure: true,
        ..Model::default()
    })
}

/// What an operator is called; with its domain, if that is not ONNX's own.
fn kind(domain: &str, name: &str) -> String {
    let domain = if domain == "ai.onnx" { "" } else { domain };
    let name = domain.chars().chain((!domain.is_empty()).then_some('.')).chain(name.chars());
    name.take(64).map(|c| if c.is_control() || ",\"".contains(c) { '_' } else { c }).collect()
}

/// How long an operator takes, in ns; 0 where the file does not tell.
fn time_ns(node: &NodeProto) -> Result<u64, String> {
    let Some(entry) = node.metadata.iter().find(|entry| entry.key == TIME) else { return Ok(0) };
    entry
        .value
        .parse()
        .map_err(|_| format!("{TIME} of an operator {} is no number of ns: {:?}", node.op_type, entry.value))
}

/// Whether an operator draws random numbers, so that its output is no constant even if all its inputs are.
fn is_random(node: &NodeProto) -> bool {
    node.op_type.starts_with("Random") || matches!(node.op_type.as_str(), "Bernoulli" | "Multinomial")
}

/// Whether an operator gives the same result each time that it runs on the same inputs, and does nothing else. Nothing
/// is known of operators that are not ONNX's own.
fn is_pure(node: &NodeProto) -> bool {
    let own = matches!(node.domain.as_str(), "" | "ai.onnx" | "ai.onnx.ml");
    // With a third input, dropout may train.
    let trains = node.op_type == "Dropout" && node.input.len() > 2;
    own && !trains && !is_random(node) && inner_nodes(node).all(is_pure)
}

/// The operators of the graphs inside of an operator.
fn inner_nodes(node: &NodeProto) -> impl Iterator<Item = &NodeProto> {
    node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)).flat_map(|graph| &graph.node)
}

/// The names of what the graphs inside of an operator read.
fn inner_reads(node: &NodeProto) -> Vec<&str> {
    inner_nodes(node).flat_map(|n| n.input.iter().map(String::as_str).chain(inner_reads(n))).collect()
}

/// The bytes and the dimensions of a type; none where the file does not have all of them.
fn shape(tensor: &TensorTypeProto) -> Option<(u64, Vec<u64>)> {
    let size = bits(tensor.elem_type)?;
    let dimension = |d: &DimensionProto| u64::try_from(d.dim_value?).ok();
    let shape: Vec<u64> = tensor.shape.as_ref()?.dim.iter().map(dimension).collect::<Option<_>>()?;
    let bits = shape.iter().try_fold(size, |bits, &d| bits.checked_mul(d))?;
    // An upper limit, so that sums of sizes stay within 64 bits.
    (bits < 1 << 52).then_some((bits.div_ceil(8), shape))
}

/// The size of an element of a type, in bits.
fn bits(kind: i32) -> Option<u64> {
    Some(match kind {
        1 | 6 | 12 => 32,
        2 | 3 | 9 | 17..=20 | 24 => 8,
        4 | 5 | 10 | 16 => 16,
        7 | 11 | 13 | 14 => 64,
        15 => 128,
        21..=23 => 4,
        _ => return None,
    })
}
