//! The queues, in many orders that `shuttle` chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const THREADS: Mode = Mode::Threads { paced: false, delays: None };

const ORDERS: usize = 2_000;

const FEW_ORDERS: usize = 200;

fn passed_on(host: &HostBackend) -> Result<u64> {
    let arena = host.reserve(64, 64)?;
    let pinned = host.pin(64)?;
    let streams = [host.stream()?, host.stream()?, host.stream()?];
    let events = [host.event(false)?, host.event(false)?, host.event(false)?];
    let address = host.address(&arena);
    let number = [Operand { address, bytes: 8, write: true }];
    let seen = Arc::new(AtomicU64::new(0));
    for round in 0..2u8 {
        if round > 0 {
            host.wait(&streams[0], &events[2])?;
        }
        host.launch(&streams[0], 1.0, &number, move |slices| slices[0].bytes_mut()[0] += 1)?;
        host.record(&events[0], &streams[0])?;
        host.wait(&streams[1], &events[0])?;
        host.copy_out(&streams[1], address, (&pinned, 0), 8)?;
        host.record(&events[1], &streams[1])?;
        host.wait(&streams[0], &events[1])?;
        host.launch(&streams[0], 1.0, &number, |slices| slices[0].bytes_mut().fill(0xff))?;
        host.record(&events[0], &streams[0])?;
        host.wait(&streams[2], &events[0])?;
        host.copy_in(&streams[2], (&pinned, 0), address, 8)?;
        host.record(&events[2], &streams[2])?;
    }
    host.synchronize(&events[2])?;
    let sink = seen.clone();
    let read = [Operand { address, bytes: 8, write: false }];
    host.launch(&streams[1], 1.0, &read, move |slices| sink.store(slices[0].bytes()[0].into(), Ordering::SeqCst))?;
    host.record(&events[1], &streams[1])?;
    host.synchronize(&events[1])?;
    Ok(seen.load(Ordering::SeqCst))
}

fn orders_give_the_same(orders: usize) {
    let once = || {
        let host = HostBackend::new(Options { races: true, ..Options::new(THREADS, 64) });
        assert_eq!(passed_on(&host), Ok(2));
        assert_eq!((host.races(), host.in_use()), (vec![], InUse::default()));
    };
    shuttle::check_random(once, orders);
    shuttle::check_pct(once, orders, 3);
}

#[test]
fn every_order_of_threads_gives_the_same() {
    orders_give_the_same(FEW_ORDERS);
}

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn every_one_of_thousands_of_orders_gives_the_same() {
    orders_give_the_same(ORDERS);
}

fn losses_hang_nobody(orders: usize) {
    let once = || {
        for work in 0..=9 {
            let host = HostBackend::new(Options::new(THREADS, 64));
            host.lose_after(work);
            let lost = Err(Error::Lost { call: "work on a stream", code: 719 });
            assert_eq!(passed_on(&host), if work < 9 { lost } else { Ok(2) }, "after {work}");
            assert_eq!(host.in_use(), InUse::default());
        }
    };
    shuttle::check_random(once, orders);
}

#[test]
fn a_device_that_is_lost_hangs_nobody_in_any_order() {
    losses_hang_nobody(FEW_ORDERS / 5);
}

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn a_device_that_is_lost_hangs_nobody_in_more_orders() {
    losses_hang_nobody(FEW_ORDERS);
}

#[test]
fn without_a_wait_some_order_of_threads_is_seen_to_differ() {
    let differs = Arc::new(AtomicU64::new(0));
    let count = differs.clone();
    let once = move || {
        let host = HostBackend::new(Options { races: true, ..Options::new(THREADS, 64) });
        let arena = host.reserve(8, 8).unwrap();
        let pinned = host.pin(8).unwrap();
        let streams = [host.stream().unwrap(), host.stream().unwrap()];
        let address = host.address(&arena);
        let number = [Operand { address, bytes: 8, write: true }];
        host.launch(&streams[0], 1.0, &number, |slices| slices[0].bytes_mut().fill(7)).unwrap();
        host.copy_out(&streams[1], address, (&pinned, 0), 8).unwrap();
        assert_eq!(host.races().len(), 1);
        drop(streams);
        // SAFETY: the streams are done.
        let copied = unsafe { host.pinned(&pinned).slice(0, 8) }.unwrap()[0];
        count.fetch_add(u64::from(copied != 7), Ordering::SeqCst);
    };
    shuttle::check_random(once, 200);
    assert!((1..200).contains(&differs.load(Ordering::SeqCst)));
}

#[test]
fn who_waits_for_all_streams_orders_what_comes_after() {
    let races = |waits: bool| {
        let host = HostBackend::new(Options { races: true, ..Options::new(Mode::Ordered(Order::Time), 8) });
        let arena = host.reserve(8, 8).unwrap();
        let number = [Operand { address: host.address(&arena), bytes: 8, write: true }];
        let streams = [host.stream().unwrap(), host.stream().unwrap()];
        let events = [host.event(true).unwrap(), host.event(true).unwrap()];
        host.record(&events[0], &streams[1]).unwrap();
        host.launch(&streams[0], 5.0, &number, |_| ()).unwrap();
        if waits {
            host.idle().unwrap();
        }
        host.launch(&streams[1], 1.0, &number, |_| ()).unwrap();
        host.record(&events[1], &streams[1]).unwrap();
        host.idle().unwrap();
        (host.races().len(), host.elapsed_ns(&events[0], &events[1]).unwrap())
    };
    shuttle::check_random(move || assert_eq!([races(false), races(true)], [(1, 1.0), (0, 6.0)]), 1);
}

#[test]
fn what_cannot_be_is_refused() {
    shuttle::check_random(
        || {
            let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 100));
            let mut arena = host.reserve(60, 90).unwrap();
            let address = host.address(&arena);
            let stream = host.stream().unwrap();
            let none = |bytes| Error::OutOfMemory { memory: Memory::Device, bytes };
            assert_eq!(host.reserve(41, 41).map(drop), Err(none(41)));
            assert_eq!(host.grow(&mut arena, 91), Err(Error::CannotGrow { bytes: 91, room: 90 }));
            let outside = Err(Error::OutOfRange { address: address + 60, bytes: 1 });
            let beyond = [Operand { address: address + 60, bytes: 1, write: true }];
            assert_eq!(host.launch(&stream, 1.0, &beyond, |_| ()), outside);
            host.grow(&mut arena, 80).unwrap();
            assert_eq!((host.address(&arena), host.memory().unwrap().free), (address, 20));
            host.launch(&stream, 1.0, &beyond, |_| ()).unwrap();
            let other = [beyond[0], Operand { address: address + 50, bytes: 11, write: false }];
            let overlap = Err(Error::OperandsOverlap { address: address + 60 });
            assert_eq!(host.launch(&stream, 1.0, &other, |_| ()), overlap);
        },
        1,
    );
}

#[test]
fn a_kernel_that_panics_is_a_fault_of_the_device() {
    shuttle::check_random(
        || {
            let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 100));
            let (stream, event) = (host.stream().unwrap(), host.event(true).unwrap());
            host.launch(&stream, 1.0, &[], |_| panic!("a fault, for the test")).unwrap();
            host.record(&event, &stream).unwrap();
            let lost = Err(Error::Lost { call: "a kernel", code: 719 });
            assert_eq!(host.synchronize(&event), lost);
            assert_eq!(host.stream().map(drop), lost);
        },
        1,
    );
}

#[test]
fn time_is_that_of_links_and_launches() {
    shuttle::check_random(
        || {
            let host = HostBackend::new(Options::new(Mode::Ordered(Order::Last(0)), 24_000));
            let (arena, pinned) = (host.reserve(24_000, 0).unwrap(), host.pin(12_000).unwrap());
            let streams = [host.stream().unwrap(), host.stream().unwrap()];
            let events = [0; 3].map(|_| host.event(true).unwrap());
            host.record(&events[0], &streams[0]).unwrap();
            host.launch(&streams[0], 5_000.0, &[], |_| ()).unwrap();
            host.record(&events[1], &streams[0]).unwrap();
            // 10 µs and 12,000 bytes at 12 GB/s, beside the kernel, then one after it.
            host.copy_out(&streams[1], host.address(&arena), (&pinned, 0), 12_000).unwrap();
            host.wait(&streams[1], &events[1]).unwrap();
            host.copy_in(&streams[1], (&pinned, 0), host.address(&arena), 12_000).unwrap();
            host.record(&events[2], &streams[1]).unwrap();
            host.synchronize(&events[2]).unwrap();
            assert_eq!(host.elapsed_ns(&events[0], &events[1]), Ok(5_000.0));
            assert_eq!(host.elapsed_ns(&events[1], &events[2]), Ok(17_000.0));
            let untimed = host.event(false).unwrap();
            assert_eq!(host.elapsed_ns(&events[0], &untimed), Err(Error::NotTimed));
        },
        1,
    );
}
