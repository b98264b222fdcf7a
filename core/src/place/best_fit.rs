//! Places blocks by best fit on offset lines, as published by Sekiyama et al. 2018, section 3.2.
//!
//! An offset line is a stretch of time with one height, the address up to which memory is taken there. The lowest line
//! (of equals the earliest) gets the block with the longest lifetime, of the unplaced blocks whose lifetimes lie within
//! the line. If no block fits, the line is raised to the height of the lower of its two neighbours in time. The paper
//! leaves open the order of equal lifetimes: here the larger block comes first, then the smaller index.
//!
//! The paper's algorithm is quadratic. The data structures of `skyline` make it O(n log n) in practice, with exactly
//! the same offsets. The length of a lifetime is its number of steps.

use super::skyline::{Rule, Skyline};
use super::solver::{Options, Solver, Summary};
use super::support::Problem;
use crate::table::{Table, at};
use crate::{Workspace, WorkspaceLen};

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    Skyline::workspace(n, 2 * n)
}

pub(super) fn place(
    problem: &Problem<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Summary {
    let mut skyline = published(problem, options, &mut scratch.reborrow());
    rank_longest_first(&mut skyline);
    let (peak, _) = skyline.build(Rule::Rank, u64::MAX, &mut Table::new(offsets));
    let peak = peak.unwrap_or(u64::MAX);
    Summary { peak, lower_bound: problem.lower_bound, solver: Solver::BestFit, nodes: 0 }
}

fn published<'a>(problem: &Problem<'a>, options: &Options, scratch: &mut Workspace<'a>) -> Skyline<'a> {
    let &Problem { blocks, sweep, .. } = problem;
    Skyline::new(problem, options.constraints.alignment, 2 * blocks.len(), scratch, |low, high| {
        let (mut starts, mut ends) = (sweep.by_start().iter().peekable(), sweep.by_end().iter().peekable());
        // The distinct steps at which a block begins or ends are numbered in order. A section begins at each of them
        // but the last, where the last block ends.
        let mut section = 0;
        while let Some(&&i) = ends.peek() {
            let end = at(blocks, i).end;
            let step = starts.peek().map_or(end, |&&i| at(blocks, i).start.min(end));
            while let Some(&i) = starts.next_if(|&&i| at(blocks, i).start == step) {
                low[i] = section;
            }
            while let Some(&i) = ends.next_if(|&&i| at(blocks, i).end == step) {
                high[i] = section;
            }
            section += 1;
        }
        section.max(1) - 1
    })
}

/// Sekiyama et al. 2018 leave equal lifetimes open: here the largest size comes first, then the lowest index.
fn rank_longest_first(skyline: &mut Skyline<'_>) {
    skyline.rank_by_index();
    skyline.rank_by(|_, b| !b.size);
    skyline.rank_by(|_, b| u64::from(!b.width()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::run;
    use crate::{Block, Constraints};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn naive(blocks: &[Block], alignment: u64) -> Vec<u64> {
        struct Line {
            start: u32,
            end: u32,
            height: u64,
        }
        let mut lines = vec![Line {
            start: blocks.iter().map(|b| b.start).min().unwrap_or(0),
            end: blocks.iter().map(|b| b.end).max().unwrap_or(0),
            height: 0,
        }];
        let mut offsets = vec![None; blocks.len()];
        while offsets.contains(&None) {
            let k = (0..lines.len()).min_by_key(|&k| lines[k].height).unwrap();
            let (start, end, height) = (lines[k].start, lines[k].end, lines[k].height);
            let fits = (0..blocks.len())
                .filter(|&i| offsets[i].is_none() && blocks[i].start >= start && blocks[i].end <= end)
                .max_by_key(|&i| (blocks[i].width(), blocks[i].size, core::cmp::Reverse(i)));
            if let Some(i) = fits {
                let b = blocks[i];
                let offset = height.next_multiple_of(b.alignment.max(alignment));
                offsets[i] = Some(offset);
                lines.remove(k);
                let parts = [
                    Line { start, end: b.start, height },
                    Line { start: b.start, end: b.end, height: offset + b.size },
                    Line { start: b.end, end, height },
                ];
                for (at, part) in parts.into_iter().filter(|l| l.start < l.end).enumerate() {
                    lines.insert(k + at, part);
                }
            } else {
                let left = if k > 0 { lines[k - 1].height } else { u64::MAX };
                let right = lines.get(k + 1).map_or(u64::MAX, |l| l.height);
                lines[k].height = left.min(right);
                if right == lines[k].height {
                    lines[k].end = lines[k + 1].end;
                    lines.remove(k + 1);
                }
                if left == lines[k].height {
                    lines[k - 1].end = lines[k].end;
                    lines.remove(k);
                }
            }
        }
        offsets.into_iter().map(Option::unwrap).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn gives_the_offsets_of_the_quadratic_algorithm(
            rows in prop::collection::vec((0u32..30, 1u32..12, 1u64..9, 0u32..4), 0..60),
            alignment in 0u32..3,
        ) {
            let blocks: Vec<Block> = rows.iter().map(|&(start, width, size, log)| Block {
                alignment: 1 << log, ..Block::new(start, start + width, size)
            }).collect();
            let options = Options { constraints: Constraints { alignment: 1 << alignment, capacity: None }, ..Options::default() };
            prop_assert_eq!(run(Solver::BestFit, &blocks, &options).1, naive(&blocks, 1 << alignment));
        }
    }
}
