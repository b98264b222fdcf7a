//! A network into less memory.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sublet_core::owned;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Recorded};

use crate::problem::Problem;
use crate::refused;

/// A verified schedule, a row at a time, and what is known of it.
#[pyclass(frozen, get_all, module = "sublet._sublet")]
pub struct Fitted {
    /// What happens: 0 malloc, 1 free, 2 read, 3 write, 4 swap out, 5 swap in.
    event: Py<PyArray1<u8>>,
    /// The block of each row; masks have numbers from the count of blocks on.
    block: Py<PyArray1<u32>>,
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

/// Fits on a thread of its own, so that Ctrl-C is seen: `KeyboardInterrupt` is raised at once, and what the thread finds is
/// forgotten.
fn fitted(py: Python<'_>, problem: &Problem, options: Options) -> PyResult<owned::Fit> {
    let (done, wait) = mpsc::channel();
    let inner = Arc::clone(&problem.inner);
    thread::spawn(move || {
        let recorded = inner.recorded().unwrap_or(Recorded::new(&[], 0));
        // Where nobody waits any more, there is nobody to tell.
        let _ = done.send(owned::fit(&recorded, &options));
    });
    py.detach(move || {
        loop {
            match wait.recv_timeout(Duration::from_millis(100)) {
                Ok(fitted) => return fitted.map_err(|e| refused(problem.inner.message(&e))),
                Err(mpsc::RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(refused("a fault of the planner ended the fit"));
                }
            }
        }
    })
}

/// Rewrites a recorded iteration so that it stays within a limit of bytes.
#[pyfunction]
#[pyo3(signature = (problem, *, limit, using, device, alignment))]
pub fn fit(
    py: Python<'_>,
    problem: &Problem,
    limit: u64,
    using: Vec<String>,
    device: &str,
    alignment: u64,
) -> PyResult<Fitted> {
    if problem.inner.recorded().is_none() {
        return Err(refused("lifetimes alone do not tell when a block is idle"));
    }
    let named = Device::named(device).ok_or_else(|| {
        let known = Device::PRESETS.map(|(name, _)| name).join(", ");
        refused(format!("there is no device {device}; there are {known}"))
    })?;
    let mut means = Using::NONE;
    for name in &using {
        means = means.with(Means::named(name).ok_or_else(|| refused(format!("there is no means {name}")))?);
    }
    let options = Options { using: means, alignment, ..Options::new(limit, named) };
    let fitted = fitted(py, problem, options)?;
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
