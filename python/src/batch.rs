//! The Python view of a delivered batch.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::either::{either, match_either};
use crate::error::{Raised as _, raised};
use crate::tensor::Tensor;

/// Fields of at most this many bytes are copied by default, so that a user who keeps labels does
/// not keep the batch's slot in use.
const MAX_SMALL_BYTES: usize = 1 << 16;

either! {
    #[derive(Clone)]
    Delivered of Arc
}

/// A batch. Its slot becomes free once the batch and all tensors that share its memory are dropped.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Batch {
    pub(crate) delivered: Delivered,
    /// `Some(true)` copies all tensors, `Some(false)` none, and `None` only small fields.
    pub(crate) copy: Option<bool>,
}

#[pymethods]
impl Batch {
    fn fields(&self) -> Vec<String> {
        match_either!(Delivered, &self.delivered, batch => batch.fields().map(|field| field.name.clone()).collect())
    }

    /// Returns a field as a tensor. With `channels_last`, an image is viewed as (N, C, H, W).
    /// Device tensors are copied here only if `own` is set and [`copied`](Batch::copied) is true.
    /// Otherwise, the framework copies them if [`clone_wanted`](Batch::clone_wanted) is true.
    #[pyo3(signature = (name, channels_last=false, own=false))]
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    fn tensor(&self, py: Python<'_>, name: &str, channels_last: bool, own: bool) -> PyResult<Tensor> {
        match &self.delivered {
            Delivered::Host(batch) => {
                let Some(view) = batch.field(name) else { return Err(self.missing_field(py, name)) };
                let copy = self.copy.unwrap_or(view.bytes().len() <= MAX_SMALL_BYTES);
                let make = || Tensor::host(batch, name, view, channels_last, copy);
                Ok(if copy && view.bytes().len() > MAX_SMALL_BYTES { py.detach(make) } else { make() })
            }
            #[cfg(feature = "cuda")]
            Delivered::Cuda(batch) => {
                let Some(tensor) = batch.field(name) else { return Err(self.missing_field(py, name)) };
                let own = own && self.copied();
                py.detach(|| Tensor::cuda(batch, name, &tensor, channels_last, own)).raised(py)
            }
        }
    }

    /// Returns whether the framework must copy a field of `nbytes` bytes after importing it,
    /// because the field is in device memory.
    fn clone_wanted(&self, nbytes: usize) -> bool {
        match &self.delivered {
            Delivered::Host(_) => false,
            #[cfg(feature = "cuda")]
            Delivered::Cuda(_) => self.copy.unwrap_or(nbytes <= MAX_SMALL_BYTES),
        }
    }

    #[getter]
    fn copied(&self) -> bool {
        self.copy == Some(true)
    }

    fn ids(&self) -> Vec<u64> {
        match_either!(Delivered, &self.delivered, batch => batch.ids().collect())
    }

    fn sample_keys(&self) -> Vec<String> {
        match_either!(Delivered, &self.delivered, batch => batch.sample_keys().map(str::to_owned).collect())
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let texts = match_either!(Delivered, &self.delivered, batch => {
            batch.texts(name).map(|texts| texts.map(str::to_owned).collect())
        });
        texts.unwrap_or_else(|| vec![String::new(); self.__len__()])
    }

    /// Returns, for each output image, the rectangle (x, y, width, height) that is not padding.
    fn image_rects(&self) -> Vec<(u32, u32, u32, u32)> {
        match_either!(Delivered, &self.delivered, batch => {
            batch.image_areas().map(|rect| (rect.x, rect.y, rect.width, rect.height)).collect()
        })
    }

    fn valid(&self) -> Vec<bool> {
        match_either!(Delivered, &self.delivered, batch => batch.valid().collect())
    }

    /// Returns the position and the error of each image that a decoder failed to decode.
    fn errors(&self, py: Python<'_>) -> Vec<(usize, Py<PyAny>)> {
        let error = |position| match_either!(Delivered, &self.delivered, batch => batch.error(position).cloned());
        let error = |position| Some((position, raised(py, &error(position)?).into_value(py).into_any()));
        (0..self.__len__()).filter_map(error).collect()
    }

    /// If the batch was mixed, returns the mixing weight and, for CutMix, the pasted rectangle (x,
    /// y, width, height).
    #[allow(clippy::type_complexity)]
    fn mixing(&self) -> Option<(f32, Option<(u32, u32, u32, u32)>)> {
        let mixing = match_either!(Delivered, &self.delivered, batch => batch.mixing().copied())?;
        Some((mixing.weight, mixing.cutmix_area.map(|cut| (cut.x, cut.y, cut.width, cut.height))))
    }

    #[getter]
    fn epoch(&self) -> u64 {
        match_either!(Delivered, &self.delivered, batch => batch.epoch())
    }

    #[getter]
    fn batch_index(&self) -> u64 {
        match_either!(Delivered, &self.delivered, batch => batch.batch_index())
    }

    fn __len__(&self) -> usize {
        match_either!(Delivered, &self.delivered, batch => batch.len())
    }
}

impl Batch {
    fn missing_field(&self, py: Python<'_>, name: &str) -> PyErr {
        if name == "label" {
            let labels = match_either!(Delivered, &self.delivered, batch => batch.labels().map(|_| ()));
            if let Err(e) = labels.raised(py) {
                return e;
            }
        }
        PyKeyError::new_err(format!("the batch has no field {name:?}; its fields are {:?}", self.fields()))
    }
}
