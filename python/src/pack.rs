use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpfeed::pack::{Merge, Pack, Progress, RawSize, Recode, Refused, Report};
use warpfeed::source::{Sample, Source};
use warpfeed::{Error, decode};

use crate::error::Raised as _;
use crate::options::opening;
use crate::source;
use crate::waiting::aside;

/// Interval between reports of progress and checks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// A source whose reads fail after packing was stopped.
struct Stoppable {
    source: Arc<dyn Source>,
    stopped: AtomicBool,
}

impl Source for Stoppable {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> warpfeed::Result<Sample<'a>> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::in_source("packing was stopped"));
        }
        self.source.read(index, scratch)
    }

    fn key(&self, index: usize, scratch: &mut Vec<u8>) -> warpfeed::Result<String> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::in_source("packing was stopped"));
        }
        self.source.key(index, scratch)
    }

    fn fingerprint(&self) -> Option<u64> {
        self.source.fingerprint()
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        self.source.path(index)
    }

    fn classes(&self) -> &[String] {
        self.source.classes()
    }

    fn kind(&self) -> &'static str {
        self.source.kind()
    }
}

/// Packs `data` into `target`.
///
/// `options` has the values of the setters of `Pack` and the options for opening `data`. `progress`
/// is called with the number of finished samples and of all.
#[pyfunction]
#[pyo3(signature = (data, target, options, progress=None))]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    target: PathBuf,
    options: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let source = Stoppable { source: source::of(data, &opening(options)?)?, stopped: AtomicBool::new(false) };
    let get = |name: &str| {
        options.get_item(name).and_then(|value| value.ok_or_else(|| PyTypeError::new_err(format!("no {name}"))))
    };
    let recode = recode(&get("recode")?)?;
    let workers: usize = get("num_workers")?.extract()?;
    let shard_size: Option<u64> = options.get_item("shard_size")?.map(|bytes| bytes.extract()).transpose()?;
    let shard_samples: Option<u64> = options.get_item("shard_samples")?.map(|number| number.extract()).transpose()?;
    let part: Option<(u64, u64)> = options.get_item("part")?.map(|part| part.extract()).transpose()?;
    let samples: Option<Vec<u64>> = options.get_item("samples")?.map(|samples| samples.extract()).transpose()?;
    let keys: Option<Vec<String>> = options.get_item("keys")?.map(|keys| keys.extract()).transpose()?;
    let (force, keep_bad): (bool, bool) = (get("force")?.extract()?, get("keep_bad")?.extract()?);
    let (strict, retries): (bool, usize) = (get("strict")?.extract()?, get("retries")?.extract()?);
    let (packed, raised) = py.detach(|| {
        let (mut told, mut raised) = (Instant::now(), None);
        let tell = |done: &Progress| {
            let end = done.samples == done.total;
            if raised.is_some() || !end && told.elapsed() < SLICE {
                return;
            }
            told = Instant::now();
            raised = Python::try_attach(|py| tell(py, progress.as_ref(), done)).and_then(Result::err);
            source.stopped.store(raised.is_some(), Ordering::Relaxed);
        };
        let pack = Pack::new(&source).recode(recode).workers(workers).force(force).keep_bad(keep_bad);
        let mut pack = pack.strict(strict).retries(retries).stores(warpfeed_stores::all());
        if let Some(bytes) = shard_size {
            pack = pack.shard_size(bytes);
        }
        if let Some(samples) = shard_samples {
            pack = pack.shard_samples(samples);
        }
        if let Some((part, parts)) = part {
            pack = pack.part(part, parts);
        }
        if let Some(samples) = samples {
            pack = pack.samples(samples);
        }
        if let Some(keys) = keys {
            pack = pack.keys(keys);
        }
        let packed = pack.progress(tell).to(&target);
        (packed, raised)
    });
    match raised {
        Some(raised) => Err(raised),
        None => told_of(py, &packed.raised(py)?),
    }
}

/// Merges the parts of `target`.
#[pyfunction]
pub(crate) fn merge(py: Python<'_>, target: PathBuf, force: bool, quick: bool) -> PyResult<Bound<'_, PyDict>> {
    let merge = Merge::new(target).stores(warpfeed_stores::all()).force(force).quick(quick);
    let merged = aside(py, move |_| merge.run())?;
    let told = told_of(py, &merged.report)?;
    told.set_item("orphans", &merged.orphans)?;
    Ok(told)
}

/// The part of this task of an array, and the number of parts.
#[pyfunction]
pub(crate) fn part_from_env(py: Python<'_>, parts: Option<u64>) -> PyResult<(u64, u64)> {
    warpfeed::pack::part_from_env(parts).raised(py)
}

/// Checks for signals and calls the user's function.
fn tell(py: Python<'_>, progress: Option<&Py<PyAny>>, done: &Progress) -> PyResult<()> {
    py.check_signals()?;
    if let Some(progress) = progress {
        progress.call1(py, (done.samples, done.total))?;
    }
    Ok(())
}

/// The recoding that `warpfeed._pack` describes: `("quality", 90, None)` and others.
fn recode(value: &Bound<'_, PyAny>) -> PyResult<Recode> {
    let (name, number, other): (String, Option<u32>, Option<u32>) = value.extract()?;
    Ok(match (&*name, number, other) {
        ("keep_bytes", ..) => Recode::KeepBytes,
        ("lossless", ..) => Recode::Lossless,
        ("quality", Some(quality), max_side) => {
            Recode::Quality { quality: u8::try_from(quality).unwrap_or(u8::MAX), max_side }
        }
        ("max_side", Some(side), _) => Recode::MaxSide(side),
        ("raw", Some(shorter), None) => Recode::Raw(RawSize::Shorter(shorter)),
        ("raw", Some(height), Some(width)) => Recode::Raw(RawSize::Exact(decode::Size::new(width, height))),
        (other, ..) => return Err(PyTypeError::new_err(format!("no recoding {other:?}"))),
    })
}

fn told_of<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    for (name, number) in [
        ("samples", report.samples),
        ("bytes_in", report.bytes_in),
        ("bytes_out", report.bytes_out),
        ("repacked", report.repacked),
        ("encoded", report.encoded),
        ("raw", report.raw),
        ("kept", report.kept),
        ("refused_count", report.refused_count),
        ("undecodable_count", report.undecodable_count),
        ("damaged_count", report.damaged_count),
        ("duplicate_keys", report.duplicate_keys),
        ("bytes", report.written.bytes),
    ] {
        told.set_item(name, number)?;
    }
    let list = |found: &[Refused]| -> Vec<(u64, String, String)> {
        found.iter().map(|one| (one.index, one.key.clone(), one.reason.clone())).collect()
    };
    told.set_item("refused", list(&report.refused))?;
    told.set_item("damaged", list(&report.damaged))?;
    told.set_item("paths", &report.written.paths)?;
    Ok(told)
}
