#![allow(unsafe_code)]
//! DLPack: shares a batch's memory with other frameworks, without a copy
//! (<https://dmlc.github.io/dlpack>, version 1.0 and the one before it).
//!
//! **Invariants**
//! 1. `manager_ctx` is a leaked `Box<Owner>` that holds the memory alive, with shape and strides;
//!    `delete` takes it back, once.
//! 2. Between the export and `delete` nothing else touches the `Owner`.

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
    /// The device's number; 0 for host memory.
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

/// `DLManagedTensor` of dlpack.h: the struct of versions before 1.0, which some consumers still ask
/// for.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensor {
    /// The tensor.
    pub dl_tensor: DlTensor,
    /// The exporter's own.
    pub manager_ctx: *mut c_void,
    /// The receiver calls it once, when it no longer uses the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// An exported tensor. It keeps its batch alive until it is dropped. After
/// [`into_raw`](DlpackTensor::into_raw) the receiver's call of the deleter ends this.
#[derive(Debug)]
pub struct DlpackTensor {
    /// Its shape and strides point into the vectors beside it.
    tensor: DlTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    memory: Memory,
}

/// What keeps the memory of a tensor.
struct Memory(#[allow(dead_code)] Box<dyn Send + Sync>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

/// Where a tensor's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DlDevice {
    /// Host memory. DLPack has another number for page-locked memory, which PyTorch does not take.
    Host,
    /// The memory of a CUDA device with this number.
    Cuda(usize),
}

// SAFETY: the addresses belong to `memory`, which may be dropped on any thread.
unsafe impl Send for DlpackTensor {}

struct Owner<M> {
    managed: M,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _memory: Memory,
}

impl DlpackTensor {
    /// A row-major tensor of `shape` at `data`, in memory that `memory` keeps. Bindings use it; the
    /// version number does not cover it.
    ///
    /// # Safety
    /// Until `memory` is dropped, `data` is the address of so many elements of `dtype` on `device`,
    /// and nothing but the receiver writes there.
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
            DlDevice::Cuda(number) => (2, number as i32),
        };
        let (code, bits) = match dtype {
            Dtype::U8 => (1, 8),
            Dtype::F32 => (2, 32),
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
        DlpackTensor { tensor, shape, strides, memory: Memory(Box::new(memory)) }
    }

    /// The same memory with its axes in another order, as a transposed view: `[0, 3, 1, 2]` makes
    /// (N, C, H, W) of (N, H, W, C). PyTorch calls that `channels_last`.
    ///
    /// # Panics
    /// If `axes` does not have every axis once.
    #[must_use]
    pub fn permuted(mut self, axes: &[usize]) -> Self {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..self.shape.len()), "axes {axes:?} of {:?}", self.shape);
        let taken = |from: &[i64]| axes.iter().map(|&axis| from[axis]).collect::<Vec<_>>();
        (self.shape, self.strides) = (taken(&self.shape), taken(&self.strides));
        (self.tensor.shape, self.tensor.strides) = (self.shape.as_mut_ptr(), self.strides.as_mut_ptr());
        self
    }

    /// The tensor.
    pub fn tensor(&self) -> &DlTensor {
        &self.tensor
    }

    /// Gives the tensor away; the receiver calls the deleter once.
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
        // SAFETY: just leaked, so it lives, and nobody else has it (invariant 1).
        unsafe {
            (*owner).managed.manager_ctx = owner.cast();
            &raw mut (*owner).managed
        }
    }

    /// Gives the tensor away in the struct of versions before 1.0; the receiver calls the deleter
    /// once.
    pub fn into_raw_unversioned(self) -> *mut DlManagedTensor {
        let manager_ctx = std::ptr::null_mut();
        let owner = self.leak(|dl_tensor| DlManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete) });
        // SAFETY: as above.
        unsafe {
            (*owner).managed.manager_ctx = owner.cast();
            &raw mut (*owner).managed
        }
    }

    /// The vectors move with their elements in place, so the addresses in the tensor stay right.
    fn leak<M>(self, managed: impl FnOnce(DlTensor) -> M) -> *mut Owner<M> {
        let DlpackTensor { tensor, shape, strides, memory } = self;
        Box::into_raw(Box::new(Owner { managed: managed(tensor), _shape: shape, _strides: strides, _memory: memory }))
    }
}

/// # Safety
/// `managed` came from [`DlpackTensor::into_raw`] and is not used again.
unsafe extern "C" fn delete_versioned(managed: *mut DlManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: the caller's promise and invariant 1.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner<DlManagedTensorVersioned>>()) });
    }
}

/// # Safety
/// `managed` came from [`DlpackTensor::into_raw_unversioned`] and is not used again.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    if !managed.is_null() {
        // SAFETY: the caller's promise and invariant 1.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Owner<DlManagedTensor>>()) });
    }
}

impl HostBatch {
    /// Exports the field `name` (`image`, `label`, ...). You may export several fields of one
    /// batch. The batch's memory is reused after the batch and all of its exports are gone.
    ///
    /// The receiver may write to it: the memory is filled anew for every batch. While it writes,
    /// nobody may read the same field through the batch.
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
        // SAFETY: a batch keeps its slot, the field's elements lie there, and the workers write to
        // the slot after the batch is gone.
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
        // SAFETY: nobody reads the elements here.
        unsafe { DlpackTensor::new(data, DlDevice::Cuda(3), Dtype::F16, &[2, 4, 5, 3], memory) }
    }

    /// # Safety
    /// `tensor` has as many lengths and strides as axes.
    unsafe fn axes(tensor: &DlTensor) -> (Vec<i64>, Vec<i64>) {
        let ndim = tensor.ndim as usize;
        // SAFETY: the caller's promise.
        unsafe {
            ((0..ndim).map(|i| *tensor.shape.add(i)).collect(), (0..ndim).map(|i| *tensor.strides.add(i)).collect())
        }
    }

    #[test]
    fn memory_is_let_go_once_however_the_tensor_ends() {
        let dropped = Arc::new(AtomicUsize::new(0));
        drop(tensor(&dropped));
        assert_eq!(dropped.load(SeqCst), 1);

        let versioned = tensor(&dropped).permuted(&[0, 3, 1, 2]).into_raw();
        // SAFETY: the tensor lives until its deleter is called, here.
        unsafe {
            assert_eq!(axes(&(*versioned).dl_tensor), (vec![2, 3, 4, 5], vec![60, 1, 15, 3]));
            assert_eq!(((*versioned).dl_tensor.device_type, (*versioned).dl_tensor.device_id), (2, 3));
            assert_eq!(dropped.load(SeqCst), 1);
            (*versioned).deleter.unwrap()(versioned);
        }
        assert_eq!(dropped.load(SeqCst), 2);

        let old = tensor(&dropped).into_raw_unversioned();
        // SAFETY: as above.
        unsafe {
            assert_eq!(axes(&(*old).dl_tensor), (vec![2, 4, 5, 3], vec![60, 15, 3, 1]));
            assert_eq!(dropped.load(SeqCst), 2);
            (*old).deleter.unwrap()(old);
        }
        assert_eq!(dropped.load(SeqCst), 3);
    }
}
