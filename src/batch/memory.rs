//! Allocates the memory of a slot.
//!
//! **Invariants**
//! 1. `base..base + len` lies in one live allocation that `_owner` owns until the `SlotMemory` is
//!    dropped. The range is initialized, and aligned to [`SPAN_ALIGN`](super::schema::SPAN_ALIGN).
//! 2. A `SlotMemory` exposes only its address. The `slot` module decides who may access which byte
//!    when.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::schema::SPAN_ALIGN;
use crate::error::{Error, ErrorKind, Result};

/// The host memory of one slot.
pub struct SlotMemory {
    base: NonNull<u8>,
    len: usize,
    is_pinned: bool,
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: `base` is only an address. `slot` controls all access through it (invariant 2), and
// `_owner` is `Send + Sync`.
unsafe impl Send for SlotMemory {}
// SAFETY: a shared `SlotMemory` exposes only its address (invariant 2), and `_owner` is
// `Send + Sync`.
unsafe impl Sync for SlotMemory {}

impl SlotMemory {
    /// Allocates `len` zeroed bytes of pageable memory.
    pub(crate) fn heap(len: usize) -> Result<Self> {
        let heap = HeapAllocation::new(len)?;
        Ok(SlotMemory { base: heap.base, len, is_pinned: false, _owner: Box::new(heap) })
    }

    /// Wraps `len` bytes of page-locked memory at `base`. `owner` keeps the memory allocated until
    /// the `SlotMemory` is dropped.
    ///
    /// # Safety
    /// Invariant 1 must hold for `base`, `len` and `owner`.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) unsafe fn pinned(base: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        SlotMemory { base, len, is_pinned: true, _owner: owner }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.is_pinned
    }
}

struct HeapAllocation {
    /// Aligned to [`PAGE`].
    base: NonNull<u8>,
    allocated: NonNull<u8>,
    layout: Layout,
}

/// Alignment of pageable slots in bytes: the page size of most systems.
const PAGE: usize = 4096;
const _: () = assert!(PAGE.is_multiple_of(SPAN_ALIGN));

// SAFETY: the allocation is freed once, in `drop`, and any thread may free it.
unsafe impl Send for HeapAllocation {}
// SAFETY: a shared `HeapAllocation` does not expose its bytes.
unsafe impl Sync for HeapAllocation {}

impl HeapAllocation {
    fn new(len: usize) -> Result<Self> {
        let allocation_error = || {
            let cause = format!(
                "cannot allocate {len} bytes for a batch buffer: lower batch_size or prefetch (max_in_flight of a decoder)"
            );
            Error::new(ErrorKind::Memory, cause)
        };
        // With the default alignment, a large block usually comes from the operating system as
        // zeroed pages, and unused pages stay untouched. With a larger alignment, many allocators
        // write the zeros themselves. The code below aligns the block.
        let layout = len
            .checked_add(PAGE)
            .and_then(|size| Layout::from_size_align(size, 16).ok())
            .ok_or_else(allocation_error)?;
        // SAFETY: the layout's size is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(allocation_error)?;
        let padding = allocated.addr().get().next_multiple_of(PAGE) - allocated.addr().get();
        // SAFETY: `padding` is less than a page, and the allocation has `len` bytes plus a page.
        let base = unsafe { allocated.add(padding) };
        Ok(HeapAllocation { base, allocated, layout })
    }
}

impl Drop for HeapAllocation {
    fn drop(&mut self) {
        // SAFETY: `allocated` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
    }
}
