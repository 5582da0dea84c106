//! Chunked HDF5 arrays.
//!
//! A chunk is always decoded as a whole. It is then cached, because neighboring samples are in the
//! same chunk. The cache of an array holds as much as loaders grant, or up to 32 MiB without a
//! loader, and evicts the least recently used chunk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::filters::Filter;
use crate::error::{Error, Result};
use crate::medium::HeldFile;
use crate::values::grants::{Grants, Keeps};
use crate::values::lru_cache::Recent;

/// Maximum size of a decoded chunk, in bytes.
const MAX_CHUNK: u64 = 256 << 20;
/// Cache size per array, in bytes. This is what a loader should grant, and the limit if no loader
/// has granted memory. At least one chunk is always cached.
const KEPT: usize = 32 << 20;
/// Number of bytes by which intermediate results may exceed the size of a chunk, because they still
/// contain checksums.
const SLACK: usize = 64;

/// The chunks of an array.
pub(super) struct Chunks {
    /// Index of the file that contains the chunks.
    number: usize,
    shape: Vec<usize>,
    /// Size of an element, in bytes.
    size: usize,
    /// Number of elements per chunk along each axis.
    sides: Vec<usize>,
    /// Number of chunks along each axis.
    grid: Vec<usize>,
    /// For each chunk, in row-major order of the grid: the offset, the length, and the mask of
    /// filters that were skipped.
    places: Vec<(u64, u64, u32)>,
    filters: Vec<Filter>,
    kept: Arc<Kept>,
}

/// Cache for the decoded chunks of an array. It evicts the least recently used chunk.
#[derive(Default)]
pub(super) struct Kept {
    grants: Grants,
    chunks: Mutex<Recent<usize, Arc<Vec<u8>>>>,
}

impl Kept {
    fn chunks(&self) -> MutexGuard<'_, Recent<usize, Arc<Vec<u8>>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, number: usize, chunk: Arc<Vec<u8>>) {
        let bytes = chunk.len();
        self.chunks().insert(number, chunk, bytes);
        self.shrink();
    }
}

impl Keeps for Kept {
    fn grants(&self) -> &Grants {
        &self.grants
    }

    fn shrink(&self) {
        let most = self.grants.sum().unwrap_or(KEPT);
        self.chunks().shrink(most, 1);
    }
}

impl Chunks {
    /// Collects the chunks of an array that has the given `shape` and elements of `size` bytes. The
    /// array is in file `number`, which is `len` bytes long. For each chunk, `stored` yields the
    /// position of its first element, its offset, its length, and the mask of skipped filters.
    ///
    /// # Errors
    /// If a chunk is missing, is too large, or extends past the end of the file.
    pub(super) fn new(
        (number, len): (usize, u64),
        shape: &[usize],
        size: usize,
        sides: &[u64],
        filters: Vec<Filter>,
        stored: impl ExactSizeIterator<Item = (Vec<u64>, u64, u64, u32)>,
    ) -> Result<Self> {
        let bytes = sides.iter().try_fold(size as u64, |bytes, &side| bytes.checked_mul(side));
        let bytes = bytes.filter(|bytes| (1..=MAX_CHUNK).contains(bytes) && sides.len() == shape.len());
        let Some(bytes) = bytes else {
            return Err(Error::in_source(format!(
                "chunks of shape {sides:?} with elements of {size} bytes: the limit is {MAX_CHUNK} bytes per chunk"
            )));
        };
        // If samples had no elements, a small file could claim any number of samples.
        if shape.is_empty() || shape[1..].contains(&0) {
            return Err(Error::in_source(format!("samples of an array of shape {shape:?} have no elements")));
        }
        let sides: Vec<usize> = sides.iter().map(|&side| side as usize).collect();
        let grid: Vec<usize> = shape.iter().zip(&sides).map(|(all, side)| all.div_ceil(*side)).collect();
        let count = grid.iter().try_fold(1_usize, |count, &side| count.checked_mul(side));
        let found = stored.len();
        let missing = || {
            let count = count.map_or("too many".to_owned(), |count| count.to_string());
            Error::in_source(format!(
                "only {found} of {count} chunks were written: write all samples, or resize the array"
            ))
        };
        let count = count.filter(|&count| count <= found).ok_or_else(missing)?;
        let mut places = vec![None; count];
        for (first, at, length, skipped) in stored {
            let inside = |(first, (&side, &grid)): (&u64, (&usize, &usize))| {
                let place = usize::try_from(*first).ok()? / side;
                (place < grid).then_some(place)
            };
            // Skip chunks outside the shape. They may remain in the file after an array has been
            // shrunk.
            let axes: Option<Vec<usize>> = first.iter().zip(sides.iter().zip(&grid)).map(inside).collect();
            let Some(axes) = axes.filter(|axes| axes.len() == grid.len()) else { continue };
            if at.checked_add(length).is_none_or(|end| end > len) {
                return Err(Error::in_source(format!(
                    "a chunk has {length} bytes at byte {at}, but the file has {len} bytes: it is truncated"
                )));
            }
            if filters.is_empty() && length != bytes {
                return Err(Error::in_source(format!("a chunk has {length} bytes: expected {bytes}")));
            }
            places[raveled(&axes, &grid)] = Some((at, length, skipped));
        }
        let places = places.into_iter().collect::<Option<_>>().ok_or_else(missing)?;
        let kept = Arc::default();
        Ok(Chunks { number, shape: shape.to_vec(), size, sides, grid, places, filters, kept })
    }

    /// Returns the cache of this array, and the number of bytes that a loader should grant it.
    pub(super) fn kept(&self) -> (&Arc<Kept>, usize) {
        let chunk = self.sides.iter().product::<usize>() * self.size;
        (&self.kept, chunk.saturating_mul(self.places.len()).min(KEPT).max(chunk))
    }

    /// Copies the elements of sample `index` into `to`.
    ///
    /// # Errors
    /// If a chunk is damaged or cannot be read.
    pub(super) fn read(&self, files: &[Arc<HeldFile>], index: usize, to: &mut [u8]) -> Result<()> {
        let (dims, sides, grid) = (&self.shape[1..], &self.sides[1..], &self.grid[1..]);
        let (first, inside) = (index / self.sides[0], index % self.sides[0]);
        let cells: usize = grid.iter().product();
        let row: usize = sides.iter().product();
        for cell in 0..cells {
            let chunk = self.chunk(files, first * cells + cell)?;
            let corner: Vec<usize> =
                unraveled(cell, grid).iter().zip(sides).map(|(place, side)| place * side).collect();
            let lens: Vec<usize> =
                corner.iter().zip(dims).zip(sides).map(|((at, all), side)| (*side).min(all - at)).collect();
            // Elements along the last axis are contiguous both in the chunk and in the sample.
            let (run, outer) = lens.split_last().map_or((1, &[][..]), |(run, outer)| (*run, outer));
            for number in 0..outer.iter().product() {
                let mut at = unraveled(number, outer);
                at.resize(lens.len(), 0);
                let from = (inside * row + raveled(&at, sides)) * self.size;
                at.iter_mut().zip(&corner).for_each(|(at, corner)| *at += corner);
                let place = raveled(&at, dims) * self.size;
                let bytes = run * self.size;
                to[place..place + bytes].copy_from_slice(&chunk[from..from + bytes]);
            }
        }
        Ok(())
    }

    /// Returns the decoded chunk `number`, from the cache if possible.
    fn chunk(&self, files: &[Arc<HeldFile>], number: usize) -> Result<Arc<Vec<u8>>> {
        let kept = self.kept.chunks().get(number).cloned();
        if let Some(chunk) = kept {
            return Ok(chunk);
        }
        let (at, length, skipped) = self.places[number];
        let mut scratch = Vec::new();
        let stored = files[self.number].get(at, length, &mut scratch)?;
        let damaged = |e: Error| Error::in_source(format!("the chunk at byte {at}: {}", e.cause()));
        let chunk = Arc::new(self.decoded(stored, skipped).map_err(damaged)?);
        self.kept.insert(number, chunk.clone());
        Ok(chunk)
    }

    fn decoded(&self, stored: &[u8], skipped: u32) -> Result<Vec<u8>> {
        let expected = self.sides.iter().product::<usize>() * self.size;
        let mut bytes = stored.to_vec();
        for (place, filter) in self.filters.iter().enumerate().rev() {
            if place < 32 && skipped >> place & 1 == 1 {
                continue;
            }
            bytes = filter.undone(bytes, expected + SLACK)?;
        }
        if bytes.len() != expected {
            return Err(Error::in_source(format!("decodes to {} bytes: expected {expected}", bytes.len())));
        }
        Ok(bytes)
    }
}

/// Returns the row-major index of the element at position `at` in an array with this `shape`.
fn raveled(at: &[usize], shape: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |number, (at, side)| number * side + at)
}

/// Returns the position of the element whose row-major index is `number` in an array with this
/// `shape`.
fn unraveled(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for (at, side) in at.iter_mut().zip(shape).rev() {
        (*at, number) = (number % side, number / side);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::grants::Grant;

    #[test]
    fn chunk_cache_stays_within_the_grants() {
        let kept = Arc::new(Kept::default());
        let chunk = |number: usize| kept.insert(number, Arc::new(vec![number as u8; 1000]));
        let numbers = || {
            let chunks = kept.chunks();
            assert_eq!(chunks.bytes(), 1000 * chunks.len());
            chunks.keys()
        };
        (0..4).for_each(chunk);
        assert_eq!(numbers(), [0, 1, 2, 3]);
        assert_eq!(kept.chunks().get(0).unwrap()[0], 0, "makes chunk 0 the most recently used");
        let small = Grant::new(kept.clone(), 2500);
        assert_eq!(numbers(), [0, 3]);
        let other = Grant::new(kept.clone(), 1000);
        (4..9).for_each(chunk);
        chunk(8);
        assert_eq!(numbers(), [6, 7, 8], "loaders that share a dataset add their grants");
        drop(small);
        assert_eq!(numbers(), [8]);
        let none = Grant::new(kept.clone(), 0);
        drop(other);
        chunk(9);
        assert_eq!(numbers(), [9], "one chunk stays in any case");
        drop(none);
        chunk(10);
        assert_eq!(numbers(), [9, 10]);
    }

    #[test]
    fn array_positions_are_row_major() {
        for number in 0..24 {
            assert_eq!(raveled(&unraveled(number, &[2, 3, 4]), &[2, 3, 4]), number);
        }
        assert_eq!((unraveled(0, &[]), raveled(&[1, 2, 3], &[2, 3, 4])), (vec![], 23));
    }
}
