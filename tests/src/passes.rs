//! The published passes, each in memory that is allocated for the call and not zeroed, for tests and benches.

use sublet_core::rewrite::means::{in_place, mask};
use sublet_core::rewrite::published::chen::{self, Mirrored, Plan};
use sublet_core::rewrite::published::layrub;
use sublet_core::simulate::Device;
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

/// A plan of Chen et al. 2016, in which no operator is recomputed more than `depth` times.
///
/// # Errors
/// As [`chen::rewrite`].
pub fn mirrored(recorded: &Recorded<'_>, plan: Plan, depth: u32) -> Result<(Vec<Row>, Mirrored), Error> {
    let rows = recorded.rows.len();
    lend(chen::workspace(rows, recorded.blocks, depth), chen::most_rows(rows, depth), |scratch, out| {
        chen::rewrite(recorded, plan, depth, scratch, out).map(|mirrored| (mirrored.rows, mirrored))
    })
}

/// Of the plans that the search of Chen et al. makes, one for each budget of bytes, the one whose rows have the least
/// `cost`.
///
/// # Errors
/// As [`chen::search`].
pub fn searched(
    recorded: &Recorded<'_>,
    cost: impl FnMut(&[Row]) -> Result<u64, Error>,
) -> Result<(Vec<Row>, Mirrored), Error> {
    let rows = recorded.rows.len();
    lend(chen::workspace(rows, recorded.blocks, 1), chen::most_rows(rows, 1), |scratch, out| {
        chen::search(recorded, scratch, out, cost).map(|(_, mirrored)| (mirrored.rows, mirrored))
    })
}

/// Swaps blocks by Layrub's rule (Jin et al. 2018); blocks of fewer than `least_bytes` bytes stay on the device.
///
/// # Errors
/// As [`layrub::reuse`].
pub fn by_layers(
    recorded: &Recorded<'_>,
    device: &Device,
    least_bytes: u64,
) -> Result<(Vec<Row>, layrub::Bytes), Error> {
    let len = layrub::workspace(recorded.rows.len(), recorded.blocks);
    lend(len, layrub::most_rows(recorded.rows), |scratch, out| {
        layrub::reuse(recorded, device, least_bytes, scratch, out)
    })
}
