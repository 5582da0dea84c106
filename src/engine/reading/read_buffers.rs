//! [`ReadBuffers`] holds samples that a reader has read, but no worker has decoded yet.
//!
//! A *part* is a group of rows of a batch that one worker fills. An *entry* is the sample of one
//! row. Its *partners* are the samples that are combined with it into one image, if any.
//!
//! A [`Sample`] borrows from its source and from the buffer that it was read into. [`ReadBuffers`]
//! owns the buffers and shares the ownership of the source, so that samples can move between
//! threads. Buffers are reused, so reading a sample rarely allocates a new one.
//!
//! # Invariants
//! 1. While `ReadBuffers::samples` holds a sample, the bytes in its buffer do not change, and
//!    `ReadBuffers::source` is not replaced. [`ReadBuffers::read`] uses only the buffer of the next
//!    free position. [`ReadBuffers::clear`] drops all samples before a buffer is reused or freed.
//! 2. A sample that a `ReadBuffers` returns borrows from the `ReadBuffers`.
//! 3. `samples` is declared before the buffers and the source, so that it is dropped first.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use crate::decode::MAX_GROUP;
use crate::error::Result;
use crate::source::{Sample, Source, retried, within};
use crate::trace::nanos;

/// Smallest page size of any supported system, in bytes.
const PAGE_BYTES: usize = 4096;

/// Buffers, and the samples that borrow from them. The samples are in the order of the part's
/// entries, and each entry's own sample is followed by its partners.
pub(crate) struct ReadBuffers {
    /// Each sample, with its index and the duration of the read in ns. The samples borrow from the
    /// buffers (invariant 1). The capacity is one sample per buffer.
    samples: Vec<(ReadIndex, Result<Sample<'static>>, u64)>,
    buffers: Box<[Vec<u8>]>,
    source: Arc<dyn Source>,
    max_bytes: u64,
}

/// `(entry, sample)`: the position of an entry in its part, and of a sample in the entry. Sample 0
/// is the entry's own, and the others are its partners.
pub(crate) type ReadIndex = (usize, usize);

impl ReadBuffers {
    /// Creates buffers for [`MAX_GROUP`] entries. `samples_per_entry` includes the partners.
    pub(crate) fn new(source: Arc<dyn Source>, max_bytes: u64, samples_per_entry: usize) -> Self {
        let count = MAX_GROUP * samples_per_entry;
        let buffers = vec![Vec::new(); count].into_boxed_slice();
        ReadBuffers { samples: Vec::with_capacity(count), buffers, source, max_bytes }
    }

    /// Reads sample `id` with the random number `draw` into the next free buffer. Panics if all
    /// buffers are in use. After a transient error, retries up to `retries` times while `may_retry`
    /// returns true. Returns the duration in ns, and the size of the sample's fields in bytes,
    /// which is 0 if reading fails.
    pub(crate) fn read(
        &mut self,
        index: ReadIndex,
        (id, draw): (u64, u64),
        retries: usize,
        may_retry: impl FnMut() -> bool,
    ) -> (u64, usize) {
        let start = Instant::now();
        let buffer: *mut Vec<u8> = &raw mut self.buffers[self.samples.len()];
        // SAFETY: the source lives as long as `self`, which shares its ownership and does not
        // replace it (invariant 1), and no sample outlives `self` (invariants 2 and 3).
        let source: &'static dyn Source = unsafe { &*Arc::as_ptr(&self.source) };
        let result = retried(retries, id, may_retry, || {
            // SAFETY: nothing borrows from this buffer, because no sample was read into it
            // (invariant 1) and a failed attempt leaves no sample behind. The buffer is not
            // modified while the sample is alive (invariant 1).
            let buffer = unsafe { &mut *buffer };
            within(self.max_bytes, || source.read_drawn(id as usize, draw, buffer))
        });
        let bytes = result.as_ref().map_or(0, touch_pages);
        let ns = nanos(Instant::now(), start);
        self.samples.push((index, result, ns));
        (ns, bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns the result of reading the sample for `index`, and the duration of the read in ns.
    /// Returns `None` if no read was attempted.
    pub(crate) fn sample(&self, index: ReadIndex) -> Option<(Result<Sample<'_>>, u64)> {
        let (_, sample, ns) = self.samples.iter().find(|read| read.0 == index)?;
        let sample: Result<Sample<'_>> = sample.as_ref().copied().map_err(Clone::clone);
        Some((sample, *ns))
    }

    pub(crate) fn capacity(&self) -> usize {
        self.buffers.iter().map(Vec::capacity).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.samples.clear();
    }

    pub(crate) fn release(&mut self) {
        self.clear();
        self.buffers.iter_mut().for_each(|buffer| *buffer = Vec::new());
    }
}

/// Touches every page of the sample's fields, so that page faults of a memory map occur here rather
/// than in the decoder. Returns the size of the fields in bytes.
fn touch_pages(sample: &Sample<'_>) -> usize {
    let fields = sample.fields().iter();
    fields
        .map(|(_, value)| {
            let bytes = value.as_bytes();
            let page_bytes = bytes.iter().step_by(PAGE_BYTES).chain(bytes.last());
            std::hint::black_box(page_bytes.fold(0, |checksum, byte| checksum ^ byte));
            bytes.len()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    struct Copies {
        name: String,
    }

    impl Source for Copies {
        fn len(&self) -> usize {
            10
        }

        fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            scratch.resize(100, 0);
            scratch.fill(index as u8);
            if index == 3 {
                return Err(Error::in_source("three"));
            }
            Sample::new(&self.name).with_field("img", &scratch[..index + 1])
        }
    }

    #[test]
    fn samples_keep_their_bytes_until_the_buffers_are_cleared() {
        let mut buffers = ReadBuffers::new(Arc::new(Copies { name: "name".into() }), u64::MAX, 1);
        for round in 0..3 {
            for id in 0..MAX_GROUP as u64 {
                let (_, bytes) = buffers.read((id as usize, 0), (id, 0), 0, || false);
                assert_eq!(bytes, if id == 3 { 0 } else { id as usize + 1 });
            }
            // Move the buffers to a different thread, as a reader does.
            buffers = std::thread::spawn(move || {
                for id in 0..MAX_GROUP {
                    match buffers.sample((id, 0)).unwrap().0 {
                        Ok(sample) => {
                            assert_eq!(
                                (sample.key(), &*sample.field("img").unwrap()),
                                ("name", &*vec![id as u8; id + 1])
                            );
                        }
                        Err(e) => assert_eq!((id, e.cause()), (3, "three")),
                    }
                }
                assert!(buffers.sample((MAX_GROUP, 0)).is_none() && buffers.sample((0, 1)).is_none());
                buffers
            })
            .join()
            .unwrap();
            assert_eq!(buffers.capacity(), 100 * MAX_GROUP, "round {round}");
            buffers.clear();
        }
        buffers.release();
        assert_eq!(buffers.capacity(), 0);
    }
}
