//! Statistics, verdicts, reports, and the spans that a program records in a trace.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
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

thread_local! {
    /// The spans that this thread has entered, each with the ID of its [`Span`]. A `trace::Span`
    /// cannot be sent to a different thread, but Python may call a `Span` on any thread.
    static OPEN_SPANS: RefCell<Vec<(u64, trace::Span)>> = const { RefCell::new(Vec::new()) };
}

/// A context manager that records a span of the program in the trace. A span ends on the thread on
/// which it began.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Span {
    name: &'static str,
    id: u64,
}

#[pymethods]
impl Span {
    #[new]
    fn new(name: &str) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Span { name: intern(name), id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        let span = trace::span(this.name);
        OPEN_SPANS.with_borrow_mut(|open_spans| open_spans.push((this.id, span)));
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        let span = OPEN_SPANS.with_borrow_mut(|open_spans| {
            let position = open_spans.iter().rposition(|(id, _)| *id == self.id)?;
            Some(open_spans.remove(position))
        });
        span.map(drop).ok_or_else(|| {
            let thread =
                "this thread has not entered the span, or has already left it: enter and leave it on the same thread";
            PyRuntimeError::new_err(format!("span {:?}: {thread}", self.name))
        })
    }
}

impl Drop for Span {
    /// Ends spans that this thread has entered but not left.
    fn drop(&mut self) {
        // If the thread is ending, its spans end with it.
        let _ = OPEN_SPANS.try_with(|open_spans| open_spans.borrow_mut().retain(|(id, _)| *id != self.id));
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
