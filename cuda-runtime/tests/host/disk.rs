//! The tier of storage on disks that fail, that wait, and that are looked at.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::fit::Trace;
use crate::support::networks::chain;
use crate::support::pattern::{self, Reference};
use crate::support::swapped;

use sublet_core::simulate::Device;
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::storage::{Disk, Storage};
use sublet_cuda::{Error, Program, Runtime, StorageOperation};

const THREADS: Mode = Mode::Threads { paced: false, delays: None };
/// After so long a test that waits has failed.
const TOO_LONG: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// What has begun, in order: the access, where, and whether it is done.
type Log = Vec<(Access, u64, bool)>;

/// When an access goes on, or that it fails, by the access, where it is, and the log; none to ask again.
type Admits = dyn Fn(Access, u64, &Log) -> Option<io::Result<()>> + Send + Sync;

/// Memory that is a disk.
struct Watched {
    bytes: Mutex<Vec<u8>>,
    log: Arc<(Mutex<Log>, Condvar)>,
    admits: Box<Admits>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl Watched {
    fn new(admits: impl Fn(Access, u64, &Log) -> Option<io::Result<()>> + Send + Sync + 'static) -> Self {
        Self { bytes: Mutex::default(), log: Arc::default(), admits: Box::new(admits) }
    }

    fn access(&self, access: Access, at: u64, transfer: impl FnOnce()) -> io::Result<()> {
        let (log, changed) = &*self.log;
        let mut log = log.lock().unwrap();
        let number = log.len();
        log.push((access, at, false));
        changed.notify_all();
        loop {
            if let Some(outcome) = (self.admits)(access, at, &log) {
                outcome?;
                break;
            }
            let (next, waited) = changed.wait_timeout(log, TOO_LONG).unwrap();
            log = next;
            if waited.timed_out() {
                return Err(io::Error::from_raw_os_error(110));
            }
        }
        drop(log);
        transfer();
        self.log.0.lock().unwrap()[number].2 = true;
        self.log.1.notify_all();
        Ok(())
    }
}

impl Disk for Watched {
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut held = self.bytes.lock().unwrap();
        let bytes = usize::try_from(bytes.next_multiple_of(4096)).unwrap().max(held.len());
        held.resize(bytes, 0);
        Ok(())
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let begin = usize::try_from(at).unwrap();
        let len = bytes.len();
        self.access(Access::Read, at, || bytes.copy_from_slice(&self.bytes.lock().unwrap()[begin..begin + len]))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let begin = usize::try_from(at).unwrap();
        self.access(Access::Write, at, || self.bytes.lock().unwrap()[begin..begin + bytes.len()].copy_from_slice(bytes))
    }
}

fn program(trace: &Trace) -> Program {
    let limit = trace.peak() / 2;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

/// Whether an access is one of an iteration, and not of a caller who writes a block.
fn is_of_an_iteration() -> bool {
    std::thread::current().name() == Some("sublet disk")
}

fn host(mode: Mode) -> HostBackend {
    HostBackend::new(Options { races: true, ..Options::new(mode, 1 << 24) })
}

fn runtime(host: &HostBackend, program: Program, disk: Watched) -> Result<Runtime<HostBackend>, Error> {
    Runtime::with_storage(host.clone(), program, host.stream()?, &Storage::on(disk))
}

#[test]
fn reads_and_writes_that_fail_end_the_iteration_and_a_restart_goes_on() {
    let trace = chain(6, 5000);
    for mode in [Mode::Ordered(Order::Random(5)), Mode::Ordered(Order::Last(0)), THREADS] {
        for (failing, operation) in [(Access::Read, StorageOperation::Read), (Access::Write, StorageOperation::Write)] {
            for after in [0, 1, 7] {
                let fails = Arc::new(Mutex::new(false));
                let switch = fails.clone();
                let disk = Watched::new(move |access, _, log| {
                    let before = log.iter().filter(|(of, ..)| *of == failing).count();
                    let fails = access == failing && is_of_an_iteration() && *switch.lock().unwrap() && before > after;
                    Some(if fails { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) })
                });
                let host = host(mode);
                let mut runtime = runtime(&host, program(&trace), disk).unwrap();
                *fails.lock().unwrap() = true;
                let error = Error::Storage { operation, code: 5 };
                assert_eq!(pattern::run(&mut runtime, &trace, 4), Err(error.clone()), "{mode:?} {after}");
                *fails.lock().unwrap() = false;
                // The fault stays until somebody begins anew.
                assert_eq!(runtime.finish(), Err(error));
                runtime.restart().unwrap();
                assert_eq!(pattern::run(&mut runtime, &trace, 3), Ok(vec![]), "{mode:?} {after}");
                drop(runtime);
                assert_eq!((host.in_use(), host.races()), (InUse::default(), vec![]));
            }
        }
    }
}

#[test]
fn a_disk_that_panics_is_a_disk_that_fails() {
    let trace = chain(6, 5000);
    let host = host(THREADS);
    let disk = Watched::new(|_, _, _| if is_of_an_iteration() { panic!("for the test") } else { Some(Ok(())) });
    let mut runtime = runtime(&host, program(&trace), disk).unwrap();
    let outcome = pattern::run(&mut runtime, &trace, 2);
    assert!(matches!(outcome, Err(Error::Storage { code: 0, .. })), "{outcome:?}");
}

/// The thread that launches waits for no disk: iterations are given whole while the disk does nothing at all.
#[test]
fn a_disk_that_stands_still_does_not_stop_the_thread_that_launches() {
    let trace = chain(6, 5000);
    let (done, is_done) = mpsc::channel();
    let open = Arc::new((Mutex::new(true), Condvar::new()));
    let gate = open.clone();
    let runs = std::thread::spawn(move || {
        let waits = gate.clone();
        let disk = Watched::new(move |_, _, _| {
            let (open, changed) = &*waits;
            let _open = changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap();
            Some(Ok(()))
        });
        let host = host(THREADS);
        let mut runtime = runtime(&host, program(&trace), disk).unwrap();
        let mut reference = Reference::new(&trace);
        reference.write(&mut runtime).unwrap();
        let mut launches = reference.launches();
        *gate.0.lock().unwrap() = false;
        for iteration in 0..3 {
            launches.iteration = iteration;
            launches.seen = reference.iterate(iteration);
            runtime.iterate(|next| pattern::launch(&host, next, &launches, 0.0)).unwrap();
        }
        done.send(()).unwrap();
        runtime.finish().unwrap();
        assert_eq!(reference.compare(&mut runtime), Ok(vec![]));
        let faults = launches.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:?}");
    });
    let given = is_done.recv_timeout(TOO_LONG);
    *open.0.lock().unwrap() = true;
    open.1.notify_all();
    runs.join().unwrap();
    assert_eq!(given, Ok(()), "the thread that launches has waited for the disk");
}

/// Two blocks go out, then come in. The second one's write ends when a read has begun: both are under way at once, and the
/// block that is read first has been written.
#[test]
fn reads_and_writes_are_under_way_at_once() {
    let bytes = 8192;
    let (trace, program) = swapped::program(&[bytes, bytes], &[0, bytes], &[0, bytes], 2 * bytes);
    let disk = Watched::new(|access, _, log| {
        let writes = log.iter().filter(|(of, ..)| *of == Access::Write).count();
        let has_read = log.iter().any(|(of, ..)| *of == Access::Read);
        (access == Access::Read || writes < 2 || has_read).then_some(Ok(()))
    });
    assert_eq!(pattern::run(&mut runtime(&host(THREADS), program, disk).unwrap(), &trace, 3), Ok(vec![]));
}

/// A block of three parts: the first part's write, and read, ends when that of the second has begun.
#[test]
fn two_parts_of_a_block_are_under_way_at_once() {
    let bytes = 3 * (2 << 20);
    for waits in [Access::Write, Access::Read] {
        let (trace, program) = swapped::program(&[bytes], &[0], &[0], bytes);
        let disk = Watched::new(move |access, _, log| {
            let begun = log.iter().filter(|(of, ..)| *of == waits).count();
            (access != waits || begun > 1).then_some(Ok(()))
        });
        let outcome = pattern::run(&mut runtime(&host(THREADS), program, disk).unwrap(), &trace, 2);
        assert_eq!(outcome, Ok(vec![]), "{waits:?}");
    }
}

/// A block that comes in while its own write is slow is read after that.
#[test]
fn what_is_read_has_been_written() {
    let bytes = 10_000;
    let (trace, program) = swapped::program(&[bytes], &[0], &[0], bytes.next_multiple_of(256));
    let disk = Watched::new(|access, at, log| {
        if access == Access::Write {
            std::thread::sleep(Duration::from_millis(20));
        }
        let unwritten = log.iter().any(|(of, begin, done)| *of == Access::Write && *begin == at && !done);
        let fails = access == Access::Read && unwritten;
        Some(if fails { Err(io::Error::from_raw_os_error(6)) } else { Ok(()) })
    });
    assert_eq!(pattern::run(&mut runtime(&host(THREADS), program, disk).unwrap(), &trace, 3), Ok(vec![]));
}
