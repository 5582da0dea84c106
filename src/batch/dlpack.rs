//! Shares a batch's memory with other frameworks through DLPack, without copying it. Supports
//! version 1.0 (<https://dmlc.github.io/dlpack>) and the older struct without a version.
//!
//! **Invariants**
//! 1. `manager_ctx` is a leaked `Box<Owner>` that keeps the memory, the shape and the strides
//!    alive. `delete` reclaims the box exactly once.
//! 2. From the export until `delete`, only the receiver uses the `Owner`.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use super::{Dtype, HostBatch};

/// `DLTensor` of dlpack.h.
#[repr(C)]
#[derive(Debug)]
pub struct DlTensor {
    /// Address of the first element.
    pub data: *mut c_void,
    /// 1 for host memory, 2 for CUDA.
    pub device_type: i32,
    /// Index of the CUDA device; 0 for host memory.
    pub device_id: i32,
    /// Number of axes.
    pub ndim: i32,
    /// Kind of the elements. 0: signed integer, 1: unsigned integer, 2: float, 4: bfloat16.
    pub code: u8,
    /// Bits per element.
    pub bits: u8,
    /// Always 1.
    pub lanes: u16,
    /// Pointer to the lengths of the `ndim` axes.
    pub shape: *mut i64,
    /// Pointer to the strides of the `ndim` axes, in elements.
    pub strides: *mut i64,
    /// Always 0.
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
    /// Private to the exporter.
    pub manager_ctx: *mut c_void,
    /// The receiver calls this function once, when it no longer uses the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    /// Flags; always 0.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DlTensor,
}

/// `DLManagedTensor` of dlpack.h, the struct before version 1.0. Some consumers still request it.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensor {
    /// The tensor.
    pub dl_tensor: DlTensor,
    /// Private to the exporter.
    pub manager_ctx: *mut c_void,
    /// The receiver calls this function once, when it no longer uses the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// An exported tensor. The tensor keeps its memory alive until it is dropped. After
/// [`into_raw`](DlpackTensor::into_raw), the memory stays alive until the receiver calls the
/// deleter.
#[derive(Debug)]
pub struct DlpackTensor {
    /// Points to the elements of `shape` and `strides` below.
    tensor: DlTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    memory: Backing,
}

struct Backing(#[allow(dead_code)] Box<dyn Send + Sync>);

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backing")
    }
}

/// The device on which a tensor's memory is located.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DlDevice {
    /// Host memory, which may be page-locked. DLPack has a separate code for page-locked memory,
    /// but PyTorch does not accept it.
    Host,
    /// Memory of the CUDA device with this index.
    Cuda(usize),
}

// SAFETY: the addresses belong to `memory`, which may be dropped on any thread.
unsafe impl Send for DlpackTensor {}

struct Owner<M> {
    managed: M,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _memory: Backing,
}

impl DlpackTensor {
    /// Creates a row-major tensor of shape `shape` at address `data`, in memory that `memory` keeps
    /// alive. For language bindings only, and not covered by semantic versioning.
    ///
    /// # Safety
    /// `data` must be the address, on `device`, of an array of shape `shape` and type `dtype`.
    /// Until `memory` is dropped, the array must stay valid, and only the receiver may write to it.
    #[doc(hidden)]
    pub unsafe fn new(
        data: *mut c_void,
        device: DlDevice,
        dtype: Dtype,
        shape: &[usize],
        memory: impl Send + Sync + 'static,
    ) -> Self {
        let (device_type, device_id) = match device {
            DlDevice::Host => (1, 0),
            DlDevice::Cuda(index) => (2, index as i32),
        };
        let (code, bits) = match dtype {
            Dtype::U8 => (1, 8),
            Dtype::F32 => (2, 32),
            Dtype::F64 => (2, 64),
            Dtype::F16 => (2, 16),
            Dtype::Bf16 => (4, 16),
            Dtype::I16 => (0, 16),
            Dtype::I32 => (0, 32),
            Dtype::I64 => (0, 64),
            Dtype::U16 => (1, 16),
        };
        let mut shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        let tensor = DlTensor {
            data,
            device_type,
            device_id,
            ndim: shape.len() as i32,
            code,
            bits,
            lanes: 1,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        DlpackTensor { tensor, shape, strides, memory: Backing(Box::new(memory)) }
    }

    /// Returns the tensor with its axes in the order `axes`. For example, `[0, 3, 1, 2]` turns (N,
    /// H, W, C) into (N, C, H, W), a format that PyTorch calls `channels_last`.
    ///
    /// # Panics
    /// If `axes` is not a permutation of the axes.
    #[must_use]
    pub fn permuted(mut self, axes: &[usize]) -> Self {
        let mut sorted_axes = axes.to_vec();
        sorted_axes.sort_unstable();
        assert!(
            sorted_axes.into_iter().eq(0..self.shape.len()),
            "{axes:?} is not a permutation of the axes of shape {:?}",
            self.shape
        );
        let permute = |from: &[i64]| axes.iter().map(|&axis| from[axis]).collect::<Vec<_>>();
        (self.shape, self.strides) = (permute(&self.shape), permute(&self.strides));
        (self.tensor.shape, self.tensor.strides) = (self.shape.as_mut_ptr(), self.strides.as_mut_ptr());
        self
    }

    /// Returns the description of the tensor.
    pub fn tensor(&self) -> &DlTensor {
        &self.tensor
    }

    /// Passes the tensor to a receiver, which must call the deleter exactly once.
    pub fn into_raw(self) -> *mut DlManagedTensorVersioned {
        let managed = |dl_tensor| DlManagedTensorVersioned {
            major: 1,
            minor: 0,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete_versioned),
            flags: 0,
            dl_tensor,
        };
        let owner = self.leak(managed);
        // SAFETY: the owner was just leaked, so it is alive and not shared (invariant 1).
        unsafe {
            (*owner).managed.manager_ctx = owner.cast();
            &raw mut (*owner).managed
        }
    }

    /// Passes the tensor to a receiver in the struct that was used before version 1.0. The receiver
    /// must call the deleter exactly once.
    pub fn into_raw_unversioned(self) -> *mut DlManagedTensor {
        let manager_ctx = std::ptr::null_mut();
        let owner = self.leak(|dl_tensor| DlManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) });
        // SAFETY: the owner was just leaked, so it is alive and not shared (invariant 1).
        unsafe {
            (*owner).managed.manager_ctx = owner.cast();
            &raw mut (*owner).managed
        }
    }

    /// Leaks the owner of the tensor. Moving a vector does not move its elements, so the addresses
    /// in the description stay valid.
    fn leak<M>(self, managed: impl FnOnce(DlTensor) -> M) -> *mut Owner<M> {
        let DlpackTensor { tensor, shape, strides, memory } = self;
        Box::into_raw(Box::new(Owner { managed: managed(tensor), _shape: shape, _strides: strides, _memory: memory }))
    }
}

/// # Safety
/// `managed` must come from [`DlpackTensor::into_raw`], and must not be used again.
unsafe extern "C" fn delete_versioned(managed: *mut DlManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: guaranteed by the caller and invariant 1.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner<DlManagedTensorVersioned>>()) });
    }
}

/// # Safety
/// `managed` must come from [`DlpackTensor::into_raw_unversioned`], and must not be used again.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    if !managed.is_null() {
        // SAFETY: guaranteed by the caller and invariant 1.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner<DlManagedTensor>>()) });
    }
}

impl HostBatch {
    /// Exports the field `name`, such as `image` or `label`. Returns `None` if the batch has no
    /// such field. The loader does not reuse the memory before the batch and all exports have been
    /// dropped.
    ///
    /// The receiver may write to the memory, because the loader fills the memory again for a later
    /// batch. While the receiver writes, do not read the field through the batch.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use warpfeed::{Augment, Loader};
    /// # fn main() -> warpfeed::Result<()> {
    /// # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
    /// let loader = Loader::new("datasets/mini").augment(Augment::train(64)).batch_size(16);
    /// for batch in loader {
    ///     let batch = Arc::new(batch?);
    ///     let images = batch.dlpack("image").unwrap();
    ///     assert_eq!(images.tensor().ndim, 4);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn dlpack(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        let view = self.field(name)?;
        let data = self.address(name)?.cast();
        // SAFETY: the batch keeps its slot alive, the slot contains the field's elements, and
        // workers write to it only after the batch has been dropped.
        Some(unsafe { DlpackTensor::new(data, DlDevice::Host, view.dtype(), &view.shape(), self.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn the_structs_have_the_sizes_of_dlpack_h() {
        assert_eq!((size_of::<DlTensor>(), size_of::<DlManagedTensorVersioned>()), (48, 80));
        assert_eq!((size_of::<DlManagedTensor>(), std::mem::offset_of!(DlManagedTensor, manager_ctx)), (64, 48));
        assert_eq!(std::mem::offset_of!(DlManagedTensorVersioned, dl_tensor), 32);
        assert_eq!(std::mem::offset_of!(DlTensor, shape), 24);
    }

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn tensor(dropped: &Arc<AtomicUsize>) -> DlpackTensor {
        let memory = Counted(dropped.clone());
        let data = std::ptr::dangling_mut::<u64>().cast();
        // SAFETY: nothing reads or writes the elements in this test.
        unsafe { DlpackTensor::new(data, DlDevice::Cuda(3), Dtype::F16, &[2, 4, 5, 3], memory) }
    }

    /// # Safety
    /// `tensor` must have one length and one stride per axis.
    unsafe fn axes(tensor: &DlTensor) -> (Vec<i64>, Vec<i64>) {
        let ndim = tensor.ndim as usize;
        // SAFETY: guaranteed by the caller.
        unsafe {
            ((0..ndim).map(|i| *tensor.shape.add(i)).collect(), (0..ndim).map(|i| *tensor.strides.add(i)).collect())
        }
    }

    #[test]
    fn memory_is_released_exactly_once() {
        let dropped = Arc::new(AtomicUsize::new(0));
        drop(tensor(&dropped));
        assert_eq!(dropped.load(SeqCst), 1);

        let versioned = tensor(&dropped).permuted(&[0, 3, 1, 2]).into_raw();
        // SAFETY: the tensor lives until its deleter is called, which happens in this block.
        unsafe {
            assert_eq!(axes(&(*versioned).dl_tensor), (vec![2, 3, 4, 5], vec![60, 1, 15, 3]));
            assert_eq!(((*versioned).dl_tensor.device_type, (*versioned).dl_tensor.device_id), (2, 3));
            assert_eq!(dropped.load(SeqCst), 1);
            (*versioned).deleter.unwrap()(versioned);
        }
        assert_eq!(dropped.load(SeqCst), 2);

        let unversioned = tensor(&dropped).into_raw_unversioned();
        // SAFETY: the tensor lives until its deleter is called, which happens in this block.
        unsafe {
            assert_eq!(axes(&(*unversioned).dl_tensor), (vec![2, 4, 5, 3], vec![60, 15, 3, 1]));
            assert_eq!(dropped.load(SeqCst), 2);
            (*unversioned).deleter.unwrap()(unversioned);
        }
        assert_eq!(dropped.load(SeqCst), 3);
    }
}
