use std::ffi::OsString;

use pyo3::prelude::*;
use warpfeed::source::{Options, labels as labels_of};
use warpfeed::{Rank, sampler};

use crate::error::{Raised as _, refused};
use crate::log;
use crate::source;
use crate::waiting::aside;

/// Runs the command line with `args`, starting with the program's name. Returns the exit code.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, args: Vec<OsString>) -> u8 {
    log::print();
    py.detach(|| warpfeed_cli::run(args))
}

/// The version.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Rank, number of ranks, and both within this machine, according to the launcher's environment.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub(crate) fn rank_from_env(py: Python<'_>) -> PyResult<Option<(usize, usize, Option<usize>, Option<usize>)>> {
    let found = Rank::from_env().raised(py)?;
    Ok(found.map(|rank| (rank.rank, rank.world_size, rank.local_rank, rank.local_world_size)))
}

/// A message of the crate in Python's spelling.
#[pyfunction]
pub(crate) fn in_python(message: &str) -> String {
    crate::option_names::in_python(message)
}

/// The number of samples of a dataset and, with `wanted`, the label of each.
#[pyfunction]
pub(crate) fn labels(data: &Bound<'_, PyAny>, wanted: bool) -> PyResult<(usize, Option<Vec<i64>>)> {
    let py = data.py();
    let source = source::of(data, &Options::new().stores(warpfeed_stores::all()))?;
    if !wanted {
        return Ok((source.len(), None));
    }
    let labels = aside(py, move |_| labels_of(&*source, &(0..source.len() as u64).collect::<Vec<_>>()))?;
    Ok((labels.len(), Some(labels)))
}

/// Splits `samples` at random into parts of these `shares`; with `labels`, stratified by class.
#[pyfunction]
#[pyo3(signature = (samples, shares, seed, labels=None))]
pub(crate) fn split(
    py: Python<'_>,
    samples: Vec<u64>,
    shares: Vec<f64>,
    seed: u64,
    labels: Option<Vec<i64>>,
) -> PyResult<Vec<Vec<u64>>> {
    /// The crate needs the number of parts at compile time.
    macro_rules! by_number {
        ($($n:literal)*) => {
            match shares.len() {
                $($n => {
                    let shares: [f64; $n] = shares.try_into().expect("the length matches");
                    aside(py, move |_| Ok(match labels {
                        None => sampler::split(samples, shares, seed)?.into(),
                        Some(labels) => sampler::split_by_class(samples.into_iter().zip(labels), shares, seed)?.into(),
                    }))
                })*
                n => Err(refused(py, format!("shares: {n} parts: expected 1 to 8"))),
            }
        };
    }
    by_number!(1 2 3 4 5 6 7 8)
}
