//! The command-line tool, and functions that do not need a loader.

use std::ffi::OsString;

use pyo3::prelude::*;
use warpfeed::source::{Options, labels as labels_of};
use warpfeed::{Loader, Rank, sampler};

use crate::error::{Raised as _, config_error};
use crate::log;
use crate::source;
use crate::waiting::run_on_thread;

/// Runs the command-line tool and returns its exit code. `args` begins with the program's name.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, args: Vec<OsString>) -> u8 {
    log::print_warnings();
    py.detach(|| warpfeed_cli::run(args))
}

#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns the rank, the number of ranks, the local rank and the number of ranks on this machine,
/// from the launcher's environment variables. Returns `None` if no launcher has set them.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub(crate) fn rank_from_env(py: Python<'_>) -> PyResult<Option<(usize, usize, Option<usize>, Option<usize>)>> {
    let rank = Rank::from_env().raised(py)?;
    Ok(rank.map(|rank| (rank.rank, rank.world_size, rank.local_rank, rank.local_world_size)))
}

#[pyfunction]
pub(crate) fn in_python(message: &str) -> String {
    crate::option_names::in_python(message)
}

/// Returns the number of samples and, if `with_labels` is set, the label of each sample.
#[pyfunction]
pub(crate) fn labels(data: &Bound<'_, PyAny>, with_labels: bool) -> PyResult<(usize, Option<Vec<i64>>)> {
    let py = data.py();
    let source = source::open_source(data, &Options::new().stores(warpfeed_stores::all()))?;
    if !with_labels {
        return Ok((source.len(), None));
    }
    let labels = run_on_thread(py, move |_| labels_of(&*source, &(0..source.len() as u64).collect::<Vec<_>>()))?;
    Ok((labels.len(), Some(labels)))
}

/// Returns the height and width of each image, or (0, 0) if the image is missing or its header
/// cannot be read.
#[pyfunction]
pub(crate) fn image_sizes(data: &Bound<'_, PyAny>) -> PyResult<Vec<(u32, u32)>> {
    let py = data.py();
    let source = source::open_source(data, &Options::new().stores(warpfeed_stores::all()))?;
    let sizes = run_on_thread(py, move |_| Loader::source(source).image_sizes())?;
    Ok(sizes.into_iter().map(|size| (size.height, size.width)).collect())
}

/// Splits `samples` into `fractions`. If `labels` are given, splits each class separately.
#[pyfunction]
#[pyo3(signature = (samples, fractions, seed, labels=None))]
pub(crate) fn split(
    py: Python<'_>,
    samples: Vec<u64>,
    fractions: Vec<f64>,
    seed: u64,
    labels: Option<Vec<i64>>,
) -> PyResult<Vec<Vec<u64>>> {
    /// Dispatches on the number of fractions, because the functions of `sampler` take arrays.
    macro_rules! by_number {
        ($($n:literal)*) => {
            match fractions.len() {
                $($n => {
                    let fractions: [f64; $n] = fractions.try_into().expect("the length matches");
                    run_on_thread(py, move |_| Ok(match labels {
                        None => sampler::split(samples, fractions, seed)?.into(),
                        Some(labels) => sampler::split_stratified(samples.into_iter().zip(labels), fractions, seed)?
                            .into(),
                    }))
                })*
                n => Err(config_error(py, format!("fractions: expected 1 to 8 numbers, got {n}"))),
            }
        };
    }
    by_number!(1 2 3 4 5 6 7 8)
}
