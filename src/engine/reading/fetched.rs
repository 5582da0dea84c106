//! Samples on their way from a reader to a worker.
//!
//! A [`Sample`] borrows from its source and from the buffer that it was read into. [`ReadBuffers`]
//! owns the buffers and shares the source, so samples can change threads. It is reused, so a sample
//! costs no allocation.
//!
//! # Invariants
//! 1. While `ReadBuffers::samples` holds a sample, the bytes in its buffer do not change, and
//!    `ReadBuffers::source` is not replaced. [`ReadBuffers::read`] uses only the buffer of the next
//!    free place. [`ReadBuffers::clear`] drops all samples before a buffer is reused or freed.
//! 2. A `ReadBuffers` lends out samples only for as long as it is borrowed itself.
//! 3. `samples` is declared before the buffers and the source, so that it is dropped first.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use crate::decode::MAX_GROUP;
use crate::error::Result;
use crate::source::{Sample, Source, retried, within};
use crate::trace::nanos;

/// Minimum page size of any system, in bytes.
const PAGE: usize = 4096;

/// The first samples of a part, in order, each followed by its partners in a mosaic, and the memory
/// that they borrow.
pub(crate) struct ReadBuffers {
    /// Samples, each with its place and the time of its read in ns. The lifetime is that of the
    /// buffers (invariant 2). Has room for one sample per buffer.
    samples: Vec<(At, Result<Sample<'static>>, u64)>,
    buffers: Box<[Vec<u8>]>,
    source: Arc<dyn Source>,
    /// Maximum bytes of a sample.
    most: u64,
}

/// Offset of a place in its part, and the number of the sample among those of its image.
pub(crate) type At = (usize, usize);

impl ReadBuffers {
    /// Buffers for images of up to `tiles` samples.
    pub(crate) fn new(source: Arc<dyn Source>, most: u64, tiles: usize) -> Self {
        let room = MAX_GROUP * tiles;
        let buffers = vec![Vec::new(); room].into_boxed_slice();
        ReadBuffers { samples: Vec::with_capacity(room), buffers, source, most }
    }

    /// Reads sample `id`, which belongs to `at`, into the next free place, which must exist.
    /// Retries up to `times` times while `go_on` returns true. Returns the time in ns, and the
    /// bytes of the sample's fields.
    pub(crate) fn read(&mut self, at: At, id: u64, times: usize, go_on: impl FnMut() -> bool) -> (u64, usize) {
        let start = Instant::now();
        let buffer: *mut Vec<u8> = &raw mut self.buffers[self.samples.len()];
        // SAFETY: the source lives as long as `self`, which shares it and does not replace it
        // (invariant 1).
        let source: &'static dyn Source = unsafe { &*Arc::as_ptr(&self.source) };
        let read = retried(times, id, go_on, || {
            // SAFETY: nothing borrows from this buffer, because its place has no sample (invariant
            // 1), and a failed attempt left none. The buffer stays untouched while the sample lives
            // (invariant 1).
            let buffer = unsafe { &mut *buffer };
            within(self.most, || source.read(id as usize, buffer))
        });
        let bytes = read.as_ref().map_or(0, touch);
        let ns = nanos(Instant::now(), start);
        self.samples.push((at, read, ns));
        (ns, bytes)
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The sample `at` a place or its error, with the time of the read in ns.
    pub(crate) fn sample(&self, at: At) -> Option<(Result<Sample<'_>>, u64)> {
        let (_, sample, ns) = self.samples.iter().find(|read| read.0 == at)?;
        let sample: Result<Sample<'_>> = sample.as_ref().copied().map_err(Clone::clone);
        Some((sample, *ns))
    }

    /// Total capacity of the buffers, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.buffers.iter().map(Vec::capacity).sum()
    }

    /// Drops the samples.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
    }

    /// Drops the samples and frees the buffers.
    pub(crate) fn release(&mut self) {
        self.clear();
        self.buffers.iter_mut().for_each(|buffer| *buffer = Vec::new());
    }
}

/// Touches all pages of the sample, and returns its bytes. Pages of a memory map are thus loaded
/// here, so decoding does not wait for them.
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

    /// A source whose fields are in the scratch, and whose keys are its own.
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
    fn samples_keep_their_bytes_until_the_buffers_are_cleared_and_reused() {
        let mut buffers = ReadBuffers::new(Arc::new(Copies { name: "name".into() }), u64::MAX, 1);
        for round in 0..3 {
            for id in 0..MAX_GROUP as u64 {
                let (_, bytes) = buffers.read((id as usize, 0), id, 0, || false);
                assert_eq!(bytes, if id == 3 { 0 } else { id as usize + 1 });
            }
            // As a reader hands it to a worker.
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
