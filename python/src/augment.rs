//! Converts a Python `Augment` to the crate's [`Augment`].

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpfeed::Augment;
use warpfeed::transform::Step;

use crate::error::{Raised, in_call};
use crate::value::from_value;

/// Replays the (name, arguments) calls that `warpfeed._augment` recorded.
pub(crate) fn augment(recorded: &Bound<'_, PyAny>) -> PyResult<Augment> {
    let calls: Vec<(String, Bound<'_, PyTuple>)> = recorded.getattr("_calls")?.extract()?;
    let step = |(name, args): (String, Bound<'_, PyTuple>)| {
        let step = recorded.call_method1("_step", (&name, &args)).and_then(|step| from_value(&step));
        step.map_err(|e| in_call("Augment", &name, &args, e))
    };
    let steps = calls.into_iter().map(step).collect::<PyResult<Vec<Step>>>()?;
    Augment::from_steps(steps).raised(recorded.py())
}
