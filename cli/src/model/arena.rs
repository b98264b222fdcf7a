//! The whole arena of TFLM: the least `kTensorArenaSize` with which its interpreter runs a model by its reference kernels.
//!
//! The head has the tensors and the scratch of kernels, or what the planner works on while it plans. The tail has the
//! interpreter's own structures and what kernels keep; it grows downwards while the model is prepared. What counts is
//! the most of both together at any moment. The structures are those of TFLM's sources of August 2026 (`FULLY_CONNECTED` of
//! October, whose parameters are larger), laid out as C++ lays them out on 32 and on 64 bits.

use std::collections::HashSet;

use super::kernels::is_of_tflm;
use super::{Element, Model, Operator, Options, Tensor};

/// Where the interpreter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// On a microcontroller, with pointers of 4 bytes.
    Firmware,
    /// The same by compilers whose enums are as short as their values allow, such as GCC for Cortex-M.
    ShortEnums,
    /// In TFLM's Python package, on 64 bits, where the interpreter also records what it allocates.
    Python,
}

impl Host {
    fn word(self) -> u64 {
        if self == Self::Python { 8 } else { 4 }
    }
}

/// A structure of C: a letter for each field. `p` is a pointer or a size, `e` an enum, `d` has 8 bytes, `i` and `f` 4, `h` 2,
/// `b` 1. `C` and `c` are a pointer and a number that only an interpreter for compressed weights has, as that of the Python package.
type Layout = &'static str;

const ALLOCATOR: Layout = "pppppppp i";
const RECORDING_ALLOCATOR: Layout = "pppppppp p pppp";
const PLANNER: Layout = "p ii pppp ii p b";
const MICRO_ALLOCATOR: Layout = "ppppp b ppp";
const RECORDING_MICRO_ALLOCATOR: Layout = "ppppp p ppp p ppp ppp ppp ppp ppp ppp CCC ppp";
const BUILTIN_DATA_ALLOCATOR: Layout = "pp";
const SUBGRAPH: Layout = "pp C";
const EVAL_TENSOR: Layout = "pp e";
const NODE: Layout = "pppppp i p";
const TENSOR: Layout = "ep fi pp p ee b";
const QUANTIZATION: Layout = "pp i";
const SCRATCH_REQUEST: Layout = "p ii";
const SCRATCH_HANDLE: Layout = "p";
const ALLOCATION_INFO: Layout = "pp iii b";
const VARIABLES: Layout = "p ii";
const VARIABLE: Layout = "pppp b";
/// What the planner keeps of each buffer while it plans, in bytes.
const PLANNED_BUFFER: u64 = 40;
/// TFLM makes room for this many requests for scratch before it prepares an operator.
const REQUESTS: u64 = 12;
/// The entries of each of the two tables that a softmax of 16 bits looks exponentials up in.
const SOFTMAX_TABLE: u64 = 513;

const ARITHMETIC: Layout = "b iiiiiiiiii ii ff dd hh iiiii";
const CONVOLUTION: Layout = "iiii iii ii pp iii cc";
const LSTM: Layout = "biiii fhi i \
    iiiiiiifff iiiiiiifff iiiiiiifff iiiiiiifff iiiiiiifff iiiiiiifff iiiiiiifff iiiiiiifff \
    biiiiiiiiiiiiffddhhiiiii_ biiiiiiiiiiiiffddhhiiiii_ biiiiiiiiiiiiffddhhiiiii_ iiii";

/// Operators: the parameters that TFLM copies from the file, and what the kernel keeps of its own.
const KERNELS: [(&str, Layout, Layout); 98] = [
    ("ABS", "", "iiii b ii"),
    ("ADD", "e b", "b iiiiiiiiiiii ff"),
    ("ARG_MAX", "e", ""),
    ("ARG_MIN", "e", ""),
    ("ASSIGN_VARIABLE", "", "c"),
    ("AVERAGE_POOL_2D", "eiiiie iiii", "iiii ii ff"),
    ("BATCH_TO_SPACE_ND", "", ""),
    ("BROADCAST_ARGS", "", ""),
    ("BROADCAST_TO", "", ""),
    ("CALL_ONCE", "i", "i b"),
    ("CAST", "ee", ""),
    ("CEIL", "", ""),
    ("CONCATENATION", "ie", "i pp ii f cccccccccc"),
    ("CONV_2D", "eiieiie", CONVOLUTION),
    ("COS", "", ""),
    ("CUMSUM", "bb", "iiiiiiiii"),
    ("DEPTHWISE_CONV_2D", "eiiieii", CONVOLUTION),
    ("DEPTH_TO_SPACE", "i", ""),
    ("DEQUANTIZE", "", "di iii"),
    ("DIV", "e", "iiiiiii"),
    ("DYNAMIC_UPDATE_SLICE", "", ""),
    ("ELU", "", "dddddddddddddddddddddddddddddddd"),
    ("EQUAL", "", "iiiiiii b"),
    ("EXP", "", ""),
    ("EXPAND_DIMS", "", ""),
    ("FILL", "", ""),
    ("FLOOR", "", ""),
    ("FLOOR_DIV", "", ""),
    ("FLOOR_MOD", "", ""),
    ("FULLY_CONNECTED", "ee bb e pi", "iiiiiiiii pp b cc"),
    ("GATHER", "ii", ""),
    ("GATHER_ND", "", ""),
    ("GREATER", "", "iiiiiii b"),
    ("GREATER_EQUAL", "", "iiiiiii b"),
    ("HARD_SWISH", "", "hhh i h i"),
    ("IF", "ii", "ii"),
    ("L2_NORMALIZATION", "e", "i"),
    ("L2_POOL_2D", "eiiiie iiii", ""),
    ("LEAKY_RELU", "f", "iiiiii"),
    ("LESS", "", "iiiiiii b"),
    ("LESS_EQUAL", "", "iiiiiii b"),
    ("LOG", "", ""),
    ("LOGICAL_AND", "", ""),
    ("LOGICAL_NOT", "", ""),
    ("LOGICAL_OR", "", ""),
    ("LOGISTIC", "", "iiii"),
    ("LOG_SOFTMAX", "", ""),
    ("MAXIMUM", "", ""),
    ("MAX_POOL_2D", "eiiiie iiii", "iiii ii ff"),
    ("MEAN", "b", "iiiii i f i f ii"),
    ("MINIMUM", "", ""),
    ("MIRROR_PAD", "e", "iiiii"),
    ("MUL", "e", "iiiiiii ff"),
    ("NEG", "", ""),
    ("NOT_EQUAL", "", "iiiiiii b"),
    ("PACK", "ii", ""),
    ("PAD", "", "b iiiii b iiiii b i"),
    ("PADV2", "", "b iiiii b iiiii b i"),
    ("PRELU", "", "iiiiiii"),
    ("QUANTIZE", "", "id iii"),
    ("READ_VARIABLE", "", ""),
    ("REDUCE_ALL", "b", "iiiii i f i f ii"),
    ("REDUCE_MAX", "b", "iiiii i f i f ii"),
    ("REDUCE_MIN", "b", "iiiii i f i f ii"),
    ("RELU", "", "b ii iiii"),
    ("RELU6", "", "ii"),
    ("RESHAPE", "iiiiiiii i", ""),
    ("RESIZE_BILINEAR", "bb", ""),
    ("RESIZE_NEAREST_NEIGHBOR", "bb", ""),
    ("REVERSE_V2", "", ""),
    ("ROUND", "", ""),
    ("RSQRT", "", "iiii b ii"),
    ("SELECT_V2", "", "b"),
    ("SHAPE", "e", ""),
    ("SIN", "", ""),
    ("SLICE", "", ""),
    ("SOFTMAX", "f", "d iiiiii f ppppp"),
    ("SPACE_TO_BATCH_ND", "", "i"),
    ("SPACE_TO_DEPTH", "i", ""),
    ("SPLIT", "i", ""),
    ("SPLIT_V", "i", ""),
    ("SQRT", "", ""),
    ("SQUARE", "", ""),
    ("SQUARED_DIFFERENCE", "", ARITHMETIC),
    ("SQUEEZE", "iiiiiiii i", ""),
    ("STRIDED_SLICE", "iiiii b", "b iiiii b iiiii b iiiii hhhhh b"),
    ("SUB", "e b", "b iiiiiiiiiiii"),
    ("SUM", "b", "iiiii i f i f ii"),
    ("SVDF", "ie b", "iiiiiiiii"),
    ("TANH", "", "iiii"),
    ("TRANSPOSE", "", ""),
    ("TRANSPOSE_CONV", "eiiee", "b hhhhhhhh iiiiiii ff i cc i pp"),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", "e ff bbb", LSTM),
    ("UNPACK", "ii", ""),
    ("VAR_HANDLE", "pp", "i"),
    ("WHILE", "ii", "ii"),
    ("ZEROS_LIKE", "", ""),
    ("EMBEDDING_LOOKUP", "", "fp"),
];

/// Operators that TFLM has, too, but nobody has looked at what their kernels keep.
const OTHERS: [&str; 3] = ["ADD_N", "BATCH_MATMUL", "ethos-u"];

/// The kinds of a model's operators that TFLM has no kernel for, for their types.
pub(crate) fn lacking(model: &Model) -> Vec<String> {
    let is_there = |operator: &&Operator| {
        let input = operator.operands.first().copied().flatten().and_then(|input| model.tensor(input));
        let is_half = input.is_some_and(|input| input.element == Element::Float16);
        !is_half && (kept(operator).is_some() || OTHERS.contains(&operator.kind.as_str()) || is_of_tflm(&operator.kind))
    };
    let mut kinds: Vec<String> =
        model.operators.iter().filter(|operator| !is_there(operator)).map(|operator| operator.kind.clone()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The size and the alignment of a structure, in bytes.
fn layout(fields: Layout, host: Host) -> [u64; 2] {
    let mut end = [0u64, 1];
    for field in fields.chars() {
        let bytes = match field {
            'p' => host.word(),
            'C' | 'c' if host != Host::Python => continue,
            'e' if host == Host::ShortEnums => 1,
            'd' | 'C' => 8,
            'e' | 'i' | 'f' | 'c' => 4,
            'h' => 2,
            'b' => 1,
            // A structure within ends here, at a multiple of 8 bytes.
            '_' => {
                end[0] = end[0].next_multiple_of(8);
                continue;
            }
            _ => continue,
        };
        end = [end[0].next_multiple_of(bytes) + bytes, end[1].max(bytes)];
    }
    [end[0].next_multiple_of(end[1]), end[1]]
}

/// The arena while a model is prepared, in bytes.
struct Arena {
    host: Host,
    tail: u64,
    least: u64,
}

impl Arena {
    /// Takes memory of the tail.
    fn keep(&mut self, bytes: u64, alignment: u64) {
        self.tail = self.tail.saturating_add(bytes.min(MOST)).next_multiple_of(alignment);
    }

    fn keep_all(&mut self, fields: Layout, count: u64) {
        let [size, alignment] = layout(fields, self.host);
        self.keep(size * count, alignment);
    }

    /// Takes memory as kernels do, at a multiple of 16 bytes.
    fn keep_for_kernel(&mut self, bytes: u64) {
        self.keep(bytes, ALIGNMENT);
    }

    /// The head has so many bytes now.
    fn head(&mut self, bytes: u64) {
        self.least = self.least.max(self.tail + bytes.next_multiple_of(ALIGNMENT));
    }

    /// What a tensor's quantization takes.
    fn quantization(&self, tensor: &Tensor) -> [u64; 2] {
        let array = 4 + 4 * u64::from(tensor.scales);
        if tensor.scales > 0 { [layout(QUANTIZATION, self.host)[0], array] } else { [0, 0] }
    }

    fn size(&self, fields: Layout) -> u64 {
        layout(fields, self.host)[0]
    }
}

const ALIGNMENT: u64 = 16;
/// No model has structures of so many bytes, whatever shapes a file makes up.
const MOST: u64 = 1 << 40;

/// The least arena in bytes, where tensors and scratch together take `head`, and operators ask for `scratch` as listed.
///
/// # Errors
/// An operator of which it is not known what its kernel keeps.
pub(crate) fn least(model: &Model, head: u64, scratch: &[(u32, u64)], host: Host) -> Result<u64, String> {
    let mut arena = Arena { host, tail: 0, least: 0 };
    let own: [Layout; 3] = match host {
        Host::Firmware | Host::ShortEnums => [ALLOCATOR, PLANNER, MICRO_ALLOCATOR],
        Host::Python => [RECORDING_ALLOCATOR, PLANNER, RECORDING_MICRO_ALLOCATOR],
    };
    for fields in own {
        arena.keep_all(fields, 1);
    }
    let variables: HashSet<&str> = model.operators.iter().filter_map(variable).collect();
    if !variables.is_empty() {
        arena.keep_for_kernel(arena.size(VARIABLES));
        arena.keep_for_kernel(arena.size(VARIABLE) * variables.len() as u64);
    }
    arena.keep_all(BUILTIN_DATA_ALLOCATOR, 1);
    arena.keep_all(SUBGRAPH, model.graphs.len() as u64);
    for graph in &model.graphs {
        arena.keep_all(EVAL_TENSOR, graph.tensors.len() as u64);
    }
    for graph in &model.graphs {
        arena.keep_all(NODE, graph.operators.len() as u64);
    }
    let kernels = model.operators.iter().map(|operator| kept(operator).ok_or_else(|| operator.kind.clone()));
    let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
    for (parameters, _) in kernels.iter().filter(|(parameters, _)| !parameters.is_empty()) {
        arena.keep_all(parameters, 1);
    }
    for own in kernels.iter().map(|(_, own)| arena.size(own)).filter(|&bytes| bytes > 0).collect::<Vec<_>>() {
        arena.keep_for_kernel(own);
    }
    prepare(model, scratch, &mut arena);
    let requests = scratch.len() as u64;
    arena.keep_all(SCRATCH_HANDLE, requests);
    let is_variable = |tensor: &&Tensor| tensor.variable_bytes > 0;
    for tensor in model.tensors.iter().filter(is_variable) {
        arena.keep_for_kernel(tensor.variable_bytes);
    }
    // While it plans, the planner's tables lie behind the requests for scratch.
    let planned = (0..).zip(&model.tensors).filter(|&(tensor, _)| model.is_planned(tensor)).count() as u64 + requests;
    let infos = arena.size(ALLOCATION_INFO) * (model.tensors.len() as u64 + requests);
    let tables =
        arena.size(SCRATCH_REQUEST) * (requests + REQUESTS) + arena.host.word() * model.graphs.len() as u64 + infos;
    arena.head(tables.next_multiple_of(ALIGNMENT) + PLANNED_BUFFER * planned);
    arena.head(head);
    for list in [&model.graphs[0].inputs, &model.graphs[0].outputs] {
        arena.keep_for_kernel(arena.host.word() * list.len() as u64);
        for tensor in list.iter().filter_map(|&tensor| model.tensor(tensor)) {
            arena.keep_all(TENSOR, 1);
            let [quantization, array] = arena.quantization(tensor);
            arena.keep(quantization, arena.host.word());
            arena.keep(array, 4);
        }
    }
    arena.head(head);
    Ok(arena.least.next_multiple_of(ALIGNMENT))
}

/// What TFLM copies of an operator's parameters, and what its kernel keeps.
fn kept(operator: &Operator) -> Option<(Layout, Layout)> {
    KERNELS.iter().find(|(kind, ..)| *kind == operator.kind).map(|&(_, parameters, own)| (parameters, own))
}

/// The bytes of a tensor's value, wherever it lies.
fn whole_bytes(tensor: &Tensor) -> u64 {
    let element = match tensor.element {
        Element::Int8 | Element::Int4 => 1,
        Element::Int16 | Element::Float16 => 2,
        Element::Int64 => 8,
        Element::Float32 | Element::Int32 | Element::Other => 4,
    };
    tensor.elements().unwrap_or(0).saturating_mul(element)
}

/// The variable that an operator is a handle to.
fn variable(operator: &Operator) -> Option<&str> {
    if let Options::Variable(name) = &operator.options { Some(name) } else { None }
}

/// What kernels take when they are prepared, one after the other.
fn prepare(model: &Model, scratch: &[(u32, u64)], arena: &mut Arena) {
    let mut requests = 0;
    let mut assigned = HashSet::new();
    for (number, operator) in (0u32..).zip(&model.operators) {
        let operand = |place: usize| model.tensor(operator.operands.get(place).copied().flatten()?);
        let dimension = |tensor: Option<&Tensor>, at: usize| tensor.and_then(|t| t.shape.get(at).copied()).unwrap_or(0);
        let output = operator.outputs.first().and_then(|&output| model.tensor(output));
        // The kernel has all of its tensors before it at once.
        let all = operator.operands.iter().flatten().chain(&operator.outputs).filter_map(|&t| model.tensor(t));
        let temporary: u64 = all
            .map(|t| {
                arena.size(TENSOR)
                    + arena.quantization(t).iter().map(|n| n.next_multiple_of(arena.host.word())).sum::<u64>()
            })
            .sum();
        let own: Vec<u64> = match operator.kind.as_str() {
            "CONV_2D" | "TRANSPOSE_CONV" => vec![4 * dimension(operand(1), 0); 2],
            "DEPTHWISE_CONV_2D" => vec![4 * dimension(operand(1), 3); 2],
            "FULLY_CONNECTED" => match operand(1) {
                Some(weights) if weights.scales > 1 && output.is_some_and(|o| o.element != Element::Float32) => {
                    vec![4 * u64::from(weights.scales); 2]
                }
                _ => Vec::new(),
            },
            "SOFTMAX" if operand(0).is_some_and(|input| input.element == Element::Int16) => vec![2 * SOFTMAX_TABLE; 2],
            "DEPTH_TO_SPACE" | "SPACE_TO_DEPTH" | "GATHER" | "GATHER_ND" | "L2_POOL_2D" | "EMBEDDING_LOOKUP" => {
                vec![4 + 4 * output.map_or(0, |output| output.shape.len() as u64)]
            }
            "ASSIGN_VARIABLE" => {
                let handle = operator.operands.first().copied().flatten();
                let maker = model.operators.iter().find(|o| handle.is_some_and(|handle| o.outputs.contains(&handle)));
                let is_new = maker.and_then(variable).is_none_or(|name| assigned.insert(name));
                operand(1).filter(|_| is_new).map(whole_bytes).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let head = arena.size(SCRATCH_REQUEST) * (requests + REQUESTS);
        for bytes in own {
            arena.keep_for_kernel(bytes);
        }
        arena.head(head.next_multiple_of(ALIGNMENT) + temporary);
        requests += scratch.iter().filter(|&&(asking, _)| asking == number).count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_as_on_the_machine() {
        let hosts = [Host::Firmware, Host::ShortEnums, Host::Python];
        for (fields, sizes) in [
            (EVAL_TENSOR, [12, 12, 24]),
            (NODE, [32, 32, 64]),
            (TENSOR, [40, 32, 64]),
            (CONVOLUTION, [56, 56, 80]),
            ("e b", [8, 2, 8]),
            // The parameters of `FULLY_CONNECTED`.
            ("ee bb e pi", [24, 16, 32]),
        ] {
            assert_eq!(hosts.map(|host| layout(fields, host)[0]), sizes, "{fields}");
        }
        assert_eq!(layout(ARITHMETIC, Host::Firmware), [104, 8]);
        assert_eq!(layout("b hi", Host::Firmware), [8, 4]);
    }

    /// An operator that is asked for twice would be looked up in the first row alone.
    #[test]
    fn every_operator_has_one_row() {
        let kinds: HashSet<&str> = KERNELS.iter().map(|&(kind, ..)| kind).collect();
        assert_eq!(kinds.len(), KERNELS.len());
    }
}
