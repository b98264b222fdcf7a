//! The ops of a picture, each listed once.

use std::collections::HashMap;

use sublet_core::trace::Op;

use crate::timeline::Timeline;

/// The distinct ops, in the order in which they are asked for.
pub(super) struct Ops<'a> {
    names: &'a [String],
    known: Vec<NamedOp<'a>>,
    indices: HashMap<Op, usize>,
}

/// An op, as the reader sees it.
struct NamedOp<'a> {
    /// The name, by which ops are coloured.
    name: &'a str,
    /// The op's number and name, as they are shown.
    told: String,
}

impl<'a> Ops<'a> {
    pub(super) fn new(names: &'a [String]) -> Self {
        Self { names, known: Vec::new(), indices: HashMap::new() }
    }

    pub(super) fn index(&mut self, op: Op) -> Option<usize> {
        let (Op::First(number) | Op::Rerun(number)) = op else { return None };
        let Self { names, known, indices } = self;
        Some(*indices.entry(op).or_insert_with(|| {
            let name = names.get(number as usize).map_or("", String::as_str);
            known.push(NamedOp { name, told: Timeline::told(op, names) });
            known.len() - 1
        }))
    }

    pub(super) fn name(&self, index: usize) -> &'a str {
        self.known[index].name
    }
    /// The texts of all ops, by their indices.
    pub(super) fn told(self) -> Vec<String> {
        self.known.into_iter().map(|op| op.told).collect()
    }
}
