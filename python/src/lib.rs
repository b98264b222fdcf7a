//! `sublet._sublet`: the functions that the Python package calls. They take and return arrays; the public classes are
//! written in Python.

mod arrays;
mod fit;
mod heap;
mod onnx;
mod place;
mod problem;
mod torch;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sublet_core::Error;

pyo3::create_exception!(
    _sublet,
    PlanError,
    PyValueError,
    "No plan: the message names the block, the row or the limit."
);

#[pymodule]
mod _sublet {
    #[pymodule_export]
    use super::PlanError;
    #[pymodule_export]
    use super::fit::{Fitted, fit};
    #[pymodule_export]
    use super::heap::{heap_alarm, heap_bytes, heap_install, heap_mark, heap_on_alarm, heap_reset};
    #[pymodule_export]
    use super::onnx::{ort_begin, ort_end, ort_install, ort_release, ort_statistics};
    #[pymodule_export]
    use super::place::{place, verify};
    #[pymodule_export]
    use super::problem::Problem;
    #[pymodule_export]
    use super::torch::{device_statistics, throw_by};
    #[pymodule_export]
    use super::{bytes_of, doctor, run};
    use pyo3::prelude::*;

    /// An error that names no figure has none.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let class = module.py().get_type::<PlanError>();
        ["least", "needed"].iter().try_for_each(|figure| class.setattr(figure, module.py().None()))
    }
}

/// Runs the command line with these arguments, the first of which is the program's name. Returns the exit status.
#[pyfunction]
fn run(py: Python<'_>, args: Vec<String>) -> u8 {
    py.detach(|| sublet_cli::run_with(args))
}

/// The diagnosis of a memory snapshot of PyTorch: as JSON, and as text for people.
#[pyfunction]
#[pyo3(signature = (file, before=None))]
fn doctor(py: Python<'_>, file: &str, before: Option<&str>) -> PyResult<(String, String)> {
    py.detach(|| sublet_cli::doctor(file, before)).map_err(refused)
}

/// How many bytes a text such as `8GiB` says. If `peak`, in bytes, is given, the text may also be a part of it, such as
/// `60%`.
#[pyfunction]
fn bytes_of(text: &str, peak: Option<u64>) -> PyResult<u64> {
    sublet_cli::size(text, peak).map_err(wrong)
}

/// Makes the Python exception `PlanError` with this message.
fn refused(message: impl ToString) -> PyErr {
    PlanError::new_err(message.to_string())
}

/// Makes the Python exception `PlanError` of an error of core, with its figures in bytes: `least`, a limit that is known to
/// work, and `needed`, below which it is proved that none does.
fn unplanned(problem: &sublet_cli::Problem, error: &Error) -> PyErr {
    let (least, needed) = match *error {
        Error::OverLimit { least, .. } => (Some(least), None),
        Error::Impossible { needed, .. } => (None, Some(needed)),
        Error::OverCapacity { peak, lower_bound, .. } => (Some(peak), error.is_impossible().then_some(lower_bound)),
        _ => (None, None),
    };
    let refusal = refused(problem.message(error));
    let told = Python::attach(|py| {
        let refusal = refusal.value(py);
        refusal.setattr("least", least).and_then(|()| refusal.setattr("needed", needed))
    });
    told.err().unwrap_or(refusal)
}

/// Makes the Python exception `ValueError`: an argument is wrong, whatever is planned.
fn wrong(message: String) -> PyErr {
    PyValueError::new_err(message)
}
