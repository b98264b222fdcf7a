//! Placement, and verification of a plan, for Python.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sublet_core::place::{Options, Solver, Summary};
use sublet_core::{Constraints, owned};

use crate::arrays::Column;
use crate::problem::Problem;
use crate::{unplanned, wrong};

/// A plan: the offsets of the blocks, the peak, the max load (the most bytes alive at once) and a lower bound on the
/// peak, all in bytes; and the name of the solver that found it.
type Placed<'py> = (Bound<'py, PyArray1<u64>>, u64, u64, u64, &'static str);

/// The time that is `time_limit` seconds from now; `None` if there is no limit, or if that time is later than the clock
/// can count.
pub fn deadline(time_limit: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = time_limit else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(wrong(format!("a time limit is in seconds, 0 or more, not {seconds}")));
    }
    Ok(Duration::try_from_secs_f64(seconds).ok().and_then(|limit| Instant::now().checked_add(limit)))
}

/// Places the blocks of a problem, and verifies the plan. `effort` multiplies how much work the solver may do by
/// default. `time_limit` is in seconds, `capacity` and `alignment` in bytes. Ctrl-C raises `KeyboardInterrupt`.
#[pyfunction]
#[pyo3(signature = (problem, *, capacity, alignment, solver, effort, time_limit))]
pub fn place<'py>(
    py: Python<'py>,
    problem: &Problem,
    capacity: Option<u64>,
    alignment: u64,
    solver: &str,
    effort: u64,
    time_limit: Option<f64>,
) -> PyResult<Placed<'py>> {
    let solver = Solver::named(solver).ok_or_else(|| {
        let known: Vec<&str> = Solver::all().map(Solver::name).collect();
        wrong(format!("there is no solver {solver}; there are {}", known.join(", ")))
    })?;
    let deadline = deadline(time_limit)?;
    let options = Options {
        constraints: Constraints { capacity, alignment },
        work: Options::DEFAULT_WORK.saturating_mul(effort),
        nodes: Options::DEFAULT_NODES.saturating_mul(effort),
        ..Options::default()
    };
    let mut signal = None;
    let mut asked = Instant::now();
    let mut watch = |_: &Summary| {
        // A check for Ctrl-C takes Python's lock: ten times a second is enough for a person.
        if asked.elapsed() > Duration::from_millis(100) {
            asked = Instant::now();
            #[expect(clippy::redundant_closure_for_method_calls, reason = "the method alone is for one lifetime")]
            let heard = Python::attach(|py| py.check_signals());
            signal = heard.err();
        }
        if signal.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let blocks = problem.inner.blocks();
    let planned = py.detach(|| owned::plan_watched(blocks, solver, &options, &mut watch));
    if let Some(signal) = signal {
        return Err(signal);
    }
    let plan = planned.map_err(|e| unplanned(&problem.inner, &e))?;
    let offsets = plan.offsets.into_pyarray(py);
    Ok((offsets, plan.peak, plan.max_load, plan.lower_bound, plan.solver.name()))
}

/// Verifies that offsets, in bytes, are a plan for the blocks of a problem. Returns the peak of the plan, and the max
/// load (the most bytes alive at once), in bytes.
#[pyfunction]
#[pyo3(signature = (problem, offsets, *, capacity, alignment))]
pub fn verify(
    py: Python<'_>,
    problem: &Problem,
    offsets: Column<'_>,
    capacity: Option<u64>,
    alignment: u64,
) -> PyResult<(u64, u64)> {
    let blocks = problem.inner.blocks();
    let offsets = problem.offsets(&offsets)?;
    let constraints = Constraints { capacity, alignment };
    py.detach(|| owned::verify(blocks, &offsets, &constraints)).map_err(|e| unplanned(&problem.inner, &e))
}
