//! What an iteration takes against what its simulation says, on a clock that is computed.

mod support;

use support::fit::Trace;
use support::networks::chain;
use support::pattern;

use sublet_core::simulate::Device;
use sublet_cuda::host::{HostBackend, Mode, Options, Order};
use sublet_cuda::measure::{Direction, Measured, device_file};
use sublet_cuda::{Program, Runtime};

/// The links of the device that is measured.
fn links() -> Device {
    Device { in_bandwidth: 6e9, ..Device::symmetric(12e9) }
}

fn measured(trace: &Trace, percent: u64, device: Device) -> Measured {
    let limit = trace.peak() * percent / 100;
    let program = trace.fit(limit, links(), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap();
    let host = HostBackend::new(Options { device, ..Options::new(Mode::Ordered(Order::Last(1)), 1 << 30) });
    let mut runtime = Runtime::new(host, program).unwrap();
    // The first iterations are not like the rest.
    assert_eq!(pattern::run(&mut runtime, trace, 2), Ok(vec![]));
    runtime.measure().unwrap();
    assert_eq!(pattern::run(&mut runtime, trace, 3), Ok(vec![]));
    runtime.measured().unwrap()
}

#[test]
fn an_iteration_takes_what_its_simulation_says() {
    let trace = chain(8, 1 << 16);
    for percent in [100, 80, 60, 45] {
        let found = measured(&trace, percent, links());
        assert_eq!(found.copies.is_empty(), percent == 100);
        for copy in &found.copies {
            assert!((copy.ns - copy.simulated_ns).abs() < 1.0, "{copy:?}");
        }
        // Copies begin when they can, and not when compute has come to their row: it is never longer.
        let ratio = found.time_ns / found.simulated_ns;
        println!(
            "{percent} %: {ratio:.4}, still for {} ns, {} in the simulation",
            found.stalled_ns(),
            found.simulated_stalled_ns()
        );
        assert!((0.8..1.0 + 1e-9).contains(&ratio), "{percent} %: {ratio}");
        assert!(found.stalled_ns() <= found.simulated_stalled_ns() + 1.0);
    }
}

#[test]
fn a_measured_device_is_found_again() {
    // Not what the plan was made for.
    let real = Device { out_bandwidth: 5e9, out_latency: 30_000.0, in_latency: 30_000.0, ..links() };
    let found = measured(&chain(8, 1 << 16), 50, real);
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
