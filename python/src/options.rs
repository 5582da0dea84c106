use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use warpfeed::batch::Layout;
use warpfeed::field::{FieldKind, Image, Label, Numbers, Rows};
use warpfeed::trace::Schedule;
use warpfeed::transform::{ColorJitter, Mix, RandomErasing};
use warpfeed::{Augment, Checkpoint, Dtype, LastBatch, Loader, Normalize, OnError};

use crate::source;

/// The loader that `options` describe: names and values of its setters, as `warpfeed/_loader.py`
/// has made them of what the user wrote.
pub(crate) fn loader(options: &Bound<'_, PyDict>) -> PyResult<Loader> {
    let data = options.get_item("data")?.ok_or_else(|| PyTypeError::new_err("no data set"))?;
    let mut loader = input(&data)?;
    for (name, value) in options.iter() {
        let name: String = name.extract()?;
        if name != "data" {
            loader = set(loader, &name, &value)?;
        }
    }
    Ok(loader)
}

/// A path, a Python source, or a list of such with proportions.
fn input(data: &Bound<'_, PyAny>) -> PyResult<Loader> {
    // A list alone: a Python source of pictures and labels looks like a list of pairs too.
    let Ok(parts) = data.cast::<PyList>() else {
        return Ok(match data.extract::<std::path::PathBuf>() {
            Ok(path) => Loader::new(path),
            Err(_) => Loader::shared_source(source::of(data)?),
        });
    };
    let parts: Vec<(Bound<'_, PyAny>, f64)> = parts.extract()?;
    let parts: Vec<_> =
        parts.into_iter().map(|(part, share)| Ok((source::of(&part)?, share))).collect::<PyResult<_>>()?;
    Ok(Loader::mixture_of(parts))
}

fn set(loader: Loader, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Loader> {
    Ok(match name {
        "batch_size" => loader.batch_size(value.extract()?),
        "global_batch_size" => loader.global_batch_size(value.extract()?),
        "last_batch" => loader.last_batch(match value.extract::<&str>()? {
            "keep" => LastBatch::Keep,
            "drop" => LastBatch::Drop,
            "pad" => LastBatch::Pad,
            other => return Err(unknown("last_batch", other, "\"keep\", \"drop\" or \"pad\"")),
        }),
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
        "skip" => loader.skip(value.extract()?),
        "workers" => loader.workers(value.extract()?),
        "prefetch" => loader.prefetch(value.extract()?),
        "pinned" => loader.pinned(value.extract()?),
        "mmap" => loader.mmap(value.extract()?),
        "dtype" => loader.dtype(dtype(value.extract()?)?),
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
                loader = loader.field(name.extract()?, field(&kind)?);
            }
            loader
        }
        "without" => value.extract::<Vec<String>>()?.iter().fold(loader, |loader, name| loader.without(name)),
        "soft_labels" => {
            let (classes, smoothing) = value.extract()?;
            loader.soft_labels(classes, smoothing)
        }
        "unlabelled" => loader.unlabelled(value.extract()?),
        "max_skipped" => loader.on_error(OnError::Skip { max_skipped: value.extract()? }),
        "retries" => loader.retries(value.extract()?),
        "timeout" => loader.timeout(
            Duration::try_from_secs_f64(value.extract()?)
                .map_err(|e| PyValueError::new_err(format!("timeout: {e}")))?,
        ),
        "memory_limit" => loader.memory_limit(value.extract()?),
        "max_pixels" => loader.max_pixels(value.extract()?),
        "max_sample_bytes" => loader.max_sample_bytes(value.extract()?),
        "trace" => {
            let (path, (wait, warmup, active, repeat)): (std::path::PathBuf, _) = value.extract()?;
            loader.trace(path, Schedule { wait, warmup, active, repeat })
        }
        "resume" => loader.resume(checkpoint(value.extract()?)?),
        other => return Err(PyTypeError::new_err(format!("no option {other:?}"))),
    })
}

fn unknown(option: &str, value: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("{option}={value:?}: known are {known}"))
}

fn dtype(name: &str) -> PyResult<Dtype> {
    Ok(match name {
        "u8" => Dtype::U8,
        "f32" => Dtype::F32,
        "f16" => Dtype::F16,
        "bf16" => Dtype::Bf16,
        "i16" => Dtype::I16,
        "i32" => Dtype::I32,
        "i64" => Dtype::I64,
        "u16" => Dtype::U16,
        other => return Err(unknown("dtype", other, "\"u8\", \"f32\", \"f16\", \"bf16\" and, of fields, \"i64\"")),
    })
}

/// A state as `state_dict` gives it.
pub(crate) fn checkpoint(json: &str) -> PyResult<Checkpoint> {
    serde_json::from_str(json).map_err(|e| PyValueError::new_err(format!("not a state of a loader: {e}")))
}

/// Calls as `warpfeed._augment` records them: names with arguments.
fn calls<'py>(recorded: &Bound<'py, PyAny>) -> PyResult<Vec<(String, Bound<'py, PyTuple>)>> {
    recorded.getattr("_calls")?.extract()
}

fn no_call<T>(of: &str, name: &str) -> PyResult<T> {
    Err(PyTypeError::new_err(format!("{of} has no {name:?}")))
}

fn augment(recorded: &Bound<'_, PyAny>) -> PyResult<Augment> {
    let mut calls = calls(recorded)?.into_iter();
    let (name, args) =
        calls.next().ok_or_else(|| PyTypeError::new_err("an Augment begins with train, eval or another"))?;
    let mut augment = match &*name {
        "train" => Augment::train(args.extract::<(_,)>()?.0),
        "eval" => {
            let (shorter, side) = args.extract()?;
            Augment::eval(shorter, side)
        }
        "center_crop" => Augment::center_crop(args.extract::<(_,)>()?.0),
        "resize" => {
            let (width, height) = args.extract()?;
            Augment::resize(width, height)
        }
        "pass_through" => {
            let (width, height) = args.extract()?;
            Augment::pass_through(width, height)
        }
        other => return no_call("Augment", other),
    };
    for (name, args) in calls {
        augment = match &*name {
            "output" => {
                let (width, height) = args.extract()?;
                augment.output(width, height)
            }
            "scale" => {
                let (low, high) = args.extract()?;
                augment.scale(low, high)
            }
            "ratio" => {
                let (low, high) = args.extract()?;
                augment.ratio(low, high)
            }
            "flip" => augment.flip(args.extract::<(_,)>()?.0),
            "vertical_flip" => augment.vertical_flip(args.extract::<(_,)>()?.0),
            "jitter" => augment.jitter(jitter(&args.get_item(0)?)?),
            "erase" => augment.erase(erasing(&args.get_item(0)?)?),
            "mix" => augment.mix(mix(&args.get_item(0)?)?),
            other => return no_call("Augment", other),
        };
    }
    Ok(augment)
}

fn jitter(recorded: &Bound<'_, PyAny>) -> PyResult<ColorJitter> {
    let mut jitter = ColorJitter::new();
    for (name, args) in calls(recorded)? {
        let amount = args.extract::<(f64,)>()?.0;
        jitter = match &*name {
            "brightness" => jitter.brightness(amount),
            "contrast" => jitter.contrast(amount),
            "saturation" => jitter.saturation(amount),
            "hue" => jitter.hue(amount),
            other => return no_call("ColorJitter", other),
        };
    }
    Ok(jitter)
}

fn erasing(recorded: &Bound<'_, PyAny>) -> PyResult<RandomErasing> {
    let mut erasing = RandomErasing::new(0.0);
    for (name, args) in calls(recorded)? {
        erasing = match &*name {
            "new" => RandomErasing::new(args.extract::<(_,)>()?.0),
            "scale" => {
                let (low, high) = args.extract()?;
                erasing.scale(low, high)
            }
            "ratio" => {
                let (low, high) = args.extract()?;
                erasing.ratio(low, high)
            }
            "value" => erasing.value(args.extract::<([f32; 3],)>()?.0),
            other => return no_call("RandomErasing", other),
        };
    }
    Ok(erasing)
}

fn mix(recorded: &Bound<'_, PyAny>) -> PyResult<Mix> {
    let mut mix: Option<Mix> = None;
    for (name, args) in calls(recorded)? {
        mix = Some(match (&*name, mix) {
            ("mixup", _) => Mix::mixup(args.extract::<(_,)>()?.0),
            ("cutmix", _) => Mix::cutmix(args.extract::<(_,)>()?.0),
            ("either", _) => {
                let (mixup, cutmix) = args.extract()?;
                Mix::either(mixup, cutmix)
            }
            ("probability", Some(mix)) => mix.probability(args.extract::<(_,)>()?.0),
            (other, _) => return no_call("Mix", other),
        });
    }
    mix.ok_or_else(|| PyTypeError::new_err("a Mix begins with mixup, cutmix or either"))
}

/// A field as `warpfeed._fields` describes it: a name and the arguments.
fn field(kind: &Bound<'_, PyAny>) -> PyResult<FieldKind> {
    let described: Bound<'_, PyDict> = kind.call_method0("_describe")?.extract()?;
    let get = |name: &str| {
        described.get_item(name).and_then(|value| value.ok_or_else(|| PyTypeError::new_err(format!("no {name}"))))
    };
    Ok(match get("kind")?.extract::<&str>()? {
        "numbers" => Numbers::new(dtype(get("dtype")?.extract()?)?, get("shape")?.extract::<Vec<usize>>()?).into(),
        "rows" => {
            let dtype = dtype(get("dtype")?.extract()?)?;
            let mut rows = Rows::new(dtype, get("row")?.extract::<Vec<usize>>()?, get("most")?.extract()?);
            let padding = get("padding")?;
            if !padding.is_none() {
                rows = match dtype {
                    Dtype::U8 => rows.padding(padding.extract::<u8>()?),
                    Dtype::I64 => rows.padding(padding.extract::<i64>()?),
                    Dtype::F32 => rows.padding(padding.extract::<f32>()?),
                    _ => return Err(PyTypeError::new_err("rows: a padding of u8, i64 or f32")),
                };
            }
            if get("truncated")?.extract()? {
                rows = rows.truncated();
            }
            rows.into()
        }
        "image" => match get("of")?.extract::<Option<String>>()? {
            Some(name) => Image::of(name).into(),
            None => Image::new().into(),
        },
        "label" => {
            let mut label = Label::new().unlabelled(get("unlabelled")?.extract()?);
            if let Some((classes, smoothing)) = get("soft")?.extract()? {
                label = label.soft(classes, smoothing);
            }
            label.into()
        }
        other => return Err(unknown("field", other, "Image, Label, Numbers and Rows")),
    })
}
