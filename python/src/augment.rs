use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpfeed::Augment;
use warpfeed::transform::Step;

use crate::error::{Raised, of_call};
use crate::value::given;

/// Replays the calls that `warpfeed._augment` recorded as names with arguments.
pub(crate) fn augment(recorded: &Bound<'_, PyAny>) -> PyResult<Augment> {
    let calls: Vec<(String, Bound<'_, PyTuple>)> = recorded.getattr("_calls")?.extract()?;
    let step = |(name, args): (String, Bound<'_, PyTuple>)| {
        let step = recorded.call_method1("_step", (&name, &args)).and_then(|step| given(&step));
        step.map_err(|e| of_call("Augment", &name, &args, e))
    };
    let steps = calls.into_iter().map(step).collect::<PyResult<Vec<Step>>>()?;
    Augment::from_steps(steps).raised(recorded.py())
}
