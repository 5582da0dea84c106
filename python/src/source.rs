//! Opens data as sources, and reads Python objects as samples.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString, PyTuple};
use warpfeed::format::ANY_FIELDS;
use warpfeed::source::{
    self, Clips, ClipsOptions, Coco, Concat, Frames, LeRobot, LeRobotOptions, Options, PackedTokens, Packing, Sample,
    Source, TableOptions, TokenFile, TokenType, Voc, Yolo, Zip,
};
use warpfeed::{Error, ErrorKind, Result};

use crate::buffer::{Buffer, DATASET_IMAGE, IMAGE, type_name};
use crate::error::{Raised as _, user_error};
use crate::thread_state::{attached, item};
use crate::traced::{TracedRef, register};
use crate::waiting::run_on_thread;

/// Opens `data`, which is a path, an object of `warpfeed._sources`, or a Python dataset.
pub(crate) fn open_source(data: &Bound<'_, PyAny>, source_options: &Options) -> PyResult<Arc<dyn Source>> {
    let py = data.py();
    if let Ok(path) = data.extract::<PathBuf>() {
        let source_options = source_options.clone();
        return run_on_thread(py, move |_| source_options.open_part(path));
    }
    let is_concat = data.get_type().name().is_ok_and(|name| name == "Concat" || name == "Zip");
    if source_options.has_masks() && !is_concat {
        let cause = "masks is supported only if data is the path of a folder of images";
        return Err(PyTypeError::new_err(cause));
    }
    if let Some(describe) = data.getattr_opt("_describe_source")? {
        return open_described(describe.call0()?.cast::<PyDict>()?, source_options);
    }
    let expected = "expected the path of a dataset, or an object with __len__ and a __getitem__ that returns samples";
    let kind = data.get_type().name()?;
    if data.cast::<PyMapping>().is_ok() {
        return Err(PyTypeError::new_err(format!(
            "a {kind} is accessed by name, but samples are accessed by index: pass one of its values, or an object \
             with __len__ whose __getitem__(i) returns a sample, such as {{\"image\": images[i], \"label\": \
             labels[i]}}"
        )));
    }
    if data.hasattr("iloc")? {
        return Err(PyTypeError::new_err(format!(
            "a {kind} has columns, but samples are accessed by index: save it as a table with \
             frame.to_csv(\"train.csv\"), and pass the path"
        )));
    }
    for method in ["__len__", "__getitem__"] {
        if !data.hasattr(method)? {
            return Err(PyTypeError::new_err(format!("{expected}; a {kind} has no {method}")));
        }
    }
    let classes = match data.getattr_opt("classes")? {
        Some(classes) => classes.extract().unwrap_or_default(),
        None => Vec::new(),
    };
    let object = register(data.clone().unbind(), format!("{}.__getitem__", data.get_type().name()?));
    Ok(Arc::new(PythonSource { object, len: data.len()?, classes }))
}

/// Opens the dataset that `description`, a result of `_describe_source` in `warpfeed._sources`,
/// defines.
fn open_described(description: &Bound<'_, PyDict>, source_options: &Options) -> PyResult<Arc<dyn Source>> {
    let py = description.py();
    let get = |name: &str| {
        let value = description.get_item(name)?;
        value.ok_or_else(|| PyTypeError::new_err(format!("the description of a dataset has no {name:?}")))
    };
    let kind: String = get("kind")?.extract()?;
    if kind == "concat" {
        let parts = get("parts")?.extract::<Vec<Bound<'_, PyAny>>>()?;
        let parts = parts.iter().map(|part| open_source(part, source_options)).collect::<PyResult<Vec<_>>>()?;
        let joined = match get("labels")?.extract::<&str>()? {
            "match_labels_by_name" => Concat::match_labels_by_name(parts),
            "keep_labels" => Concat::keep_labels(parts),
            _ => Concat::new(parts),
        };
        return Ok(Arc::new(joined.raised(py)?));
    }
    if kind == "zip" {
        let parts = get("parts")?.extract::<Vec<Bound<'_, PyAny>>>()?;
        let parts = parts.iter().map(|part| open_source(part, source_options)).collect::<PyResult<Vec<_>>>()?;
        let zipped = if get("check_keys")?.extract()? { Zip::new(parts) } else { Zip::by_index(parts) };
        let prefixes = get("prefixes")?.extract::<Vec<String>>()?;
        let named = prefixes.iter().enumerate().filter(|(_, prefix)| !prefix.is_empty());
        let zipped =
            zipped.and_then(|zip| named.into_iter().try_fold(zip, |zip, (part, prefix)| zip.with_prefix(part, prefix)));
        return Ok(Arc::new(zipped.raised(py)?));
    }
    let path: PathBuf = get("path")?.extract()?;
    match &*kind {
        "coco" => {
            let images: Option<PathBuf> = get("images")?.extract()?;
            run_on_thread(py, move |_| {
                arc_source(match images {
                    Some(folder) => Coco::with_images(path, folder),
                    None => Coco::open(path),
                })
            })
        }
        "yolo" => {
            let split: Option<String> = get("split")?.extract()?;
            run_on_thread(py, move |_| {
                arc_source(match split {
                    Some(split) => Yolo::split(path, &split),
                    None => Yolo::open(path),
                })
            })
        }
        "tokens" => {
            let kind = if get("dtype")?.eq("u32")? { TokenType::U32 } else { TokenType::U16 };
            let (length, stride) = (get("length")?.extract()?, get("stride")?.extract()?);
            let mapped: bool = get("mmap")?.extract()?;
            run_on_thread(py, move |_| arc_source(TokenFile::open_with(path, kind, (length, stride), mapped)))
        }
        "lerobot" => {
            let (options, source_options) = (lerobot_options(description)?, source_options.clone());
            run_on_thread(py, move |_| arc_source(LeRobot::open_with(path, &options, &source_options)))
        }
        "clips" => {
            let (options, source_options) = (clips_options(description)?, source_options.clone());
            run_on_thread(py, move |_| arc_source(Clips::open_with(path, &options, &source_options)))
        }
        "packed_tokens" => {
            let kind = if get("dtype")?.eq("u32")? { TokenType::U32 } else { TokenType::U16 };
            let mapped: bool = get("mmap")?.extract()?;
            let packing = Packing::new(get("length")?.extract()?, get("eos_token_id")?.extract()?)
                .window_documents(get("window_documents")?.extract()?)
                .max_documents(get("max_documents")?.extract()?)
                .pad_token_id(get("pad_token_id")?.extract()?);
            run_on_thread(py, move |_| arc_source(PackedTokens::open_with(path, kind, packing, mapped)))
        }
        "voc" => {
            let zero_based: bool = get("zero_based")?.extract()?;
            run_on_thread(py, move |_| arc_source(if zero_based { Voc::zero_based(path) } else { Voc::open(path) }))
        }
        other => Err(PyTypeError::new_err(format!("unknown kind of dataset {other:?}"))),
    }
}

fn clips_options(description: &Bound<'_, PyDict>) -> PyResult<ClipsOptions> {
    let mut options = ClipsOptions::default();
    for (name, value) in description.iter() {
        options = match &*name.extract::<String>()? {
            _ if value.is_none() => options,
            "frames" => options.frames(value.extract()?),
            "stride" => options.stride(value.extract()?),
            "fps" => options.fps(value.extract()?),
            "clips_per_video" => options.clips_per_video(value.extract()?),
            "start_jitter" => options.start_jitter(value.extract()?),
            "pad_short_videos" => options.pad_short_videos(value.extract()?),
            _ => options,
        };
    }
    Ok(options)
}

fn lerobot_options(description: &Bound<'_, PyDict>) -> PyResult<LeRobotOptions> {
    let mut options = LeRobotOptions::new();
    for (name, value) in description.iter() {
        options = match &*name.extract::<String>()? {
            _ if value.is_none() => options,
            "episodes" => options.episodes(value.extract::<Vec<u64>>()?),
            "split" => options.split(value.extract::<String>()?),
            "features" => options.features(value.extract::<Vec<String>>()?),
            "delta_timestamps" => value
                .extract::<Vec<(String, Vec<f64>)>>()?
                .into_iter()
                .fold(options, |options, (feature, seconds)| options.delta_timestamps(feature, seconds)),
            "delta_indices" => value
                .extract::<Vec<(String, Vec<i64>)>>()?
                .into_iter()
                .fold(options, |options, (feature, frames)| options.delta_indices(feature, frames)),
            "tolerance_s" => options.tolerance_s(value.extract()?),
            _ => options,
        };
    }
    Ok(options)
}

/// Returns the statistics of the dataset's features as JSON.
#[pyfunction]
pub(crate) fn lerobot_stats(py: Python<'_>, description: &Bound<'_, PyDict>) -> PyResult<String> {
    let path = description.get_item("path")?.ok_or_else(|| PyTypeError::new_err("the description has no path"))?;
    let (path, options) = (path.extract::<PathBuf>()?, lerobot_options(description)?);
    run_on_thread(py, move |_| {
        let stats = LeRobot::stats_at(path, &options, &Options::new().stores(warpfeed_stores::all()))?;
        serde_json::to_string(&stats).map_err(|e| Error::in_source(format!("the statistics are not JSON: {e}")))
    })
}

/// An episode: its index, the index of its first sample, the index after its last sample, and its
/// tasks.
type EpisodeRow = (u64, usize, usize, Vec<String>);

#[pyfunction]
pub(crate) fn lerobot_episodes(py: Python<'_>, description: &Bound<'_, PyDict>) -> PyResult<Vec<EpisodeRow>> {
    let path = description.get_item("path")?.ok_or_else(|| PyTypeError::new_err("the description has no path"))?;
    let (path, options) = (path.extract::<PathBuf>()?, lerobot_options(description)?);
    run_on_thread(py, move |_| {
        let set =
            LeRobot::open_with(path, &options.features(["task"]), &Options::new().stores(warpfeed_stores::all()))?;
        let tasks = set.tasks()?;
        Ok(set
            .episodes()
            .zip(tasks)
            .map(|((index, samples), tasks)| (index, samples.start, samples.end, tasks))
            .collect())
    })
}

fn arc_source(opened: Result<impl Source + 'static>) -> Result<Arc<dyn Source>> {
    Ok(Arc::new(opened?))
}

pub(crate) fn table_options(options: &Bound<'_, PyAny>) -> PyResult<TableOptions> {
    let options: Bound<'_, PyDict> = options.call_method0("_describe")?.extract()?;
    let mut columns = TableOptions::new();
    for (name, value) in options.iter() {
        columns = match &*name.extract::<String>()? {
            "image" => columns.image(value.extract::<String>()?),
            "root" => columns.root(value.extract::<PathBuf>()?),
            "label" => columns.label(value.extract::<String>()?),
            "without_label" => columns.without_label(),
            "columns" => columns.columns(value.extract::<Vec<String>>()?),
            "files" => value.extract::<Vec<String>>()?.into_iter().fold(columns, TableOptions::file),
            "gather" => value
                .extract::<Vec<(String, Vec<String>)>>()?
                .into_iter()
                .fold(columns, |columns, (vector, names)| columns.gather(vector, names)),
            "delimiter" => columns.delimiter(value.extract()?),
            "headerless" => columns.headerless(),
            other => return Err(PyTypeError::new_err(format!("TableOptions has no {other:?}"))),
        };
    }
    Ok(columns)
}

/// A Python object as a source. A read holds the GIL only to call `__getitem__`, and to convert the
/// result and append it to the scratch buffer.
struct PythonSource {
    object: Arc<TracedRef>,
    len: usize,
    classes: Vec<String>,
}

#[derive(Default)]
struct SampleRanges {
    key: Range<usize>,
    /// Ranges of the name and of the content of each field in the scratch buffer.
    fields: Vec<(Range<usize>, Range<usize>)>,
    /// Index of each field whose value is in a file, with the path. The files are read after the
    /// GIL is released.
    files: Vec<(usize, PathBuf)>,
    label: Option<i64>,
}

fn append(scratch: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = scratch.len();
    scratch.extend_from_slice(bytes);
    start..scratch.len()
}

/// Valid values of fields other than images, for error messages.
const VALUES: &str = "a number, a list of numbers, an array, bytes, a string or a path";

/// Appends a field to the scratch buffer: bytes unchanged, arrays as `.npy` files, lists of images
/// as [`Frames`], and numbers and other lists as JSON. A string becomes a `.txt` file, unless the
/// name already has a suffix. A path is added to `ranges.files` instead.
fn append_field(
    name: &str,
    value: &Bound<'_, PyAny>,
    ranges: &mut SampleRanges,
    scratch: &mut Vec<u8>,
) -> PyResult<()> {
    let is_image = ANY_FIELDS.contains(&name);
    let is_file = is_image || warpfeed::format::is_image_field(suffix(name));
    // A one-dimensional uint8 array is an encoded file if the field is an image or its name has a
    // suffix. Without a suffix, the array itself is the value.
    let is_encoded = is_file || name.contains('.');
    let name_range = append(scratch, name.as_bytes());
    if let Some(images) = clip_frames(value, is_file)? {
        let start = scratch.len();
        Frames::append(scratch, images.len(), |number, out| append_frame(&images[number], number, out))?;
        ranges.fields.push((name_range, start..scratch.len()));
        return Ok(());
    }
    let is_text = value.is_instance_of::<PyString>();
    let value = &convert_value(value, is_file)?;
    if let Ok(json) = value.cast::<PyString>()
        && !is_file
    {
        if [".npy", ".txt"].iter().any(|end| name.ends_with(end)) {
            let stem = &name[..name.len() - 4];
            return Err(PyTypeError::new_err(format!(
                "the suffix of its name declares an encoding, but its value is not bytes; rename the field to '{stem}'"
            )));
        }
        let end = if name.ends_with(".json") { name_range.end } else { append(scratch, b".json").end };
        let bytes = append(scratch, json.to_str()?.as_bytes());
        ranges.fields.push((name_range.start..end, bytes));
        return Ok(());
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        ranges.files.push((ranges.fields.len(), path));
        ranges.fields.push((name_range, 0..0));
        return Ok(());
    }
    let (name, bytes) = match Buffer::from_object(value, is_encoded)? {
        Some(Buffer::Bytes(bytes)) => {
            let end = if is_text && !is_encoded { append(scratch, b".txt").end } else { name_range.end };
            (name_range.start..end, append(scratch, bytes.as_bytes()))
        }
        // An image has at least two dimensions.
        Some(Buffer::Array { header, data, axes }) if axes > 1 || !is_image => {
            // The suffix of the name declares the encoding. The name of the image needs no suffix.
            let end = if is_image || name.ends_with(".npy") { name_range.end } else { append(scratch, b".npy").end };
            let start = append(scratch, &header).start;
            (name_range.start..end, start..append(scratch, data.as_bytes()).end)
        }
        _ => {
            let expected_fields = if is_file { format!("{IMAGE}{DATASET_IMAGE}") } else { VALUES.to_owned() };
            return Err(PyTypeError::new_err(format!("{}; expected {expected_fields}", type_name(value))));
        }
    };
    ranges.fields.push((name, bytes));
    Ok(())
}

/// Returns the frames, if `value` is a clip. `is_image` is true if the field has the name of an
/// image.
fn clip_frames<'py>(value: &Bound<'py, PyAny>, is_image: bool) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if value.is_instance_of::<PyBytes>() {
        return Ok(None);
    }
    value.py().import("warpfeed._samples")?.getattr("frames")?.call1((value, is_image))?.extract()
}

fn append_frame(value: &Bound<'_, PyAny>, number: usize, out: &mut Vec<u8>) -> PyResult<()> {
    let py = value.py();
    let converted = convert_value(value, true).map_err(|e| in_frame(py, number, e))?;
    if let Ok(path) = converted.extract::<PathBuf>() {
        return py.detach(|| source::append_file(&path, out).map(drop)).raised(py);
    }
    match Buffer::from_object(&converted, true)? {
        Some(Buffer::Bytes(bytes)) => out.extend_from_slice(bytes.as_bytes()),
        Some(Buffer::Array { header, data, axes }) if axes > 1 => {
            out.extend_from_slice(&header);
            out.extend_from_slice(data.as_bytes());
        }
        _ => {
            let cause = format!("frame {number}: {}; expected {IMAGE}{DATASET_IMAGE}", type_name(value));
            return Err(PyTypeError::new_err(cause));
        }
    }
    Ok(())
}

fn in_frame(py: Python<'_>, number: usize, e: PyErr) -> PyErr {
    prefixed(py, &format!("frame {number}"), e)
}

fn in_field(py: Python<'_>, name: &str, e: PyErr) -> PyErr {
    prefixed(py, &format!("field '{name}'"), e)
}

fn prefixed(py: Python<'_>, location: &str, e: PyErr) -> PyErr {
    let message = format!("{location}: {}", e.value(py));
    let prefixed = match () {
        () if e.is_instance_of::<PyTypeError>(py) => PyTypeError::new_err(message),
        () if e.is_instance_of::<PyValueError>(py) => PyValueError::new_err(message),
        () => return e,
    };
    prefixed.set_cause(py, Some(e));
    prefixed
}

/// Returns the suffix of a field name, or the whole name if it has no suffix.
fn suffix(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, suffix)| suffix)
}

/// Converts `value` to bytes, an array, a path, or JSON as a `str`.
fn convert_value<'py>(value: &Bound<'py, PyAny>, is_image: bool) -> PyResult<Bound<'py, PyAny>> {
    if value.is_instance_of::<PyBytes>() {
        return Ok(value.clone());
    }
    let module = value.py().import("warpfeed._samples")?;
    module.getattr(if is_image { "image" } else { "field" })?.call1((value,))
}

/// If `e` says that `value` has the wrong type, adds that `__getitem__` returned `value`.
fn with_getitem_context(value: &Bound<'_, PyAny>, e: PyErr) -> PyErr {
    let message = e.value(value.py()).to_string();
    if message.starts_with("frame ") {
        return PyTypeError::new_err(format!("__getitem__ returned {}: {message}", type_name(value)));
    }
    if !message.starts_with(&format!("{}; expected", type_name(value))) {
        return e;
    }
    PyTypeError::new_err(format!(
        "__getitem__ returned {message}, either alone, in a pair (image, label), or in a dict of fields"
    ))
}

fn parse_label(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().map_err(|e: PyErr| {
        let repr = value.repr().map_or_else(|_| type_name(value), |repr| repr.to_string());
        let cause =
            format!("the label is {}; expected a class index or None", repr.chars().take(80).collect::<String>());
        let error = PyTypeError::new_err(cause);
        error.set_cause(value.py(), Some(e));
        error
    })
}

fn append_sample(item: &Bound<'_, PyAny>, index: usize, scratch: &mut Vec<u8>) -> PyResult<SampleRanges> {
    let mut ranges = SampleRanges::default();
    if let Ok(fields) = item.cast::<PyDict>() {
        for (name, value) in fields.iter() {
            let name: String = name.extract().map_err(|_| {
                PyTypeError::new_err(format!(
                    "__getitem__ returned a dict with a key of type {}; expected str keys",
                    type_name(&name)
                ))
            })?;
            match &*name {
                "key" | "__key__" => ranges.key = append(scratch, value.str()?.to_string_lossy().as_bytes()),
                "label" | "cls" if value.is_none() => {}
                "label" | "cls" => ranges.label = Some(parse_label(&value)?),
                _ => append_field(&name, &value, &mut ranges, scratch).map_err(|e| in_field(item.py(), &name, e))?,
            }
        }
    } else {
        let (image, label_value) = match item.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, Some(pair.get_item(1)?)),
            Ok(tuple) => {
                let len = tuple.len();
                return Err(PyValueError::new_err(format!(
                    "__getitem__ returned a tuple of length {len}; expected (image, label)"
                )));
            }
            Err(_) => (item.clone(), None),
        };
        append_field(ANY_FIELDS[0], &image, &mut ranges, scratch).map_err(|e| with_getitem_context(&image, e))?;
        ranges.label = label_value.filter(|value| !value.is_none()).map(|value| parse_label(&value)).transpose()?;
    }
    if ranges.key.is_empty() {
        ranges.key = append(scratch, index.to_string().as_bytes());
    }
    Ok(ranges)
}

impl Source for PythonSource {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        scratch.clear();
        let result = attached(|py| {
            let object = self.object.get(py).ok_or_else(|| Error::in_source("the loader was garbage-collected"))?;
            let calling = self.object.begin_call();
            let result = item(&object, index).and_then(|item| append_sample(&item, index, scratch));
            drop(calling);
            result.map_err(|e| user_error(py, ErrorKind::Source, "", e))
        });
        let mut ranges = result.unwrap_or_else(|| Err(Error::in_source("the interpreter is shutting down")))?;
        for (field, path) in &ranges.files {
            let start = scratch.len();
            source::append_file(path, scratch)?;
            ranges.fields[*field].1 = start..scratch.len();
        }
        let scratch = &scratch[..];
        let text = |range: &Range<usize>| std::str::from_utf8(&scratch[range.clone()]).expect("Python's text is UTF-8");
        let mut sample = Sample::new(text(&ranges.key));
        for (name, bytes) in &ranges.fields {
            sample = sample.with_field(text(name), &scratch[bytes.clone()])?;
        }
        Ok(match ranges.label {
            Some(label) => sample.with_label(label),
            None => sample,
        })
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "python"
    }
}
