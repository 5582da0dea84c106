use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpfeed::Augment;
use warpfeed::transform::{
    AutoAugment, Border, ColorJitter, CopyPaste, Filter, Interpolation, Mix, Mosaic, Policy, RandomAffine,
    RandomErasing,
};

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
            let ((height, width),) = args.extract()?;
            Augment::resize(width, height)
        }
        "pass_through" => {
            let ((height, width),) = args.extract()?;
            Augment::pass_through(width, height)
        }
        "letterbox" => {
            let ((height, width),) = args.extract()?;
            Augment::letterbox(width, height)
        }
        "own_size" => {
            let ((height, width),) = args.extract()?;
            Augment::own_size(width, height)
        }
        "scale_jitter" => {
            let (side, low, high) = args.extract()?;
            Augment::scale_jitter(side, low, high)
        }
        "iou_crop" => {
            let ((height, width),) = args.extract()?;
            Augment::iou_crop(width, height)
        }
        "random_crop" => Augment::random_crop(args.extract::<(_,)>()?.0),
        "random_resize" => {
            let (side, low, high) = args.extract()?;
            Augment::random_resize(side, low, high)
        }
        "shortest_size" => {
            let (sides, longest) = args.extract::<(Vec<u32>, u32)>()?;
            Augment::shortest_size(&sides, longest)
        }
        "preset" => {
            let (name, side) = args.extract::<(String, u32)>()?;
            Augment::preset(&name, side)
        }
        other => return no_call("Augment", other),
    })
}

fn then(augment: Augment, name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Augment> {
    Ok(match name {
        "output" => {
            let ((height, width),) = args.extract()?;
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
        "fill" => {
            let (red, green, blue) = args.extract()?;
            augment.fill([red, green, blue])
        }
        "padding" => augment.padding(args.extract::<(_,)>()?.0),
        "border" => augment.border(border(&args.extract::<(String,)>()?.0)?),
        "pad_if_needed" => augment.pad_if_needed(),
        "shrink_larger" => augment.shrink_larger(),
        "interpolation" => augment.interpolation(filter(&args.extract::<(String,)>()?.0)?),
        "antialias" => augment.antialias(args.extract::<(_,)>()?.0),
        "from_epoch" => {
            let (epoch, later) = args.extract::<(u64, Bound<'_, PyAny>)>()?;
            augment.from_epoch(epoch, self::augment(&later)?)
        }
        "jitter" => augment.jitter(jitter(&args.get_item(0)?)?),
        "erase" => augment.erase(erasing(&args.get_item(0)?)?),
        "mix" => augment.mix(mix(&args.get_item(0)?)?),
        "mosaic" => {
            let (probability, (low, high), translate) = args.extract()?;
            augment.mosaic(Mosaic::new().probability(probability).scale(low, high).translate(translate))
        }
        "copy_paste" => {
            let (probability, margin) = args.extract()?;
            augment.copy_paste(CopyPaste::new().probability(probability).margin(margin))
        }
        "zoom_out" => {
            let (probability, low, high) = args.extract()?;
            augment.zoom_out(probability, low, high)
        }
        "photometric_distort" => augment.photometric_distort(args.extract::<(_,)>()?.0),
        "three_augment" => augment.three_augment(),
        "simclr" => augment.simclr(),
        "dino" => {
            let (blur, solarize) = args.extract()?;
            augment.dino(blur, solarize)
        }
        "affine" => augment.affine(affine(args)?),
        "rotate" => augment.rotate(args.extract::<(_,)>()?.0),
        "perspective" => {
            let (scale, probability) = args.extract()?;
            augment.perspective(scale, probability)
        }
        "grayscale" => augment.grayscale(args.extract::<(_,)>()?.0),
        "invert" => augment.invert(args.extract::<(_,)>()?.0),
        "posterize" => {
            let (bits, probability) = args.extract()?;
            augment.posterize(bits, probability)
        }
        "solarize" => {
            let (threshold, probability) = args.extract()?;
            augment.solarize(threshold, probability)
        }
        "equalize" => augment.equalize(args.extract::<(_,)>()?.0),
        "autocontrast" => augment.autocontrast(args.extract::<(_,)>()?.0),
        "sharpness" => {
            let (factor, probability) = args.extract()?;
            augment.sharpness(factor, probability)
        }
        "permute_channels" => augment.permute_channels(args.extract::<(_,)>()?.0),
        "blur" => {
            let (kernel, sigma, probability) = args.extract()?;
            augment.blur(kernel, sigma, probability)
        }
        "rand_augment" => {
            let (steps, magnitude, bins, between, fill) = args.extract::<(_, _, _, String, _)>()?;
            augment.policy(sampled(Policy::rand_augment(steps, magnitude).bins(bins), &between, fill)?)
        }
        "trivial_augment_wide" => {
            let (bins, between, fill) = args.extract::<(_, String, _)>()?;
            augment.policy(sampled(Policy::trivial_augment_wide().bins(bins), &between, fill)?)
        }
        "auto_augment" => {
            let (policy, between, fill) = args.extract::<(String, String, _)>()?;
            let policy = match &*policy {
                "imagenet" => AutoAugment::ImageNet,
                "cifar10" => AutoAugment::Cifar10,
                "svhn" => AutoAugment::Svhn,
                other => {
                    let text =
                        format!("auto_augment: the policy is \"imagenet\", \"cifar10\" or \"svhn\", not {other:?}");
                    return Err(PyValueError::new_err(text));
                }
            };
            augment.policy(sampled(Policy::auto_augment(policy), &between, fill)?)
        }
        "aug_mix" => {
            let (severity, chains, depth, between, fill) = args.extract::<(_, _, _, String, _)>()?;
            augment.policy(sampled(Policy::aug_mix().severity(severity).chains(chains, depth), &between, fill)?)
        }
        "timm" => {
            let (text, between, fill) = args.extract::<(String, String, _)>()?;
            augment.policy(sampled(Policy::timm(&text), &between, fill)?)
        }
        other => return no_call("Augment", other),
    })
}

fn filter(name: &str) -> PyResult<Filter> {
    match name {
        "bilinear" => Ok(Filter::Bilinear),
        "bicubic" => Ok(Filter::Bicubic),
        "bilinear_exact" => Ok(Filter::BilinearExact),
        "lanczos" => Ok(Filter::Lanczos),
        "nearest" => Ok(Filter::Nearest),
        other => {
            let known = "\"bilinear\", \"bilinear_exact\", \"bicubic\", \"lanczos\" or \"nearest\"";
            Err(PyValueError::new_err(format!("the filter is {known}, not {other:?}")))
        }
    }
}

fn border(name: &str) -> PyResult<Border> {
    match name {
        "constant" => Ok(Border::Constant),
        "edge" => Ok(Border::Edge),
        "reflect" => Ok(Border::Reflect),
        "symmetric" => Ok(Border::Symmetric),
        other => {
            let text = format!("the border is \"constant\", \"edge\", \"reflect\" or \"symmetric\", not {other:?}");
            Err(PyValueError::new_err(text))
        }
    }
}

fn interpolation(name: &str) -> PyResult<Interpolation> {
    match name {
        "nearest" => Ok(Interpolation::Nearest),
        "bilinear" => Ok(Interpolation::Bilinear),
        other => {
            let text = format!("the interpolation is \"nearest\" or \"bilinear\", not {other:?}");
            Err(PyValueError::new_err(text))
        }
    }
}

/// Adds the interpolation and the fill colour.
fn sampled(policy: Policy, between: &str, fill: Option<[u8; 3]>) -> PyResult<Policy> {
    let policy = policy.interpolation(interpolation(between)?);
    Ok(match fill {
        Some(fill) => policy.fill(fill),
        None => policy,
    })
}

fn affine(args: &Bound<'_, PyTuple>) -> PyResult<RandomAffine> {
    type Range = Option<(f64, f64)>;
    type Setter = fn(RandomAffine, f64, f64) -> RandomAffine;
    let (rotate, translate, scale, shear_x, shear_y, between, fill) =
        args.extract::<(Range, Range, Range, Range, Range, String, Option<[u8; 3]>)>()?;
    let mut affine = RandomAffine::new().interpolation(interpolation(&between)?);
    let setters: [(Range, Setter); 5] = [
        (rotate, RandomAffine::rotate),
        (translate, RandomAffine::translate),
        (scale, RandomAffine::scale),
        (shear_x, RandomAffine::shear_x),
        (shear_y, RandomAffine::shear_y),
    ];
    for (range, set) in setters {
        if let Some((low, high)) = range {
            affine = set(affine, low, high);
        }
    }
    Ok(match fill {
        Some(fill) => affine.fill(fill),
        None => affine,
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
            "probability" => jitter.probability(amount),
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
            "value" => {
                let (red, green, blue) = args.extract()?;
                erasing.value([red, green, blue])
            }
            "noise" => erasing.noise(args.extract::<(_,)>()?.0),
            "random_colour" => erasing.random_colour(args.extract::<(_,)>()?.0),
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
