//! Which pairs of blocks may share addresses, and how far apart in memory the two blocks of a pair must begin. Of such
//! a pair, one block is the *output* of an operator, the other an *input* of the operator that is not used later. The
//! two may share addresses if the output begins below the input by at least a number of bytes, the *distance* of the
//! pair.

use crate::table::{Table, at, count};
use crate::workspace::Cell;
use crate::{Block, Overlap, Workspace, WorkspaceLen};

/// The most inputs that an output may overlap; overlaps of an output with further inputs are ignored.
const INPUTS: usize = 2;

/// The blocks, and for each that is the output of an operator, the inputs with which it may share bytes.
pub(super) struct Pairs<'a> {
    pub(super) blocks: &'a [Block],
    /// By block: if it is an output, 1 + the index of each input with which it may share bytes; 0 in place of an input
    /// that it does not have.
    inputs: Table<'a, [u32; INPUTS]>,
    /// By block: if it is an output, the least number of bytes by which it must begin below each of its inputs to share
    /// bytes with it, in the order of `inputs`.
    distances: Table<'a, [u64; INPUTS]>,
    /// Whether all overlaps are used. False if an output may overlap more than two inputs: overlaps with the further
    /// inputs are ignored.
    pub(super) complete: bool,
}

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    <[u32; INPUTS]>::LEN.and(<[u64; INPUTS]>::LEN).times(n)
}

impl<'a> Pairs<'a> {
    pub(super) fn new(blocks: &'a [Block], overlaps: &[Overlap], scratch: &mut Workspace<'a>) -> Self {
        let n = blocks.len();
        let (inputs, distances) = (scratch.index_records(n), scratch.word_records(n));
        let mut pairs = Self { blocks, inputs, distances, complete: true };
        for o in overlaps {
            pairs.add(o);
        }
        pairs
    }

    /// Enters an overlap in the tables `inputs` and `distances`. If they already have two other inputs of the output,
    /// the overlap is left out, and `complete` becomes false. Of overlaps that name the same two blocks, the least
    /// distance is kept.
    fn add(&mut self, &Overlap { output, input, distance }: &Overlap) {
        let reach = distance.min(at(self.blocks, output).size);
        let known = self.inputs[output].iter().position(|&other| other == input + 1);
        let Some(place) = known.or_else(|| self.inputs[output].iter().position(|&other| other == 0)) else {
            self.complete = false;
            return;
        };
        if let (Some(to), Some(least)) = (self.inputs[output].get_mut(place), self.distances[output].get_mut(place)) {
            *least = if known.is_some() { reach.min(*least) } else { reach };
            *to = input + 1;
        }
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> u32 {
        count(self.blocks)
    }

    /// The least distance, in bytes, from the offset of block `lower` up to that of block `upper` if both are alive
    /// together: the size of `lower`, or less if `lower` is an output that may overlap its input `upper`.
    pub(super) fn apart(&self, lower: u32, upper: u32) -> u64 {
        self.of(lower).find(|&(input, _)| input == upper).map_or(at(self.blocks, lower).size, |(_, distance)| distance)
    }

    /// The inputs that an output may overlap, each with a distance in bytes: to overlap the input, the output must
    /// begin at least so far below it. No distance is above the output's size.
    pub(super) fn of(&self, output: u32) -> impl Iterator<Item = (u32, u64)> {
        let all = self.inputs[output].into_iter().zip(self.distances[output]);
        all.filter(|&(input, _)| input > 0).map(|(input, distance)| (input - 1, distance))
    }

    /// The most bytes that an output may share with its inputs, counting only inputs for which `beside` is true. With
    /// one input the output may share its own size, less the number of bytes by which it must at least begin below the
    /// input. The result is the smaller of two figures:
    /// - the most bytes that the output may share with any one of the inputs;
    /// - the sum of the bytes that it may share with each input, in which no input counts for more than its size.
    pub(super) fn spared(&self, output: u32, beside: impl Fn(u32) -> bool) -> u64 {
        let size = at(self.blocks, output).size;
        let (mut most, mut sum) = (0, 0);
        for (input, distance) in self.of(output).filter(|&(input, _)| beside(input)) {
            most = (size - distance).max(most);
            sum += (size - distance).min(at(self.blocks, input).size);
        }
        sum.min(most)
    }
}
