#![allow(unsafe_code)]
//! DLPack: shares the batch's memory with other frameworks, without a copy
//! (<https://dmlc.github.io/dlpack>, version 1.0).
//!
//! **Invariants**
//! 1. `manager_ctx` is a leaked `Box<Owner>` that holds the batch alive, with shape and strides;
//!    `delete` takes it back, once.
//! 2. Between the export and `delete` nothing else touches the `Owner`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::CudaBatch;
use crate::batch::Dtype;

/// `DLTensor` of dlpack.h.
#[repr(C)]
#[derive(Debug)]
pub struct DlTensor {
    /// Device address of the first element.
    pub data: *mut c_void,
    /// 2 for CUDA.
    pub device_type: i32,
    /// The device's number.
    pub device_id: i32,
    /// Number of axes.
    pub ndim: i32,
    /// 0 signed, 1 unsigned, 2 float, 4 bfloat.
    pub code: u8,
    /// Bits an element.
    pub bits: u8,
    /// 1.
    pub lanes: u16,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements.
    pub strides: *mut i64,
    /// 0.
    pub byte_offset: u64,
}

/// `DLManagedTensorVersioned` of dlpack.h.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensorVersioned {
    /// Major version, 1.
    pub major: u32,
    /// Minor version, 0.
    pub minor: u32,
    /// The exporter's own.
    pub manager_ctx: *mut c_void,
    /// The receiver calls it once, when it no longer uses the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    /// None set.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DlTensor,
}

struct Owner {
    managed: DlManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _batch: Arc<CudaBatch>,
}

/// An exported tensor. It keeps its batch alive until it is dropped. After
/// [`into_raw`](DlpackTensor::into_raw) the receiver's call of the deleter ends this.
#[derive(Debug)]
pub struct DlpackTensor(NonNull<DlManagedTensorVersioned>);

// SAFETY: the owner holds plain data and an `Arc<CudaBatch>`, which may be dropped on any thread.
unsafe impl Send for DlpackTensor {}

impl CudaBatch {
    /// Exports the field `name` (`image`, `label`, ...). You may export several fields of one
    /// batch. The batch's memory is reused after the batch and all of its exports are gone.
    ///
    /// The tensor is ordered by the loader's stream. A consumer on another stream must first make
    /// its stream wait for the loader's, as DLPack's `__dlpack__(stream=...)` does. It may release
    /// the tensor while its work is queued. The memory is written again after all work, on any
    /// stream, that the device had been given by then. Drivers older than CUDA 12.5 cannot mark
    /// this work; there the consumer must join the loader's stream before it releases the tensor.
    pub fn dlpack(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        let tensor = self.field(name)?;
        self.0.export();
        let (code, bits) = match tensor.dtype() {
            Dtype::U8 => (1, 8),
            Dtype::F32 => (2, 32),
            Dtype::F16 => (2, 16),
            Dtype::Bf16 => (4, 16),
            Dtype::I16 => (0, 16),
            Dtype::I32 => (0, 32),
            Dtype::I64 => (0, 64),
            Dtype::U16 => (1, 16),
        };
        let signed = |sizes: &[usize]| sizes.iter().map(|&n| n as i64).collect::<Vec<_>>();
        let (shape, strides) = (signed(tensor.shape()), signed(&tensor.strides()));
        let dl_tensor = DlTensor {
            data: tensor.device_ptr() as *mut c_void,
            device_type: 2,
            device_id: tensor.device() as i32,
            ndim: shape.len() as i32,
            code,
            bits,
            lanes: 1,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let (manager_ctx, deleter) = (std::ptr::null_mut(), Some(delete as _));
        let managed = DlManagedTensorVersioned { major: 1, minor: 0, manager_ctx, deleter, flags: 0, dl_tensor };
        let mut owner = Box::new(Owner { managed, shape, strides, _batch: self.clone() });
        owner.managed.dl_tensor.shape = owner.shape.as_mut_ptr();
        owner.managed.dl_tensor.strides = owner.strides.as_mut_ptr();
        let owner = NonNull::from(Box::leak(owner));
        // SAFETY: just leaked, so it lives, and nobody else has it (invariant 1).
        unsafe {
            (*owner.as_ptr()).managed.manager_ctx = owner.as_ptr().cast();
            Some(DlpackTensor(NonNull::new_unchecked(&raw mut (*owner.as_ptr()).managed)))
        }
    }
}

impl DlpackTensor {
    /// The tensor.
    pub fn tensor(&self) -> &DlTensor {
        // SAFETY: invariants 1 and 2.
        unsafe { &self.0.as_ref().dl_tensor }
    }

    /// Gives the tensor away; the receiver calls the deleter once.
    pub fn into_raw(self) -> *mut DlManagedTensorVersioned {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        // SAFETY: it was not given away, so this is the one call (invariant 1).
        unsafe { delete(self.0.as_ptr()) }
    }
}

/// # Safety
/// `managed` came from [`CudaBatch::dlpack`] and is not used again.
unsafe extern "C" fn delete(managed: *mut DlManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: the caller's promise and invariant 1.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner>()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_have_the_sizes_of_dlpack_h() {
        assert_eq!((size_of::<DlTensor>(), size_of::<DlManagedTensorVersioned>()), (48, 80));
        assert_eq!(std::mem::offset_of!(DlManagedTensorVersioned, dl_tensor), 32);
        assert_eq!(std::mem::offset_of!(DlTensor, shape), 24);
    }
}
