//! Statistics, verdicts, reports, and the spans that a program records in a trace.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warpfeed::{Stats, Verdict, trace};

use crate::core::json;
use crate::error::Raised as _;
use crate::option_names::in_python;

fn parse_stats(text: &str) -> PyResult<Stats> {
    serde_json::from_str(text).map_err(|e| PyValueError::new_err(format!("this is not a result of stats(): {e}")))
}

#[pyfunction]
pub(crate) fn stats_since(now: &str, earlier: &str) -> PyResult<(String, String)> {
    let stats = parse_stats(now)?.since(&parse_stats(earlier)?);
    Ok((json(&stats), stats.to_string()))
}

#[pyfunction]
pub(crate) fn verdict_of(stats: &str) -> PyResult<(String, String)> {
    Ok(described(parse_stats(stats)?.verdict()))
}

/// Returns `verdict` as JSON and as text.
pub(crate) fn described(verdict: Verdict) -> (String, String) {
    let verdict = verdict_in_python(verdict);
    (json(&verdict), verdict.text)
}

fn verdict_in_python(mut verdict: Verdict) -> Verdict {
    verdict.text = in_python(&verdict.text);
    verdict
}

#[pyfunction]
#[pyo3(signature = (out, title, stats, trace=None))]
pub(crate) fn report(py: Python<'_>, out: PathBuf, title: &str, stats: &str, trace: Option<PathBuf>) -> PyResult<()> {
    let stats = parse_stats(stats)?;
    let verdict = verdict_in_python(stats.verdict());
    py.detach(|| warpfeed_cli::report(&out, title, &stats, &verdict, trace.as_deref())).raised(py)
}

/// A context manager that records a span of the program in the trace. Only the thread that creates
/// a `Span` can use it.
#[pyclass(unsendable, module = "warpfeed._warpfeed")]
pub(crate) struct Span {
    name: &'static str,
    open_spans: Vec<trace::Span>,
}

#[pymethods]
impl Span {
    #[new]
    fn new(name: &str) -> Self {
        Span { name: intern(name), open_spans: Vec::new() }
    }

    fn __enter__(mut this: PyRefMut<'_, Self>) -> PyRefMut<'_, Self> {
        let span = trace::span(this.name);
        this.open_spans.push(span);
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.open_spans.pop();
    }
}

/// Returns a static copy of `name`. Copies are never freed, because a program uses few names.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(name) => name,
        None => {
            let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(name);
            name
        }
    }
}
