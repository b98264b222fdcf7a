//! What `next` costs the thread that launches, with a file as with pinned memory.
//!
//!     cargo bench -p sublet-cuda --bench storage
//!
//! A chain of eight layers with blocks of 16 MiB is fitted into half its memory and runs on the host as a device, whose
//! launches are 8 ms apart. The file is past the page cache where the build folder's file system can do that. The times of
//! a call of `next` are those of all iterations, both tiers in turns. The exit status is 1 where the mean with the file is
//! more than twice that with pinned memory.

#[path = "../tests/support/fit.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod fit;
#[path = "../tests/support/networks.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod networks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use networks::chain;
use sublet_core::simulate::Device;
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, Mode, Options};
use sublet_cuda::storage::{Caching, Storage};
use sublet_cuda::{ALIGNMENT, Error, Program, Runtime};

const BYTES: u64 = 16 << 20;
const ROUNDS: usize = 5;
const ITERATIONS: usize = 4;
const BETWEEN: Duration = Duration::from_millis(8);

fn storage() -> Result<(Storage, &'static str), Error> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    match Storage::in_folder(&folder, Caching::Past) {
        Ok(storage) => Ok((storage, "past the page cache")),
        Err(_) => Ok((Storage::in_folder(&folder, Caching::Through)?, "through the page cache")),
    }
}

/// The times of the calls, and that of everything.
fn times(mut runtime: Runtime<HostBackend>) -> Result<(Vec<Duration>, Duration), Error> {
    let blocks: Vec<u32> = runtime.program().persistent_blocks().collect();
    let content = vec![1; usize::try_from(BYTES).unwrap_or(0)];
    for block in blocks {
        runtime.write(block, &content)?;
    }
    let (mut calls, whole) = (Vec::new(), Instant::now());
    for _ in 0..ITERATIONS {
        loop {
            std::thread::sleep(BETWEEN);
            let begin = Instant::now();
            let is_over = runtime.next()?.is_none();
            calls.push(begin.elapsed());
            if is_over {
                break;
            }
        }
    }
    runtime.finish()?;
    Ok((calls, whole.elapsed()))
}

fn main() -> Result<ExitCode, Error> {
    let trace = chain(8, BYTES);
    let limit = trace.peak() / 2;
    let links = Device::symmetric(12e9);
    let made = trace.fit(limit, links, |schedule| Program::new(&trace.recorded(), schedule, ALIGNMENT));
    let program = made.map_err(Error::Plan)??;
    let mut found = [(Vec::new(), Duration::ZERO), (Vec::new(), Duration::ZERO)];
    let mut caching = "";
    for _ in 0..ROUNDS {
        for (with_file, (calls, all)) in found.iter_mut().enumerate() {
            let host = HostBackend::new(Options::new(Mode::Threads { paced: false, delays: None }, 4 << 30));
            let runtime = if with_file == 1 {
                let (storage, how) = storage()?;
                caching = how;
                Runtime::with_storage(host.clone(), program.clone(), host.stream()?, &storage)?
            } else {
                Runtime::new(host, program.clone())?
            };
            let (more, took) = times(runtime)?;
            calls.extend(more);
            *all += took;
        }
    }
    let number = |calls: &[Duration]| u32::try_from(calls.len()).unwrap_or(u32::MAX);
    let mean = found.each_ref().map(|(calls, _)| (calls.iter().sum::<Duration>() / number(calls)).as_secs_f64());
    for ((name, (calls, all)), mean) in ["pinned memory", "a file"].iter().zip(&found).zip(mean) {
        let longest = calls.iter().max().copied().unwrap_or_default();
        println!(
            "{name:14} {} calls of next, {:.1} us each, the longest {longest:.1?}; all done after {:.2?}",
            calls.len(),
            mean * 1e6,
            *all / u32::try_from(ROUNDS).unwrap_or(1)
        );
    }
    let ratio = mean[1] / mean[0];
    println!("a file {caching}: {ratio:.2} times the time of pinned memory");
    Ok(if ratio <= 2.0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
