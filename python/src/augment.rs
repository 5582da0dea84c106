use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpfeed::Augment;
use warpfeed::transform::Step;

use crate::error::{Raised, of_call};

/// Repeats the calls that `warpfeed._augment` recorded: names with arguments.
pub(crate) fn augment(recorded: &Bound<'_, PyAny>) -> PyResult<Augment> {
    let calls: Vec<(String, Bound<'_, PyTuple>)> = recorded.getattr("_calls")?.extract()?;
    let step = |(name, args): (String, Bound<'_, PyTuple>)| {
        step(recorded, &name, &args).map_err(|e| of_call("Augment", &name, &args, e))
    };
    let steps = calls.into_iter().map(step).collect::<PyResult<Vec<Step>>>()?;
    Augment::from_steps(steps).raised(recorded.py())
}

fn step(recorded: &Bound<'_, PyAny>, name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Step> {
    let json: String = recorded.call_method1("_step", (name, args))?.extract()?;
    serde_json::from_str(&json).map_err(|e| {
        let text = e.to_string();
        let text = text.split(" at line ").next().unwrap_or_default().to_owned();
        if text.starts_with("invalid type") { PyTypeError::new_err(text) } else { PyValueError::new_err(text) }
    })
}
