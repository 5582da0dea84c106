use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use warpfeed::batch::Layout;
use warpfeed::source::Options;
use warpfeed::trace::Schedule;
use warpfeed::{Checkpoint, DecodeOn, Dtype, Exif, LastBatch, Loader, Normalize, OnError};

use crate::augment::augment;
use crate::error::{of_option, refused};
use crate::fields::field;
use crate::order::PythonOrder;
use crate::source;

/// The loader that `options` describe, with the order that they have: names and values of its setters, as `warpfeed/_loader.py`
/// has made them of what the user wrote.
pub(crate) fn loader(options: &Bound<'_, PyDict>, order: Option<&Arc<PythonOrder>>) -> PyResult<Loader> {
    let data = options.get_item("data")?.ok_or_else(|| PyTypeError::new_err("no data set"))?;
    let mut loader = input(&data, options)?;
    if let Some(order) = order {
        loader = loader.order(order.clone());
    }
    set_all(loader, options)
}

/// The same loader with the `options` that are setters.
pub(crate) fn set_all(mut loader: Loader, options: &Bound<'_, PyDict>) -> PyResult<Loader> {
    for (name, value) in options.iter() {
        let name: String = name.extract()?;
        if name != "data" && name != "order" {
            loader = set(loader, &name, &value).map_err(|e| match &*name {
                // They name what is wrong in them.
                "augment" | "fields" => e,
                _ => of_option(&name, &value, e),
            })?;
        }
    }
    Ok(loader)
}

/// A path, a source, or a list of such with proportions.
fn input(data: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Loader> {
    let opening = opening(options)?;
    // A list alone: a Python source of pictures and labels looks like a list of pairs too.
    let Ok(parts) = data.cast::<PyList>() else {
        return Ok(match data.extract::<PathBuf>() {
            Ok(path) => Loader::new(path),
            Err(_) => Loader::source(source::of(data, &opening)?),
        });
    };
    // Paths alone are opened by the loader, as one path is.
    if let Ok(paths) = parts.extract::<Vec<(PathBuf, f64)>>() {
        return Ok(Loader::mixture(paths));
    }
    let parts: Vec<(Bound<'_, PyAny>, f64)> = parts.extract()?;
    let parts: Vec<_> =
        parts.into_iter().map(|(part, share)| Ok((source::of(&part, &opening)?, share))).collect::<PyResult<_>>()?;
    Ok(Loader::mixture(parts))
}

/// How the data sets of `options` are opened.
pub(crate) fn opening(options: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut opening = Options::new();
    if let Some(mapped) = options.get_item("mmap")? {
        opening = opening.mmap(mapped.extract()?);
    }
    if let Some(indexed) = options.get_item("index")? {
        opening = opening.index(indexed.extract()?);
    }
    if let Some(columns) = options.get_item("table")? {
        opening = opening.table(source::columns(&columns)?);
    }
    Ok(opening)
}

fn set(loader: Loader, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Loader> {
    Ok(match name {
        "batch_size" => loader.batch_size(value.extract()?),
        "global_batch_size" => loader.global_batch_size(value.extract()?),
        "last_batch" => loader.last_batch(match value.extract::<&str>()? {
            "keep" => LastBatch::Keep,
            "drop" => LastBatch::Drop,
            "pad" => LastBatch::Pad,
            other => return Err(unknown(value.py(), "last_batch", other, "\"keep\", \"drop\" or \"pad\"")),
        }),
        "local_world_size" => loader.local_world_size(value.extract()?),
        "rank" => {
            let (rank, world_size) = value.extract()?;
            loader.rank(rank, world_size)
        }
        "distributed" => loader.distributed(),
        "seed" => loader.seed(value.extract()?),
        "shuffle" => loader.shuffle(value.extract()?),
        "shuffle_window" => loader.shuffle_window(value.extract()?),
        "subset" => loader.subset(value.extract::<Vec<u64>>()?),
        "weights" => loader.weights(value.extract::<Vec<f64>>()?),
        "balanced" => loader.balanced(),
        "by_class_name" => loader.by_class_name(),
        "keep_labels" => loader.keep_labels(),
        "repeat" => loader.repeat(value.extract()?),
        "workers" => loader.workers(value.extract()?),
        "prefetch" => loader.prefetch(value.extract()?),
        "pinned" => loader.pinned(value.extract()?),
        "decode_on" => loader.decode_on(match value.extract::<&str>()? {
            "cpu" => DecodeOn::Cpu,
            "gpu" => DecodeOn::Gpu,
            "auto" => DecodeOn::Auto,
            other => return Err(unknown(value.py(), "decode_on", other, "\"cpu\", \"gpu\" and \"auto\"")),
        }),
        "decode_share" => loader.decode_share(value.extract()?),
        "mmap" => loader.mmap(value.extract()?),
        "index" => loader.index(value.extract()?),
        "table" => loader.table(source::columns(value)?),
        "classes" => loader.classes(value.extract::<Vec<String>>()?),
        "classes_file" => loader.classes_file(value.extract::<PathBuf>()?),
        "dtype" => loader.dtype(dtype(value)?),
        "layout" => loader.layout(match value.extract::<&str>()? {
            "nchw" => Layout::Nchw,
            _ => Layout::Nhwc,
        }),
        "normalize" => {
            let (mean, std) = value.extract()?;
            loader.normalize(Normalize { mean, std })
        }
        "augment" => loader.augment(augment(value)?),
        "fields" => {
            let mut loader = loader;
            for (name, kind) in value.cast::<PyDict>()?.iter() {
                let made = field(&kind).map_err(|e| of_option("fields", &kind, e))?;
                loader = loader.field(name.extract()?, made);
            }
            loader
        }
        "without" => value.extract::<Vec<String>>()?.iter().fold(loader, |loader, name| loader.without(name)),
        "annotations_follow" => loader.annotations_follow(match value.extract::<&str>()? {
            "stored" => Exif::Stored,
            "upright" => Exif::Upright,
            other => return Err(unknown(value.py(), "annotations_follow", other, "\"stored\" and \"upright\"")),
        }),
        "soft_labels" => {
            let (classes, smoothing) = value.extract()?;
            loader.soft_labels(classes, smoothing)
        }
        "unlabelled" => loader.unlabelled(value.extract()?),
        "max_skipped" => loader.on_error(OnError::Skip { max_skipped: value.extract()? }),
        "retries" => loader.retries(value.extract()?),
        "strict" => loader.strict(value.extract()?),
        "timeout" => loader
            .timeout(Duration::try_from_secs_f64(value.extract()?).map_err(|e| PyValueError::new_err(e.to_string()))?),
        "memory_limit" => loader.memory_limit(value.extract()?),
        "max_pixels" => loader.max_pixels(value.extract()?),
        "max_sample_bytes" => loader.max_sample_bytes(value.extract()?),
        "trace" => {
            let (path, (wait, warmup, active, repeat)): (PathBuf, _) = value.extract()?;
            loader.trace(path, Schedule { wait, warmup, active, repeat })
        }
        "resume" => loader.resume(checkpoint(value.extract()?)?),
        other => return Err(PyTypeError::new_err(format!("no option {other:?}"))),
    })
}

pub(crate) fn unknown(py: Python<'_>, option: &str, value: &str, known: &str) -> PyErr {
    refused(py, format!("{option}={value:?}: known are {known}"))
}

/// The element type of this name.
pub(crate) fn dtype(name: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    Ok(match name.extract::<&str>()? {
        "u8" => Dtype::U8,
        "f32" => Dtype::F32,
        "f16" => Dtype::F16,
        "bf16" => Dtype::Bf16,
        "i16" => Dtype::I16,
        "i32" => Dtype::I32,
        "i64" => Dtype::I64,
        "u16" => Dtype::U16,
        other => {
            return Err(unknown(
                name.py(),
                "dtype",
                other,
                "\"u8\", \"f32\", \"f16\", \"bf16\" and, of fields, \"i16\", \"i32\", \"i64\" and \"u16\"",
            ));
        }
    })
}

/// A state as `state_dict` gives it.
pub(crate) fn checkpoint(json: &str) -> PyResult<Checkpoint> {
    serde_json::from_str(json).map_err(|e| Python::attach(|py| refused(py, format!("not a state of a loader: {e}"))))
}
