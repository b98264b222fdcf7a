//! Copies Python's arrays into vectors, without a Python object for each element.

use numpy::{AllowTypeChange, Element, PyArrayLike1};
use pyo3::prelude::*;

use crate::refused;

/// A column of numbers: any array or sequence that numpy turns into one dimension of this type.
pub type Column<'py, T> = PyArrayLike1<'py, T, AllowTypeChange>;

/// The elements of a column, which has to have `len` of them.
pub fn column<T: Element + Copy>(name: &str, column: &Column<'_, T>, len: usize) -> PyResult<Vec<T>> {
    let got: Vec<T> = column.as_array().iter().copied().collect();
    if got.len() == len { Ok(got) } else { Err(refused(format!("{name} has {} elements, not {len}", got.len()))) }
}
