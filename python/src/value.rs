//! Values that options and fields have in common.

use pyo3::prelude::*;
use warpfeed::Dtype;

use crate::error::refused;

/// The value of `option`, which must be one of the words in `known`.
pub(crate) fn word<T: Copy>(option: &str, value: &Bound<'_, PyAny>, known: &[(&str, T)]) -> PyResult<T> {
    let word: &str = value.extract()?;
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| format!("'{name}'")).collect();
        let (last, others) = names.split_last().expect("an option has words");
        refused(value.py(), format!("{option}='{word}': known are {} and {last}", others.join(", ")))
    })
}

/// The element type of this name.
pub(crate) fn dtype(name: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let known = [
        ("u8", Dtype::U8),
        ("f32", Dtype::F32),
        ("f64", Dtype::F64),
        ("f16", Dtype::F16),
        ("bf16", Dtype::Bf16),
        ("i16", Dtype::I16),
        ("i32", Dtype::I32),
        ("i64", Dtype::I64),
        ("u16", Dtype::U16),
    ];
    word("dtype", name, &known)
}
