//! The bytes under a slot.
//!
//! **Invariants**
//! - `base..base + len` is one live allocation, aligned to [`ALIGN`](super::schema::ALIGN), initialised, and owned by `owner` until the `Memory`
//!   is dropped.
//! - A `Memory` hands out its address only; who may touch which byte, and when, is the affair of `slot`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::schema::ALIGN;
use crate::error::{Error, ErrorKind, Result};

/// Host memory of one slot.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
    pinned: bool,
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: `base` is an address only; all access through it is arranged by `slot` (invariant 2), and `owner` is `Send + Sync` itself.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` zeroed bytes of ordinary memory.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the system does not give them.
    pub(crate) fn heap(len: usize) -> Result<Self> {
        let heap = Heap::new(len)?;
        Ok(Memory { base: heap.base, len, pinned: false, _owner: Box::new(heap) })
    }

    /// `len` bytes of page-locked memory at `base` that `owner` frees when it is dropped.
    ///
    /// # Safety
    /// Invariant 1 must hold for `base`, `len` and `owner`.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) unsafe fn pinned(base: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        Memory { base, len, pinned: true, _owner: owner }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }
}

struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation is only freed here, once, whichever thread drops it.
unsafe impl Send for Heap {}
// SAFETY: a shared `Heap` gives no access to its bytes.
unsafe impl Sync for Heap {}

impl Heap {
    fn new(len: usize) -> Result<Self> {
        // Whole pages, so that the buffer can be handed to calls that want them.
        let align = ALIGN.max(4096);
        let layout =
            Layout::from_size_align(len.max(1), align).expect("the plan checked that the size fits the address space");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or_else(|| {
            let cause = format!("the system has no {len} bytes for a batch buffer; lower batch or prefetch");
            Error::new(ErrorKind::Memory, cause)
        })?;
        Ok(Heap { base, layout })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
