//! A model as its file describes it: operators and tensors, without the values of weights. [`order`] looks for an order
//! of the operators that needs little memory. [`schedule`] lists the operators one after the other in a given order,
//! and gives tensors their lifetimes. [`kernels`] says what an operator may do with the memory of its inputs.

pub(crate) mod arena;
pub(crate) mod kernels;
pub(crate) mod order;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod scratch;
pub(crate) mod shapes;
pub(crate) mod sharing;
pub(crate) mod traced;
pub(crate) mod walk;

use std::ops::Range;

use kernels::Kernels;

/// The operators and tensors of all graphs of a file, graph by graph.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) operators: Vec<Operator>,
    /// The first is the one that is run; the others are called by operators.
    pub(crate) graphs: Vec<Graph>,
    /// Every offset of the runtime is a multiple of this, in bytes; sizes are rounded up to it.
    pub(crate) alignment: u64,
    /// Whether TFLM runs it: the format holds a plan, and its kernels are known.
    pub(crate) for_tflm: bool,
    /// Whether the format says which operators are pure.
    pub(crate) tells_pure: bool,
    /// The kinds of operators that have graphs inside of them which are not planned, as functions of a file have too.
    pub(crate) inner: Vec<String>,
    /// The plan that the file holds, an offset for each tensor, negative where the runtime decides.
    pub(crate) plan: Option<Vec<i32>>,
    /// The kernels that this plan relies on, where the file says so.
    pub(crate) relies_on: Option<Kernels>,
}

/// One graph of a model.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) tensors: Range<usize>,
    pub(crate) operators: Range<usize>,
    pub(crate) inputs: Vec<u32>,
    pub(crate) outputs: Vec<u32>,
}

/// A tensor of a model.
#[derive(Debug, Default)]
pub(crate) struct Tensor {
    /// As plans call it: its number, and its name as far as CSV can hold it.
    pub(crate) name: String,
    /// Size in bytes; 0 where no memory of the arena is needed, as for weights and variables.
    pub(crate) bytes: u64,
    pub(crate) shape: Vec<u64>,
    /// Whether its value lasts from one run to the next, or is a handle to something that does: operators that read or
    /// write it keep their order among themselves.
    pub(crate) stateful: bool,
    /// Whether the model leaves some of its dimensions open; `shape` has what the file says in their place.
    pub(crate) open: bool,
    pub(crate) element: Element,
    /// The whole numbers of a small constant, such as those of a shape or of paddings; none of other tensors.
    pub(crate) constant: Option<Vec<i64>>,
    /// How many scales its quantization has.
    pub(crate) scales: u32,
    /// Size in bytes of a value that lasts from one run to the next, beside the arena's plan.
    pub(crate) variable_bytes: u64,
}

/// What the elements of a tensor are, as far as kernels differ by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Element {
    Float16,
    Float32,
    Int4,
    Int8,
    Int16,
    Int32,
    Int64,
    #[default]
    Other,
}

impl Tensor {
    /// How many elements it has; none if that exceeds 64 bits.
    pub(crate) fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }
}

/// An operator of a model.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    /// What it computes, as the format calls it: `CONV_2D`, `Conv`.
    pub(crate) kind: String,
    /// Its number in the file, where the operators of all graphs are counted from 0.
    pub(crate) number: u32,
    /// The tensors that it reads, each once.
    pub(crate) inputs: Vec<u32>,
    /// Its operands in their order; none for one that is missing, or a constant that is no tensor of the model.
    pub(crate) operands: Vec<Option<u32>>,
    /// The tensors that it writes, each once.
    pub(crate) outputs: Vec<u32>,
    pub(crate) options: Options,
    /// Whether the format knows it by its name alone, as what a compiler for an accelerator puts in place of operators.
    pub(crate) is_custom: bool,
    /// The graphs that it runs, by their numbers.
    pub(crate) calls: Vec<u32>,
    /// How long it takes, in ns; 0 where the file does not tell.
    pub(crate) time_ns: u64,
    /// Whether it is known to give the same result each time that it runs on the same inputs, and to do nothing else.
    pub(crate) is_pure: bool,
}

/// What an operator is told beside its operands, as far as it decides which elements the kernel reads and writes when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Options {
    #[default]
    None,
    Window(Window),
    /// The axis along which tensors are put together or apart; negative from the last.
    Axis(i64),
    /// The masks of a strided slice for begins, ends and dropped axes.
    Slice([u32; 3]),
    Resize {
        align_corners: bool,
        half_pixel_centers: bool,
    },
    /// Pixels of a block along one side.
    Block(u64),
    /// The variable that the operator is a handle to.
    Variable(String),
}

/// A window that moves over an image. The first number of each pair is along the height, the second along the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Whether the image is padded so that the output is as large as the input over the stride.
    pub(crate) same: bool,
    pub(crate) stride: [u64; 2],
    pub(crate) dilation: [u64; 2],
    /// The size of the window; none where it is that of the second input.
    pub(crate) size: Option<[u64; 2]>,
}

/// The means that may be used to need less memory than the file's order with a block for each tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Means {
    /// Operators run in the order that needs the least memory.
    pub(crate) reorder: bool,
    /// Elementwise operators and views write over their input.
    pub(crate) in_place: bool,
    /// Outputs reach into inputs, as far as these kernels have read.
    pub(crate) overlap: Option<Kernels>,
}

impl Means {
    /// Smaller sets of these means, the larger ones first: without overlap, then also without in-place reuse. If the
    /// set has `reorder`, then the whole set and these two follow without it.
    pub(crate) fn fewer(self) -> impl Iterator<Item = Self> {
        let all = [false, true].into_iter().flat_map(|file_order| {
            [(true, true), (false, true), (false, false)].map(|(overlap, in_place)| (file_order, overlap, in_place))
        });
        all.map(move |(file_order, overlap, in_place)| Self {
            reorder: self.reorder && !file_order,
            in_place: self.in_place && in_place,
            overlap: self.overlap.filter(|_| overlap),
        })
        .filter(move |&fewer| fewer != self)
    }
}

impl Model {
    /// The bytes that a tensor takes in the arena.
    pub(crate) fn bytes(&self, tensor: u32) -> u64 {
        self.tensor(tensor).map_or(0, |t| t.bytes.next_multiple_of(self.alignment))
    }

    /// Whether each graph is run: the first, and those that operators of such graphs call.
    pub(crate) fn is_run(&self) -> Vec<bool> {
        let mut is_run = vec![false; self.graphs.len()];
        let mut next = vec![0];
        while let Some(graph) = next.pop() {
            if let Some(own) = self.graphs.get(graph)
                && !std::mem::replace(&mut is_run[graph], true)
            {
                let called = self.operators[own.operators.clone()].iter().flat_map(|o| &o.calls);
                next.extend(called.map(|&graph| graph as usize));
            }
        }
        is_run
    }

    pub(crate) fn tensor(&self, tensor: u32) -> Option<&Tensor> {
        self.tensors.get(tensor as usize)
    }

    /// Whether a tensor takes memory of the arena.
    pub(crate) fn is_planned(&self, tensor: u32) -> bool {
        self.bytes(tensor) > 0
    }
}

/// A name as a cell of CSV can hold it, with a number in front that makes it unique.
pub(crate) fn cell_name(number: usize, name: &str) -> String {
    let mut cell = format!("{number}:");
    cell.extend(
        name.chars().take(120).map(|c| if c.is_control() || c.is_whitespace() || ",\"#".contains(c) { '_' } else { c }),
    );
    cell
}
