//! Samples on their way from a reader to a worker.
//!
//! A [`Sample`] borrows from its source and from the buffer that it was read into. [`ReadBuffers`]
//! owns the buffers and shares the source, so samples can change threads. It is reused, so a sample
//! costs no allocation.
//!
//! # Invariants
//! 1. While `ReadBuffers::samples` holds a sample, nobody touches the buffer it was read into, and
//!    `ReadBuffers::source` is not replaced: only [`ReadBuffers::read`] takes a buffer, the one of the next
//!    free place, and [`ReadBuffers::clear`] drops all samples before a buffer is used again or freed.
//! 2. Samples leave the buffers with the lifetime of a borrow of it.
//! 3. `samples` is declared before the buffers and the source, so that it is dropped first.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;

use crate::decode::MAX_GROUP;
use crate::error::Result;
use crate::recipe::retried;
use crate::source::{Sample, Source};
use crate::trace::nanos;

/// The least bytes that a page of memory has on any system.
const PAGE: usize = 4096;

/// Samples of a part, the first of it in their order, and the memory that they lie in.
pub(crate) struct ReadBuffers {
    /// Each with the time that its reading took, in ns. The lifetime is that of the buffers
    /// (invariant 2).
    samples: ArrayVec<(Result<Sample<'static>>, u64), MAX_GROUP>,
    buffers: [Vec<u8>; MAX_GROUP],
    source: Arc<dyn Source>,
}

impl ReadBuffers {
    pub(crate) fn new(source: Arc<dyn Source>) -> Box<Self> {
        Box::new(ReadBuffers { samples: ArrayVec::new(), buffers: Default::default(), source })
    }

    /// Reads sample `id` onto the next place, of which there must be one: again up to `times` times
    /// as long as `go_on` says so. Gives the time that it took in ns, and the bytes of its fields.
    pub(crate) fn read(&mut self, id: u64, times: usize, go_on: impl FnMut() -> bool) -> (u64, usize) {
        let start = Instant::now();
        let buffer: *mut Vec<u8> = &raw mut self.buffers[self.samples.len()];
        // SAFETY: the source lives as long as the buffers, which holds a share of it and does not
        // replace it (invariant 1).
        let source: &'static dyn Source = unsafe { &*Arc::as_ptr(&self.source) };
        let read = retried(times, id, go_on, || {
            // SAFETY: nothing borrows from this buffer: the buffers has no sample at this place
            // (invariant 1), and a try that failed left none. It stays untouched while the sample
            // lives (invariant 1).
            source.read(id as usize, unsafe { &mut *buffer })
        });
        let bytes = read.as_ref().map_or(0, touch);
        let ns = nanos(Instant::now(), start);
        self.samples.push((read, ns));
        (ns, bytes)
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The sample at `place`, or why it could not be read, and the time that took in ns.
    pub(crate) fn sample(&self, place: usize) -> Option<(Result<Sample<'_>>, u64)> {
        let (sample, ns) = self.samples.get(place)?;
        let sample: Result<Sample<'_>> = sample.as_ref().copied().map_err(Clone::clone);
        Some((sample, *ns))
    }

    /// Bytes of the buffers.
    pub(crate) fn capacity(&self) -> usize {
        self.buffers.iter().map(Vec::capacity).sum()
    }

    /// Drops the samples.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
    }

    /// Gives the buffers back. There must be no samples.
    pub(crate) fn release(&mut self) {
        self.clear();
        self.buffers = Default::default();
    }
}

/// Touches all pages of the sample, and gives its bytes. Of a memory map, pages that are not in
/// memory are waited for here, and not where they are decoded.
fn touch(sample: &Sample<'_>) -> usize {
    let fields = sample.fields().iter();
    fields
        .map(|(_, value)| {
            let bytes = value.memory();
            let ends = bytes.iter().step_by(PAGE).chain(bytes.last());
            std::hint::black_box(ends.fold(0, |all, byte| all ^ byte));
            bytes.len()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Reads into its scratch, and borrows its name from itself.
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
    fn samples_keep_their_bytes_until_the_shelf_is_cleared_and_buffers_are_used_again() {
        let mut buffers = ReadBuffers::new(Arc::new(Copies { name: "name".into() }));
        for round in 0..3 {
            for id in 0..MAX_GROUP as u64 {
                let (_, bytes) = buffers.read(id, 0, || false);
                assert_eq!(bytes, if id == 3 { 0 } else { id as usize + 1 });
            }
            // As it goes to another thread.
            buffers = std::thread::spawn(move || {
                for id in 0..MAX_GROUP {
                    match buffers.sample(id).unwrap().0 {
                        Ok(sample) => {
                            assert_eq!(
                                (sample.key(), &*sample.field("img").unwrap()),
                                ("name", &*vec![id as u8; id + 1])
                            );
                        }
                        Err(e) => assert_eq!((id, e.cause()), (3, "three")),
                    }
                }
                assert!(buffers.sample(MAX_GROUP).is_none());
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
