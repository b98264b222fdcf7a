//! A runtime that ends while work is under way: no memory is given back under it.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::fit::Trace;
use crate::support::hooked::{Fate, Hooked, Kind};
use crate::support::networks::chain;

use sublet_core::simulate::Device;
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{Error, Program, Runtime};

fn program(trace: &Trace) -> Program {
    let limit = trace.peak() / 2;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

const ORDERS: [Order; 5] = [Order::Time, Order::Random(9), Order::Last(0), Order::Last(1), Order::Last(2)];

/// Iterations whose launches use no memory: only the copies do.
fn issue<B: Backend>(runtime: &mut Runtime<B>) {
    for _ in 0..2 {
        runtime.iterate(|_| Ok::<(), Error>(())).unwrap();
    }
}

#[test]
fn a_runtime_that_is_dropped_waits_for_its_copies() {
    let trace = chain(5, 512);
    for order in ORDERS {
        let host = HostBackend::new(Options::new(Mode::Ordered(order), 1 << 24));
        let mut runtime = Runtime::new(host.clone(), program(&trace)).unwrap();
        issue(&mut runtime);
        drop(runtime);
        assert_eq!(host.idle(), Ok(()), "{order:?}");
        assert_eq!(host.in_use(), InUse::default());
    }
}

/// One stream cannot be waited for, such as a borrowed one that is gone or captured: the others are all the same.
#[test]
fn a_stream_that_fails_does_not_keep_the_others_from_being_waited_for() {
    let trace = chain(5, 512);
    let error = Error::Driver { call: "for the test", code: 400 };
    for order in ORDERS {
        let host = HostBackend::new(Options::new(Mode::Ordered(order), 1 << 24));
        let until = Rc::new(Cell::new(0u32));
        let (left, with) = (until.clone(), error.clone());
        let hooked = Hooked::new(host.clone(), move |kind| {
            if kind != Kind::Record || left.get() == 0 {
                return Fate::Made;
            }
            left.set(left.get() - 1);
            if left.get() == 0 { Fate::Fails(with.clone()) } else { Fate::Made }
        });
        let mut runtime = Runtime::new(hooked, program(&trace)).unwrap();
        issue(&mut runtime);
        // The third stream is that of the copies in: compute, which is waited for, has waited for all of them.
        until.set(3);
        assert_eq!(runtime.finish(), Err(error.clone()));
        until.set(3);
        drop(runtime);
        assert_eq!(host.idle(), Ok(()), "{order:?}");
    }
}

/// The control: memory that is given back under a copy is seen.
#[test]
fn a_copy_to_memory_that_was_given_back_is_a_fault() {
    for threads in [false, true] {
        let mode = if threads { Mode::Threads { paced: true, delays: None } } else { Mode::Ordered(Order::Time) };
        let slow = Device { out_latency: 5e7, ..Device::symmetric(12e9) };
        let host = HostBackend::new(Options { device: slow, ..Options::new(mode, 1 << 20) });
        let (arena, pinned) = (host.reserve(4096, 4096).unwrap(), host.pin(4096).unwrap());
        let stream = host.stream().unwrap();
        for _ in 0..3 {
            host.copy_out(&stream, host.address(&arena), (&pinned, 0), 4096).unwrap();
        }
        drop((pinned, stream));
        let given_back = Err(Error::Lost { call: "work on memory that was given back", code: 700 });
        assert_eq!(host.idle(), given_back);
    }
}
