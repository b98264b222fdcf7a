//! Rewrites a recorded iteration so that it takes less memory (a fit), for Python.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sublet_core::rewrite::fit::{Means, Options, Progress, Tried, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op};

use crate::place::deadline;
use crate::problem::Problem;
use crate::{refused, unplanned, wrong};

/// The result of a fit: a verified schedule, which is the trace of the rewritten iteration, and its figures. The rows
/// of the trace are its events; each array has an element for each row, but for `offsets`.
#[pyclass(frozen, module = "sublet._sublet")]
pub struct Fitted {
    /// The event of each row: 0 malloc, 1 free, 2 read, 3 write, 4 swap out (copy to the host), 5 swap in (copy back).
    #[pyo3(get)]
    event: Py<PyArray1<u8>>,
    /// The number of each row's block. The mask of block `b` (one bit for each element, kept in place of the block) has
    /// the number `b` plus the number of blocks.
    #[pyo3(get)]
    block: Py<PyArray1<u32>>,
    /// For each row that is a malloc, the size of the block in bytes; of no meaning for other rows.
    #[pyo3(get)]
    bytes: Py<PyArray1<u64>>,
    /// The number of the operator that each row belongs to; -1 for none.
    #[pyo3(get)]
    op: Py<PyArray1<i64>>,
    /// Whether each row belongs to a recomputation: to a run of its operator after the first.
    #[pyo3(get)]
    again: Py<PyArray1<bool>>,
    /// The simulated time at which each row begins, in ns from the start of the iteration.
    #[pyo3(get)]
    begin_ns: Py<PyArray1<f64>>,
    /// The simulated time at which each row ends, in ns from the start of the iteration.
    #[pyo3(get)]
    end_ns: Py<PyArray1<f64>>,
    /// For each malloc, in the order of the rows, the offset at which its block is placed, in bytes from the start of
    /// the arena.
    #[pyo3(get)]
    offsets: Py<PyArray1<u64>>,
    /// The memory that the schedule takes on the device: the highest end of a block, in bytes from the start of the
    /// arena.
    #[pyo3(get)]
    footprint: u64,
    /// The most bytes of blocks that are allocated on the device at once.
    #[pyo3(get)]
    peak_load: u64,
    /// The most bytes of blocks that are allocated at once in the original iteration, before it was rewritten.
    #[pyo3(get)]
    original_peak: u64,
    /// How much longer the schedule takes than the original iteration, as a fraction: simulated time over the
    /// original's, minus 1.
    #[pyo3(get)]
    overhead: f64,
    /// The bytes of all copies between device and host, both directions added up.
    #[pyo3(get)]
    swapped_bytes: u64,
    /// The time that recomputed operators take, in ns.
    #[pyo3(get)]
    recomputed_ns: u64,
    /// No schedule within the limit has a lower overhead; None where no bound is known.
    #[pyo3(get)]
    lower_bound: Option<f64>,
    /// The same for schedules that keep the recorded order.
    #[pyo3(get)]
    lower_bound_in_order: Option<f64>,
    /// The schedule as the library of the command line holds it.
    inner: sublet_cli::Fit,
}

#[pymethods]
impl Fitted {
    /// What was tried, as a JSON array.
    fn tried(&self) -> PyResult<String> {
        self.inner.tried().map_err(refused)
    }

    /// The gaps between the uses of a block, as a JSON array.
    fn gaps(&self, py: Python<'_>, problem: &Problem, block: &str) -> PyResult<String> {
        py.detach(|| self.inner.gaps(&problem.inner, block)).map_err(wrong)
    }

    /// The schedule as a page of HTML.
    fn page(&self, py: Python<'_>, problem: &Problem) -> PyResult<String> {
        py.detach(|| self.inner.page(&problem.inner)).map_err(refused)
    }

    /// Writes the schedule: a picture if the name ends in `.html` or `.svg`, otherwise a folder of three files.
    fn save(&self, py: Python<'_>, problem: &Problem, file: &str) -> PyResult<()> {
        py.detach(|| self.inner.save(&problem.inner, file)).map_err(wrong)
    }
}

/// The progress of a fit, shared between the thread that fits and the one that waits for it.
#[derive(Default)]
struct Told {
    /// How many schedules the fit has tried so far.
    tried: AtomicUsize,
    /// How much longer than the original iteration the fastest schedule takes that was tried so far and is within the
    /// limit, in ns; `None` if no schedule was within the limit.
    best: Mutex<Option<f64>>,
    /// Whether the fit is to end early, because no thread waits for its result any more.
    ends: AtomicBool,
}

/// The device of a fit: by name, or the figures of its links to the host, as they were measured.
#[derive(FromPyObject)]
pub enum Links {
    Named(String),
    /// The bandwidth of copies to the host and that of copies back, in bytes per second; and the latency of a copy, in
    /// ns.
    Measured(f64, f64, f64),
}

impl Links {
    /// What pages call the device.
    fn name(&self) -> &str {
        if let Self::Named(name) = self { name } else { "measured" }
    }

    /// The device. `ValueError` if there is none of this name, if a bandwidth is not above 0, or if the latency is
    /// negative; also if a figure is not finite.
    fn device(&self) -> PyResult<Device> {
        match *self {
            Self::Named(ref name) => Device::named(name).ok_or_else(|| {
                let known = Device::names().collect::<Vec<_>>().join(", ");
                wrong(format!("there is no device {name}; there are {known}"))
            }),
            Self::Measured(out_bandwidth, in_bandwidth, latency) => {
                let quick = Device { out_bandwidth, in_bandwidth, ..Device::symmetric(1.0) };
                let device = Device { out_latency: latency, in_latency: latency, ..quick };
                if !quick.is_sound() {
                    return Err(wrong(format!(
                        "a device copies more than 0 bytes per second, not {out_bandwidth} out and {in_bandwidth} in"
                    )));
                }
                if !device.is_sound() {
                    return Err(wrong(format!("a device has a latency of 0 ns or more, not {latency}")));
                }
                Ok(device)
            }
        }
    }
}

/// What a caller has asked for: a fit with these options on the device of this name, until this time, with reports of its progress.
struct Asked {
    /// The options of the fit, among them the limit in bytes.
    options: Options,
    /// What pages call the device.
    device: String,
    /// When the fit has to end; `None` if it may take any time.
    until: Option<Instant>,
    /// A Python function that is called with the progress: seconds since the begin, schedules tried, and the least
    /// overhead so far; `None` if nobody wants to know.
    progress: Option<Py<PyAny>>,
}

impl Told {
    /// Counts a schedule that was tried. Keeps its overhead if it is the least so far, and the schedule's footprint
    /// (the memory that it takes) is at most `limit` bytes.
    fn note(&self, tried: &Tried, limit: u64) {
        self.tried.fetch_add(1, Ordering::Relaxed);
        if tried.footprint <= limit {
            let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
            *best = Some(best.map_or(tried.overhead_ns, |best| best.min(tried.overhead_ns)));
        }
    }

    /// Calls the Python function `progress` with the progress so far; returns the exception that it raises. `begin` is
    /// when the fit began, `time_ns` the time of the original iteration, in ns.
    fn pass_on(&self, py: Python<'_>, progress: &Py<PyAny>, begin: Instant, time_ns: u64) -> PyResult<()> {
        let best = *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let overhead = best.map(|ns| ns / (time_ns as f64).max(1.0));
        let tried = self.tried.load(Ordering::Relaxed);
        progress.call1(py, (begin.elapsed().as_secs_f64(), tried, overhead)).map(|_| ())
    }
}

/// Runs a fit on a thread of its own. Ten times a second the calling thread looks for Ctrl-C, and reports the progress.
/// On Ctrl-C `KeyboardInterrupt` is raised, and the thread that fits ends at its next report of progress.
fn fitted(py: Python<'_>, problem: &Problem, asked: Asked) -> PyResult<sublet_cli::Fit> {
    let Asked { options, device, until, progress } = asked;
    let (done, wait) = mpsc::channel();
    let (inner, told) = (Arc::clone(&problem.inner), Arc::new(Told::default()));
    let (begin, watched) = (Instant::now(), Arc::clone(&told));
    let time_ns = inner.recorded().and_then(|r| r.rows.last().map(|row| row.time_ns)).unwrap_or(0);
    thread::spawn(move || {
        let mut watch = |progress: &Progress| {
            if let Progress::Tried(tried) = progress {
                watched.note(tried, options.limit);
            }
            let ends = watched.ends.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until);
            if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // Sending fails if no thread waits any more: the result is not needed then.
        let _ = done.send(inner.fit(&options, &device, &mut watch));
    });
    py.detach(move || {
        loop {
            match wait.recv_timeout(Duration::from_millis(100)) {
                Ok(fitted) => return fitted.map_err(|e| unplanned(&problem.inner, &e)),
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

/// Rewrites a recorded iteration so that its footprint (the memory that it takes on the device) is at most `limit`
/// bytes. `effort` multiplies the work that each search for swaps or recomputation may do. After `time_limit` seconds
/// the result is the best schedule so far. `progress` is called ten times a second with the seconds since the fit
/// began, the number of schedules tried, and the least overhead of those within the limit (a fraction of the original's
/// time), or None.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one of them is Python, and the others are named where this is called")]
#[pyo3(signature = (problem, *, limit, using, device, keep_persistent, alignment, effort, time_limit, progress))]
pub fn fit(
    py: Python<'_>,
    problem: &Problem,
    limit: u64,
    using: Vec<String>,
    device: Links,
    keep_persistent: bool,
    alignment: u64,
    effort: u64,
    time_limit: Option<f64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Fitted> {
    if problem.inner.recorded().is_none() {
        return Err(refused("lifetimes alone do not tell when a block is idle"));
    }
    let mut means = Using::NONE;
    for name in &using {
        let known = || Means::ALL.iter().map(|means| means.name()).collect::<Vec<_>>().join(", ");
        let named = Means::named(name).ok_or_else(|| wrong(format!("there is no means {name}; there are {}", known())));
        means = means.with(named?);
    }
    let work = Options::DEFAULT_WORK.saturating_mul(effort);
    let options = Options { using: means, keep_persistent, alignment, work, ..Options::new(limit, device.device()?) };
    let until = deadline(time_limit)?;
    let inner = fitted(py, problem, Asked { options, device: device.name().into(), until, progress })?;
    let fitted = &inner.schedule;
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
        begin_ns: fitted.timings.iter().map(|t| t.begin).collect::<Vec<f64>>().into_pyarray(py).unbind(),
        end_ns: fitted.timings.iter().map(|t| t.end).collect::<Vec<f64>>().into_pyarray(py).unbind(),
        offsets: fitted.offsets.clone().into_pyarray(py).unbind(),
        footprint: fitted.footprint,
        peak_load: fitted.run.peak_load,
        original_peak: fitted.original_peak,
        overhead: fitted.run.overhead(),
        swapped_bytes: fitted.run.swapped_bytes,
        recomputed_ns: fitted.run.recomputed_ns,
        lower_bound: inner.lower_bound,
        lower_bound_in_order: inner.lower_bound_in_order,
        inner,
    })
}
