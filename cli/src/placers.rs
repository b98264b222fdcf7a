//! Throwaway: stands in for the solvers of core until they are there.

use sublet_core::{Block, Error, Workspace, WorkspaceLen, block};

pub(crate) use sublet_core::place::{Options, Summary};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solver {
    FirstFit,
    Stack,
}

impl Solver {
    pub(crate) const ALL: [Self; 2] = [Self::FirstFit, Self::Stack];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FirstFit => "first_fit",
            Self::Stack => "stack",
        }
    }
}

pub(crate) const fn workspace(_n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 0 }
}

pub(crate) fn place(
    solver: Solver,
    blocks: &[Block],
    options: &Options,
    _scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    let lower_bound = block::check(blocks, options.constraints.alignment)?;
    let mut peak = 0;
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(blocks[i].size));
    for (rank, &i) in order.iter().enumerate() {
        let mut around: Vec<_> = order[..rank]
            .iter()
            .filter(|&&j| solver == Solver::Stack || blocks[i].collides(&blocks[j]))
            .map(|&j| (offsets[j], offsets[j] + blocks[j].size))
            .collect();
        around.sort_unstable();
        let mut at = 0;
        for (from, to) in around {
            if at + blocks[i].size <= from {
                break;
            }
            at = at.max(to);
        }
        offsets[i] = at;
        peak = peak.max(at + blocks[i].size);
    }
    Ok(Summary { peak, lower_bound })
}
