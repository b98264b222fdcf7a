//! `sublet._sublet`: what the Python package calls. Arrays in, arrays out; the classes that people see are in Python.

mod arrays;
mod fit;
mod place;
mod problem;
mod torch;

use pyo3::prelude::*;

pyo3::create_exception!(
    _sublet,
    PlanError,
    pyo3::exceptions::PyValueError,
    "No plan: the message names the block, the row or the limit."
);

#[pymodule]
mod _sublet {
    #[pymodule_export]
    use super::PlanError;
    #[pymodule_export]
    use super::fit::{Fitted, fit};
    #[pymodule_export]
    use super::place::{place, verify};
    #[pymodule_export]
    use super::problem::Problem;
    #[pymodule_export]
    use super::torch::{device_statistics, throw_by};
    #[pymodule_export]
    use super::{doctor, run};
}

/// The command line with these arguments, the first of which is the program's name; the status that it ends with.
#[pyfunction]
fn run(py: Python<'_>, args: Vec<String>) -> u8 {
    py.detach(|| sublet_cli::run_with(args))
}

/// What a memory snapshot of PyTorch tells, as JSON and as a page for people.
#[pyfunction]
fn doctor(py: Python<'_>, file: &str) -> PyResult<(String, String)> {
    py.detach(|| sublet_cli::doctor(file)).map_err(refused)
}

/// An error of Python with this sentence.
fn refused(message: impl ToString) -> PyErr {
    PlanError::new_err(message.to_string())
}
