//! The CUDA backend on a driver for tests, which is the host; on a machine without one; and on a GPU if there is one.
//!
//! Which driver is there is decided when a process begins: each test runs itself again with another one.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::by_host;
use support::fit::Trace;
use support::networks::{chain, chain_of};
use support::pattern::Reference;

use sublet_core::simulate::Device;
use sublet_cuda::backend::{Backend, Traffic};
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::{Error, Memory, Program, Runtime};

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

/// What was left when a process ended: calls of the driver, what is in use, and bytes of the device.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    calls: u64,
    in_use: u64,
    bytes: u64,
}

/// Runs a test of this file again on the driver in this folder.
fn again(test: &str, folder: &Path, settings: &[(&str, String)]) -> Left {
    let count = folder.join(format!("count.{test}.{:?}", std::thread::current().id()));
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
    let count = std::fs::read_to_string(count).unwrap();
    let numbers: Vec<u64> = count.split_whitespace().map(|n| n.parse().unwrap()).collect();
    Left { calls: numbers[0], in_use: numbers[1], bytes: numbers[2] }
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn program(trace: &Trace) -> Program {
    let limit = trace.peak() / 2;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

fn train() -> Result<(), Error> {
    let trace = chain(6, 4096);
    let mut runtime = Runtime::new(CudaBackend::new(0)?, program(&trace))?;
    let faults = by_host::run(&mut runtime, &trace, 3)?;
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
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
    }
}

#[test]
fn a_larger_program_takes_over() {
    if is_child() {
        let grows = std::env::var_os("SUBLET_TEST_GROWS").is_some();
        let (small, large) = (chain(6, 1 << 16), chain_of(6, 1 << 16, 1 << 20));
        let mut runtime = Runtime::new(CudaBackend::new(0).unwrap(), program(&small)).unwrap();
        let (address, bytes) = runtime.arena();
        let mut reference = Reference::new(&small);
        reference.write(&mut runtime).unwrap();
        assert_eq!(by_host::go_on(&mut runtime, &mut reference, 0..2), Ok(vec![]));
        runtime.replan(program(&large), Some).unwrap();
        assert!(runtime.arena().1 > bytes);
        assert_eq!(runtime.arena().0 == address, grows);
        let weights = (0..6).map(|block| (block, block)).collect();
        let mut reference = reference.turned_into(&large, &weights);
        assert_eq!(by_host::go_on(&mut runtime, &mut reference, 2..5), Ok(vec![]));
        return;
    }
    for (definitions, grows) in [(&[][..], true), (&["-DWITHOUT_VIRTUAL_MEMORY"], false)] {
        let Some(folder) = driver(definitions) else { return };
        let settings = [("SUBLET_TEST_GROWS", String::new())];
        let left = again("a_larger_program_takes_over", &folder, if grows { &settings } else { &[] });
        assert_eq!((left.in_use, left.bytes), (0, 0), "{definitions:?}");
    }
}

#[test]
fn a_call_that_fails_is_an_error_and_nothing_is_left() {
    const CALL: &str = "FAKE_FAIL";
    const ERROR: &str = "FAKE_ERROR";
    if is_child() {
        let expected: u32 = std::env::var(ERROR).unwrap().parse().unwrap();
        let call: u32 = std::env::var(CALL).unwrap().parse().unwrap();
        let Err(error) = train() else {
            // The questions whether memory can be put behind addresses: if not, it is allocated whole.
            assert!(matches!(call, 6 | 7) && expected < 700, "nobody noticed that call {call} failed");
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
        let mut arena = cuda.reserve(1 << 16, 1 << 40).unwrap();
        let (address, pinned) = (cuda.address(&arena), cuda.pin(8, Traffic::BothWays).unwrap());
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
fn without_a_driver_there_is_an_error_and_with_a_gpu_a_program_runs() {
    match CudaBackend::new(0) {
        // SAFETY: it opens the library and closes it.
        Err(Error::NoDriver) => assert!(unsafe { !cudarc::driver::sys::is_culib_present() }),
        Err(error) => println!("Skipped: a program on a GPU ({error})"),
        Ok(_) => train().unwrap(),
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
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver-with-kernels");
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
}
