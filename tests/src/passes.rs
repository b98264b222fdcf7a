//! Masks and in-place reuse, in memory that is allocated for the call and not zeroed, for tests and benches.

use sublet_core::rewrite::{in_place, mask};
use sublet_core::trace::{Recorded, Row};
use sublet_core::{Error, Workspace, WorkspaceLen};

/// Lends a pass its workspace. Returns the rows that the pass writes, and its result.
fn lend<T>(
    len: WorkspaceLen,
    most_rows: usize,
    pass: impl FnOnce(Workspace<'_>, &mut [Row]) -> Result<(usize, T), Error>,
) -> Result<(Vec<Row>, T), Error> {
    let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
    let mut rows = vec![Row::default(); most_rows];
    let (n, told) = pass(Workspace::new(&mut words, &mut indices), &mut rows)?;
    rows.truncate(n);
    Ok((rows, told))
}

/// Puts masks (one bit for each element) in the place of blocks that a ReLU reads and writes, in the rows of a trace that
/// may be rewritten already.
///
/// # Errors
/// As [`mask::rewrite`].
pub fn masks(recorded: &Recorded<'_>, rows: &[Row]) -> Result<Vec<Row>, Error> {
    let len = mask::workspace(rows.len(), recorded.blocks);
    let made =
        lend(len, mask::most_rows(rows), |scratch, out| mask::rewrite(recorded, rows, scratch, out).map(|n| (n, ())));
    made.map(|(rows, ())| rows)
}

/// Has operators write outputs over inputs that nobody reads later, in the rows of a trace that may be rewritten
/// already.
///
/// # Errors
/// As [`in_place::rewrite`].
pub fn over_inputs(recorded: &Recorded<'_>, rows: &[Row]) -> Result<Vec<Row>, Error> {
    let len = in_place::workspace(recorded.rows.len(), rows.len(), recorded.blocks);
    let made = lend(len, in_place::most_rows(rows), |scratch, out| {
        in_place::rewrite(recorded, rows, scratch, out).map(|n| (n, ()))
    });
    made.map(|(rows, ())| rows)
}
