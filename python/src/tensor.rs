//! A field of a batch that other frameworks access through DLPack or the array interface.
//!
//! **Invariants**
//! 1. `address` points to the tensor's elements, which stay valid as long as `owner` lives.
//! 2. An unconsumed capsule owns its tensor. A consumer renames the capsule and takes ownership.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use warpfeed::batch::{DlDevice, DlManagedTensor, DlManagedTensorVersioned, DlpackTensor};
use warpfeed::{Dtype, HostBatch, TensorView};

#[cfg(feature = "cuda")]
use crate::error::Raised as _;

#[derive(Clone)]
#[allow(dead_code)]
pub(crate) enum TensorOwner {
    Host(Arc<HostBatch>),
    HostCopy(Arc<HostCopy>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<crate::gpu::DeviceBatch>),
    #[cfg(feature = "cuda")]
    CudaCopy(Arc<warpfeed::device::CudaCopy>),
}

/// The legacy default stream, which DLPack assumes for consumers that do not specify a stream.
#[cfg(feature = "cuda")]
const DEFAULT_STREAM: usize = 0;

pub(crate) struct HostCopy(Vec<AlignedLine>);

#[repr(align(64))]
#[derive(Clone, Copy)]
struct AlignedLine(#[allow(dead_code)] [u8; 64]);

impl HostCopy {
    fn copy(bytes: &[u8]) -> Self {
        let count = bytes.len().div_ceil(64);
        let mut lines = Vec::<AlignedLine>::with_capacity(count);
        // SAFETY: the buffer has capacity for `count` lines. All of its bytes are initialized: the
        // last line is zeroed, and then `bytes`, which end in the last line, are copied.
        unsafe {
            if let Some(last) = count.checked_sub(1) {
                lines.as_mut_ptr().add(last).write(AlignedLine([0; 64]));
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), lines.as_mut_ptr().cast(), bytes.len());
            lines.set_len(count);
        }
        HostCopy(lines)
    }
}

/// A field of a batch. The tensor keeps the batch alive, unless it owns a copy of the field.
///
/// `torch.from_dlpack`, `numpy.asarray`, `jax.dlpack.from_dlpack` and similar functions can share
/// the memory of the tensor.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Tensor {
    owner: TensorOwner,
    address: usize,
    device: DlDevice,
    dtype: Dtype,
    /// Lengths of the axes in memory order.
    stored_shape: Vec<usize>,
    /// The axes in the order that users see, as indices into `stored_shape`.
    axes: Vec<usize>,
}

/// Returns the order in which users see `axes` stored axes. With `channels_last`, (N, H, W, C)
/// memory is viewed as (N, C, H, W), and (N, T, H, W, C) memory as (N, T, C, H, W).
fn visible_axes(axes: usize, channels_last: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..axes).collect();
    if channels_last && axes >= 4 {
        order[axes - 3..].rotate_right(1);
    }
    order
}

impl Tensor {
    pub(crate) fn host(
        batch: &Arc<HostBatch>,
        name: &str,
        view: TensorView<'_>,
        channels_last: bool,
        copy: bool,
    ) -> Self {
        let (dtype, stored_shape) = (view.dtype(), view.shape());
        let axes = visible_axes(stored_shape.len(), channels_last);
        let (memory, address) = if copy {
            let copy = Arc::new(HostCopy::copy(view.bytes()));
            (TensorOwner::HostCopy(copy.clone()), copy.0.as_ptr() as usize)
        } else {
            // `view` allows only reads, so the address comes from an exported tensor.
            let exported = batch.dlpack(name).expect("`view` is the field with this name");
            (TensorOwner::Host(batch.clone()), exported.tensor().data as usize)
        };
        Tensor { owner: memory, address, device: DlDevice::Host, dtype, stored_shape, axes }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(
        batch: &Arc<crate::gpu::DeviceBatch>,
        name: &str,
        tensor: &crate::gpu::DeviceTensor<'_>,
        channels_last: bool,
        copy: bool,
    ) -> warpfeed::Result<Self> {
        let (memory, address) = if copy {
            // SAFETY: the legacy default stream lives as long as the process.
            let copy = unsafe { batch.copy_on(name, DEFAULT_STREAM) }?;
            let copy = Arc::new(copy.expect("`tensor` is the field with this name"));
            (TensorOwner::CudaCopy(copy.clone()), copy.device_ptr())
        } else {
            (TensorOwner::Cuda(batch.clone()), tensor.device_ptr())
        };
        let stored_shape = tensor.shape().to_vec();
        Ok(Tensor {
            owner: memory,
            address: address as usize,
            device: DlDevice::Cuda(tensor.device()),
            dtype: tensor.dtype(),
            axes: visible_axes(stored_shape.len(), channels_last),
            stored_shape,
        })
    }

    fn export(&self) -> DlpackTensor {
        let (data, owner) = (self.address as *mut c_void, self.owner.clone());
        // SAFETY: the elements are valid as long as `owner` lives (invariant 1), and the loader
        // writes to them only after `owner` is dropped.
        let tensor = unsafe { DlpackTensor::new(data, self.device, self.dtype, &self.stored_shape, owner) };
        tensor.permuted(&self.axes)
    }

    fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.stored_shape.len()];
        for axis in (1..self.stored_shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.stored_shape[axis];
        }
        self.axes.iter().map(|&axis| strides[axis]).collect()
    }

    /// Makes the consumer's stream wait for the tensor, and delays the reuse of the memory until
    /// the stream has finished with it. `requested` is the `stream` argument of `__dlpack__`. With
    /// -1, no stream waits, and the memory of a batch is reused only after all work that was
    /// submitted to the device before the batch was dropped.
    #[cfg(feature = "cuda")]
    fn order_stream(&self, py: Python<'_>, requested: Option<isize>) -> PyResult<()> {
        let stream = match requested {
            None | Some(1) => DEFAULT_STREAM,
            // The consumer does its own synchronization, on streams unknown to the exporter.
            Some(-1) => {
                if let TensorOwner::Cuda(batch) = &self.owner {
                    batch.use_anywhere();
                }
                return Ok(());
            }
            Some(0) => {
                return Err(PyBufferError::new_err("stream 0 is ambiguous; pass 1 for the legacy default stream"));
            }
            Some(raw) => raw as usize,
        };
        // SAFETY: DLPack requires that the consumer's stream lives as long as it uses the tensor.
        let used = unsafe {
            match &self.owner {
                TensorOwner::Cuda(batch) => batch.use_on(stream),
                TensorOwner::CudaCopy(copy) => copy.use_on(stream),
                TensorOwner::Host(_) | TensorOwner::HostCopy(_) => Ok(()),
            }
        };
        used.raised(py)
    }

    #[cfg(not(feature = "cuda"))]
    fn order_stream(&self, _: Python<'_>, _: Option<isize>) -> PyResult<()> {
        Ok(())
    }
}

#[pymethods]
impl Tensor {
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|&axis| self.stored_shape[axis]).collect()
    }

    /// Returns the name of the element type, such as `uint8` or `bfloat16`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    fn data_ptr(&self) -> usize {
        self.address
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.stored_shape.iter().product::<usize>() * self.dtype.bytes()
    }

    /// Returns the device type and the device index, as DLPack defines them.
    fn __dlpack_device__(&self) -> (i32, i32) {
        match self.device {
            DlDevice::Host => (1, 0),
            DlDevice::Cuda(index) => (2, index as i32),
        }
    }

    /// Exports a DLPack capsule: version 1.0 if `max_version` allows it, and unversioned otherwise.
    ///
    /// On a device, makes the consumer's `stream` wait for the tensor. The memory is reused only
    /// after `stream` has completed all work that was submitted before the consumer dropped the
    /// tensor. If `stream` is -1, the consumer synchronizes by itself.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err(
                "dl_device: a batch can be imported only on its own device; copy the tensor to a different device after the \
                 import",
            ));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "copy=True: a batch can be imported only without a copy; copy the tensor after the import",
            ));
        }
        self.order_stream(py, stream)?;
        let exported = self.export();
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if versioned {
            (exported.into_raw().cast(), VERSIONED, free_versioned)
        } else {
            (exported.into_raw_unversioned().cast(), UNVERSIONED, free_unversioned)
        };
        let pointer = NonNull::new(pointer).expect("a leaked box has an address");
        // SAFETY: `destructor` is the destructor for capsules with this name, and `pointer` is a
        // tensor of the corresponding version.
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
    }

    /// Returns the array interface. NumPy has no bfloat16, so bfloat16 elements are described as
    /// uint16.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.device != DlDevice::Host {
            return Err(pyo3::exceptions::PyAttributeError::new_err("the tensor is in device memory"));
        }
        let typestr = match self.dtype {
            Dtype::U8 => "|u1",
            Dtype::F32 => "<f4",
            Dtype::F64 => "<f8",
            Dtype::F16 => "<f2",
            Dtype::Bf16 => "<u2",
            Dtype::I16 => "<i2",
            Dtype::I32 => "<i4",
            Dtype::I64 => "<i8",
            Dtype::U16 => "<u2",
            other => {
                return Err(PyBufferError::new_err(format!(
                    "NumPy does not support elements of type {}",
                    other.name()
                )));
            }
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, self.shape())?)?;
        let bytes = self.dtype.bytes();
        let strides: Vec<usize> = self.strides().iter().map(|stride| stride * bytes).collect();
        interface.set_item("strides", pyo3::types::PyTuple::new(py, strides)?)?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }

    fn __repr__(&self) -> String {
        format!("Tensor({}, shape={:?})", self.dtype.name(), self.shape())
    }
}

const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// Returns the pointer in a capsule, unless a consumer has taken ownership.
///
/// # Safety
/// `capsule` must be a capsule, and the thread must be attached to the interpreter.
unsafe fn unconsumed_pointer(capsule: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the caller guarantees that `capsule` is a capsule and that the thread is attached.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 0 {
            return None;
        }
        NonNull::new(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()))
    }
}

unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule on an attached thread. The pointer comes from
    // `__dlpack__`, and the unconsumed capsule owns it (invariant 2).
    unsafe {
        if let Some(pointer) = unconsumed_pointer(capsule, VERSIONED) {
            let managed = pointer.cast::<DlManagedTensorVersioned>().as_ptr();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}

unsafe extern "C" fn free_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule on an attached thread. The pointer comes from
    // `__dlpack__`, and the unconsumed capsule owns it (invariant 2).
    unsafe {
        if let Some(pointer) = unconsumed_pointer(capsule, UNVERSIONED) {
            let managed = pointer.cast::<DlManagedTensor>().as_ptr();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}
