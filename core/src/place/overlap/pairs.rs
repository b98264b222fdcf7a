//! Which pairs of blocks may share addresses, and how far apart in memory the two blocks of a pair must begin. Of such
//! a pair, one block is the *output* of an operator, the other an *input* of the operator that is not used later. The
//! two may share addresses if the output begins below the input by at least a number of bytes, the *distance* of the
//! pair.

use crate::table::{at, count};
use crate::workspace::workspace;
use crate::{Block, Overlap, Workspace};

const INPUTS: usize = 2;

workspace! {
    pub(super) struct Pairs<'a>(n; given: &'a [Block]) {
        tables {
            /// By output: 1 + each input; 0 if none.
            inputs: [u32; INPUTS][n],
            /// By output, as `inputs`: the least number of bytes by which it begins below the input.
            distances: [u64; INPUTS][n],
        }
        state {
            pub(super) blocks: &'a [Block] = given,
            pub(super) complete: bool = true,
        }
    }
}

impl<'a> Pairs<'a> {
    pub(super) fn new(blocks: &'a [Block], overlaps: &[Overlap], scratch: &mut Workspace<'a>) -> Self {
        let mut pairs = Self::lend(blocks.len(), blocks, scratch);
        for o in overlaps {
            pairs.add(o);
        }
        pairs
    }

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

    pub(super) fn len(&self) -> u32 {
        count(self.blocks)
    }

    pub(super) fn apart(&self, lower: u32, upper: u32) -> u64 {
        self.of(lower).find(|&(input, _)| input == upper).map_or(at(self.blocks, lower).size, |(_, distance)| distance)
    }

    pub(super) fn of(&self, output: u32) -> impl Iterator<Item = (u32, u64)> {
        let all = self.inputs[output].into_iter().zip(self.distances[output]);
        all.filter(|&(input, _)| input > 0).map(|(input, distance)| (input - 1, distance))
    }

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
