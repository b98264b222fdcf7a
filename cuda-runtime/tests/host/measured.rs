//! What an iteration takes against what its simulation says, on a clock that is computed.

use crate::support::fit::Trace;
use crate::support::networks::chain;
use crate::support::{pattern, swapped};

use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op};
use sublet_cuda::host::{HostBackend, Mode, Options, Order};
use sublet_cuda::measure::{Direction, Measured, device_file};
use sublet_cuda::{Error, Pace, Program, Runtime};
use sublet_tests::recording::Recording;

/// The links of the device that is measured.
fn links() -> Device {
    Device { in_bandwidth: 6e9, ..Device::symmetric(12e9) }
}

/// An iteration of what is planned for one device, on another.
fn measured_on(trace: &Trace, percent: u64, (planned, device): (Device, Device), pace: Pace) -> Measured {
    let limit = trace.peak() * percent / 100;
    let program =
        trace.fit(limit, planned, |schedule| Program::paced(&trace.recorded(), schedule, 1, pace).unwrap()).unwrap();
    assert_eq!(program.moved_bytes()[1], 0, "by way of the host");
    let mode = Mode::Ordered(Order::Last(1));
    let host = HostBackend::new(Options { device, races: true, ..Options::new(mode, 1 << 24) });
    let mut runtime = Runtime::new(host.clone(), program).unwrap();
    // The first iterations are not like the rest.
    assert_eq!(pattern::run(&mut runtime, trace, 2), Ok(vec![]));
    runtime.measure().unwrap();
    assert_eq!(pattern::run(&mut runtime, trace, 3), Ok(vec![]));
    assert_eq!(host.races(), []);
    runtime.measured().unwrap()
}

fn measured(trace: &Trace, percent: u64, device: Device, pace: Pace) -> Measured {
    measured_on(trace, percent, (device, device), pace)
}

/// A recorded network, all blocks and links a thousandth as large, so that its times are what they were.
fn scaled(name: &str) -> Option<(Trace, Device)> {
    const SCALE: u64 = 1 << 10;
    let Recording { mut rows, operators, blocks, .. } = Recording::named(name)?;
    for r in rows.iter_mut().filter(|r| r.event == Event::Malloc) {
        r.bytes = r.bytes.div_ceil(SCALE).next_multiple_of(8);
    }
    Some((Trace { rows, operators, blocks }, Device::symmetric(12e9 / 1024.0)))
}

/// Its time over that of its simulation.
fn ratio(found: &Measured) -> f64 {
    found.time_ns / found.simulated_ns
}

fn takes_what_the_simulation_says(name: &str, trace: &Trace, device: Device, percents: &[u64]) {
    for &percent in percents {
        let simulated = measured(trace, percent, device, Pace::Simulated);
        let eager = measured(trace, percent, device, Pace::Eager);
        println!(
            "{name}, {percent} %: {:.6}, and {:.4} if copies begin when they can",
            ratio(&simulated),
            ratio(&eager)
        );
        assert_eq!(simulated.copies.is_empty(), percent == 100);
        for copy in simulated.copies.iter().chain(&eager.copies) {
            assert!((copy.ns - copy.simulated_ns).abs() < 1.0, "{copy:?}");
        }
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b + 1.0;
        assert!(near(simulated.time_ns, simulated.simulated_ns), "{name}, {percent} %: {}", ratio(&simulated));
        assert!(near(simulated.stalled_ns(), simulated.simulated_stalled_ns()), "{name}, {percent} %");
        // Who waits for less is done no later.
        assert!(ratio(&eager) <= 1.0 + 1e-6, "{name}, {percent} %: {}", ratio(&eager));
        assert!(eager.stalled_ns() <= simulated.stalled_ns() + 1.0);
    }
}

#[test]
fn an_iteration_takes_what_its_simulation_says_or_less() {
    takes_what_the_simulation_says("chain", &chain(8, 1 << 16), links(), &[100, 80, 60, 45]);
}

/// The first launch waits for the copy of the iteration before, but in the first iteration, which has none before it.
#[test]
fn the_waits_are_those_of_the_iteration_that_is_timed() {
    let (trace, program) = swapped::program(&[512], &[0], &[0], 512);
    let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 1 << 20));
    let mut runtime = Runtime::new(host, program).unwrap();
    let stalls = [0, 1].map(|_| {
        runtime.measure().unwrap();
        assert_eq!(pattern::run(&mut runtime, &trace, 1), Ok(vec![]));
        let stalls = runtime.measured().unwrap().stalls;
        stalls.iter().any(|stall| stall.op == Op::First(0))
    });
    assert_eq!(stalls, [false, true]);
}

/// Times that were measured before a restart can still be read after it. A timing that was asked for but is not done is
/// dropped, whether its iteration had begun or not: no iteration after the restart is timed unasked.
#[test]
fn a_restart_keeps_what_is_timed_and_drops_what_is_not() {
    let (trace, program) = swapped::program(&[512], &[0], &[0], 512);
    let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 1 << 20));
    let mut runtime = Runtime::new(host, program).unwrap();
    assert_eq!(pattern::run(&mut runtime, &trace, 1), Ok(vec![]));
    runtime.measure().unwrap();
    assert_eq!(pattern::run(&mut runtime, &trace, 1), Ok(vec![]));
    let measured = runtime.measured().unwrap();
    assert!(measured.time_ns > 0.0);
    // A later iteration is ended by an error.
    let mine = Error::Driver { call: "mine", code: 1 };
    assert_eq!(runtime.iterate(|_| Err(mine.clone())), Err(mine));
    runtime.restart().unwrap();
    assert_eq!(runtime.measured(), Ok(measured.clone()));
    // The first iteration does not wait as the timed one did: its times would be others.
    assert_eq!(pattern::run(&mut runtime, &trace, 1), Ok(vec![]));
    assert_eq!(runtime.measured(), Ok(measured.clone()));
    assert_eq!(pattern::run(&mut runtime, &trace, 2), Ok(vec![]));
    assert_eq!(runtime.measured(), Ok(measured));

    for begun in [false, true] {
        runtime.measure().unwrap();
        if begun {
            assert!(runtime.next().unwrap().is_some());
        }
        runtime.restart().unwrap();
        assert_eq!(runtime.measured(), Err(Error::NotTimedYet));
        assert_eq!(pattern::run(&mut runtime, &trace, 5), Ok(vec![]));
        assert_eq!(runtime.measured(), Err(Error::NotTimedYet), "{begun}");
        runtime.measure().unwrap();
        assert_eq!(pattern::run(&mut runtime, &trace, 1), Ok(vec![]));
        assert!(runtime.measured().is_ok());
    }
}

#[test]
fn so_does_a_recorded_network() {
    let name = "vgg16_cifar_train_b100";
    let (trace, device) = scaled(name).unwrap();
    takes_what_the_simulation_says(name, &trace, device, &[45]);
}

#[test]
fn a_measured_device_is_found_again() {
    // Not what the plan was made for.
    let real = Device { out_bandwidth: 5e9, out_latency: 30_000.0, in_latency: 30_000.0, ..links() };
    let found = measured_on(&chain(8, 1 << 16), 50, (links(), real), Pace::Eager);
    assert!(found.time_ns > found.simulated_ns);
    assert!(found.copies.iter().any(|copy| copy.direction == Direction::In));
    // All blocks are of one size: the latency is in the bandwidth.
    let device = found.device(&links()).unwrap();
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    assert!(near(device.out_ns(1 << 16), real.out_ns(1 << 16)), "{device:?}");
    assert!(near(device.in_ns(1 << 16), real.in_ns(1 << 16)), "{device:?}");
    let text = device_file(&device);
    assert_eq!(text.lines().next(), Some("out_bytes_per_s,in_bytes_per_s,latency_ns"));
}
