//! A network that trains by a plan learns the same, to the bit.

use std::time::Duration;

use crate::convnet::ConvNet;
use crate::support::fit::Trace;
use crate::support::hooked::{Fate, Hooked, Kind};

use sublet_core::Error;
use sublet_core::place::Solver;
use sublet_core::rewrite::fit::{Means, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Row};
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{ALIGNMENT, Program, Runtime};
use sublet_tests::{passes, recording};

const ITERATIONS: u64 = 50;
const SWAP: Using = Using::NONE.with(Means::Swap);

fn network() -> ConvNet {
    ConvNet::new(&[8, 8, 8, 8, 16, 16], &[3])
}

fn program(network: &ConvNet, percent: u64) -> Program {
    let trace = network.trace();
    let limit = trace.peak() * percent / 100;
    trace
        .fit_aligned(SWAP, ALIGNMENT, limit, Device::symmetric(12e9), |schedule| {
            Program::new(&trace.recorded(), schedule, ALIGNMENT).unwrap()
        })
        .unwrap()
}

fn host(mode: Mode) -> HostBackend {
    HostBackend::new(Options { races: true, ..Options::new(mode, 1 << 24) })
}

#[test]
fn weights_are_equal_to_the_bit_whatever_the_memory() {
    let network = network();
    let unplanned = network.train(ITERATIONS);
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / 10.0;
    let (first, last) = (mean(&unplanned.losses[..10]), mean(&unplanned.losses[40..]));
    println!("loss {first} at first, {last} at last");
    assert!(last < first / 4.0, "it does not learn: {first} {last}");
    let threads = Mode::Threads { paced: false, delays: Some((1, Duration::from_micros(20))) };
    for percent in [100, 70, 50] {
        let program = program(&network, percent);
        assert!(program.arena_bytes() <= network.trace().peak() * percent / 100);
        println!("{percent} %: {} bytes, {} on the host", program.arena_bytes(), program.host_bytes());
        for mode in [Mode::Ordered(Order::Random(percent)), threads] {
            if percent < 100 {
                assert!(program.host_bytes() > 0);
            }
            let host = host(mode);
            let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
            let (faults, weights) = network.train_on(&mut runtime, &unplanned).unwrap();
            assert!(faults.is_empty(), "{percent} %, {mode:?}: {} faults, {}", faults.len(), faults[0]);
            assert!(weights == unplanned.weights, "{percent} %, {mode:?}");
            assert_eq!(host.races(), []);
            drop(runtime);
            assert_eq!(host.in_use(), InUse::default());
        }
    }
}

#[test]
fn what_is_made_again_is_the_same_to_the_bit() {
    let network = network();
    let trace = network.trace();
    let unplanned = network.train(ITERATIONS);
    for (using, percent) in [(Using::NONE.with(Means::Recompute), 85), (Using::ALL, 70)] {
        let limit = trace.peak() * percent / 100;
        // A link so slow that it is no use alone.
        let (program, again) = trace
            .fit_aligned(using, ALIGNMENT, limit, Device::symmetric(3e7), |schedule| {
                let again = schedule.rows().iter().filter(|r| matches!(r.op, Op::Rerun(_))).count();
                (Program::new(&trace.recorded(), schedule, ALIGNMENT).unwrap(), again)
            })
            .unwrap();
        println!("{percent} %: {} bytes, {again} rows of reruns", program.arena_bytes());
        assert!(again > 0 && program.arena_bytes() <= limit);
        let host = host(Mode::Ordered(Order::Random(percent)));
        let mut runtime = Runtime::new(host.clone(), program).unwrap();
        assert_eq!(network.train_on(&mut runtime, &unplanned), Ok((vec![], unplanned.weights.clone())));
        assert_eq!(host.races(), []);
    }
}

/// The network with a bit in place of what rectifiers put out, and with work in place; no copies.
fn masked(trace: &Trace) -> Program {
    let recorded = trace.recorded();
    let masked = passes::masks(&recorded, &trace.rows).unwrap();
    let rows = passes::over_inputs(&recorded, &masked).unwrap();
    assert!(rows.iter().any(|r| r.block as usize >= trace.blocks && r.event == Event::Read), "no mask is read");
    let proved = recording::prove(&recorded, &rows, Solver::BestFit, &Device::symmetric(12e9), true).unwrap();
    // Nobody aligns: this device is the host, where each number is written by its bytes.
    trace.verified(&rows, &proved.offsets, |schedule| Program::new(&recorded, schedule, 1).unwrap()).unwrap()
}

#[test]
fn with_masks_and_work_in_place_it_learns_the_same_in_less_memory() {
    let network = network();
    let trace = network.trace();
    let program = masked(&trace);
    println!("{} bytes, {} without masks and work in place", program.arena_bytes(), trace.peak());
    // Little: the next convolution's gradient needs what a rectifier puts out, but for the last one and the one that is
    // pooled.
    assert!(program.arena_bytes() < trace.peak());
    let unplanned = network.train(ITERATIONS);
    let host = host(Mode::Ordered(Order::Time));
    let mut runtime = Runtime::new(host.clone(), program).unwrap();
    assert_eq!(network.train_on(&mut runtime, &unplanned), Ok((vec![], unplanned.weights.clone())));
    assert_eq!(host.races(), []);
}

#[test]
fn without_one_of_its_waits_it_learns_something_else() {
    let network = network();
    let unplanned = network.train(4);
    let program = program(&network, 50);
    let first = program.wait_count(0) + program.wait_count(1);
    let (mut seen, mut other_weights) = (0, 0);
    let waits = program.wait_count(2);
    let with_all = Runtime::new(host(Mode::Ordered(Order::Time)), program.clone());
    assert_eq!(network.train_on(&mut with_all.unwrap(), &unplanned), Ok((vec![], unplanned.weights.clone())));
    for wait in first..first + waits {
        let (mut found, mut differ) = (false, false);
        for order in [Order::Last(0), Order::Last(1), Order::Last(2)] {
            let host = host(Mode::Ordered(order));
            let mut calls = 0;
            let hooked = Hooked::new(host.clone(), move |kind| {
                calls += usize::from(kind == Kind::Wait);
                if kind == Kind::Wait && calls - 1 == wait { Fate::LeftOut } else { Fate::Made }
            });
            let mut runtime = Runtime::new(hooked, program.clone()).unwrap();
            let (faults, weights) = network.train_on(&mut runtime, &unplanned).unwrap();
            assert!(!host.races().is_empty(), "wait {wait}");
            found |= !faults.is_empty();
            differ |= weights != unplanned.weights;
            if found && differ {
                break;
            }
        }
        seen += usize::from(found);
        other_weights += usize::from(differ);
    }
    println!("{waits} waits: without one, {seen} times a block is wrong, {other_weights} times the weights are");
    assert!(other_weights * 2 > waits, "{other_weights} of {waits}");
}

#[test]
fn in_another_order_it_learns_the_same_in_less_memory() {
    let network = network();
    let mut trace = network.trace();
    trace.operators.iter_mut().for_each(|operator| operator.ordered = false);
    let fit = |using: Using, limit: u64| {
        trace.fit_aligned(using, ALIGNMENT, limit, Device::symmetric(12e9), |schedule| {
            let first_run = |r: &Row| if let Op::First(k) = r.op { Some(k) } else { None };
            let in_order = schedule.rows().iter().filter_map(first_run).is_sorted();
            (Program::new(&trace.recorded(), schedule, ALIGNMENT).unwrap(), in_order)
        })
    };
    let reached = |using, limit| match fit(using, limit) {
        Err(Error::OverLimit { least: bytes, .. } | Error::Impossible { needed: bytes, .. }) => bytes,
        Ok((program, _)) => program.arena_bytes(),
        Err(e) => panic!("{e}"),
    };
    let least = |using| reached(using, reached(using, 1));
    let order = Using::NONE.with(Means::Order);
    for using in [order, order.with(Means::Recompute)] {
        let (program, in_order) = fit(using, least(using)).unwrap();
        let without = least(using.without(Means::Order));
        println!("{} bytes; in the recorded order {without}", program.arena_bytes());
        assert!(!in_order && program.arena_bytes() < without);
        let unplanned = network.train(ITERATIONS);
        let host = host(Mode::Ordered(Order::Random(7)));
        let mut runtime = Runtime::new(host.clone(), program).unwrap();
        assert_eq!(network.train_on(&mut runtime, &unplanned), Ok((vec![], unplanned.weights.clone())));
        assert_eq!(host.races(), []);
    }
}
