use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpfeed::Augment;
use warpfeed::transform::{ColorJitter, Mix, RandomErasing};

use crate::error::of_call;

/// The calls that `warpfeed._augment` recorded: names with arguments.
fn calls<'py>(recorded: &Bound<'py, PyAny>) -> PyResult<Vec<(String, Bound<'py, PyTuple>)>> {
    recorded.getattr("_calls")?.extract()
}

fn no_call<T>(of: &str, name: &str) -> PyResult<T> {
    Err(PyTypeError::new_err(format!("{of} has no {name:?}")))
}

/// Repeats the recorded calls of an augmentation.
pub(crate) fn augment(recorded: &Bound<'_, PyAny>) -> PyResult<Augment> {
    let mut calls = calls(recorded)?.into_iter();
    let (name, args) =
        calls.next().ok_or_else(|| PyTypeError::new_err("an Augment begins with train, eval or another"))?;
    let begun = begin(&name, &args).map_err(|e| of_call("Augment", &name, &args, e))?;
    calls.try_fold(begun, |augment, (name, args)| {
        then(augment, &name, &args).map_err(|e| of_call("Augment", &name, &args, e))
    })
}

fn begin(name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Augment> {
    Ok(match name {
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
        "letterbox" => {
            let (width, height) = args.extract()?;
            Augment::letterbox(width, height)
        }
        "scale_jitter" => {
            let (side, low, high) = args.extract()?;
            Augment::scale_jitter(side, low, high)
        }
        "iou_crop" => {
            let (width, height) = args.extract()?;
            Augment::iou_crop(width, height)
        }
        other => return no_call("Augment", other),
    })
}

fn then(augment: Augment, name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Augment> {
    Ok(match name {
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
        "fill" => augment.fill(args.extract::<([u8; 3],)>()?.0),
        "jitter" => augment.jitter(jitter(&args.get_item(0)?)?),
        "erase" => augment.erase(erasing(&args.get_item(0)?)?),
        "mix" => augment.mix(mix(&args.get_item(0)?)?),
        other => return no_call("Augment", other),
    })
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
