//! Persistent blocks that end an iteration elsewhere than they begin it are moved in between, whatever lies where.

use crate::support::fit::Trace;
use crate::support::swapped::program;
use crate::support::{by_host, pattern};

use sublet_core::trace::{Event, Op, Row};
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{Program, Runtime};

fn runs(what: &str, (trace, program): &(Trace, Program), moved: [u64; 2]) {
    assert_eq!(program.moved_bytes(), moved, "{what}");
    for order in [Order::Time, Order::Random(5), Order::Last(0), Order::Last(1), Order::Last(2)] {
        let host = HostBackend::new(Options { races: true, ..Options::new(Mode::Ordered(order), 1 << 20) });
        let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
        assert_eq!(pattern::run(&mut runtime, trace, 4), Ok(vec![]), "{what}, {order:?}");
        drop(runtime);
        let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
        assert_eq!(by_host::run(&mut runtime, trace, 4), Ok(vec![]), "{what}, {order:?}");
        assert_eq!(host.races(), [], "{what}, {order:?}");
        drop(runtime);
        assert_eq!(host.in_use(), InUse::default());
    }
}

#[test]
fn blocks_move_to_free_bytes() {
    let down = program(&[512, 1024], &[0, 512], &[4096, 2048], 8192);
    runs("apart", &down, [1536, 0]);
    // Each where the other was: the one whose way is free goes first.
    let chain = program(&[512, 512, 512], &[0, 512, 1024], &[512, 1024, 1536], 2048);
    runs("a chain", &chain, [1536, 0]);
}

#[test]
fn two_blocks_change_places_and_three_go_round() {
    runs("two", &program(&[512, 512], &[0, 512], &[512, 0], 2048), [3 * 512, 0]);
    runs("three", &program(&[512; 3], &[0, 512, 1024], &[512, 1024, 0], 2048), [4 * 512, 0]);
    let two_pairs = program(&[512; 4], &[0, 512, 1024, 1536], &[512, 0, 1536, 1024], 4096);
    runs("two pairs", &two_pairs, [6 * 512, 0]);
}

#[test]
fn a_block_overlaps_itself_and_others_of_another_size() {
    runs("itself", &program(&[1024], &[0], &[512], 4096), [2 * 1024, 0]);
    // The large one to where the small ones were, and they to where it was.
    let sizes = program(&[1024, 512, 512], &[0, 1024, 1536], &[1024, 512, 0], 4096);
    runs("one and two", &sizes, [1024 + 2 * 512 + 1024, 0]);
}

#[test]
fn where_the_arena_is_full_they_go_by_way_of_the_host() {
    runs("two", &program(&[512, 512], &[0, 512], &[512, 0], 1024), [512, 2 * 512]);
    // A hole that is too small for the block that makes way.
    runs("a small hole", &program(&[1024, 1024], &[0, 1024], &[1024, 0], 2560), [1024, 2 * 1024]);
}

/// A weight that begins on the host, and is copied there before a recomputed operator writes the same value again: the
/// copy is the value that the next iteration begins with.
#[test]
fn a_recomputed_operator_leaves_the_copy_on_the_host_as_it_is() {
    let row =
        |event, block, op| Row { time_ns: 0, bytes: if event == Event::Malloc { 512 } else { 0 }, block, op, event };
    let none = |event, block| row(event, block, Op::None);
    let access = |event, block, op| row(event, block, Op::First(op));
    let (weight, input) = (0, 1);
    let write = |op| [row(Event::Read, input, op), row(Event::Write, weight, op)];
    let (run, rerun) = (write(Op::First(2)), write(Op::Rerun(2)));
    let [first, second, last] =
        [access(Event::Write, input, 0), access(Event::Read, weight, 1), access(Event::Read, input, 3)];
    let begin = [none(Event::Malloc, weight), none(Event::Malloc, input)];
    let recorded = [&begin[..], &[first, second], &run, &[last, none(Event::Free, input)]].concat();
    let brought = [none(Event::Malloc, weight), none(Event::SwapIn, weight)];
    let kept = [none(Event::SwapOut, weight)];
    let end = [none(Event::Free, weight), last, none(Event::Free, input)];
    let rewritten = [&begin[1..], &[first], &brought, &[second], &run, &kept, &rerun, &end].concat();
    let trace = Trace { rows: recorded, operators: Vec::new(), blocks: 2 };
    let program = trace.verified(&rewritten, &[0, 512], |schedule| Program::new(&trace.recorded(), schedule, 1));
    let program = program.unwrap().unwrap();
    assert_eq!(program.persistent_blocks().collect::<Vec<_>>(), [weight]);
    runs("written again", &(trace, program), [0, 0]);
}
