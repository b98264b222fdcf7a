//! A network into less memory.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sublet_core::owned;
use sublet_core::rewrite::fit::{Means, Options, Progress, Tried, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Recorded};

use crate::place::deadline;
use crate::problem::Problem;
use crate::refused;

/// A verified schedule, a row at a time, and what is known of it.
#[pyclass(frozen, get_all, module = "sublet._sublet")]
pub struct Fitted {
    /// What happens: 0 malloc, 1 free, 2 read, 3 write, 4 swap out, 5 swap in.
    event: Py<PyArray1<u8>>,
    /// The block of each row; masks have numbers from the count of blocks on.
    block: Py<PyArray1<u32>>,
    /// Size of the block in bytes; only of a malloc.
    bytes: Py<PyArray1<u64>>,
    /// The operator of each row, -1 for none.
    op: Py<PyArray1<i64>>,
    /// Whether the operator of the row runs again.
    again: Py<PyArray1<bool>>,
    /// When each row is done, in ns.
    end_ns: Py<PyArray1<f64>>,
    /// Where each residency lies, in bytes, in the order of the mallocs.
    offsets: Py<PyArray1<u64>>,
    /// The highest end of a residency, in bytes.
    footprint: u64,
    /// The most bytes on the device at once.
    peak_load: u64,
    /// The same of the original.
    original_peak: u64,
    /// What the run takes longer than the original, as simulated, as a fraction of it.
    overhead: f64,
    /// Bytes that are copied, both ways together.
    swapped_bytes: u64,
    /// How long the operators that run again take, in ns.
    recomputed_ns: u64,
}

/// What a fit tells while it works.
#[derive(Default)]
struct Told {
    /// How many schedules were tried.
    tried: AtomicUsize,
    /// The least overhead of those within the limit, in ns; none where nothing is within it.
    best: Mutex<Option<f64>>,
    /// Whether nobody waits any more.
    ends: AtomicBool,
}

/// What is asked for beside the limit: until when, and who is told of seconds, schedules tried and the least overhead.
struct Asked {
    options: Options,
    until: Option<Instant>,
    progress: Option<Py<PyAny>>,
}

impl Told {
    /// Takes note of a schedule.
    fn note(&self, tried: &Tried, limit: u64) {
        self.tried.fetch_add(1, Ordering::Relaxed);
        if tried.footprint <= limit {
            let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
            *best = Some(best.map_or(tried.overhead_ns, |best| best.min(tried.overhead_ns)));
        }
    }

    /// Tells Python, which may raise.
    fn pass_on(&self, py: Python<'_>, progress: &Py<PyAny>, begin: Instant, time_ns: u64) -> PyResult<()> {
        let best = *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let overhead = best.map(|ns| ns / (time_ns as f64).max(1.0));
        let tried = self.tried.load(Ordering::Relaxed);
        progress.call1(py, (begin.elapsed().as_secs_f64(), tried, overhead)).map(|_| ())
    }
}

/// Fits on a thread of its own, so that Ctrl-C is seen: `KeyboardInterrupt` is raised at once, and the thread ends at the
/// next schedule that it tries.
fn fitted(py: Python<'_>, problem: &Problem, asked: Asked) -> PyResult<owned::Fit> {
    let Asked { options, until, progress } = asked;
    let (done, wait) = mpsc::channel();
    let (inner, told) = (Arc::clone(&problem.inner), Arc::new(Told::default()));
    let (begin, watched) = (Instant::now(), Arc::clone(&told));
    let time_ns = inner.recorded().and_then(|r| r.rows.last().map(|row| row.time_ns)).unwrap_or(0);
    thread::spawn(move || {
        let recorded = inner.recorded().unwrap_or(Recorded::new(&[], 0));
        let mut watch = |progress: &Progress| {
            if let Progress::Tried(tried) = progress {
                watched.note(tried, options.limit);
            }
            let ends = watched.ends.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until);
            if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // Where nobody waits any more, there is nobody to tell.
        let _ = done.send(owned::fit_watched(&recorded, &options, &mut watch));
    });
    py.detach(move || {
        loop {
            match wait.recv_timeout(Duration::from_millis(100)) {
                Ok(fitted) => return fitted.map_err(|e| refused(problem.inner.message(&e))),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let heard = Python::attach(|py| {
                        py.check_signals()?;
                        progress.as_ref().map_or(Ok(()), |progress| told.pass_on(py, progress, begin, time_ns))
                    });
                    if heard.is_err() {
                        told.ends.store(true, Ordering::Relaxed);
                        heard?;
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(refused("a fault of the planner ended the fit"));
                }
            }
        }
    })
}

/// Rewrites a recorded iteration so that it stays within a limit of bytes. `time_limit` is in seconds: the best so far counts
/// then. `progress` is called ten times a second with the seconds since it began, how many schedules were tried, and the
/// least overhead of those within the limit, or None.
#[pyfunction]
#[pyo3(signature = (problem, *, limit, using, device, alignment, time_limit, progress))]
pub fn fit(
    py: Python<'_>,
    problem: &Problem,
    limit: u64,
    using: Vec<String>,
    device: &str,
    alignment: u64,
    time_limit: Option<f64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Fitted> {
    if problem.inner.recorded().is_none() {
        return Err(refused("lifetimes alone do not tell when a block is idle"));
    }
    let named = Device::named(device).ok_or_else(|| {
        let known = Device::names().collect::<Vec<_>>().join(", ");
        refused(format!("there is no device {device}; there are {known}"))
    })?;
    let mut means = Using::NONE;
    for name in &using {
        means = means.with(Means::named(name).ok_or_else(|| refused(format!("there is no means {name}")))?);
    }
    let options = Options { using: means, alignment, ..Options::new(limit, named) };
    let fitted = fitted(py, problem, Asked { options, until: deadline(time_limit)?, progress })?;
    let rows = &fitted.rows;
    let event = |event| match event {
        Event::Malloc => 0,
        Event::Free => 1,
        Event::Read => 2,
        Event::Write => 3,
        Event::SwapOut => 4,
        Event::SwapIn => 5,
    };
    let op = |op| match op {
        Op::None => -1,
        Op::First(op) | Op::Rerun(op) => i64::from(op),
    };
    Ok(Fitted {
        event: rows.iter().map(|r| event(r.event)).collect::<Vec<u8>>().into_pyarray(py).unbind(),
        block: rows.iter().map(|r| r.block).collect::<Vec<u32>>().into_pyarray(py).unbind(),
        bytes: rows.iter().map(|r| r.bytes).collect::<Vec<u64>>().into_pyarray(py).unbind(),
        op: rows.iter().map(|r| op(r.op)).collect::<Vec<i64>>().into_pyarray(py).unbind(),
        again: rows.iter().map(|r| matches!(r.op, Op::Rerun(_))).collect::<Vec<bool>>().into_pyarray(py).unbind(),
        end_ns: fitted.timings.iter().map(|t| t.end).collect::<Vec<f64>>().into_pyarray(py).unbind(),
        offsets: fitted.offsets.into_pyarray(py).unbind(),
        footprint: fitted.footprint,
        peak_load: fitted.run.peak_load,
        original_peak: fitted.original_peak,
        overhead: fitted.run.overhead(),
        swapped_bytes: fitted.run.swapped_bytes,
        recomputed_ns: fitted.run.recomputed_ns,
    })
}
