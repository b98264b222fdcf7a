//! The tier of storage, with real files.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::by_host;
use crate::support::fit::Trace;
use crate::support::networks::chain;
use crate::support::pattern;

use sublet_core::simulate::Device;
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::storage::{Caching, Disk, Storage};
use sublet_cuda::{Error, Program, Runtime, StorageOperation, integrated};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A file past the page cache; none, and a word about it, where the build folder's file system has none.
fn past_the_cache(test: &str) -> Option<Storage> {
    match Storage::in_folder(&folder(), Caching::Past) {
        Ok(storage) => Some(storage),
        Err(error) => {
            println!("Skipped: {test} ({error})");
            None
        }
    }
}

fn program(trace: &Trace) -> Program {
    let limit = trace.peak() / 2;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

/// A device that shares its memory with the host, which has none for copies of blocks.
fn jetson(mode: Mode) -> HostBackend {
    let device = Device { integrated: true, host_capacity: Some(0), ..Device::symmetric(12e9) };
    HostBackend::new(Options { device, races: true, ..Options::new(mode, 1 << 25) })
}

#[test]
fn blocks_go_to_a_file_and_come_back() {
    // Blocks that are no whole pages, and blocks that go in several parts.
    for (layers, bytes) in [(6, 5000), (4, (4 << 20) + 40)] {
        let trace = chain(layers, bytes);
        for mode in [Mode::Ordered(Order::Random(5)), Mode::Threads { paced: false, delays: None }] {
            let Some(past) = past_the_cache("swapping past the page cache") else { return };
            let through = Storage::in_folder(&folder(), Caching::Through).unwrap();
            for storage in [past, through] {
                let host = jetson(mode);
                let mut runtime =
                    Runtime::with_storage(host.clone(), program(&trace), host.stream().unwrap(), &storage).unwrap();
                assert_eq!(pattern::run(&mut runtime, &trace, 3), Ok(vec![]), "{bytes}, {mode:?}");
                assert_eq!(host.races(), []);
                // The copies take no memory but the buffers on the way, and those for the caller.
                assert!(host.in_use().pinned <= 4 * (4 << 20));
                drop(runtime);
                assert_eq!(host.in_use(), InUse::default());
            }
        }
    }
}

#[test]
fn storage_needs_nothing_of_a_backend_but_its_functions() {
    let trace = chain(6, 5000);
    let storage = Storage::in_folder(&folder(), Caching::Through).unwrap();
    let delays = Some((3, Duration::from_micros(20)));
    let host = jetson(Mode::Threads { paced: false, delays });
    let mut runtime = Runtime::with_storage(host.clone(), program(&trace), host.stream().unwrap(), &storage).unwrap();
    assert_eq!(by_host::run(&mut runtime, &trace, 4), Ok(vec![]));
}

#[test]
fn a_file_that_cannot_be_is_an_error() {
    let nowhere = Storage::in_folder(Path::new("/no/such/folder"), Caching::Past).unwrap_err();
    assert_eq!(nowhere, Error::Storage { operation: StorageOperation::Open, code: 2 });
    let refused = Error::Storage { operation: StorageOperation::OpenDirect, code: 22 }.to_string();
    assert!(refused.contains("O_DIRECT") && refused.contains("tmpfs"), "{refused}");
    // Memory as a file system: opened past the cache by newer kernels, and refused by older ones.
    match Storage::in_folder(Path::new("/dev/shm"), Caching::Past) {
        Ok(_) => {}
        Err(Error::Storage { operation, code }) => {
            assert_eq!((operation, code), (StorageOperation::OpenDirect, 22));
        }
        Err(other) => panic!("{other}"),
    }
    let own = folder().join(format!("storage.{}", std::process::id()));
    std::fs::create_dir(&own).unwrap();
    let storage = Storage::in_folder(&own, Caching::Through).unwrap();
    // The file has no name, and so the folder is empty while it is in use.
    std::fs::remove_dir(&own).unwrap();
    drop(storage);
}

/// A file that is read beyond its end, and one that cannot be written.
#[test]
fn a_file_tells_what_the_operating_system_refuses() {
    let file = File::open("/dev/null").unwrap();
    assert_eq!(Disk::read(&file, 0, &mut [0; 4096]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    // 9 is EBADF: it is open for reading alone.
    assert_eq!(Disk::write(&file, 0, &[0; 4096]).unwrap_err().raw_os_error(), Some(9));
}

#[test]
fn a_disk_that_is_too_small_is_told_before_anything_runs() {
    let trace = chain(6, 1 << 50);
    let host = jetson(Mode::Ordered(Order::Time));
    let storage = Storage::in_folder(&folder(), Caching::Through).unwrap();
    let made = Runtime::with_storage(host.clone(), program(&trace), host.stream().unwrap(), &storage).map(drop);
    assert!(matches!(made, Err(Error::Storage { operation: StorageOperation::Extend, .. })), "{made:?}");
    assert_eq!(host.in_use(), InUse::default());
}

#[test]
fn an_integrated_device_has_what_the_operating_system_has() {
    let host = jetson(Mode::Ordered(Order::Time));
    let budget = integrated::budget(&host).unwrap();
    assert!(budget > 1 << 20 && budget != 1 << 30);
    let other = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 1 << 30));
    assert_eq!(integrated::budget(&other), Ok(1 << 30));
}
