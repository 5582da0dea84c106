//! The life cycle of a batch buffer: [`FreeSlot`] -> [`SlotPart`]s -> [`FilledSlot`] ->
//! [`FreeSlot`]. If a device cannot decode some samples, the slot returns from [`FilledSlot`] to
//! [`SlotPart`]s once.
//!
//! These types are tokens: each grants access to a slot in one state. Each step consumes the tokens
//! of the previous step, so code that reads a slot while it is being filled does not compile.
//!
//! **Invariants**
//! 1. A `Slot` has either one [`FreeSlot`], or one or more [`SlotPart`]s, or one [`FilledSlot`].
//!    There are two exceptions. The iterators of [`FreeSlot::begin`] and
//!    `FilledSlot::split_for_refill` create parts lazily, and count as the parts that they have not
//!    created yet. A dropped token or iterator is not replaced. Only this file creates these
//!    tokens.
//! 2. A `FreeSlot` or `FilledSlot` token is exclusive: only its holder accesses the slot's bytes
//!    and metadata.
//! 3. The `SlotPart`s of a slot cover disjoint ranges of rows. Only the holder of a part accesses
//!    the bytes and metadata of these rows. The metadata is accessed through a pointer to
//!    `samples`, whose elements do not move while parts exist. All parts may read the header, which
//!    nobody writes while parts exist.
//! 4. Encoded data for a device has its own span (a region of the slot's memory), which the parts
//!    share. `encoded` is the number of bytes of this span that have been reserved. In each batch,
//!    each byte is reserved by at most one part.
//! 5. The memory of a slot is large enough for each of its schemas. `variant` is the index of the
//!    batch's schema. Only the holder of a [`FreeSlot`] writes `variant`.
//! 6. `unfinished_parts` is the number of unfinished parts. The part that decrements it to zero
//!    becomes the `FilledSlot`. The decrement has acquire-release ordering, so that this part sees
//!    everything that the other parts wrote.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::info::{BatchHeader, BatchInfo, SampleInfo};
use super::schema::Role;
use super::{Schema, Schemas, SlotMemory, Span};

/// Alignment of the encoded data of each image, in bytes.
const ENCODED_ALIGN: usize = 16;

struct Slot {
    schemas: Schemas,
    variant: AtomicUsize,
    memory: SlotMemory,
    info: UnsafeCell<BatchInfo>,
    unfinished_parts: AtomicUsize,
    /// Number of bytes of encoded data that have been reserved (invariant 4).
    reserved_bytes: AtomicUsize,
    /// Number of blocks of coefficients that have been reserved.
    reserved_blocks: AtomicUsize,
}

// SAFETY: the metadata and the memory are accessed only through tokens, which are exclusive or
// disjoint (invariants 2 and 3).
unsafe impl Sync for Slot {}

impl Slot {
    fn schema(&self) -> &Schema {
        self.schemas.variant(self.variant.load(Ordering::Relaxed))
    }

    fn bytes(&self, span: usize, range: Range<usize>) -> *mut [u8] {
        let Schema { spans, batch, .. } = self.schema();
        let span = &spans[span];
        assert!(range.start <= range.end && range.end <= *batch, "rows {range:?} are not in a batch of {batch} rows");
        let start = span.offset + range.start * span.sample_bytes;
        let len = range.len() * span.sample_bytes;
        debug_assert!(start + len <= self.memory.len());
        // SAFETY: `Schema::new` laid out consecutive spans inside `memory` (invariant 5), and the
        // range is inside the span (asserted above).
        std::ptr::slice_from_raw_parts_mut(unsafe { self.memory.base().add(start) }, len)
    }
}

impl FreeSlot {
    /// Creates a slot. `memory` must be large enough for the largest of `schemas`.
    pub(crate) fn new(schemas: &Schemas, memory: SlotMemory) -> Self {
        let bytes = schemas.bytes();
        assert!(memory.len() >= bytes, "a slot has {} bytes of memory, but needs {bytes}", memory.len());
        let info = UnsafeCell::new(BatchInfo::new(schemas.batch()));
        let [variant, unfinished_parts, reserved_bytes, reserved_blocks] = std::array::from_fn(|_| AtomicUsize::new(0));
        FreeSlot(Arc::new(Slot {
            schemas: schemas.clone(),
            variant,
            memory,
            info,
            unfinished_parts,
            reserved_bytes,
            reserved_blocks,
        }))
    }
}

pub(crate) struct FreeSlot(Arc<Slot>);

impl FreeSlot {
    /// Starts a batch and divides it into parts of `rows_per_part` samples; the last part may be
    /// smaller. `set_header` must fill `header.entries` with at least one sample and at most a full
    /// batch. If the slot has several schemas, `set_header` must also set `header.variant` to the
    /// index of the batch's schema. The header may still contain values and allocations of an
    /// earlier batch.
    pub(crate) fn begin(
        self,
        rows_per_part: usize,
        set_header: impl FnOnce(&mut BatchHeader),
    ) -> impl Iterator<Item = SlotPart> {
        // SAFETY: a `FreeSlot` is exclusive (invariant 2).
        let info = unsafe { &mut *self.0.info.get() };
        set_header(&mut info.header);
        let (len, batch) = (info.len(), self.0.schemas.variant(info.header.variant).batch);
        assert!(0 < len && len <= batch, "{len} samples in a slot: expected 1 to {batch}");
        self.0.variant.store(info.header.variant, Ordering::Relaxed);
        self.0.unfinished_parts.store(len.div_ceil(rows_per_part), Ordering::Relaxed);
        self.0.reserved_bytes.store(0, Ordering::Relaxed);
        self.0.reserved_blocks.store(0, Ordering::Relaxed);
        let part = SlotPart::for_slot(self.0, info);
        (0..len).step_by(rows_per_part).map(move |start| part(start..len.min(start + rows_per_part)))
    }

    pub(crate) fn schemas(&self) -> &Schemas {
        &self.0.schemas
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.0.memory.is_pinned()
    }
}

/// The right to fill some rows of a slot.
///
/// If an unfinished part is dropped, its slot is never used again. This happens only after a panic
/// or while the loader is closing.
pub(crate) struct SlotPart {
    slot: Arc<Slot>,
    samples: *mut SampleInfo,
    range: Range<usize>,
}

// SAFETY: `samples` points into the slot, which may be used on any thread.
unsafe impl Send for SlotPart {}

impl SlotPart {
    fn for_slot(slot: Arc<Slot>, info: &mut BatchInfo) -> impl Fn(Range<usize>) -> SlotPart + use<> {
        assert!(
            info.samples.len() >= slot.schema().batch,
            "a slot has metadata for only {} samples",
            info.samples.len()
        );
        let samples = info.samples.as_mut_ptr();
        move |range| SlotPart { slot: slot.clone(), samples, range }
    }

    pub(crate) fn header(&self) -> &BatchHeader {
        // SAFETY: the header is not written while parts exist (invariant 3).
        unsafe { &(*self.slot.info.get()).header }
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.slot.schema()
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Returns the metadata of a sample. `row` must be in [`range`](SlotPart::range).
    pub(crate) fn meta(&mut self, row: usize) -> &mut SampleInfo {
        assert!(self.range.contains(&row), "row {row} is not among the rows {:?} of the part", self.range);
        // SAFETY: the row exists (`for_slot` checks the length), only this part accesses it
        // (invariant 3), and `&mut self` makes this the only borrow.
        unsafe { &mut *self.samples.add(row) }
    }

    /// Returns the bytes of a row in a span. `row` must be in [`range`](SlotPart::range). The bytes
    /// initially contain zeros or data of an earlier batch. After a slot was divided again, they
    /// contain data of the same batch.
    pub(crate) fn bytes(&mut self, span: usize, row: usize) -> &mut [u8] {
        assert!(self.range.contains(&row), "row {row} is not among the rows {:?} of the part", self.range);
        // SAFETY: only this part accesses the bytes of its rows (invariant 3), and `&mut self`
        // makes this the only borrow.
        unsafe { &mut *self.slot.bytes(span, row..row + 1) }
    }

    /// Reserves `len` bytes for encoded data, and `blocks` blocks of coefficients. Returns the
    /// bytes' offset, the index of the first block, and the bytes, or `None` if there is not enough
    /// space.
    pub(crate) fn reserve_encoded(&mut self, len: usize, blocks: usize) -> Option<(usize, usize, &mut [u8])> {
        let slot = &*self.slot;
        let schema = slot.schema();
        let span = schema.encoded_span()?;
        let Role::Encoded { blocks: sample_blocks } = schema.spans[span].role else { return None };
        let reserve = |counter: &AtomicUsize, count: usize, limit: usize| {
            let reserved_end = |reserved: usize| reserved.checked_add(count).filter(|&end| end <= limit);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserved_end).ok()
        };
        let capacity = schema.spans[span].sample_bytes * schema.batch;
        let offset = reserve(&slot.reserved_bytes, len.next_multiple_of(ENCODED_ALIGN), capacity)?;
        // Without space for the coefficients, the reserved bytes stay unused in this batch.
        let block = reserve(&slot.reserved_blocks, blocks, sample_blocks * schema.batch)?;
        let bytes_of_span = slot.bytes(span, 0..schema.batch);
        // SAFETY: the range is inside the span (checked by `reserve`), and the counter assigned it
        // to only this call (invariant 4). `&mut self` limits this part to one borrow.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes_of_span.cast::<u8>().add(offset), len) };
        Some((offset, block, bytes))
    }

    pub(crate) fn free_encoded_bytes(&self) -> usize {
        let Some(span) = self.schema().encoded_span() else { return 0 };
        let capacity = self.schema().spans[span].sample_bytes * self.schema().batch;
        capacity.saturating_sub(self.slot.reserved_bytes.load(Ordering::Relaxed))
    }

    /// Returns the filled slot if this was the slot's last unfinished part.
    pub(crate) fn finish(self) -> Option<FilledSlot> {
        let is_last = self.slot.unfinished_parts.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| FilledSlot(self.slot))
    }
}

/// A row of a part, or a frame of a clip in that row.
pub(crate) struct Row<'a> {
    part: &'a mut SlotPart,
    row: usize,
    frame: usize,
}

impl<'a> Row<'a> {
    /// Selects a row of a part. `row` must be in the part's range.
    pub(crate) fn new(part: &'a mut SlotPart, row: usize) -> Self {
        Row { part, row, frame: 0 }
    }

    /// Selects the frame of a clip to which image fields are written.
    pub(crate) fn at_frame(self, frame: usize) -> Self {
        Row { frame, ..self }
    }

    pub(crate) fn frame(&self) -> usize {
        self.frame
    }

    pub(crate) fn header(&self) -> &BatchHeader {
        self.part.header()
    }

    pub(crate) fn meta(&mut self) -> &mut SampleInfo {
        self.part.meta(self.row)
    }

    pub(crate) fn bytes(&mut self, span: usize) -> &mut [u8] {
        self.part.bytes(span, self.row)
    }
}

pub(crate) struct FilledSlot(Arc<Slot>);

impl FilledSlot {
    pub(crate) fn info(&self) -> &BatchInfo {
        // SAFETY: a `FilledSlot` is exclusive (invariant 2), and `&self` excludes `info_mut`.
        unsafe { &*self.0.info.get() }
    }

    pub(crate) fn info_mut(&mut self) -> &mut BatchInfo {
        // SAFETY: a `FilledSlot` is exclusive (invariant 2), and `&mut self` makes this the only
        // borrow.
        unsafe { &mut *self.0.info.get() }
    }

    pub(crate) fn header(&self) -> &BatchHeader {
        &self.info().header
    }

    pub(crate) fn header_mut(&mut self) -> &mut BatchHeader {
        &mut self.info_mut().header
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.0.schema()
    }

    pub(crate) fn len(&self) -> usize {
        self.info().len()
    }

    pub(crate) fn meta(&self, row: usize) -> &SampleInfo {
        &self.info().samples[row]
    }

    pub(crate) fn meta_mut(&mut self, row: usize) -> &mut SampleInfo {
        &mut self.info_mut().samples[row]
    }

    /// Returns the bytes of a span. For encoded data, returns only the reserved bytes, and for a
    /// packed field, only the packed bytes.
    pub(crate) fn bytes(&self, span: usize) -> &[u8] {
        if let Role::Encoded { .. } = self.schema().spans[span].role {
            let encoded_bytes = self.0.reserved_bytes.load(Ordering::Relaxed);
            // SAFETY: a `FilledSlot` is exclusive (invariant 2), and `&self` excludes `bytes_mut`.
            return unsafe { &(&*self.0.bytes(span, 0..self.schema().batch))[..encoded_bytes] };
        }
        let Span { field, role, .. } = &self.schema().spans[span];
        // SAFETY: a `FilledSlot` is exclusive (invariant 2), and `&self` excludes `bytes_mut`.
        let rows = unsafe { &*self.0.bytes(span, 0..self.len()) };
        if !role.is_packed() {
            return rows;
        }
        let (len, row_shape) = self.info().shape(span, &field.shape);
        &rows[..len * row_shape.iter().product::<usize>() * field.dtype.bytes()]
    }

    /// Returns the address of a span, for callers that may write to its bytes.
    pub(crate) fn address(&self, span: usize) -> *mut u8 {
        self.0.bytes(span, 0..self.len()).cast()
    }

    pub(crate) fn bytes_mut(&mut self, span: usize) -> &mut [u8] {
        let len = self.len();
        // SAFETY: a `FilledSlot` is exclusive (invariant 2), and `&mut self` makes this the only
        // borrow.
        unsafe { &mut *self.0.bytes(span, 0..len) }
    }

    pub(crate) fn bytes_mut_with(&mut self, span: usize, other_span: usize) -> (&mut [u8], &[u8]) {
        assert_ne!(span, other_span, "expected two different spans");
        let len = self.len();
        // SAFETY: a `FilledSlot` is exclusive (invariant 2), and `&mut self` excludes other
        // borrows. Spans do not overlap, because `Schema::new` laid them out in sequence.
        unsafe { (&mut *self.0.bytes(span, 0..len), &*self.0.bytes(other_span, 0..len)) }
    }

    /// Divides the slot into parts again, to refill the rows in `rows`, which must be ascending and
    /// not empty. A part contains up to `rows_per_part` rows, and may include rows that are not in
    /// `rows`.
    #[cfg(feature = "_device")]
    pub(crate) fn split_for_refill(mut self, rows_per_part: usize, rows: &[usize]) -> impl Iterator<Item = SlotPart> {
        assert!(!rows.is_empty(), "expected at least one row to fill again");
        let mut starts: Vec<usize> = rows.iter().map(|row| row / rows_per_part * rows_per_part).collect();
        starts.dedup();
        let (slot, len) = (self.0.clone(), self.len());
        slot.unfinished_parts.store(starts.len(), Ordering::Relaxed);
        let part = SlotPart::for_slot(slot, self.info_mut());
        starts.into_iter().map(move |start| part(start..len.min(start + rows_per_part)))
    }

    pub(crate) fn release(mut self) -> FreeSlot {
        self.info_mut().samples.iter_mut().for_each(|sample| sample.fault = None);
        FreeSlot(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Dtype, Field};
    use crate::sampler::Entry;

    fn free(batch: usize) -> FreeSlot {
        let field = Field { name: "image".into(), dtype: Dtype::U8, shape: vec![3] };
        let schemas = Schemas::one(Schema::new(batch, [(field, Role::Image)]).unwrap());
        FreeSlot::new(&schemas, SlotMemory::heap(schemas.bytes()).unwrap())
    }

    fn begin(free: FreeSlot, samples: usize, rows_per_part: usize) -> Vec<SlotPart> {
        let set_header = |header: &mut BatchHeader| {
            header.entries.clear();
            header.entries.extend((0..samples).map(|i| Entry { sample: i as u64, ..Entry::default() }));
        };
        free.begin(rows_per_part, set_header).collect()
    }

    fn fill(part: &mut SlotPart, round: u8) {
        for row in part.range() {
            part.bytes(0, row).fill(round ^ row as u8);
            part.meta(row).key = format!("{round} {row}");
        }
    }

    fn check(full: &FilledSlot, round: u8) {
        for row in 0..full.len() {
            assert_eq!(full.bytes(0)[3 * row..][..3], [round ^ row as u8; 3]);
            assert_eq!(full.meta(row).key, format!("{round} {row}"));
        }
    }

    /// Finishes up to five parts in every possible order. Threads synchronize only through one
    /// atomic decrement per part, so these orders cover all interleavings.
    #[test]
    fn only_the_last_part_to_finish_returns_the_slot() {
        fn orders(remaining: &mut Vec<usize>, chosen: &mut Vec<usize>, visit: &mut impl FnMut(&[usize])) {
            if remaining.is_empty() {
                visit(chosen);
            }
            for i in 0..remaining.len() {
                chosen.push(remaining.remove(i));
                orders(remaining, chosen, visit);
                remaining.insert(i, chosen.pop().expect("pushed above"));
            }
        }
        for parts in 1..=5 {
            let mut slot = Some(free(2 * parts));
            orders(&mut (0..parts).collect(), &mut Vec::new(), &mut |order| {
                let mut open: Vec<_> = begin(slot.take().expect("the slot was returned"), 2 * parts - 1, 2)
                    .into_iter()
                    .map(Some)
                    .collect();
                for (i, &part) in order.iter().enumerate() {
                    let mut part = open[part].take().expect("each part is finished once");
                    fill(&mut part, 7);
                    let full = part.finish();
                    assert_eq!(full.is_some(), i + 1 == parts, "order {order:?}");
                    if let Some(full) = full {
                        check(&full, 7);
                        slot = Some(full.release());
                    }
                }
            });
        }
    }

    /// Conclusive only under Miri or ThreadSanitizer, because it depends on memory ordering.
    #[test]
    fn the_last_part_sees_what_other_threads_wrote() {
        let mut slot = free(6);
        for round in 0..4 {
            let parts = begin(slot, 6, 2);
            let full = std::thread::scope(|scope| {
                let threads: Vec<_> = parts
                    .into_iter()
                    .map(|mut part| {
                        scope.spawn(move || {
                            fill(&mut part, round);
                            let full = part.finish();
                            full.iter().for_each(|full| check(full, round));
                            full
                        })
                    })
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let [full] = <[FilledSlot; 1]>::try_from(full).unwrap_or_else(|slots| panic!("{} full slots", slots.len()));
            slot = full.release();
        }
    }
}
