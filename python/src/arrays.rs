//! Copies Python's arrays into vectors, without a Python object for each element.

use numpy::{Element, PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat};

use crate::refused;

/// A column of numbers: a sequence or an array, of anything that numpy reads.
pub type Column<'py> = Bound<'py, PyAny>;

/// The greatest number up to which an `f64` can hold every whole number exactly: 2 to the 53rd.
const EXACT: i128 = 1 << f64::MANTISSA_DIGITS;

/// A type of whole numbers.
pub trait Whole: TryFrom<i128> {
    /// The least number of the type, and the greatest.
    const RANGE: (i128, i128);
}

impl Whole for u8 {
    const RANGE: (i128, i128) = (0, u8::MAX as i128);
}

impl Whole for u32 {
    const RANGE: (i128, i128) = (0, u32::MAX as i128);
}

impl Whole for u64 {
    const RANGE: (i128, i128) = (0, u64::MAX as i128);
}

impl Whole for i64 {
    const RANGE: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);
}

/// The rows of a table, for messages.
pub struct Rows<'a> {
    /// What a row tells of: `block`, `operator`.
    pub of: &'static str,
    /// The names of the rows. A row without a name is called by its number.
    pub names: &'a [String],
}

impl Rows<'_> {
    /// The elements of a column, which has to have `len` of them, unless `len` is `None`. Floats that are whole are
    /// taken too. Refused is what numpy could turn into numbers although it holds none: dates, truth values, text; and
    /// masked arrays.
    pub fn column<T: Whole>(&self, name: &str, column: &Column<'_>, len: Option<usize>) -> PyResult<Vec<T>> {
        let (array, kind) = array(name, column, len)?;
        let found: Vec<Option<i128>> = match kind {
            'u' => elements::<u64>(&array)?.into_iter().map(|x| Some(x.into())).collect(),
            'i' => elements::<i64>(&array)?.into_iter().map(|x| Some(x.into())).collect(),
            'f' => elements::<f64>(&array)?.into_iter().map(of_float).collect(),
            'O' => array.try_iter()?.map(|x| x.map(|x| of_object(&x))).collect::<PyResult<_>>()?,
            _ => return Err(refused(format!("{name}: expected whole numbers, found {}", array.getattr("dtype")?))),
        };
        let got: Vec<T> = found.iter().map_while(|x| T::try_from((*x)?).ok()).collect();
        let row = got.len();
        if row == found.len() {
            return Ok(got);
        }
        let called = self.names.get(row).cloned().unwrap_or_else(|| row.to_string());
        let (least, most) = T::RANGE;
        let (least, most) = if kind == 'f' { (least.max(-EXACT), most.min(EXACT)) } else { (least, most) };
        let wrong = array.get_item(row)?;
        Err(refused(format!("{} {called}: {name} is {wrong}, not a whole number from {least} to {most}", self.of)))
    }

    /// The elements of a column of truth values, or of numbers that are true where they are not 0.
    pub fn flags(&self, name: &str, column: &Column<'_>, len: usize) -> PyResult<Vec<bool>> {
        let (array, kind) = array(name, column, Some(len))?;
        if kind == 'b' {
            return elements::<bool>(&array);
        }
        Ok(self.column::<u8>(name, &array, Some(len))?.into_iter().map(|x| x != 0).collect())
    }
}

/// The column as an array of one dimension, and the letter that numpy has for the kind of its elements.
fn array<'py>(name: &str, column: &Column<'py>, len: Option<usize>) -> PyResult<(Bound<'py, PyAny>, char)> {
    let py = column.py();
    let numpy = py.import("numpy")?;
    let named = |e: PyErr| {
        if e.is_instance_of::<PyValueError>(py) { refused(format!("{name}: {}", e.value(py))) } else { e }
    };
    let array = numpy.call_method1("asanyarray", (column,)).map_err(named)?;
    if array.is_instance(&numpy.getattr("ma")?.getattr("MaskedArray")?)? {
        return Err(refused(format!("{name}: expected whole numbers, found a masked array")));
    }
    match array.getattr("ndim")?.extract()? {
        1 => {}
        dimensions => return Err(refused(format!("{name} has {dimensions} dimensions, not 1"))),
    }
    let got = array.len()?;
    if let Some(len) = len.filter(|&len| len != got) {
        return Err(refused(format!("{name} has {got} elements, not {len}")));
    }
    let kind = array.getattr("dtype")?.getattr("kind")?.extract()?;
    Ok((array, kind))
}

/// The elements of an array of numpy.
fn elements<T: Element + Copy>(array: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    let array = array.call_method1("astype", (numpy::dtype::<T>(array.py()),))?;
    Ok(array.cast::<PyArray1<T>>()?.readonly().as_array().iter().copied().collect())
}

/// The whole number that a float is. `None` if the float is not whole, or above 2 to the 53rd: numpy turns large
/// integers into floats, and such a float may be another integer, rounded.
fn of_float(x: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "whole")]
    (x.fract() == 0.0).then_some(x as i128).filter(|x| (-EXACT..=EXACT).contains(x))
}

/// The whole number that a Python object is; `None` for a truth value or anything that is no whole number.
fn of_object(x: &Bound<'_, PyAny>) -> Option<i128> {
    if x.is_instance_of::<PyBool>() {
        return None;
    }
    x.cast::<PyFloat>().map_or_else(|_| x.extract().ok(), |x| of_float(x.value()))
}
