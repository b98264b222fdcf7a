//! The CUDA backend on a driver for tests, which is the host; on a machine without one; and on a GPU if there is one.
//!
//! Which driver is there is decided when a process begins: each test runs itself again with another one.

mod support;

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::by_host;
use support::networks::chain;
use support::on_gpu::{self, program, train};

use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::{Error, Memory, Runtime};

/// Says that a process is the one with the driver.
const CHILD: &str = "SUBLET_TEST_DRIVER";

/// A driver for tests, compiled with these definitions; none where there is no C compiler.
fn driver(definitions: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver{}", definitions.concat()));
    let building = folder.join(format!("building.{}.{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver/libcuda.c");
    let built = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&building)
        .args(definitions)
        .arg(source)
        .status();
    let Ok(status) = built else {
        println!("Skipped: the CUDA backend on a driver for tests (there is no cc)");
        return None;
    };
    assert!(status.success());
    std::fs::rename(&building, folder.join("libcuda.so")).unwrap();
    Some(folder)
}

/// What was left when a process ended: calls of the driver, what is in use, bytes of the device, and how many events were
/// made with times.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    calls: u64,
    in_use: u64,
    bytes: u64,
    timed: u64,
}

/// Runs a test of this file again on the driver in this folder.
fn again(test: &str, folder: &Path, settings: &[(&str, String)]) -> Left {
    let count = folder.join(format!("count.{test}.{}.{:?}", std::process::id(), std::thread::current().id()));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .env(CHILD, "1")
        .env("FAKE_COUNT", &count)
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{settings:?}: {}", String::from_utf8_lossy(&said));
    let counted = std::fs::read_to_string(&count).unwrap();
    std::fs::remove_file(count).unwrap();
    let numbers: Vec<u64> = counted.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [calls, in_use, bytes, contexts, timed] = numbers[..] else { panic!("{counted}") };
    assert_eq!(contexts, 0, "a context that was pushed is popped");
    Left { calls, in_use, bytes, timed }
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn a_program_runs_on_a_driver() {
    if is_child() {
        return train().unwrap();
    }
    for definitions in [&[][..], &["-DWITHOUT_VIRTUAL_MEMORY"]] {
        let Some(folder) = driver(definitions) else { return };
        let left = again("a_program_runs_on_a_driver", &folder, &[]);
        assert_eq!((left.in_use, left.bytes), (0, 0), "{definitions:?}");
        assert!(left.calls > 100);
        assert_eq!(left.timed, 0, "nobody has asked for times");
    }
}

#[test]
fn a_larger_program_takes_over_under_work() {
    if is_child() {
        let grows = std::env::var_os("SUBLET_TEST_GROWS").is_some();
        assert_eq!(on_gpu::grow_under_work(), Ok(grows));
        return;
    }
    for (definitions, grows) in [(&[][..], true), (&["-DWITHOUT_VIRTUAL_MEMORY"], false)] {
        let Some(folder) = driver(definitions) else { return };
        let settings = [("SUBLET_TEST_GROWS", String::new())];
        let left = again("a_larger_program_takes_over_under_work", &folder, if grows { &settings } else { &[] });
        assert_eq!((left.in_use, left.bytes), (0, 0), "{definitions:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn copies_go_to_a_file_on_a_driver() {
    if is_child() {
        return on_gpu::swap_to_a_file(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    }
    let Some(folder) = driver(&[]) else { return };
    let left = again("copies_go_to_a_file_on_a_driver", &folder, &[]);
    assert_eq!((left.in_use, left.bytes), (0, 0));
}

#[test]
fn memory_for_pytorch_is_planned_on_a_driver() {
    if is_child() {
        return on_gpu::plan_for_pytorch().unwrap();
    }
    let Some(folder) = driver(&[]) else { return };
    again("memory_for_pytorch_is_planned_on_a_driver", &folder, &[]);
}

#[test]
fn a_call_that_fails_is_an_error_and_nothing_is_left() {
    const CALL: &str = "FAKE_FAIL";
    const ERROR: &str = "FAKE_ERROR";
    if is_child() {
        let expected: u32 = std::env::var(ERROR).unwrap().parse().unwrap();
        let call: u32 = std::env::var(CALL).unwrap().parse().unwrap();
        let Err(error) = train() else {
            // The questions whether memory can be put behind addresses, and be open to other devices: if not, it is not.
            let is_done_without = matches!(call, 6..=8) && expected < 700;
            // SAFETY: the driver for tests has this function, which returns text that stays.
            let failed = unsafe {
                let of = cudarc::driver::sys::culib().get::<unsafe extern "C" fn() -> *const c_char>(b"fake_failed");
                CStr::from_ptr(of.unwrap()())
            };
            // So many addresses are not granted: fewer are.
            let takes_fewer = failed == c"cuMemAddressReserve" && expected == 2;
            assert!(is_done_without || takes_fewer, "nobody noticed that {failed:?}, call {call}, failed");
            return;
        };
        let right = match &error {
            Error::OutOfMemory { .. } => expected == 2,
            Error::Driver { code, .. } => expected == *code && *code < 700,
            Error::Lost { code, .. } => expected == *code && *code >= 700,
            _ => false,
        };
        assert!(right, "{expected}: {error}");
        return;
    }
    let Some(folder) = driver(&[]) else { return };
    let name = "a_call_that_fails_is_an_error_and_nothing_is_left";
    // Every call up to the first launches, and some of those after them.
    for call in (1..70).chain((70..600).step_by(59)) {
        for error in [2, 400, 719] {
            let left = again(name, &folder, &[(CALL, call.to_string()), (ERROR, error.to_string())]);
            assert_eq!((left.in_use, left.bytes), (0, 0), "call {call}, error {error}");
        }
    }
}

#[test]
fn an_arena_grows_where_it_is_and_memory_runs_out() {
    if is_child() {
        let cuda = CudaBackend::new(0).unwrap();
        let total = cuda.memory().unwrap().total;
        let out = |bytes| Error::OutOfMemory { memory: Memory::Device, bytes };
        if !cuda.attributes().grows_in_place {
            let mut arena = cuda.reserve(1000, 1 << 20).unwrap();
            assert_eq!(cuda.grow(&mut arena, 1001), Err(Error::CannotGrow { bytes: 1001, room: 1000 }));
            assert_eq!(cuda.reserve(total, total).map(drop), Err(out(total)));
            return;
        }
        // The driver takes whole pieces of addresses only.
        let odd = cuda.reserve(1000, (1 << 20) + 5).unwrap();
        assert_eq!(cuda.size(&odd), 1 << 16);
        drop(odd);
        let mut arena = cuda.reserve(1 << 16, 1 << 40).unwrap();
        let (address, pinned) = (cuda.address(&arena), cuda.pin(8).unwrap());
        let (stream, event) = (cuda.stream().unwrap(), cuda.event(true).unwrap());
        // SAFETY: nothing is under way.
        unsafe { cuda.pinned(&pinned).slice(0, 8) }.unwrap().copy_from_slice(b"contents");
        cuda.copy_in(&stream, (&pinned, 0), address + 100, 8).unwrap();
        cuda.grow(&mut arena, 3 << 16).unwrap();
        cuda.copy_within(&stream, address + 100, address + (2 << 16), 8).unwrap();
        cuda.copy_out(&stream, address + (2 << 16), (&pinned, 0), 8).unwrap();
        cuda.record(&event, &stream).unwrap();
        cuda.synchronize(&event).unwrap();
        // SAFETY: the copy is done.
        assert_eq!(unsafe { cuda.pinned(&pinned).slice(0, 8) }.unwrap(), b"contents");
        assert_eq!((cuda.address(&arena), cuda.size(&arena)), (address, 3 << 16));
        assert_eq!(cuda.grow(&mut arena, 2 << 40), Err(Error::CannotGrow { bytes: 2 << 40, room: 1 << 40 }));
        let more = total + (1 << 16) - (3 << 16);
        assert_eq!(cuda.grow(&mut arena, total + (1 << 16)), Err(out(more)));
        assert_eq!(cuda.memory().unwrap().free, total - (3 << 16));
        let outside = Err(Error::OutOfRange { address: 4, bytes: 5 });
        assert_eq!(cuda.copy_out(&stream, address, (&pinned, 4), 5), outside);
        assert_eq!(cuda.elapsed_ns(&event, &cuda.event(false).unwrap()), Err(Error::NotTimed));
        assert_eq!(cuda.elapsed_ns(&event, &event), Ok(500_000.0));
        return;
    }
    for definitions in [&[][..], &["-DWITHOUT_VIRTUAL_MEMORY"]] {
        let Some(folder) = driver(definitions) else { return };
        let left = again("an_arena_grows_where_it_is_and_memory_runs_out", &folder, &[]);
        assert_eq!((left.in_use, left.bytes), (0, 0), "{definitions:?}");
    }
}

/// As on boards whose driver reserves fewer addresses than there is memory.
#[test]
fn an_arena_reserves_what_is_granted_down_to_what_it_needs() {
    const ROOM: &str = "FAKE_ROOM";
    if is_child() {
        let granted: u64 = std::env::var(ROOM).unwrap().parse().unwrap();
        let cuda = CudaBackend::new(0).unwrap();
        let needed = program(&chain(6, 4096)).arena_bytes().next_multiple_of(1 << 16);
        if granted < needed {
            let bytes = needed;
            assert_eq!(train(), Err(Error::OutOfMemory { memory: Memory::Addresses, bytes }));
            return;
        }
        train().unwrap();
        let total = cuda.memory().unwrap().total;
        let mut arena = cuda.reserve(1 << 16, total).unwrap();
        // At least half of what is granted.
        assert_eq!(cuda.grow(&mut arena, granted.min(total) / 2), Ok(()));
        let beyond = cuda.grow(&mut arena, granted + (1 << 16));
        assert!(matches!(beyond, Err(Error::CannotGrow { room, .. }) if room <= granted), "{beyond:?}");
        return;
    }
    let Some(folder) = driver(&[]) else { return };
    for granted in [1_u64 << 29, 5 << 26, 3 << 20, 1 << 17, 0] {
        let settings = [("FAKE_MEMORY", (1_u64 << 30).to_string()), (ROOM, granted.to_string())];
        let left = again("an_arena_reserves_what_is_granted_down_to_what_it_needs", &folder, &settings);
        assert_eq!((left.in_use, left.bytes), (0, 0), "{granted}");
    }
}

#[test]
fn a_driver_that_lacks_a_function_is_an_error() {
    if is_child() {
        let error = CudaBackend::new(0).err().unwrap();
        assert_eq!(error, Error::MissingSymbol { name: "cuEventRecord" });
        assert_eq!(error.to_string(), "the CUDA driver lacks cuEventRecord: it is too old");
        return;
    }
    if let Some(folder) = driver(&["-DWITHOUT_EVENTS"]) {
        again("a_driver_that_lacks_a_function_is_an_error", &folder, &[]);
    }
}

#[test]
fn there_is_no_second_gpu_and_an_integrated_one_takes_no_copies() {
    if is_child() {
        let error = CudaBackend::new(7).map(drop).err();
        assert_eq!(error, Some(Error::NoDevice { ordinal: 7, count: 1 }));
        let cuda = CudaBackend::new(0).unwrap();
        assert!(cuda.attributes().integrated);
        // What the operating system has, not what the driver says.
        assert!(cuda.memory().unwrap().free > cuda.memory().unwrap().total);
        let program = program(&chain(6, 4096));
        let bytes = program.host_bytes();
        assert_eq!(Runtime::new(cuda, program).map(drop).err(), Some(Error::HostIsDevice { bytes }));
        return;
    }
    let Some(folder) = driver(&[]) else { return };
    let settings = [("FAKE_INTEGRATED", "1".to_owned()), ("FAKE_MEMORY", "65536".to_owned())];
    let left = again("there_is_no_second_gpu_and_an_integrated_one_takes_no_copies", &folder, &settings);
    assert_eq!((left.in_use, left.bytes), (0, 0));
}

#[test]
fn without_a_driver_there_is_an_error() {
    match CudaBackend::new(0) {
        // SAFETY: it opens the library and closes it.
        Err(Error::NoDriver) => assert!(unsafe { !cudarc::driver::sys::is_culib_present() }),
        Err(error) => println!("Skipped: what is told without a driver ({error})"),
        Ok(_) => println!("Skipped: what is told without a driver (there is one)"),
    }
}

/// The examples that measure a GPU, on the driver for tests: their times mean nothing there, but their bits do.
#[test]
fn the_examples_compute_what_they_should() {
    let example = |name: &str| std::env::current_exe().unwrap().with_file_name("../examples").join(name);
    let built = |name: &str, folder: &Path| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver").join(name);
        let (compiler, standard) = if name.ends_with("cpp") { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
        let object = folder.join(name).with_extension("o");
        let mut command = Command::new(compiler);
        command.args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fPIC", "-c", "-o"]);
        command.arg(&object).arg(source).status().is_ok_and(|status| status.success()).then_some(object)
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-with-kernels.{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    if driver(&[]).is_none() || Command::new("c++").arg("--version").output().is_err() || !example("migration").exists()
    {
        println!("Skipped: the examples on a driver for tests (there is no c++, or it is not built)");
        return;
    }
    let objects = ["libcuda.c", "kernels.cpp"].map(|name| built(name, &folder).unwrap());
    let mut link = Command::new("c++");
    assert!(link.args(["-shared", "-o"]).arg(folder.join("libcuda.so")).args(objects).status().unwrap().success());
    let runs = |name: &str, arguments: &[&str]| {
        let output = Command::new(example(name)).args(arguments).env("LD_LIBRARY_PATH", &folder).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let said = runs("migration", &["12", "8"]);
    assert_eq!(said.matches("bits equal").count(), 6, "{said}");
    let said = runs("relu_bandwidth", &["8192"]);
    assert_eq!(said.matches("GPU, ").count(), 6, "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_machine_without_a_gpu_is_asked_again() {
    if is_child() {
        let none = Some(Error::NoDevice { ordinal: 0, count: 0 });
        assert_eq!(CudaBackend::new(0).map(drop).err(), none);
        return train().unwrap();
    }
    let Some(folder) = driver(&[]) else { return };
    // cuInit is the first call, and says 100 once.
    let settings = [("FAKE_FAIL", "1".to_owned()), ("FAKE_ERROR", "100".to_owned())];
    again("a_machine_without_a_gpu_is_asked_again", &folder, &settings);
}

#[test]
fn a_program_computes_on_the_default_stream() {
    if is_child() {
        let trace = chain(6, 4096);
        for handle in [0, 1] {
            let cuda = CudaBackend::new(0).unwrap();
            // SAFETY: the default stream is always there.
            let stream = unsafe { cuda.borrow_stream(std::ptr::without_provenance_mut(handle)) };
            let mut runtime = Runtime::on_stream(cuda, program(&trace), stream).unwrap();
            assert_eq!(by_host::run(&mut runtime, &trace, 3), Ok(vec![]), "{handle}");
        }
        return;
    }
    let Some(folder) = driver(&[]) else { return };
    let left = again("a_program_computes_on_the_default_stream", &folder, &[]);
    assert_eq!((left.in_use, left.bytes), (0, 0));
}

#[test]
fn arenas_are_open_to_other_devices_where_the_gpu_can_do_that() {
    if is_child() {
        return train().unwrap();
    }
    // The driver for tests takes memory with this property, or without it, and nothing else.
    let Some(folder) = driver(&[]) else { return };
    for rdma in ["0", "1"] {
        let name = "arenas_are_open_to_other_devices_where_the_gpu_can_do_that";
        again(name, &folder, &[("FAKE_RDMA", rdma.to_owned())]);
    }
}

/// What the host was to do on a device that never comes to it is dropped with the backend.
#[test]
fn calls_that_are_never_made_are_forgotten() {
    if is_child() {
        let cuda = CudaBackend::new(0).unwrap();
        let stream = cuda.stream().unwrap();
        let held = std::sync::Arc::new(());
        let call = held.clone();
        cuda.call(&stream, Box::new(move || drop(call))).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        drop((stream, cuda));
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
        return;
    }
    let Some(folder) = driver(&[]) else { return };
    again("calls_that_are_never_made_are_forgotten", &folder, &[]);
}
