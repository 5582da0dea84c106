use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use warpfeed::source::{self, Sample, Source};
use warpfeed::{Error, Result};

use crate::error::Raised as _;

/// The source that `data` is: the data set at a path, or a Python object.
pub(crate) fn of(data: &Bound<'_, PyAny>) -> PyResult<Arc<dyn Source>> {
    if let Ok(path) = data.extract::<std::path::PathBuf>() {
        return data.py().detach(|| source::open(path)).raised(data.py());
    }
    let wanted = "want the path of a data set, or an object with __len__ and __getitem__ that gives encoded pictures";
    for method in ["__len__", "__getitem__"] {
        if !data.hasattr(method)? {
            return Err(PyTypeError::new_err(format!("{wanted}; {} has no {method}", data.get_type().name()?)));
        }
    }
    let classes = match data.getattr_opt("classes")? {
        Some(classes) => classes.extract().unwrap_or_default(),
        None => Vec::new(),
    };
    Ok(Arc::new(PythonSource { object: data.clone().unbind(), len: data.len()?, classes }))
}

/// A Python object as a source. A read holds the interpreter for the time of `__getitem__` and of a
/// copy.
struct PythonSource {
    object: Py<PyAny>,
    len: usize,
    classes: Vec<String>,
}

/// Where the parts of a sample lie in the scratch.
#[derive(Default)]
struct Parts {
    key: Range<usize>,
    fields: Vec<(Range<usize>, Range<usize>)>,
    label: Option<i64>,
}

/// The field of a sample that has no names.
const PICTURE: &str = "img";

fn append(scratch: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = scratch.len();
    scratch.extend_from_slice(bytes);
    start..scratch.len()
}

/// Appends the bytes of `value`: of `bytes`, or of what has the buffer protocol.
fn bytes(value: &Bound<'_, PyAny>, scratch: &mut Vec<u8>) -> PyResult<Option<Range<usize>>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(append(scratch, bytes.as_bytes())));
    }
    let view = value.py().import("builtins")?.getattr("memoryview")?;
    match view.call1((value,)) {
        Ok(view) => {
            let bytes = view.call_method0("tobytes")?;
            Ok(Some(append(scratch, bytes.cast::<PyBytes>()?.as_bytes())))
        }
        Err(_) => Ok(None),
    }
}

fn not_encoded(value: &Bound<'_, PyAny>) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!(
        "__getitem__ gave {kind}; want the bytes of an encoded picture, (bytes, label), or a dict of fields: the loader decodes and \
         augments on threads of its own, without the interpreter"
    ))
}

fn parts(item: &Bound<'_, PyAny>, index: usize, scratch: &mut Vec<u8>) -> PyResult<Parts> {
    let mut parts = Parts::default();
    if let Ok(fields) = item.cast::<PyDict>() {
        for (name, value) in fields.iter() {
            let name: String = name.extract()?;
            match &*name {
                "key" | "__key__" => parts.key = append(scratch, value.str()?.to_string_lossy().as_bytes()),
                "label" | "cls" => parts.label = Some(value.extract()?),
                _ => {
                    let at = append(scratch, if name == "image" { PICTURE } else { &name }.as_bytes());
                    let bytes = bytes(&value, scratch)?.ok_or_else(|| not_encoded(&value))?;
                    parts.fields.push((at, bytes));
                }
            }
        }
    } else {
        let (picture, label) = match item.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, Some(pair.get_item(1)?)),
            Ok(tuple) => {
                let len = tuple.len();
                return Err(PyValueError::new_err(format!("__getitem__ gave a tuple of {len}; want (bytes, label)")));
            }
            Err(_) => (item.clone(), None),
        };
        let at = append(scratch, PICTURE.as_bytes());
        let bytes = bytes(&picture, scratch)?.ok_or_else(|| not_encoded(&picture))?;
        parts.fields.push((at, bytes));
        // A label that is None is none.
        parts.label = label.filter(|label| !label.is_none()).map(|label| label.extract()).transpose()?;
    }
    if parts.key.is_empty() {
        parts.key = append(scratch, index.to_string().as_bytes());
    }
    Ok(parts)
}

impl Source for PythonSource {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        scratch.clear();
        let read = Python::try_attach(|py| {
            let item = self.object.bind(py).get_item(index);
            item.and_then(|item| parts(&item, index, scratch)).map_err(|e| {
                let cause = format!(
                    "{}: {}",
                    e.get_type(py).name().map_or_else(|_| String::new(), |n| n.to_string()),
                    e.value(py)
                );
                Error::in_source(cause).with_source(e)
            })
        });
        let parts = read.unwrap_or_else(|| Err(Error::in_source("the interpreter is shutting down")))?;
        let scratch = &scratch[..];
        let text = |range: &Range<usize>| std::str::from_utf8(&scratch[range.clone()]).expect("Python's text is UTF-8");
        let mut sample = Sample::new(text(&parts.key));
        for (name, bytes) in &parts.fields {
            sample = sample.with_field(text(name), &scratch[bytes.clone()])?;
        }
        Ok(match parts.label {
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
