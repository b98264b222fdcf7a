//! The load curve as text: bars of block characters, eight levels a line.

use std::fmt::Write;
use std::ops::Range;

use crate::text::unit::Unit;

/// Columns of bars.
const WIDTH: u32 = 72;
/// Lines of bars.
const HEIGHT: u64 = 12;
/// How much of a character is filled, in eighths.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the load over `steps`. `curve` has a pair for each step at which the load may change: the step, and the load
/// in bytes from there on.
///
/// Each of the 72 columns stands for about `steps.len() / 72` steps, and for at least one. It shows the highest load in
/// these steps, so that no peak is lost; where there is load, there is a bar. The top of the chart is the max load.
pub(crate) fn draw(curve: &[(u64, u64)], steps: Range<u64>) -> String {
    let max_load = curve.iter().map(|&(_, load)| load).max().unwrap_or(0);
    let unit = Unit::for_largest(max_load);
    let labels = [max_load, max_load / 2, 0].map(|load| unit.number(load.into()));
    let margin = labels.iter().map(String::len).chain([unit.name().len()]).max().unwrap_or(0);

    let bars = columns(curve, &steps).map(|load| eighths(load, max_load)).collect::<Vec<_>>();
    let mut chart = format!("{:>margin$}\n", unit.name());
    for line in (0..HEIGHT).rev() {
        let label = match HEIGHT - line {
            1 => Some(&labels[0]),
            below if below == HEIGHT / 2 + 1 => Some(&labels[1]),
            _ => None,
        };
        let (label, tick) = label.map_or(("", '│'), |label| (label, '┤'));
        let bar: String = bars.iter().map(|&filled| EIGHTHS[filled.saturating_sub(8 * line).min(8) as usize]).collect();
        let _ = writeln!(chart, "{}", format!("{label:>margin$} {tick}{bar}").trim_end());
    }
    let axis = "─".repeat(WIDTH as usize);
    let _ = writeln!(chart, "{:>margin$} └{axis}", labels[2]);
    let (first, last) = (format!("step {}", steps.start), steps.end);
    let _ = writeln!(chart, "{:margin$}  {first}{last:>width$}", "", width = WIDTH as usize - first.len());
    chart
}

/// The highest load in the steps of each column.
fn columns<'a>(curve: &'a [(u64, u64)], steps: &Range<u64>) -> impl Iterator<Item = u64> + use<'a> {
    let start = steps.start;
    let len = u128::from(steps.end.saturating_sub(start));
    // Where a column begins, relative to the first step; at most `len`, so it fits.
    let at = move |column: u32| u64::try_from(u128::from(column) * len / u128::from(WIDTH)).unwrap_or(u64::MAX);
    (0..WIDTH).map(move |column| {
        // The steps of the column; one at least, so that a chart of few steps has broad bars.
        let from = start + at(column);
        let last = start + at(column + 1).saturating_sub(1).max(at(column));
        let current = curve.partition_point(|&(step, _)| step <= from).saturating_sub(1);
        let after = curve.partition_point(|&(step, _)| step <= last);
        curve[current..after].iter().map(|&(_, load)| load).max().unwrap_or(0)
    })
}

/// The height of a bar in eighths of a line, rounded down; but at least 1 if `load` is not 0.
fn eighths(load: u64, max_load: u64) -> u64 {
    if load == 0 {
        return 0;
    }
    let height = u128::from(load) * u128::from(8 * HEIGHT) / u128::from(max_load);
    u64::try_from(height).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_become_bars() {
        let curve = [(10, 6 << 20), (20, 12 << 20), (30, 1 << 20), (40, 0), (45, 1), (50, 0)];
        assert_eq!(
            draw(&curve, 10..50),
            "  MiB
12.00 ┤                  ██████████████████
      │                  ██████████████████
      │                  ██████████████████
      │                  ██████████████████
      │                  ██████████████████
      │                  ██████████████████
 6.00 ┤████████████████████████████████████
      │████████████████████████████████████
      │████████████████████████████████████
      │████████████████████████████████████
      │████████████████████████████████████
      │██████████████████████████████████████████████████████         ▁▁▁▁▁▁▁▁▁
 0.00 └────────────────────────────────────────────────────────────────────────
       step 10                                                               50
"
        );
    }

    proptest! {
        #[test]
        fn a_column_is_the_highest_load_of_its_steps(
            loads in prop::collection::vec(1u64..100, 1..400),
            start in 0u64..50,
        ) {
            let n = loads.len();
            // One entry for each step, and the end.
            let curve: Vec<_> = (start..).zip(loads.iter().copied().chain([0])).collect();
            let steps = start..start + n as u64;
            let width = WIDTH as usize;
            for (column, load) in (0..width).zip(columns(&curve, &steps)) {
                let (from, to) = (column * n / width, (column + 1) * n / width);
                prop_assert_eq!(load, *loads[from..to.max(from + 1)].iter().max().unwrap());
            }
        }
    }

    #[test]
    fn a_peak_of_one_step_is_seen_in_a_long_chart() {
        let curve = [(0, 1), (500_000, 96), (500_001, 1), (1_000_000, 0)];
        let loads: Vec<u64> = columns(&curve, &(0..1_000_000)).collect();
        assert_eq!(loads.len(), 72);
        assert_eq!(loads.iter().position(|&load| load == 96), Some(36));
        assert_eq!(loads.iter().filter(|&&load| load == 96).count(), 1);
        assert_eq!((eighths(96, 96), eighths(1, 96), eighths(1, 1000), eighths(0, 96)), (96, 1, 1, 0));
    }

    #[test]
    fn no_load_and_the_longest_times_are_drawn() {
        assert_eq!(draw(&[], 0..0).lines().count(), 15);
        assert!(draw(&[(1, u64::MAX), (u64::MAX, 0)], 1..u64::MAX).contains("16777216.00 ┤████"));
    }
}
