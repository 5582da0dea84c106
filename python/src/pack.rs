//! Packs datasets, merges parts, and reports the progress of packing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpfeed::decode;
use warpfeed::pack::{ImageIssue, Merge, Pack, Progress, RawSize, Recode, Report};
use warpfeed::source::{Classes, Source};

use crate::error::Raised as _;
use crate::option_names::in_python;
use crate::options::source_options;
use crate::source;
use crate::waiting::run_reporting;

/// Packs a dataset. `options` contains the settings of [`Pack`] and the options for opening `data`.
/// `progress` is called with the number of finished samples and the total.
#[pyfunction]
#[pyo3(signature = (data, target, options, progress=None))]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    target: PathBuf,
    options: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let source = open(data, options)?;
    let get = |name: &str| {
        let missing = || PyTypeError::new_err(format!("missing option {name:?}"));
        options.get_item(name).and_then(|value| value.ok_or_else(missing))
    };
    let recode = options.get_item("recode")?.map(|description| parse_recode(&description)).transpose()?;
    let (frames, images): (bool, Option<Vec<String>>) =
        (get("frames")?.extract()?, options.get_item("images")?.map(|names| names.extract()).transpose()?);
    let workers: Option<usize> = options.get_item("num_workers")?.map(|threads| threads.extract()).transpose()?;
    let shard_size: Option<u64> = options.get_item("shard_size")?.map(|bytes| bytes.extract()).transpose()?;
    let shard_samples: Option<u64> = options.get_item("shard_samples")?.map(|number| number.extract()).transpose()?;
    let part: Option<(u64, u64)> = options.get_item("part")?.map(|part| part.extract()).transpose()?;
    let samples: Option<Vec<u64>> = options.get_item("samples")?.map(|samples| samples.extract()).transpose()?;
    let keys: Option<Vec<String>> = options.get_item("keys")?.map(|keys| keys.extract()).transpose()?;
    let (force, keep_undecodable): (bool, bool) = (get("force")?.extract()?, get("keep_undecodable")?.extract()?);
    let (strict, retries): (bool, usize) = (get("strict")?.extract()?, get("retries")?.extract()?);
    let convert_to_u8: bool = get("convert_to_u8")?.extract()?;
    let background: Option<[u8; 3]> = options.get_item("background")?.map(|color| color.extract()).transpose()?;
    // The number of finished samples, and the total.
    let progress_counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (counters, mut reported) = (progress_counts.clone(), 0);
    let work = move |_: &_| {
        let record = |done: &Progress| {
            counters[1].store(done.total, Ordering::Relaxed);
            counters[0].store(done.samples, Ordering::Release);
        };
        let pack = Pack::new(&*source)
            .frames(frames)
            .workers(workers.unwrap_or(0))
            .force(force)
            .keep_undecodable(keep_undecodable);
        let mut pack = pack.strict(strict).retries(retries).convert_to_u8(convert_to_u8).stores(warpfeed_stores::all());
        if let Some(recode) = recode {
            pack = pack.recode(recode);
        }
        if let Some(names) = images {
            pack = pack.images(names);
        }
        if let Some(color) = background {
            pack = pack.background(color);
        }
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
        pack.progress(record).to(&target)
    };
    let report = run_reporting(py, work, |py| {
        let done = progress_counts[0].load(Ordering::Acquire);
        match &progress {
            Some(progress) if done != reported => {
                reported = done;
                progress.call1(py, (done, progress_counts[1].load(Ordering::Relaxed))).map(drop)
            }
            _ => Ok(()),
        }
    })?;
    report_dict(py, &report)
}

/// Opens the dataset to pack. A `format` in `options` requires that `data` is a path.
fn open(data: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Arc<dyn Source>> {
    let py = data.py();
    let mut source_options = source_options(options)?;
    if let Some(format) = options.get_item("format")? {
        source_options = source_options.format(format.extract::<String>()?);
    }
    let classes = match (options.get_item("classes")?, options.get_item("classes_file")?) {
        (Some(names), _) => Some(Classes::new(names.extract::<Vec<String>>()?).raised(py)?),
        (None, Some(file)) => Some(Classes::read(file.extract::<PathBuf>()?).raised(py)?),
        (None, None) => None,
    };
    if let Some(classes) = &classes {
        source_options = source_options.classes(classes.clone());
    }
    let source = source::open_source(data, &source_options)?;
    source_options.check_used().raised(py)?;
    // Only datasets that are opened by path apply the classes themselves. A second application
    // changes nothing.
    classes.map_or(Ok(source.clone()), |classes| classes.relabel(source).raised(py))
}

#[pyfunction]
pub(crate) fn merge(py: Python<'_>, target: PathBuf, force: bool, skip_checksums: bool) -> PyResult<Bound<'_, PyDict>> {
    let merge = Merge::new(target).stores(warpfeed_stores::all()).force(force).skip_checksums(skip_checksums);
    let merged = run_reporting(py, move |_| merge.run(), |_| Ok(()))?;
    let dict = report_dict(py, &merged.report)?;
    dict.set_item("orphans", &merged.orphans)?;
    Ok(dict)
}

#[pyfunction]
pub(crate) fn pack_progress(py: Python<'_>, target: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let merge = Merge::new(target).stores(warpfeed_stores::all());
    let progress = run_reporting(py, move |_| merge.progress(), |_| Ok(()))?;
    let dict = PyDict::new(py);
    dict.set_item("samples", progress.samples)?;
    dict.set_item("total", progress.total)?;
    dict.set_item("parts", progress.parts)?;
    dict.set_item("missing", progress.missing)?;
    dict.set_item("merged", progress.merged)?;
    Ok(dict)
}

/// Returns the part that this task of a job array packs, and the number of parts.
#[pyfunction]
pub(crate) fn part_from_env(py: Python<'_>, parts: Option<u64>) -> PyResult<(u64, u64)> {
    warpfeed::pack::part_from_env(parts).raised(py)
}

/// Parses a recoding from `warpfeed._pack`, such as `("quality", 90, None)`.
fn parse_recode(value: &Bound<'_, PyAny>) -> PyResult<Recode> {
    let (name, first, second): (String, Option<u32>, Option<u32>) = value.extract()?;
    Ok(match (&*name, first, second) {
        ("keep_bytes", ..) => Recode::KeepBytes,
        ("lossless", ..) => Recode::Lossless,
        ("quality", Some(quality), max_side) => {
            Recode::Quality { quality: u8::try_from(quality).unwrap_or(u8::MAX), max_side }
        }
        ("max_side", Some(side), _) => Recode::MaxSide(side),
        ("raw", Some(shorter), None) => Recode::Raw(RawSize::Shorter(shorter)),
        ("raw", Some(height), Some(width)) => Recode::Raw(RawSize::Exact(decode::Size::new(width, height))),
        (other, ..) => return Err(PyTypeError::new_err(format!("unknown recoding {other:?}"))),
    })
}

fn report_dict<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, number) in [
        ("samples", report.samples),
        ("bytes_in", report.bytes_in),
        ("bytes_out", report.bytes_out),
        ("repacked_jpegs", report.repacked_jpegs),
        ("reencoded", report.reencoded),
        ("raw", report.raw),
        ("unchanged", report.unchanged),
        ("not_recoded_count", report.not_recoded_count),
        ("undecodable_count", report.undecodable_count),
        ("damaged_count", report.damaged_count),
        ("duplicate_keys", report.duplicate_keys),
        ("bytes", report.written.bytes),
    ] {
        dict.set_item(name, number)?;
    }
    let list = |images: &[ImageIssue]| -> Vec<(u64, String, String)> {
        images.iter().map(|image| (image.index, image.key.clone(), in_python(&image.reason))).collect()
    };
    let psnr = report.psnr.as_ref().map(|psnr| (psnr.mean, psnr.lowest, psnr.lowest_key.clone()));
    dict.set_item("psnr", psnr)?;
    dict.set_item("not_recoded", list(&report.not_recoded))?;
    dict.set_item("damaged", list(&report.damaged))?;
    dict.set_item("paths", &report.written.paths)?;
    Ok(dict)
}
