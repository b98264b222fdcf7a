use super::*;
use crate::rewrite::fit::Using;
use crate::simulate::Device;
use crate::trace::{Operator, Row};
use std::vec;
use std::vec::Vec;

const KB: u64 = 1000;

fn row(time_ns: u64, event: Event, block: u32, op: u32) -> Row {
    let bytes = if event == Event::Malloc { 12 * KB } else { 0 };
    let op = if matches!(event, Event::Read | Event::Write) { Op::First(op) } else { Op::None };
    Row { time_ns, bytes, block, op, event }
}

fn rows() -> Vec<Row> {
    vec![
        row(0, Event::Malloc, 0, 0),
        row(0, Event::Read, 2, 0),
        row(300, Event::Write, 0, 0),
        row(300, Event::Malloc, 1, 1),
        row(600, Event::Write, 1, 1),
        row(700, Event::Free, 1, 1),
        row(900, Event::Read, 0, 2),
        row(900, Event::Free, 0, 2),
    ]
}

fn with_weight() -> Vec<Row> {
    let mut all = vec![Row { bytes: 1, ..row(0, Event::Malloc, 2, 0) }];
    all.extend(rows());
    all
}

fn bound(rows: &[Row], operators: &[Operator], using: Using, limit: u64) -> f64 {
    let len = lower_bound_workspace(rows.len(), 3);
    let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
    let options = Options { using, ..Options::new(limit, Device::symmetric(12e9)) };
    let recorded = Recorded { rows, operators, blocks: 3 };
    let least = least_overhead(&recorded, &options, Workspace::new(&mut words, &mut indices)).unwrap();
    // `takes_at_least` agrees with this bound.
    let mut takes = |overhead: f64| {
        takes_at_least(&recorded, &options, overhead, FEW, Workspace::new(&mut words, &mut indices)).unwrap()
    };
    assert!(takes(least.min(1e12) * 0.999), "{least}");
    assert!(least.is_infinite() || !takes(least * 1.001 + 1.0), "{least}");
    least
}

const SWAP: Using = Using::NONE.with(Means::Swap);
const RECOMPUTE: Using = Using::NONE.with(Means::Recompute);

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.01
}

#[test]
fn the_cheaper_means_per_byte_comes_first() {
    let rows = with_weight();
    let limit = 12 * KB + 1;
    // The copy out takes 1,000 ns, of which 300 pass before the second operator begins. The copy in takes 1,000 ns too,
    // of which 300 pass between that operator and the read.
    let swapped = bound(&rows, &[], SWAP, limit);
    // The operator that is recomputed takes 300 ns.
    let recomputed = bound(&rows, &[], RECOMPUTE, limit);
    assert!(near(swapped, 1400.0) && near(recomputed, 300.0), "{swapped} {recomputed}");
    // A block goes as a whole.
    let both = bound(&rows, &[], SWAP.with(Means::Recompute), limit);
    assert!(near(both, 300.0), "{both}");
}

#[test]
fn a_weight_that_is_updated_is_copied_out_once_an_iteration() {
    let rows = |last| {
        [
            row(0, Event::Malloc, 2, 0),
            row(0, Event::Read, 2, 0),
            row(600, Event::Malloc, 1, 1),
            row(600, Event::Write, 1, 1),
            row(600, Event::Free, 1, 1),
            row(9000, Event::Read, 2, 2),
            row(9000, last, 2, 2),
        ]
    };
    // The update ends the iteration. In the next one, 600 of the 1,000 ns of the copy out pass before the second
    // operator.
    assert!(near(bound(&rows(Event::Write), &[], SWAP, 12 * KB), 400.0));
    // Without an update the host always has the weight.
    assert!(bound(&rows(Event::Read), &[], SWAP, 12 * KB) <= 0.0);
}

/// A value is made from another of `bytes`, which is not read again and whose operator runs from `begin` to 100.
fn made_from_another(bytes: u64, begin: u64) -> [Row; 12] {
    [
        Row { bytes, ..row(0, Event::Malloc, 0, 0) },
        row(begin, Event::Write, 0, 0),
        row(100, Event::Write, 0, 0),
        row(100, Event::Malloc, 1, 1),
        row(200, Event::Read, 0, 1),
        row(300, Event::Write, 1, 1),
        row(300, Event::Free, 0, 1),
        Row { bytes: 24 * KB, ..row(300, Event::Malloc, 2, 2) },
        row(600, Event::Write, 2, 2),
        row(600, Event::Free, 2, 2),
        row(2600, Event::Read, 1, 3),
        row(2600, Event::Free, 1, 3),
    ]
}

#[test]
fn a_value_is_not_recomputed_from_one_that_is_gone() {
    let rows = made_from_another(12 * KB, 100);
    let within = |rerun: bool, using| {
        let operators = [Operator { rerun, ..Operator::default() }, Operator::default()];
        bound(&rows, &operators, using, 24 * KB)
    };
    assert!(near(within(true, RECOMPUTE), 100.0));
    assert!(within(false, RECOMPUTE).is_infinite());
    // Either the value or the block that it is made from is copied out. That block is written 500 ns before the
    // operator that needs most memory begins.
    assert!(near(within(false, RECOMPUTE.with(Means::Swap)), 500.0));
    assert!(near(within(false, SWAP), 700.0));
}

#[test]
fn what_a_value_is_made_from_is_recomputed_too_where_to_keep_it_saves_nothing() {
    let look = |bytes, using| {
        let (rows, operators) = (made_from_another(bytes, 0), [Operator { rerun: true, ..Operator::default() }; 2]);
        let len = workspace(rows.len(), 3);
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let options = Options { using, ..Options::new(24 * KB, Device::symmetric(12e9)) };
        let mut least = 0.0;
        let recorded = Recorded { rows: &rows, operators: &operators, blocks: 3 };
        let scratch = Workspace::new(&mut words, &mut indices);
        look(&recorded, &options, (FEW, Idles::All), scratch, |returns, excess| {
            least = returns.least(&options, excess, least);
            ControlFlow::Continue(())
        })
        .unwrap();
        least
    };
    assert!(near(look(12 * KB, RECOMPUTE), 200.0));
    assert!(near(look(12 * KB - 1, RECOMPUTE), 100.0), "a smaller one may be kept");
    // The copy out may begin when the first value is made.
    assert!(near(look(12 * KB, SWAP.with(Means::Recompute)), 200.0));
}

#[test]
fn what_is_not_over_the_limit_costs_nothing_and_what_can_never_fit_everything() {
    let rows = with_weight();
    assert!(bound(&rows, &[], SWAP, 24 * KB + 1) <= 0.0);
    assert!(bound(&rows, &[], SWAP, 12 * KB - 1).is_infinite());
    // The first operator must not be recomputed.
    let once = [Operator { rerun: false, ..Operator::default() }];
    assert!(bound(&rows, &once, RECOMPUTE, 12 * KB + 1).is_infinite());
}

#[test]
fn where_operators_may_move_only_what_they_touch_is_known() {
    let free = [Operator { ordered: false, ..Operator::default() }; 3];
    let using = RECOMPUTE.with(Means::Order);
    assert!(bound(&with_weight(), &free, using, 12 * KB + 1) <= 0.0);
    assert!(bound(&with_weight(), &free, using, 12 * KB - 1).is_infinite());
    assert!(bound(&with_weight(), &[], using, 12 * KB + 1) > 0.0);
}

#[test]
fn a_mask_and_an_output_over_its_input_take_nothing() {
    // An operator reads one block and writes another of the same size. A third block is idle then, and is read by a
    // gradient.
    let rows = [
        row(0, Event::Malloc, 2, 0),
        row(0, Event::Malloc, 0, 0),
        row(100, Event::Write, 2, 0),
        row(200, Event::Write, 0, 1),
        row(200, Event::Malloc, 1, 1),
        row(300, Event::Read, 0, 2),
        row(400, Event::Write, 1, 2),
        row(400, Event::Free, 0, 2),
        row(900, Event::Read, 2, 3),
        row(900, Event::Write, 1, 3),
        row(950, Event::Free, 1, 3),
        row(950, Event::Free, 2, 3),
    ];
    let mut operators = [Operator::default(); 4];
    let within = |operators: &[Operator], using, blocks: u64| bound(&rows, operators, using, blocks * 12 * KB);
    let (in_place, masks) = (Using::NONE.with(Means::InPlace), Using::NONE.with(Means::Relu));
    assert!(within(&operators, in_place, 2).is_infinite());
    operators[2].in_place = true;
    assert!(within(&operators, in_place, 2) <= 0.0);
    assert!(within(&operators, masks, 2).is_infinite());
    operators[3].kind = Kind::ReluBackward;
    assert!(within(&operators, masks, 2) <= 0.0);
    assert!(within(&operators, masks.with(Means::InPlace), 1) <= 0.0);
}

#[test]
fn a_short_workspace_and_a_device_without_times_are_refused() {
    let recorded = Recorded::new(&[], 3);
    let options = Options::new(1, Device::symmetric(12e9));
    let short = least_overhead(&recorded, &options, Workspace::new(&mut [], &mut []));
    assert!(matches!(short, Err(Error::BufferTooSmall { .. })), "{short:?}");
    let options = Options::new(1, Device { in_bandwidth: 0.0, ..Device::symmetric(12e9) });
    let refused = least_overhead(&recorded, &options, Workspace::new(&mut [], &mut []));
    assert_eq!(refused, Err(Error::Device));
}
