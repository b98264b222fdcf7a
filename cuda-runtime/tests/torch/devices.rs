//! Several devices, and none.

use sublet_cuda::Error;
use sublet_cuda::torch::{Device, Devices};

use crate::fake::Fake;

#[test]
fn devices_have_plans_of_their_own_and_threads_may_use_them_at_once() {
    let devices = Devices::new(|device| match device {
        0 | 1 => Ok(Fake::new(1 << 30)),
        _ => Err(Error::NoDevice { ordinal: device.cast_unsigned(), count: 2 }),
    });
    let step = |device: i32, blocks: u64| {
        let sizes = (1..=blocks).map(|i| i * 10_000 * (u64::from(device.cast_unsigned()) + 1));
        let addresses: Vec<u64> = sizes.map(|bytes| devices.with(device, |d| d.malloc(bytes, 0)).unwrap()).collect();
        for address in addresses {
            devices.with(device, |d| d.free(address, 0)).unwrap();
        }
    };
    let in_threads = |times| {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..times).for_each(|_| step(0, 10)));
            scope.spawn(|| (0..times).for_each(|_| step(1, 20)));
        });
        [0, 1].map(|device| devices.with(device, Device::statistics).unwrap())
    };
    let warm = in_threads(8);
    let done = in_threads(5);
    for (warm, done, blocks) in [(&warm[0], &done[0], 10), (&warm[1], &done[1], 20)] {
        assert_eq!((done.planned - warm.planned, done.unplanned - warm.unplanned), (5 * blocks, 0));
    }
    assert_eq!(done[0].arena, (1..=10_u64).map(|i| (i * 10_000).next_multiple_of(512)).sum::<u64>());
    assert_ne!(done[0].arena, done[1].arena);
    let none = devices.with(2, Device::statistics);
    assert_eq!(none, Err(Error::NoDevice { ordinal: 2, count: 2 }));

    // On one device at once: no order to plan, and nothing is given out twice.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| step(0, 7)));
        }
    });
    let live = devices.with(0, |device| Ok(device.driver().live.len())).unwrap();
    assert!(live <= 1, "{live}");
}

#[test]
fn without_a_driver_every_device_says_so() {
    // SAFETY: nothing of the driver is used before.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        eprintln!("skipped: what is told without a driver; there is one");
        return;
    }
    let devices = Devices::new(sublet_cuda::torch::Cuda::open);
    assert_eq!(devices.with(0, |device| device.malloc(10, 0)), Err(Error::NoDriver));
}
