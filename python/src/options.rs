//! Applies keyword arguments from Python to a [`Loader`] or a [`DecoderBuilder`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use warpfeed::decode::Size;
use warpfeed::field::AnyFieldType;
use warpfeed::source::{Options, Store};
use warpfeed::trace::Schedule;
use warpfeed::{Checkpoint, DecoderBuilder, Loader, OnError};
use warpfeed_stores::Cache;

use crate::augment::augment;
use crate::error::{Raised, config_error, in_option};
use crate::function::{Function, UserTransform};
use crate::order::PythonOrder;
use crate::source;
use crate::value::{from_value, parse_value};

/// The `copy` option, the index of the CUDA device (`None` for host memory), and the handle of a
/// stream.
pub(crate) type Delivery = (Option<bool>, Option<usize>, usize);

pub(crate) fn build_loader(options: &Bound<'_, PyDict>, order: Option<&Arc<PythonOrder>>) -> PyResult<Loader> {
    let data = options
        .get_item("data")?
        .ok_or_else(|| PyTypeError::new_err("data is missing; pass the path of a dataset or a Python dataset"))?;
    let mut loader = loader_of(&data, options)?;
    if let Some(order) = order {
        loader = loader.sampler(order.clone());
        if !prepares_next_epoch(options)? {
            loader = loader.epochs(0);
        }
    }
    set_options(loader, options)
}

/// Returns whether the loader may prepare the first batches of the next epoch. With a sampler
/// function, the program must request this with a positive `epochs`, because the function may
/// depend on the training state.
pub(crate) fn prepares_next_epoch(options: &Bound<'_, PyDict>) -> PyResult<bool> {
    match options.get_item("epochs")? {
        Some(epochs) => Ok(epochs.extract::<u64>().map_or(true, |epochs| epochs > 0)),
        None => Ok(options.get_item("sampler")?.is_none()),
    }
}

pub(crate) fn decoder_builder(options: &Bound<'_, PyDict>) -> PyResult<DecoderBuilder> {
    let mut decoder = set_options(Loader::new(""), options)?.decoder();
    if let Some(geometry) = options.get_item("geometry")?
        && geometry.extract()?
    {
        decoder = decoder.geometry();
    }
    match options.get_item("max_queued")? {
        Some(value) => {
            Ok(decoder.max_queued(value.extract::<usize>().map_err(|e| in_option("max_queued", &value, e))?))
        }
        None => Ok(decoder),
    }
}

fn set_options(mut loader: Loader, options: &Bound<'_, PyDict>) -> PyResult<Loader> {
    for (name, value) in options.iter() {
        let name: String = name.extract()?;
        if !matches!(
            &*name,
            "data"
                | "sampler"
                | "max_queued"
                | "geometry"
                | "cache_dir"
                | "cache_bytes"
                | "cache_refresh"
                | "cache_listing"
                | "masks"
                | "table"
        ) {
            loader = set_option(loader, &name, &value).map_err(|e| match &*name {
                // The errors of these options already name the call or the field.
                "augment" | "augment_for" | "views" | "fields" => e,
                _ => in_option(&name, &value, e),
            })?;
        }
    }
    Ok(loader)
}

fn loader_of(data: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Loader> {
    let source_options = source_options(options)?;
    // Only a list is a mixture. Other sequences of pairs are Python datasets, which return images
    // with labels.
    let Ok(parts) = data.cast::<PyList>() else {
        return match data.extract::<PathBuf>() {
            Ok(path) => set_open_options(Loader::new(path), options),
            Err(_) => {
                let source = source::open_source(data, &source_options)?;
                source_options.check_used().raised(data.py())?;
                Ok(Loader::source(source))
            }
        };
    };
    // If all parts are paths, the loader opens the datasets itself.
    if let Ok(paths) = parts.extract::<Vec<(PathBuf, f64)>>() {
        return set_open_options(Loader::mixture(paths), options);
    }
    let parts: Vec<(Bound<'_, PyAny>, f64)> = parts.extract()?;
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(part, proportion)| Ok((source::open_source(&part, &source_options)?, proportion)))
        .collect::<PyResult<_>>()?;
    source_options.check_used().raised(data.py())?;
    Ok(Loader::mixture(parts))
}

fn set_open_options(mut loader: Loader, options: &Bound<'_, PyDict>) -> PyResult<Loader> {
    loader = loader.stores(stores(options)?);
    if let Some(cache_listing) = options.get_item("cache_listing")? {
        loader = loader.cache_listing(cache_listing.extract()?);
    }
    if let Some(masks) = options.get_item("masks")? {
        loader = loader.masks(masks.extract::<PathBuf>().map_err(|e| in_option("masks", &masks, e))?);
    }
    if let Some(columns) = options.get_item("table")? {
        loader = loader.table(source::table_options(&columns).map_err(|e| in_option("table", &columns, e))?);
    }
    Ok(loader)
}

fn stores(options: &Bound<'_, PyDict>) -> PyResult<Vec<(&'static str, Arc<dyn Store>)>> {
    let (folder, bytes) = (options.get_item("cache_dir")?, options.get_item("cache_bytes")?);
    let folder = match folder {
        Some(folder) => Some(folder.extract::<PathBuf>().map_err(|e| in_option("cache_dir", &folder, e))?),
        None => None,
    };
    let Some(bytes) = bytes else {
        let wants_refresh =
            options.get_item("cache_refresh")?.is_some_and(|refresh| refresh.is_truthy().unwrap_or(true));
        return match folder {
            None if wants_refresh => Err(config_error(
                options.py(),
                "cache_refresh needs cache_bytes, the maximum size of the cache".to_owned(),
            )),
            None => Ok(warpfeed_stores::all()),
            Some(_) => {
                Err(config_error(options.py(), "cache_dir needs cache_bytes, the maximum size of the cache".to_owned()))
            }
        };
    };
    let bytes = bytes.extract().map_err(|e| in_option("cache_bytes", &bytes, e))?;
    let folder = folder.map_or_else(Cache::default_path, Ok).raised(options.py())?;
    let cache = Cache::open(&folder, bytes).raised(options.py())?;
    if let Some(refresh) = options.get_item("cache_refresh")?
        && refresh.extract().map_err(|e| in_option("cache_refresh", &refresh, e))?
    {
        warpfeed_stores::refresh(&folder, "").raised(options.py())?;
    }
    Ok(cache.stores(warpfeed_stores::all()))
}

pub(crate) fn source_options(options: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut source_options = Options::new().stores(stores(options)?);
    if let Some(mmap) = options.get_item("mmap")? {
        source_options = source_options.mmap(mmap.extract()?);
    }
    if let Some(cache_listing) = options.get_item("cache_listing")? {
        source_options = source_options.cache_listing(cache_listing.extract()?);
    }
    if let Some(masks) = options.get_item("masks")? {
        source_options = source_options.masks(masks.extract::<PathBuf>().map_err(|e| in_option("masks", &masks, e))?);
    }
    if let Some(columns) = options.get_item("table")? {
        source_options = source_options.table(source::table_options(&columns)?);
    }
    Ok(source_options)
}

/// Reads the numbers of an object from `warpfeed._number_lists`, which yields them as chunks of
/// bytes. `convert` converts 8 bytes to a number.
pub(crate) fn numbers<T>(value: &Bound<'_, PyAny>, convert: fn([u8; 8]) -> T) -> PyResult<Vec<T>> {
    let mut numbers = Vec::with_capacity(value.len()?);
    for chunk in value.try_iter()? {
        let chunk = chunk?;
        let (elements, _) = chunk.cast::<PyBytes>()?.as_bytes().as_chunks();
        numbers.extend(elements.iter().map(|bytes| convert(*bytes)));
    }
    Ok(numbers)
}

fn set_option(loader: Loader, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Loader> {
    Ok(match name {
        "max_batch" => loader.batch_size(value.extract()?),
        "max_in_flight" => loader.prefetch(value.extract()?),
        "rank" => {
            let (rank, world_size) = value.extract()?;
            loader.rank(rank, world_size)
        }
        "subset" => loader.subset(numbers(value, u64::from_ne_bytes)?),
        "buckets" => {
            let (samples, buckets, budget): (Bound<'_, PyAny>, Bound<'_, PyAny>, Option<u64>) = value.extract()?;
            let loader = budget.map_or(loader.clone(), |budget| loader.budget(budget));
            // `_buckets` accepts only numbers that fit into 32 bits.
            let list = |list: &Bound<'_, PyAny>| numbers(list, |bytes| u64::from_ne_bytes(bytes) as u32);
            match samples.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() {
                Ok((heights, widths)) => {
                    let images = list(&widths)?.into_iter().zip(list(&heights)?);
                    let sizes = buckets.extract::<Vec<(u32, u32)>>()?.into_iter();
                    let sizes = sizes.map(|(height, width)| Size::new(width, height));
                    loader.size_buckets(images.map(|(width, height)| Size::new(width, height)), sizes)
                }
                Err(_) => loader.buckets(list(&samples)?, buckets.extract::<Vec<u32>>()?),
            }
        }
        "weights" => loader.weights(numbers(value, f64::from_ne_bytes)?),
        "mixture_options" => loader.mixture_options(from_value(value)?),
        "balanced" if value.extract()? => loader.balanced(),
        "match_labels_by_name" if value.extract()? => loader.match_labels_by_name(),
        "keep_labels" if value.extract()? => loader.keep_labels(),
        "balanced" | "match_labels_by_name" | "keep_labels" => loader,
        "classes" => loader.classes(from_value::<Vec<String>>(value)?),
        "classes_file" => loader.classes_file(value.extract::<PathBuf>()?),
        "image_transform" => loader.transform(UserTransform(value.cast::<Function>()?.get().0.clone())),
        "augment" => loader.augment(augment(value)?),
        "augment_for" => {
            let by_dataset = value.extract::<BTreeMap<usize, Bound<'_, PyAny>>>()?;
            by_dataset.into_iter().try_fold(loader, |loader, (dataset, value)| {
                PyResult::Ok(loader.augment_for(dataset, augment(&value)?))
            })?
        }
        "views" => {
            let views = value.extract::<Vec<Bound<'_, PyAny>>>()?;
            loader.views(views.iter().map(augment).collect::<PyResult<Vec<_>>>()?)
        }
        "fields" => {
            let mut loader = loader;
            for (name, kind) in value.cast::<PyDict>()?.iter() {
                let field_kind =
                    kind.call_method0("_describe").and_then(|described| from_value::<AnyFieldType>(&described));
                loader = loader.field(name.extract()?, field_kind.map_err(|e| in_option("fields", &kind, e))?);
            }
            loader
        }
        "drop_field" => value.extract::<Vec<String>>()?.iter().fold(loader, |loader, name| loader.drop_field(name)),
        "soft_labels" => {
            let (classes, smoothing): (Option<usize>, f32) = value.extract()?;
            loader.soft_labels(classes, smoothing)
        }
        "max_skipped" => loader.on_error(OnError::Skip { max_skipped: value.extract()? }),
        "held_batches_timeout" => loader.held_batches_timeout(
            Duration::try_from_secs_f64(value.extract()?).map_err(|e| PyValueError::new_err(e.to_string()))?,
        ),
        "trace" => {
            let (path, (wait, warmup, active, repeat)): (PathBuf, _) = value.extract()?;
            loader.trace(path, Schedule { wait, warmup, active, repeat })
        }
        "resume" => loader.resume(checkpoint(value.extract()?)?),
        other => return set_single_value(loader, other, value),
    })
}

fn set_single_value(loader: Loader, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Loader> {
    let Some((setter, _)) = single_value_options().find(|(_, keyword)| *keyword == name) else {
        return Err(PyTypeError::new_err(format!("unknown option {name:?}")));
    };
    parse_value(value, |json| loader.set(setter, json).expect("the setter has a row"))
}

pub(crate) fn single_value_options() -> impl Iterator<Item = (&'static str, &'static str)> {
    Loader::OPTIONS.iter().map(|&[setter, keyword, ..]| (setter, if keyword.is_empty() { setter } else { keyword }))
}

/// Returns the rows of [`Loader::OPTIONS`], for the tests of the package.
#[pyfunction]
pub(crate) fn options() -> Vec<[&'static str; 4]> {
    Loader::OPTIONS.to_vec()
}

pub(crate) fn checkpoint(json: &str) -> PyResult<Checkpoint> {
    serde_json::from_str(json).map_err(|e| {
        // `json.dumps` writes one line, with this separator.
        let entry = json.get(..e.column()).unwrap_or(json).rsplit(", ").next().unwrap_or_default();
        let entry = entry.trim_start_matches('{');
        Python::attach(|py| config_error(py, format!("this is not a result of state_dict(): {entry}: {e}")))
    })
}
