use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::either::{either, of};
use crate::error::{Raised as _, raised};
use crate::tensor::Tensor;

/// Maximum size in bytes of fields that are always copied, so that a user who keeps labels does not
/// occupy the slot.
const SMALL: usize = 1 << 16;

either! {
    /// A delivered batch.
    #[derive(Clone)]
    Delivered of Arc
}

/// A batch. Its slot becomes free once the batch and all tensors that share its memory have been
/// dropped.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Batch {
    pub(crate) delivered: Delivered,
    /// Whether all tensors are copied, or none. With `None`, only small fields are copied.
    pub(crate) copy: Option<bool>,
}

#[pymethods]
impl Batch {
    /// Returns the names of the fields.
    fn fields(&self) -> Vec<String> {
        of!(Delivered, &self.delivered, batch => batch.fields().map(|field| field.name.clone()).collect())
    }

    /// Returns the field `name`. With `channels_last`, an image has the shape (N, C, H, W). On a
    /// device, the tensor shares the batch's memory, unless `own` is set and all fields are copied.
    #[pyo3(signature = (name, channels_last=false, own=false))]
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    fn tensor(&self, py: Python<'_>, name: &str, channels_last: bool, own: bool) -> PyResult<Tensor> {
        match &self.delivered {
            Delivered::Host(batch) => {
                let Some(view) = batch.field(name) else { return Err(self.missing(py, name)) };
                let copy = self.copy.unwrap_or(view.bytes().len() <= SMALL);
                let make = || Tensor::host(batch, name, view, channels_last, copy);
                Ok(if copy && view.bytes().len() > SMALL { py.detach(make) } else { make() })
            }
            #[cfg(feature = "cuda")]
            Delivered::Cuda(batch) => {
                let Some(tensor) = batch.field(name) else { return Err(self.missing(py, name)) };
                let own = own && self.copied();
                py.detach(|| Tensor::cuda(batch, name, &tensor, channels_last, own)).raised(py)
            }
        }
    }

    /// Returns whether the framework must copy a field of this size, because the field is in device
    /// memory.
    fn clone_wanted(&self, nbytes: usize) -> bool {
        match &self.delivered {
            Delivered::Host(_) => false,
            #[cfg(feature = "cuda")]
            Delivered::Cuda(_) => self.copy.unwrap_or(nbytes <= SMALL),
        }
    }

    /// Returns whether all fields are copied, so that the batch does not occupy its slot.
    #[getter]
    fn copied(&self) -> bool {
        self.copy == Some(true)
    }

    /// Returns the source index of each sample.
    fn ids(&self) -> Vec<u64> {
        of!(Delivered, &self.delivered, batch => batch.ids().collect())
    }

    /// Returns the key of each sample.
    fn keys(&self) -> Vec<String> {
        of!(Delivered, &self.delivered, batch => batch.keys().map(str::to_owned).collect())
    }

    /// Returns the text of each sample in the field `name`.
    fn texts(&self, name: &str) -> Vec<String> {
        let texts =
            of!(Delivered, &self.delivered, batch => batch.texts(name).map(|texts| texts.map(str::to_owned).collect()));
        texts.unwrap_or_else(|| vec![String::new(); self.__len__()])
    }

    /// Returns the rectangle (x, y, width, height) of each output image that shows its source
    /// image.
    fn shown(&self) -> Vec<(u32, u32, u32, u32)> {
        of!(Delivered, &self.delivered, batch => batch.shown().map(|of| (of.x, of.y, of.width, of.height)).collect())
    }

    /// Returns whether each sample is valid.
    fn valid(&self) -> Vec<bool> {
        of!(Delivered, &self.delivered, batch => batch.valid().collect())
    }

    /// Returns the errors of bad images in a decoder's batch, with the images' positions.
    fn errors(&self, py: Python<'_>) -> Vec<(usize, Py<PyAny>)> {
        let error = |place| of!(Delivered, &self.delivered, batch => batch.error(place).cloned());
        let error = |place| Some((place, raised(py, &error(place)?).into_value(py).into_any()));
        (0..self.__len__()).filter_map(error).collect()
    }

    /// Returns the mixing weight and the rectangle (x, y, width, height), if the batch was mixed.
    #[allow(clippy::type_complexity)]
    fn mixing(&self) -> Option<(f32, Option<(u32, u32, u32, u32)>)> {
        let mixing = of!(Delivered, &self.delivered, batch => batch.mixing().copied())?;
        Some((mixing.weight, mixing.cut.map(|cut| (cut.x, cut.y, cut.width, cut.height))))
    }

    /// Returns the epoch.
    #[getter]
    fn epoch(&self) -> u64 {
        of!(Delivered, &self.delivered, batch => batch.epoch())
    }

    /// Returns the index of the batch within its epoch.
    #[getter]
    fn number(&self) -> u64 {
        of!(Delivered, &self.delivered, batch => batch.number())
    }

    fn __len__(&self) -> usize {
        of!(Delivered, &self.delivered, batch => batch.len())
    }
}

impl Batch {
    /// Returns the error for a missing field `name`.
    fn missing(&self, py: Python<'_>, name: &str) -> PyErr {
        if name == "label" {
            let labels = of!(Delivered, &self.delivered, batch => batch.labels().map(|_| ()));
            if let Err(e) = labels.raised(py) {
                return e;
            }
        }
        PyKeyError::new_err(format!("no field {name:?} among {:?}", self.fields()))
    }
}
