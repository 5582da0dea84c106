use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::either::{either, of};
use crate::error::{Raised as _, raised};
use crate::tensor::Tensor;

/// Maximum bytes of a field that is copied, so that a program that keeps labels keeps no slot.
const SMALL: usize = 1 << 16;

either! {
    /// A delivered batch.
    #[derive(Clone)]
    Delivered of Arc
}

/// A batch. Its slot is free again once the batch and all tensors that share its memory are gone.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Batch {
    pub(crate) delivered: Delivered,
    /// Whether all tensors are copied, or none. With `None`, only small fields are copied.
    pub(crate) copy: Option<bool>,
}

#[pymethods]
impl Batch {
    /// Names of the fields.
    fn fields(&self) -> Vec<String> {
        of!(Delivered, &self.delivered, batch => batch.fields().map(|field| field.name.clone()).collect())
    }

    /// The field `name`. With `channels_last`, an image has the shape (N, C, H, W). On a device
    /// the tensor shares the batch's memory, unless `own` is set and all fields are copied.
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

    /// Whether the framework must copy a field of this size, because it is in device memory.
    fn clone_wanted(&self, nbytes: usize) -> bool {
        match &self.delivered {
            Delivered::Host(_) => false,
            #[cfg(feature = "cuda")]
            Delivered::Cuda(_) => self.copy.unwrap_or(nbytes <= SMALL),
        }
    }

    /// Whether all fields are copied, so that the batch does not need its slot.
    #[getter]
    fn copied(&self) -> bool {
        self.copy == Some(true)
    }

    /// The source index of each sample.
    fn ids(&self) -> Vec<u64> {
        of!(Delivered, &self.delivered, batch => batch.ids().collect())
    }

    /// The key of each sample.
    fn keys(&self) -> Vec<String> {
        of!(Delivered, &self.delivered, batch => batch.keys().map(str::to_owned).collect())
    }

    /// The text of each sample in the field `name`.
    fn texts(&self, name: &str) -> Vec<String> {
        let texts =
            of!(Delivered, &self.delivered, batch => batch.texts(name).map(|texts| texts.map(str::to_owned).collect()));
        texts.unwrap_or_else(|| vec![String::new(); self.__len__()])
    }

    /// The part (x, y, width, height) of each image that shows its image.
    fn shown(&self) -> Vec<(u32, u32, u32, u32)> {
        of!(Delivered, &self.delivered, batch => batch.shown().map(|of| (of.x, of.y, of.width, of.height)).collect())
    }

    /// Whether each sample counts.
    fn valid(&self) -> Vec<bool> {
        of!(Delivered, &self.delivered, batch => batch.valid().collect())
    }

    /// The error of each bad image of a decoder's batch, with its place.
    fn errors(&self, py: Python<'_>) -> Vec<(usize, Py<PyAny>)> {
        let error = |place| of!(Delivered, &self.delivered, batch => batch.error(place).cloned());
        let error = |place| Some((place, raised(py, &error(place)?).into_value(py).into_any()));
        (0..self.__len__()).filter_map(error).collect()
    }

    /// The weight of the mixing and its rectangle (x, y, width, height), if the batch was mixed.
    #[allow(clippy::type_complexity)]
    fn mixing(&self) -> Option<(f32, Option<(u32, u32, u32, u32)>)> {
        let mixing = of!(Delivered, &self.delivered, batch => batch.mixing().copied())?;
        Some((mixing.weight, mixing.cut.map(|cut| (cut.x, cut.y, cut.width, cut.height))))
    }

    /// The epoch.
    #[getter]
    fn epoch(&self) -> u64 {
        of!(Delivered, &self.delivered, batch => batch.epoch())
    }

    /// The number of the batch in its epoch.
    #[getter]
    fn number(&self) -> u64 {
        of!(Delivered, &self.delivered, batch => batch.number())
    }

    fn __len__(&self) -> usize {
        of!(Delivered, &self.delivered, batch => batch.len())
    }
}

impl Batch {
    /// The error for a missing field `name`.
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
