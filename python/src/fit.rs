//! Fits of a recorded iteration into less memory, for Python.

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

/// A verified schedule: its rows as columns, and its figures.
#[pyclass(frozen, get_all, module = "sublet._sublet")]
pub struct Fitted {
    /// By row: the event: 0 malloc, 1 free, 2 read, 3 write, 4 swap out, 5 swap in.
    event: Py<PyArray1<u8>>,
    /// By row: the block. The mask of block `b` has the number `b` plus the number of blocks.
    block: Py<PyArray1<u32>>,
    /// By row: the size of the block, in bytes; only for a malloc.
    bytes: Py<PyArray1<u64>>,
    /// By row: the operator, or -1 for none.
    op: Py<PyArray1<i64>>,
    /// By row: whether the operator is recomputed.
    again: Py<PyArray1<bool>>,
    /// By row: the time at which the row ends, in ns.
    end_ns: Py<PyArray1<f64>>,
    /// By residency, in the order of the mallocs: the offset, in bytes.
    offsets: Py<PyArray1<u64>>,
    /// The highest end of a residency, in bytes.
    footprint: u64,
    /// The most bytes on the device at once.
    peak_load: u64,
    /// The most bytes on the device at once in the original.
    original_peak: u64,
    /// The overhead: simulated time over the original's, minus 1.
    overhead: f64,
    /// The bytes that are copied, both ways together.
    swapped_bytes: u64,
    /// The time of the recomputed operators, in ns.
    recomputed_ns: u64,
}

/// The progress of a fit, shared between the thread that fits and the one that waits for it.
#[derive(Default)]
struct Told {
    /// How many schedules were tried.
    tried: AtomicUsize,
    /// The least time over the original, in ns, of the schedules within the limit; none if there is none.
    best: Mutex<Option<f64>>,
    /// Whether the fit is to end, since no thread waits for it any more.
    ends: AtomicBool,
}

/// A fit to be made.
struct Asked {
    /// The options, with the limit.
    options: Options,
    /// When the fit has to end; none if it may take any time.
    until: Option<Instant>,
    /// A Python function that is called with the progress: seconds, schedules tried, least overhead.
    progress: Option<Py<PyAny>>,
}

impl Told {
    /// Counts a schedule, and notes its time if it is within the limit in bytes.
    fn note(&self, tried: &Tried, limit: u64) {
        self.tried.fetch_add(1, Ordering::Relaxed);
        if tried.footprint <= limit {
            let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
            *best = Some(best.map_or(tried.overhead_ns, |best| best.min(tried.overhead_ns)));
        }
    }

    /// Calls the Python function `progress`, which may raise. `time_ns` is the time of the original.
    fn pass_on(&self, py: Python<'_>, progress: &Py<PyAny>, begin: Instant, time_ns: u64) -> PyResult<()> {
        let best = *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let overhead = best.map(|ns| ns / (time_ns as f64).max(1.0));
        let tried = self.tried.load(Ordering::Relaxed);
        progress.call1(py, (begin.elapsed().as_secs_f64(), tried, overhead)).map(|_| ())
    }
}

/// Fits on a thread of its own, while this one looks for Ctrl-C ten times a second. On Ctrl-C `KeyboardInterrupt` is
/// raised, and the thread that fits ends at its next report of progress.
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
        // Sending fails if no thread waits any more: the result is not needed then.
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

/// Rewrites a recorded iteration so that its footprint is within a limit, in bytes. After `time_limit` seconds the
/// result is the best schedule so far. `progress` is called ten times a second with the seconds since the fit began,
/// the number of schedules tried, and the least overhead of those within the limit (a fraction of the original's time),
/// or None.
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
