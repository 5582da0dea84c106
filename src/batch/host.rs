//! Batches in host memory, as the consumer sees them.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam::channel::Sender;
use half::{bf16, f16};

use super::{
    BatchInfo, COUNT_SUFFIX, CU_SEQLENS_SUFFIX, Delivered, Dtype, ENDS_SUFFIX, Field, FilledSlot, FreeSlot, Role, Span,
};
use crate::error::Result;

/// A batch in host memory. Dereferences to [`BatchInfo`], the metadata of the samples.
///
/// A batch occupies one of the loader's slots at least until it is dropped. You may keep batches,
/// but if they occupy every slot, the workers stall.
///
/// If the batch is in page-locked memory ([`Loader::pinned`](crate::Loader::pinned)), you can start
/// an asynchronous upload on any stream, with cudarc's safe calls or with candle, and drop the
/// batch before the upload is done. The loader does not reuse the slot until the devices have
/// finished all work that was submitted before the drop.
#[cfg_attr(feature = "cuda", doc = "[`release_on`](HostBatch::release_on) waits for only one stream.")]
pub struct HostBatch {
    filled_slot: Option<FilledSlot>,
    slot_return: SlotReturn,
}

#[derive(Clone)]
pub(crate) struct SlotReturn {
    pub(crate) free: Sender<FreeSlot>,
    /// Number of batches that the consumer has not dropped.
    pub(crate) consumer_slots: Arc<AtomicUsize>,
    /// `None` for pageable memory.
    pub(crate) reclaimer: Option<Arc<dyn SlotReclaimer<FreeSlot>>>,
    /// ID of the process that runs the loader's threads.
    pub(crate) process: u32,
}

/// Holds back slots in page-locked memory while a device may be reading them.
pub(crate) trait SlotReclaimer<T>: Send + Sync {
    fn reclaim(&self, slot: T);

    /// Tells the reclaimer whether the consumer is waiting for a batch. While the consumer waits,
    /// the reclaimer releases slots as early as possible. Returns the error of a device that has
    /// failed and may still be reading slots, if any.
    fn set_waiting(&self, is_waiting: bool) -> Result<()>;

    fn pending_slots(&self) -> usize;

    /// Returns whether slots cannot be released because a CUDA graph is being captured.
    fn is_blocked_by_capture(&self) -> bool;

    /// Returns when the last slot was released, or when the reclaimer was created. `None` while a
    /// slot is held back.
    fn idle_since(&self) -> Option<Instant>;

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    fn as_any(&self) -> &dyn Any;
}

/// Creates a reclaimer that sends each slot through the `Sender` once no device is reading the
/// slot.
pub(crate) type MakeReclaimer = Box<dyn FnOnce(Sender<FreeSlot>) -> Result<Arc<dyn SlotReclaimer<FreeSlot>>>>;

impl SlotReturn {
    /// Returns when the loader began to delay a batch that was requested at `requested`. While the
    /// reclaimer holds slots, the loader waits for device work of the consumer, and causes no
    /// delay.
    pub(crate) fn stall_start(&self, requested: Instant) -> Instant {
        match self.reclaimer.as_ref().map(|reclaimer| reclaimer.idle_since()) {
            None => requested,
            Some(Some(idle)) => requested.max(idle),
            Some(None) => Instant::now(),
        }
    }
}

impl HostBatch {
    pub(crate) fn new(filled_slot: FilledSlot, slot_return: &SlotReturn) -> Self {
        slot_return.consumer_slots.fetch_add(1, Ordering::Relaxed);
        HostBatch { filled_slot: Some(filled_slot), slot_return: slot_return.clone() }
    }

    fn filled_slot(&self) -> &FilledSlot {
        self.filled_slot.as_ref().expect("the slot is taken only when the batch is consumed or dropped")
    }

    /// Returns the images, of shape (N, H, W, C), or (N, C, H, W) with
    /// [`Layout::Nchw`](crate::Layout::Nchw), where C is the number of
    /// [channels](crate::Loader::channels). For clips, an axis of frames follows the batch axis. If
    /// there are several image fields, returns the one called `image`, or the first one if none has
    /// this name.
    ///
    /// # Panics
    /// If the loader has no image field.
    pub fn images(&self) -> TensorView<'_> {
        self.view(self.filled_slot().schema().image_span().expect("the loader has no image field"))
    }

    /// Returns the label of each sample.
    ///
    /// # Errors
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) if no sample of the batch has a label; the
    /// error names the first sample. With [`Loader::unlabeled`](crate::Loader::unlabeled), missing
    /// labels are -1 instead. [`ErrorKind::Config`](crate::ErrorKind::Config) if the loader was
    /// opened without labels.
    pub fn labels(&self) -> Result<&[i64]> {
        let span = self.filled_slot().info().labels(self.filled_slot().schema().find(Role::Label))?;
        Ok(self.view(span).as_i64().expect("labels are i64"))
    }

    /// Returns the soft labels as an f32 array of shape (N, classes), or `None` without
    /// [`Loader::soft_labels`](crate::Loader::soft_labels).
    pub fn soft_labels(&self) -> Option<TensorView<'_>> {
        self.filled_slot().schema().find(Role::SoftLabels).map(|span| self.view(span))
    }

    /// Returns the field called `name`, or `None` if there is no such field. The built-in names are
    /// `image`; `label`, if the samples have labels or [`unlabeled`](crate::Loader::unlabeled) is
    /// set; and `soft_label`, with [`soft_labels`](crate::Loader::soft_labels).
    /// [Views](crate::Loader::views) have names such as `views.0`. Fields added with
    /// [`Loader::field`](crate::Loader::field) have the names of their arrays. If a field `x` has
    /// row counts, like [`Ragged`](crate::field::Ragged), `x.count` contains them.
    pub fn field(&self, name: &str) -> Option<TensorView<'_>> {
        let span = self.filled_slot().schema().find_named(name)?;
        (!self.hides(self.filled_slot().schema().spans[span].role)).then(|| self.view(span))
    }

    pub(super) fn address(&self, name: &str) -> Option<*mut u8> {
        self.filled_slot().schema().find_named(name).map(|span| self.filled_slot().address(span))
    }

    /// Returns the number of rows of each sample in the field `name`, or `None` if the field has no
    /// row counts. [`Ragged`](crate::field::Ragged), [`Boxes`](crate::field::Boxes) and
    /// [`Patches`](crate::field::Patches) fields have row counts. Rows beyond this number are
    /// padding. `Patches` fields have no padding.
    pub fn counts(&self, name: &str) -> Option<&[i64]> {
        let is_counts = |field: &str| field.strip_suffix(COUNT_SUFFIX) == Some(name);
        let span = self.filled_slot().schema().spans.iter().position(|span| is_counts(&span.field.name))?;
        self.view(span).as_i64()
    }

    /// Returns the cumulative lengths of the documents in the field `name`, and the maximum length
    /// of a document. Returns `None` unless the field is a [`Packed`](crate::field::Packed) or
    /// [`Patches`](crate::field::Patches) field.
    ///
    /// The cumulative lengths are 0, followed by the end of each document in the concatenated rows,
    /// as `flash_attn_varlen_func` expects for `cu_seqlens_q` and `max_seqlen_q`. The padding of a
    /// row counts as a document. In a `Patches` field, the documents are the images, and there is
    /// no padding.
    ///
    /// # Panics
    /// If the rows of a `Packed` field have more than 2^31 - 1 tokens in total. In a `Patches`
    /// field, larger cumulative lengths are replaced by 2^31 - 1.
    pub fn cu_seqlens(&self, name: &str) -> Option<(Vec<i32>, i32)> {
        let spans = &self.filled_slot().schema().spans;
        let has_name = |field: &str| field.strip_suffix(CU_SEQLENS_SUFFIX) == Some(name);
        if let Some(span) = spans.iter().position(|span| has_name(&span.field.name) && span.role.is_packed()) {
            let boundaries = self.view(span).elements::<i32>()?.to_vec();
            let longest = boundaries.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            return Some((boundaries, longest));
        }
        let has_name = |field: &str| field.strip_suffix(ENDS_SUFFIX) == Some(name);
        let span = self.filled_slot().schema().spans.iter().position(|span| has_name(&span.field.name))?;
        let ends = self.view(span).elements::<i32>()?;
        let row_tokens = self.filled_slot().schema().find_named(name).map(|span| self.view(span).sample_shape[0])?;
        let mut boundaries = vec![0];
        for (index, ends) in ends.chunks_exact(ends.len() / self.len()).enumerate() {
            let start = i32::try_from(index * row_tokens).expect("a batch has fewer than 2^31 tokens");
            for &end in ends {
                let end = start.checked_add(end).expect("a batch has fewer than 2^31 tokens");
                if boundaries.last() != Some(&end) {
                    boundaries.push(end);
                }
            }
        }
        let longest = boundaries.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        Some((boundaries, longest))
    }

    /// Returns the name, element type and shape per sample of each array of the loader's batches.
    /// `label` is included even if no sample of this batch has a label.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        let delivered = |span: &&Span| span.role.is_delivered();
        self.filled_slot().schema().spans.iter().filter(delivered).map(|span| &span.field)
    }

    fn view(&self, span: usize) -> TensorView<'_> {
        let field = &self.filled_slot().schema().spans[span].field;
        let (len, sample_shape) = self.shape(span, &field.shape);
        TensorView { dtype: field.dtype, len, sample_shape, bytes: self.filled_slot().bytes(span) }
    }

    fn take_slot(&mut self) -> Option<(FreeSlot, &SlotReturn)> {
        let filled_slot = self.filled_slot.take()?;
        self.slot_return.consumer_slots.fetch_sub(1, Ordering::Relaxed);
        Some((filled_slot.release(), &self.slot_return))
    }

    /// Passes the slot and its reclaimer to `release` if the slot is in page-locked memory.
    /// Otherwise, drops the batch.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn release_to(mut self, release: impl FnOnce(FreeSlot, &dyn SlotReclaimer<FreeSlot>)) {
        if self.slot_return.reclaimer.is_some()
            && let Some((slot, SlotReturn { reclaimer: Some(reclaimer), .. })) = self.take_slot()
        {
            release(slot, &**reclaimer);
        }
    }
}

impl Deref for HostBatch {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.filled_slot().info()
    }
}

impl Delivered for HostBatch {
    fn info(&self) -> &BatchInfo {
        self
    }
}

impl Drop for HostBatch {
    fn drop(&mut self) {
        if std::process::id() != self.slot_return.process {
            // In a forked child, leak the slot: the threads that would receive it do not exist, and
            // locks that they held stay locked.
            std::mem::forget(self.filled_slot.take());
        }
        if let Some((slot, slot_return)) = self.take_slot() {
            match &slot_return.reclaimer {
                Some(reclaimer) => reclaimer.reclaim(slot),
                // If the loader has been dropped, sending fails and frees the slot.
                None => drop(slot_return.free.send(slot)),
            }
        }
    }
}

impl std::fmt::Debug for HostBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("HostBatch");
        debug.field("epoch", &self.epoch()).field("batch_index", &self.batch_index());
        for field in self.fields() {
            debug.field(&field.name, &self.field(&field.name));
        }
        debug.finish()
    }
}

/// A typed, shaped, borrowed view of one field of a batch.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    dtype: Dtype,
    len: usize,
    sample_shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Returns the element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the shape, with the batch axis first. In a field whose samples are concatenated,
    /// such as [`Patches`](crate::field::Patches), the first axis contains the rows of all samples.
    pub fn shape(&self) -> Vec<usize> {
        std::iter::once(self.len).chain(self.sample_shape.iter().copied()).collect()
    }

    /// Returns the shape without the first axis: the shape of one sample, or of one row if the
    /// samples are concatenated.
    pub fn sample_shape(&self) -> &'a [usize] {
        self.sample_shape
    }

    /// Returns all bytes, in row-major order and native byte order.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the elements if they are of type `T`.
    pub fn elements<T: Element>(&self) -> Option<&'a [T]> {
        (self.dtype == T::DTYPE).then(|| bytemuck::cast_slice(self.bytes))
    }

    /// Returns the elements if they are `u8`.
    pub fn as_u8(&self) -> Option<&'a [u8]> {
        self.elements()
    }

    /// Returns the elements if they are `f32`.
    pub fn as_f32(&self) -> Option<&'a [f32]> {
        self.elements()
    }

    /// Returns the elements if they are `f16`.
    pub fn as_f16(&self) -> Option<&'a [f16]> {
        self.elements()
    }

    /// Returns the elements if they are `bf16`.
    pub fn as_bf16(&self) -> Option<&'a [bf16]> {
        self.elements()
    }

    /// Returns the elements if they are `i64`.
    pub fn as_i64(&self) -> Option<&'a [i64]> {
        self.elements()
    }

    /// Returns the field as an array of shape [`shape`](TensorView::shape) if its elements are of
    /// type `T`. Requires the `ndarray` feature.
    #[cfg(feature = "ndarray")]
    pub fn array<T: Element>(&self) -> Option<ndarray::ArrayViewD<'a, T>> {
        let elements = self.elements()?;
        Some(ndarray::ArrayViewD::from_shape(self.shape(), elements).expect("the number of elements matches the shape"))
    }
}

/// An element type of a field: `u8`, `u16`, `f32`, `f64`, `f16`, `bf16`, `i16`, `i32` or `i64`.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The [`Dtype`] of fields with these elements.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

element!(u8 => U8, f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16, i16 => I16, i32 => I32, i64 => I64, u16 => U16);

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.dtype.name(), self.shape())
    }
}
