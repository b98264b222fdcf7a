//! The figures of memory in docs/embedded.md are those of the `workspace` functions.

use sublet_core::place::{Fit, Solver, workspace_of};
use sublet_core::trace::{Detector, Row, liveness};
use sublet_core::{Block, Pool, WorkspaceLen, replay, verify};

const PAGE: &str = include_str!("../docs/embedded.md");
const BLOCKS: usize = 1000;

#[test]
fn the_bytes_for_a_block_are_those_of_the_page() {
    let asked = [
        ("place::best_fit", workspace_of(Solver::BestFit, BLOCKS)),
        ("place::multistart", workspace_of(Solver::Multistart, BLOCKS)),
        ("place::portfolio", workspace_of(Solver::Portfolio, BLOCKS)),
        ("place::coloring", workspace_of(Solver::Coloring(Fit::Best), BLOCKS)),
        ("verify::verify", verify::workspace(BLOCKS)),
        ("trace::liveness", liveness::workspace(BLOCKS)),
        ("replay::Replay", replay::workspace(BLOCKS)),
        ("replay::Pool", Pool::workspace(BLOCKS)),
        ("trace::Detector", Detector::workspace(BLOCKS)),
    ];
    let expected = asked.map(|(name, WorkspaceLen { words, indices })| {
        format!("| `{name}` | {} |", (8 * words + 4 * indices).div_ceil(BLOCKS))
    });
    let table: Vec<&str> = PAGE.lines().skip_while(|line| *line != "| function | bytes |").skip(2).collect();
    assert_eq!(table.iter().copied().take_while(|line| line.starts_with('|')).collect::<Vec<_>>(), expected);
    assert!(PAGE.contains("a block itself takes 40 bytes") && size_of::<Block>() == 40);
    assert!(PAGE.contains("a row of a trace 32") && size_of::<Row>() == 32);
}
