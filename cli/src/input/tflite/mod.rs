//! Reads models of TensorFlow Lite, for TFLM and `LiteRT`. Few fields of the schema's tables are needed.
//!
//! Weights are not read. A tensor without a size is refused by name, and so is what no runtime could run: operands that
//! are no tensors, graphs that call themselves.

pub(crate) mod flat;
mod operators;

use std::collections::HashSet;
use std::io::BufRead;

use super::{Format, Recognised, unreadable};
use crate::failure::InputError;
use crate::model::kernels::Kernels;
use crate::model::traced;
use crate::model::{Element, Graph, Model, Operator, Options, Tensor, Window, cell_name};
use crate::problem::Problem;
use flat::{Flat, FlatTable, FlatVector};
use operators::Code;

/// The fifth to the eighth byte of a model's file.
pub(crate) const IDENTIFIER: &[u8; 4] = b"TFL3";
/// The metadata that holds a plan.
pub(crate) const PLAN: &[u8] = b"OfflineMemoryAllocation";
/// The metadata in which this program says what a plan relies on: [`KERNELS`] and a name.
pub(crate) const RECORD: &[u8] = b"sublet";
pub(crate) const KERNELS: &str = "kernels=";
/// TFLM aligns every buffer to this, in bytes.
const ALIGNMENT: u64 = 16;
/// The fields of the table Model.
pub(crate) const OPERATOR_CODES: usize = 1;
pub(crate) const GRAPHS: usize = 2;
pub(crate) const BUFFERS: usize = 4;
pub(crate) const METADATA: usize = 6;
/// The field of the table `SubGraph` with its operators.
pub(crate) const OPERATORS: usize = 3;
/// The most bytes of a tensor, so that sums of rounded sizes stay within 64 bits; offsets in a plan are signed numbers of
/// 32 bits.
const LARGEST: u64 = u32::MAX as u64 >> 1;
/// The most bytes of a constant that is read: paddings, begins, axes, permutations.
const MOST_NUMBERS: usize = 256;
/// The number of the type of texts in the schema's `TensorType`.
const STRING: u8 = 5;
/// The number of the type of handles of variables, which lie in no arena.
const RESOURCE: u8 = 13;

/// How a `TensorFlow` Lite model is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "a model of TensorFlow Lite (.tflite)",
    help: "\
  model      a .tflite of TensorFlow Lite (Micro),",
    by: Recognised::Bytes(|begin| begin.get(4..8) == Some(IDENTIFIER), |file, reader| read(file, reader)),
};

/// Reads a model, and keeps its bytes to write a plan behind.
pub(super) fn read(file: &str, mut reader: impl BufRead) -> Result<Problem, InputError> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    let model = parse(file, &bytes)?;
    traced::problem(file, model, bytes)
}

fn parse(file: &str, bytes: &[u8]) -> Result<Model, InputError> {
    let flat = Flat::new(file, bytes);
    let root = flat.root()?;
    let mut reader =
        Reader { flat, buffers: root.vector(BUFFERS, 4)?, codes: Vec::new(), operands: 0, model: Model::default() };
    reader.model.alignment = ALIGNMENT;
    reader.model.for_tflm = true;
    for code in root.vector(OPERATOR_CODES, 4)?.tables() {
        reader.codes.push(Code::read(code?)?);
    }
    let graphs = root.vector(GRAPHS, 4)?;
    for graph in graphs.tables() {
        reader.graph(graph?, graphs.len)?;
    }
    if reader.model.graphs.is_empty() {
        return Err(InputError::file(file, "the model has no graph"));
    }
    reader.model.plan = reader.plan(root)?;
    if let Some((_, record)) = reader.metadata(root, RECORD)? {
        let kernels = std::str::from_utf8(record).ok().and_then(|text| text.strip_prefix(KERNELS));
        let kernels = kernels.and_then(Kernels::named);
        let message = "the plan in the file relies on kernels that this version of sublet does not know";
        reader.model.relies_on = Some(kernels.ok_or_else(|| InputError::file(file, message))?);
    }
    Ok(reader.model)
}

/// What lies behind the tables of a file: weights, or the options of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Far {
    /// At which byte of the file the number `position` stands.
    pub(crate) at: usize,
    /// Its position, in bytes from the begin of the file.
    pub(crate) position: u64,
    /// Its length, in bytes.
    bytes: u64,
}

impl Far {
    /// Reads the two fields of a table that hold the position and the length. A length of 1 or less means that there is
    /// nothing.
    fn new(table: FlatTable<'_>, [position, bytes]: [usize; 2]) -> Result<Option<Self>, InputError> {
        let (at, bytes) = (table.field(position)?, table.u64(bytes)?);
        let Some(at) = at.filter(|_| bytes > 1) else { return Ok(None) };
        Ok(Some(Self { at, position: table.u64(position)?, bytes }))
    }

    pub(crate) fn of_buffer(buffer: FlatTable<'_>) -> Result<Option<Self>, InputError> {
        Self::new(buffer, [1, 2])
    }

    pub(crate) fn of_operator(operator: FlatTable<'_>) -> Result<Option<Self>, InputError> {
        Self::new(operator, [9, 10])
    }
}

struct Reader<'a> {
    flat: Flat<'a>,
    buffers: FlatVector<'a>,
    /// What operators are by the codes' numbers.
    codes: Vec<Code>,
    /// How many operands and dimensions were read so far. Many tables may share one vector; what is read is bounded by
    /// the bytes of the file.
    operands: usize,
    model: Model,
}

impl<'a> Reader<'a> {
    fn graph(&mut self, table: FlatTable<'a>, graphs: usize) -> Result<(), InputError> {
        let first_tensor = self.model.tensors.len();
        for tensor in table.vector(0, 4)?.tables() {
            let tensor = self.tensor(tensor?)?;
            self.model.tensors.push(tensor);
        }
        let tensors = first_tensor..self.model.tensors.len();
        let first_operator = self.model.operators.len();
        for operator in table.vector(OPERATORS, 4)?.tables() {
            let operator = self.operator(operator?, first_tensor, graphs)?;
            self.model.operators.push(operator);
        }
        let operators = first_operator..self.model.operators.len();
        let inputs = self.operand_list(table.vector(1, 4)?, first_tensor, tensors.len())?;
        let outputs = self.operand_list(table.vector(2, 4)?, first_tensor, tensors.len())?;
        self.model.graphs.push(Graph { tensors, operators, inputs, outputs });
        Ok(())
    }

    fn count(&mut self, table: usize, more: usize) -> Result<(), InputError> {
        self.operands += more;
        if self.operands > self.flat.bytes.len() {
            return Err(self.flat.fault(table, "the model has more operands and dimensions than bytes"));
        }
        Ok(())
    }

    fn tensor(&mut self, table: FlatTable<'a>) -> Result<Tensor, InputError> {
        let number = self.model.tensors.len();
        self.count(table.at, 1)?;
        let text = String::from_utf8_lossy(table.bytes(3)?.get(..256).unwrap_or(table.bytes(3)?)).into_owned();
        let name = cell_name(number, &text);
        let (dimensions, buffer) = (table.vector(0, 4)?, table.u32(2)? as usize);
        self.count(table.at, dimensions.len)?;
        let (kind, variable) = (table.u8(1)?, table.u8(5)? > 0);
        if buffer >= self.buffers.len {
            return Err(self
                .flat
                .fault(table.at, format!("tensor {name} has the buffer {buffer} of {}", self.buffers.len)));
        }
        let data = self.buffers.table(buffer)?;
        let far = Far::of_buffer(data)?;
        if far.is_some_and(|Far { position, bytes, .. }| !data.holds(position, bytes)) {
            return Err(self
                .flat
                .fault(data.at, format!("the data of tensor {name} reaches beyond the end of the file")));
        }
        // Data may lie in the table, behind the tables, or in another file.
        let constant = data.vector(0, 1)?.len > 0 || far.is_some() || table.u32(10)? > 0;
        let shape: Vec<i32> = dimensions.ints().collect::<Result<_, _>>()?;
        let shape: Option<Vec<u64>> = shape.into_iter().map(|d| u64::try_from(d).ok()).collect();
        let bytes = shape.as_ref().and_then(|shape| bytes(kind, shape));
        let variable_bytes = bytes.filter(|&bytes| variable && bytes <= LARGEST).unwrap_or(0);
        let bytes = match bytes {
            _ if constant || variable || kind == RESOURCE => 0,
            _ if kind == STRING => {
                return Err(self.flat.fault(table.at, format!("tensor {name} holds texts, whose size no model tells")));
            }
            Some(bytes) if bytes <= LARGEST => bytes,
            Some(bytes) => {
                return Err(self.flat.fault(
                    table.at,
                    format!("tensor {name} has {bytes} bytes; no plan holds offsets above 2147483647"),
                ));
            }
            None => return Err(self.flat.fault(table.at, format!("the size of tensor {name} is not known"))),
        };
        let signature = table.vector(7, 4)?;
        self.count(table.at, signature.len)?;
        let mut open = false;
        for dimension in signature.ints() {
            open |= dimension? < 0;
        }
        let open = open && bytes > 0;
        let stateful = variable || kind == RESOURCE;
        let element = element(kind);
        let numbers = numbers(element, data.bytes(0)?);
        let quantization = table.table(4)?;
        let scales = quantization.map_or(Ok(0), |q| q.vector(2, 4).map(|scales| scales.len))?;
        let zeros = quantization.map_or(Ok(0), |q| q.vector(3, 8).map(|zeros| zeros.len))?;
        let scales = if zeros > 0 { u32::try_from(scales).unwrap_or(u32::MAX) } else { 0 };
        Ok(Tensor {
            name,
            bytes,
            shape: shape.unwrap_or_default(),
            stateful,
            open,
            element,
            constant: numbers,
            scales,
            variable_bytes,
        })
    }

    fn operator(&mut self, table: FlatTable<'a>, first: usize, graphs: usize) -> Result<Operator, InputError> {
        self.count(table.at, 1)?;
        if Far::of_operator(table)?.is_some_and(|Far { position, bytes, .. }| !table.holds(position, bytes)) {
            return Err(self.flat.fault(table.at, "the options of an operator reach beyond the end of the file"));
        }
        let code = table.u32(0)? as usize;
        let Some(Code { kind, is_custom }) = self.codes.get(code).cloned() else {
            return Err(self.flat.fault(table.at, format!("an operator has the code {code} of {}", self.codes.len())));
        };
        let tensors = self.model.tensors.len() - first;
        let operands = self.operands(table.vector(1, 4)?, first, tensors)?;
        let inputs = each_once(&operands);
        let outputs = self.operand_list(table.vector(2, 4)?, first, tensors)?;
        let options = table.table(4)?;
        let told = options.map(|options| told(&kind, options)).transpose()?.unwrap_or_default();
        let calls = options.map(|options| calls(&kind, options)).transpose()?.unwrap_or_default();
        if let Some(&graph) = calls.iter().find(|&&g| g as usize >= graphs) {
            return Err(self.flat.fault(table.at, format!("an operator {kind} calls the graph {graph} of {graphs}")));
        }
        let number = u32::try_from(self.model.operators.len()).unwrap_or(u32::MAX);
        Ok(Operator { kind, number, inputs, operands, outputs, options: told, is_custom, calls, ..Operator::default() })
    }

    /// The tensors of a list of operands; -1 is an operand that is left out.
    fn operands(&mut self, list: FlatVector<'a>, first: usize, tensors: usize) -> Result<Vec<Option<u32>>, InputError> {
        self.count(list.at, list.len)?;
        let known = |operand: i32| {
            let index = usize::try_from(operand).ok().filter(|&i| i < tensors);
            let index = index.and_then(|i| u32::try_from(first + i).ok());
            index.ok_or_else(|| self.flat.fault(list.at, format!("there is no tensor {operand}")))
        };
        list.ints().map(|operand| operand.and_then(|o| if o == -1 { Ok(None) } else { known(o).map(Some) })).collect()
    }

    fn operand_list(&mut self, list: FlatVector<'a>, first: usize, tensors: usize) -> Result<Vec<u32>, InputError> {
        Ok(each_once(&self.operands(list, first, tensors)?))
    }

    /// The offsets of the plan in the file, if it holds one. The words of a plan, of 32 bits each, are a version, the
    /// number of graphs, the number of offsets, and the offsets.
    fn plan(&self, root: FlatTable<'a>) -> Result<Option<Vec<i32>>, InputError> {
        let Some((at, data)) = self.metadata(root, PLAN)? else { return Ok(None) };
        let words: Vec<i32> = data.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b)).collect();
        let tensors = self.model.tensors.len();
        match words.get(2).map(|&n| usize::try_from(n)) {
            Some(Ok(n)) if words.len() == n + 3 && n == tensors => Ok(Some(words[3..].to_vec())),
            Some(Ok(n)) => {
                let bytes = data.len();
                let message = format!("the plan in the file has {n} offsets in {bytes} bytes for {tensors} tensors");
                Err(self.flat.fault(at, message))
            }
            _ => Err(self.flat.fault(at, format!("the plan in the file has only {} bytes", data.len()))),
        }
    }

    /// Where the first metadata of this name stands, and its bytes.
    fn metadata(&self, root: FlatTable<'a>, name: &[u8]) -> Result<Option<(usize, &'a [u8])>, InputError> {
        for entry in root.vector(METADATA, 4)?.tables() {
            let entry = entry?;
            let buffer = entry.u32(1)? as usize;
            if entry.bytes(0)? == name && buffer < self.buffers.len {
                return Ok(Some((entry.at, self.buffers.table(buffer)?.bytes(0)?)));
            }
        }
        Ok(None)
    }
}

/// The tensors of a list of operands, each once.
fn each_once(operands: &[Option<u32>]) -> Vec<u32> {
    let mut seen = HashSet::new();
    operands.iter().flatten().copied().filter(|&operand| seen.insert(operand)).collect()
}

/// What the options of an operator say of the elements that it reads and writes.
fn told(kind: &str, options: FlatTable<'_>) -> Result<Options, InputError> {
    let number = |field, default| options.i32(field, default).map(|n| u64::try_from(n).unwrap_or(0));
    let flag = |field| options.u8(field).map(|flag| flag != 0);
    let (dilation, size) = match kind {
        "CONV_2D" => ([number(5, 1)?, number(4, 1)?], None),
        "DEPTHWISE_CONV_2D" => ([number(6, 1)?, number(5, 1)?], None),
        "TRANSPOSE_CONV" => ([1, 1], None),
        "AVERAGE_POOL_2D" | "MAX_POOL_2D" => ([1, 1], Some([number(4, 0)?, number(3, 0)?])),
        "CONCATENATION" => return Ok(Options::Axis(options.i32(0, 0)?.into())),
        "PACK" | "UNPACK" => return Ok(Options::Axis(options.i32(1, 0)?.into())),
        "STRIDED_SLICE" => return Ok(Options::Slice([options.u32(0)?, options.u32(1)?, options.u32(4)?])),
        "RESIZE_BILINEAR" => {
            return Ok(Options::Resize { align_corners: flag(2)?, half_pixel_centers: flag(3)? });
        }
        "RESIZE_NEAREST_NEIGHBOR" => {
            return Ok(Options::Resize { align_corners: flag(0)?, half_pixel_centers: flag(1)? });
        }
        "VAR_HANDLE" => {
            let [container, name] = [options.bytes(0)?, options.bytes(1)?].map(|text| text.get(..256).unwrap_or(text));
            let name = format!("{} {}", String::from_utf8_lossy(container), String::from_utf8_lossy(name));
            return Ok(Options::Variable(name));
        }
        "SPACE_TO_DEPTH" | "DEPTH_TO_SPACE" => return Ok(Options::Block(number(0, 0)?)),
        _ => return Ok(Options::None),
    };
    Ok(Options::Window(Window { same: options.u8(0)? == 0, stride: [number(2, 0)?, number(1, 0)?], dilation, size }))
}

/// The graphs that an operator runs.
fn calls(kind: &str, options: FlatTable<'_>) -> Result<Vec<u32>, InputError> {
    match kind {
        "IF" | "WHILE" => Ok(vec![options.u32(0)?, options.u32(1)?]),
        "CALL_ONCE" => Ok(vec![options.u32(0)?]),
        _ => Ok(Vec::new()),
    }
}

/// The elements of a tensor of this type.
fn element(kind: u8) -> Element {
    match kind {
        0 => Element::Float32,
        1 => Element::Float16,
        2 => Element::Int32,
        4 => Element::Int64,
        7 => Element::Int16,
        9 => Element::Int8,
        17 => Element::Int4,
        _ => Element::Other,
    }
}

/// The whole numbers of a small constant.
fn numbers(element: Element, data: &[u8]) -> Option<Vec<i64>> {
    if data.is_empty() || data.len() > MOST_NUMBERS {
        return None;
    }
    match element {
        Element::Int32 => Some(data.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b).into()).collect()),
        Element::Int64 => Some(data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect()),
        _ => None,
    }
}

/// The bytes of a tensor of this type and shape.
fn bytes(kind: u8, shape: &[u64]) -> Option<u64> {
    // The size of an element, in bits.
    let size = match kind {
        0 | 2 | 15 => 32,
        1 | 7 | 16 | 18 => 16,
        // A value of INT4 takes a byte: TFLM gives it one, and kernels write one. Only weights are packed.
        3 | 6 | 9 | 17 | 21 | 22 => 8,
        4 | 8 | 10 | 12 => 64,
        11 => 128,
        20 => 4,
        19 => 2,
        _ => return None,
    };
    let bits = shape.iter().try_fold(size, |bits: u64, &d| bits.checked_mul(d))?;
    Some(bits.div_ceil(8))
}
