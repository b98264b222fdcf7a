//! What is called of the CUDA driver for ReLU and for PyTorch's memory, on a driver for tests whose kernels are the
//! emulator's.
//!
//! Which driver is there is decided when a process begins: each test runs itself again with this one.

#[path = "../support/fit.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod fit;
mod masks;
#[path = "../support/networks.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod networks;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;

use half::{bf16, f16};
use sublet_cuda::relu::cpu::Element;
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{self, Activation, cpu, mask_words};
use sublet_cuda::torch::{Cuda, Device, Devices, Driver};
use sublet_cuda::{Error, Memory};

const CHILD: &str = "SUBLET_TEST_CALLS";

/// The folder of the driver for tests; none where there is no compiler.
fn driver() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
        std::fs::create_dir_all(&folder).unwrap();
        // Runs at the same time do not see what another has half built.
        let building = folder.join(format!("building.{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls/driver.cpp");
        let mut command = Command::new("c++");
        command.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"]);
        let output = command.arg("-o").arg(&building).arg(source).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&building, folder.join("libcuda.so")).unwrap();
        Some(folder)
    });
    folder.as_deref()
}

/// Runs a test of this file again on the driver for tests.
fn again(test: &str, settings: &[(&str, &str)]) {
    let Some(folder) = driver() else {
        eprintln!("skipped: {test} on a driver for tests; there is no c++");
        return;
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("LD_LIBRARY_PATH", folder).env(CHILD, "1");
    let output = command.envs(settings.iter().copied()).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{settings:?}: {}", String::from_utf8_lossy(&printed));
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Elements on the device, which is the host here.
struct Array<'a> {
    driver: std::cell::RefCell<&'a mut Cuda>,
}

impl Array<'_> {
    fn of<T: Copy>(&self, elements: &[T]) -> Result<u64, Error> {
        let address = self.driver.borrow_mut().alloc(size_of_val(elements).max(1) as u64, 0)?;
        let to = ptr::with_exposed_provenance_mut::<T>(usize::try_from(address).unwrap());
        // SAFETY: the driver for tests has allocated so many bytes of the host.
        unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), to, elements.len()) };
        Ok(address)
    }

    fn read<T: Copy>(address: u64, len: usize) -> Vec<T> {
        let from = ptr::with_exposed_provenance::<T>(usize::try_from(address).unwrap());
        // SAFETY: as above, and all of it has been written.
        unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
    }
}

fn launch<E: Element + PartialEq + std::fmt::Debug>(
    kernels: &Kernels,
    memory: &Array<'_>,
    activation: Activation,
    x: &[E],
) -> Result<(), relu::Error> {
    let (mut y, mut mask) = (x.to_vec(), vec![0; mask_words(x.len())]);
    cpu::forward(activation, x, &mut y, &mut mask)?;
    let mut dx = x.to_vec();
    cpu::backward(activation, x, &mask, &mut dx)?;

    let (from, to, words) = (memory.of(x)?, memory.of(x)?, memory.of(&vec![u32::MAX; mask.len()])?);
    let (elements, mask_bytes) = (x.len() as u64, 4 * mask.len() as u64);
    let operands = Operands { from, to, mask: words, mask_bytes, elements, format: E::FORMAT };
    // SAFETY: the three arrays live, and the driver for tests has done the launch when it returns.
    unsafe { kernels.forward(ptr::null_mut(), activation, operands)? };
    assert_eq!(Array::read::<E>(to, x.len()), y);
    assert_eq!(Array::read::<u32>(words, mask.len()), mask);
    // SAFETY: as above, in place.
    unsafe { kernels.backward(ptr::null_mut(), activation, Operands { to: from, ..operands })? };
    assert_eq!(Array::read::<E>(from, x.len()), dx);
    for address in [from, to, words] {
        memory.driver.borrow_mut().free(address, 0)?;
    }
    Ok(())
}

fn launch_all() -> Result<(), relu::Error> {
    let kernels = Kernels::load()?;
    let mut driver = Cuda::open(0)?;
    let memory = Array { driver: (&mut driver).into() };
    for n in [0, 1, 31, 4096, 10_000] {
        let x: Vec<f32> = (0..n).map(|i: u16| f32::from(i.wrapping_mul(0x9e37).cast_signed()) / 256.0).collect();
        for activation in [Activation::Relu, Activation::Leaky(0.125)] {
            launch(&kernels, &memory, activation, &x)?;
            launch(&kernels, &memory, activation, &x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>())?;
            launch(&kernels, &memory, activation, &x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

#[test]
fn relu_is_launched_with_grids_and_arguments_that_are_right() {
    if is_child() {
        return launch_all().unwrap();
    }
    again("relu_is_launched_with_grids_and_arguments_that_are_right", &[]);
}

/// A training loop on two devices; whether its memory was planned.
fn train() -> Result<bool, Error> {
    let devices = Devices::new(Cuda::open);
    let mut planned = true;
    for device in [0, 1] {
        let step = || -> Result<(), Error> {
            let mut all = Vec::new();
            let mut got = Ok(());
            for i in 1..=10 {
                match devices.with(device, |d| d.malloc(i * 10_000, 0)) {
                    Ok(address) => all.push(address),
                    Err(error) => got = Err(error),
                }
            }
            for address in all {
                got = got.and(devices.with(device, |d| d.free(address, 0)));
            }
            got
        };
        let mut told = Ok(());
        for _ in 0..12 {
            told = told.and(step());
        }
        told?;
        let before = devices.with(device, Device::statistics)?;
        step()?;
        let done = devices.with(device, Device::statistics)?;
        planned &= done.unplanned == before.unplanned && done.arena > 0 && done.reserved >= done.arena;
        assert!(done.reserved_peak >= done.reserved);
    }
    Ok(planned)
}

#[test]
fn memory_for_pytorch_comes_from_pools_or_without_them() {
    if is_child() {
        assert!(train().unwrap());
        assert_eq!(Cuda::open(2).map(drop), Err(Error::NoDevice { ordinal: 2, count: 2 }));
        assert!(matches!(Cuda::open(-1).map(drop), Err(Error::NoDevice { count: 2, .. })));
        let mut driver = Cuda::open(1).unwrap();
        let bytes = 1 << 40;
        assert_eq!(driver.alloc(bytes, 0), Err(Error::OutOfMemory { memory: Memory::Device, bytes }));
        let info = driver.memory().unwrap();
        assert!(info.free < info.total && info.total == 1 << 28);
        return;
    }
    let name = "memory_for_pytorch_comes_from_pools_or_without_them";
    again(name, &[]);
    again(name, &[("FAKE_WITHOUT_POOLS", "1")]);
}

#[test]
fn a_call_that_fails_is_an_error() {
    if is_child() {
        let launched = launch_all();
        let trained = train();
        if std::env::var_os("FAKE_ERROR").is_some() {
            // Whoever asks is told the same: nothing works any more.
            let lost = |error: &Error| matches!(error, Error::Lost { code: 719, .. });
            assert!(
                launched.is_ok() || matches!(&launched, Err(relu::Error::Driver(error)) if lost(error)),
                "{launched:?}"
            );
            assert!(trained.as_ref().is_err_and(lost), "{trained:?}");
            return;
        }
        let driver = |error: &Error| matches!(error, Error::Driver { code: 1, .. });
        let right = match (&launched, &trained) {
            (Err(relu::Error::Driver(error)), Ok(true)) | (Ok(()), Err(error)) => driver(error),
            // Where a question fails, or an arena is refused, it is done without.
            (Ok(()), Ok(_)) => true,
            _ => false,
        };
        assert!(right, "{launched:?} {trained:?}");
        return;
    }
    // Those of opening, of the first launches, and some of the many after.
    for call in (1..60).chain((60..1500).step_by(37)) {
        again("a_call_that_fails_is_an_error", &[("FAKE_FAIL", &call.to_string())]);
    }
    // Those that are made before the end, after which nobody asks.
    for call in (1..60).chain((60..600).step_by(97)) {
        again("a_call_that_fails_is_an_error", &[("FAKE_FAIL", &call.to_string()), ("FAKE_ERROR", "719")]);
    }
}

#[test]
fn memory_of_a_graph_is_asked_for_as_a_capture_allows() {
    if is_child() {
        let mut device = Device::new(Cuda::open(0).unwrap()).unwrap();
        let weight = device.malloc(1000, 0).unwrap();
        // SAFETY: no other thread of this process uses the environment now.
        unsafe { std::env::set_var("FAKE_CAPTURE", "1") };
        device.begin_pool((1, 1));
        let stream = 0xca;
        let blocks = [device.malloc(5000, stream).unwrap(), device.malloc(6000, 0).unwrap()];
        device.free(weight, 0).unwrap();
        let unplanned = device.statistics().unwrap().unplanned;
        assert_eq!(unplanned, 1, "the weight alone is no graph's");
        device.free(blocks[0], stream).unwrap();
        device.reset().unwrap();
        // SAFETY: as above.
        unsafe { std::env::remove_var("FAKE_CAPTURE") };
        device.end_pool((1, 1)).unwrap();
        device.release_pool((1, 1)).unwrap();
        device.free(blocks[1], 0).unwrap();
        device.reset().unwrap();
        assert_eq!(device.statistics().unwrap().reserved, 0);
        // Another stream's work is waited for in the stream of the block.
        let block = device.malloc(1000, 7).unwrap();
        device.record_stream(block, 8).unwrap();
        device.free(block, 7).unwrap();
        return;
    }
    let name = "memory_of_a_graph_is_asked_for_as_a_capture_allows";
    again(name, &[]);
    again(name, &[("FAKE_WITHOUT_POOLS", "1")]);
}

/// A count that the driver for tests keeps.
fn counted(name: &str) -> u64 {
    // SAFETY: the driver for tests is loaded, and has such functions.
    unsafe { cudarc::driver::sys::culib().get::<unsafe extern "C" fn() -> u64>(name.as_bytes()).unwrap()() }
}

#[test]
fn without_a_pool_or_with_one_that_refuses_memory_is_plain_and_somebody_is_told() {
    const SAID: &str = "FAKE_SAID";
    if is_child() {
        let mut device = Device::new(Cuda::open(0).unwrap()).unwrap();
        let blocks = [1_u64 << 20, 1 << 24, 1 << 20].map(|bytes| device.malloc(bytes, 5).unwrap());
        let note = device.driver().note().unwrap_or_default();
        let said = std::env::var(SAID).unwrap();
        assert!(note.contains(&said) && note.is_empty() == said.is_empty(), "{note}");
        assert_eq!(device.driver().note(), None);
        for address in blocks {
            device.free(address, 5).unwrap();
        }
        device.reset().unwrap();
        assert_eq!(device.statistics().unwrap().reserved, 0);
        // More than the device has is refused by both.
        assert!(matches!(device.malloc(1 << 40, 5), Err(Error::OutOfMemory { .. })));
        assert!(train().unwrap());
        return;
    }
    let name = "without_a_pool_or_with_one_that_refuses_memory_is_plain_and_somebody_is_told";
    for (setting, value, said) in [
        ("FAKE_NOTHING", "", ""),
        ("FAKE_WITHOUT_POOLS", "1", "the device has no memory pools"),
        ("FAKE_POOL", "801", "no memory pool can be made"),
        ("FAKE_POOL_MEMORY", "2000000", "has refused 16777216 bytes"),
    ] {
        again(name, &[(setting, value), (SAID, said)]);
    }
}

#[test]
fn memory_of_a_pool_is_open_to_the_devices_that_can_reach_it() {
    if is_child() {
        let mut driver = Cuda::open(1).unwrap();
        let address = driver.alloc(1000, 0).unwrap();
        let refused = std::env::var_os("FAKE_ACCESS").is_some();
        assert_eq!(counted("fake_open_to_peers"), u64::from(std::env::var_os("FAKE_PEERS").is_some()));
        let note = driver.note();
        assert_eq!(note.is_some_and(|note| note.contains("cuMemPoolSetAccess")), refused);
        driver.free(address, 0).unwrap();
        return;
    }
    let name = "memory_of_a_pool_is_open_to_the_devices_that_can_reach_it";
    again(name, &[]);
    again(name, &[("FAKE_PEERS", "1")]);
    again(name, &[("FAKE_PEERS", "1"), ("FAKE_ACCESS", "801")]);
}

#[test]
fn a_stream_that_is_gone_is_forgotten() {
    if is_child() {
        let gone = 0xdead;
        let mut driver = Cuda::open(0).unwrap();
        let address = driver.alloc(1000, gone).unwrap();
        assert_eq!(driver.is_capturing(gone), Ok(None));
        let mut waited = 0;
        let mut waits = |done: Result<(), Error>| {
            assert_eq!(done, Ok(()));
            waited += 1;
            assert_eq!(counted("fake_waited_for_all"), waited);
        };
        waits(driver.synchronize(gone));
        waits(driver.follow(7, gone));
        waits(driver.follow(gone, 7));
        waits(driver.free(address, gone));
        assert_eq!(driver.follow(7, 8), Ok(()));
        assert_eq!(counted("fake_waited_for_all"), waited);

        let mut device = Device::new(driver).unwrap();
        let block = device.malloc(1000, 7).unwrap();
        device.record_stream(block, gone).unwrap();
        device.reset().unwrap();
        device.free(block, 7).unwrap();
        assert!(matches!(device.malloc(1 << 40, 7), Err(Error::OutOfMemory { .. })));
        device.reset().unwrap();
        assert_eq!(device.statistics().unwrap().reserved, 0);
        return;
    }
    let name = "a_stream_that_is_gone_is_forgotten";
    again(name, &[]);
    again(name, &[("FAKE_WITHOUT_POOLS", "1")]);
}

#[test]
fn a_thread_has_no_handle_of_the_default_stream_of_another() {
    if is_child() {
        let mut device = Device::new(Cuda::open(0).unwrap()).unwrap();
        let own = 2;
        let [first, second] = [1000, 2000].map(|bytes| device.malloc(bytes, own).unwrap());
        let device = &mut device;
        let there = |work: &mut (dyn FnMut() + Send)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        device.free(first, own).unwrap();
        assert_eq!(counted("fake_waited_for_all"), 0);
        there(&mut || device.free(second, own).unwrap());
        assert_eq!(counted("fake_waited_for_all"), 1);
        there(&mut || device.reset().unwrap());
        return;
    }
    let name = "a_thread_has_no_handle_of_the_default_stream_of_another";
    again(name, &[]);
    again(name, &[("FAKE_WITHOUT_POOLS", "1")]);
}
