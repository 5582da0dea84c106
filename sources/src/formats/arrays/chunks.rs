use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::filters::Filter;
use crate::error::{Error, Result};
use crate::medium::HeldFile;
use crate::values::grants::{Grants, Keeps};
use crate::values::lru_cache::Recent;

/// Maximum size of a chunk.
const MAX_CHUNK: u64 = 256 << 20;
/// Bytes of decoded chunks that a loader grants to an array if its limit has room, and that are kept
/// if no loader reads the dataset. One chunk is kept in any case.
const KEPT: usize = 32 << 20;
/// Bytes of checksums that may be inside compressed chunks.
const SLACK: usize = 64;

/// The chunks of an array.
pub(super) struct Chunks {
    /// Number of the file.
    number: usize,
    shape: Vec<usize>,
    /// Bytes of an element.
    size: usize,
    /// Elements of a chunk along each axis.
    sides: Vec<usize>,
    /// Chunks along each axis.
    grid: Vec<usize>,
    /// Offset, length and skipped filters of each chunk, in the order of the grid.
    places: Vec<(u64, u64, u32)>,
    filters: Vec<Filter>,
    kept: Arc<Kept>,
}

/// Decoded chunks of an array. The chunk whose last use is the longest ago makes room.
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
    /// The chunks of an array of `shape` with elements of `size` bytes in file `number` of `len`
    /// bytes. `stored` has the first element, the offset, the length and the skipped filters of
    /// each.
    ///
    /// # Errors
    /// If a chunk is missing, too large, or outside the file.
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
                "chunks of shape {sides:?} with elements of {size} bytes; the limit is {MAX_CHUNK} bytes"
            )));
        };
        // Samples without bytes could be any number.
        if shape.is_empty() || shape[1..].contains(&0) {
            return Err(Error::in_source(format!("no elements in the samples of shape {shape:?}")));
        }
        let sides: Vec<usize> = sides.iter().map(|&side| side as usize).collect();
        let grid: Vec<usize> = shape.iter().zip(&sides).map(|(all, side)| all.div_ceil(*side)).collect();
        let count = grid.iter().try_fold(1_usize, |count, &side| count.checked_mul(side));
        let found = stored.len();
        let missing = || {
            let count = count.map_or("too many".to_owned(), |count| count.to_string());
            Error::in_source(format!(
                "{found} of {count} chunks were written; write all samples, or resize the array to them"
            ))
        };
        let count = count.filter(|&count| count <= found).ok_or_else(missing)?;
        let mut places = vec![None; count];
        for (first, at, length, skipped) in stored {
            let inside = |(first, (&side, &grid)): (&u64, (&usize, &usize))| {
                let place = usize::try_from(*first).ok()? / side;
                (place < grid).then_some(place)
            };
            // Chunks outside the array are left over from a larger one.
            let axes: Option<Vec<usize>> = first.iter().zip(sides.iter().zip(&grid)).map(inside).collect();
            let Some(axes) = axes.filter(|axes| axes.len() == grid.len()) else { continue };
            if at.checked_add(length).is_none_or(|end| end > len) {
                return Err(Error::in_source(format!(
                    "a chunk of {length} bytes from byte {at} of {len}: the file is cut short"
                )));
            }
            if filters.is_empty() && length != bytes {
                return Err(Error::in_source(format!("a chunk has {length} bytes, not {bytes}")));
            }
            places[raveled(&axes, &grid)] = Some((at, length, skipped));
        }
        let places = places.into_iter().collect::<Option<_>>().ok_or_else(missing)?;
        let kept = Arc::default();
        Ok(Chunks { number, shape: shape.to_vec(), size, sides, grid, places, filters, kept })
    }

    /// The cache of decoded chunks, and the bytes that a loader should grant it.
    pub(super) fn kept(&self) -> (&Arc<Kept>, usize) {
        let chunk = self.sides.iter().product::<usize>() * self.size;
        (&self.kept, chunk.saturating_mul(self.places.len()).min(KEPT).max(chunk))
    }

    /// Fills `to` with the elements of sample `index`.
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
            // Elements along the last axis lie next to each other in both.
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

    /// A decoded chunk.
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
            return Err(Error::in_source(format!("{} bytes, not {expected}", bytes.len())));
        }
        Ok(bytes)
    }
}

/// The number of the element at `at` of an array of `shape`.
fn raveled(at: &[usize], shape: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |number, (at, side)| number * side + at)
}

/// The place of element `number` of an array of `shape`.
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
    fn chunks_are_kept_within_what_the_loaders_grant() {
        let kept = Arc::new(Kept::default());
        let chunk = |number: usize| kept.insert(number, Arc::new(vec![number as u8; 1000]));
        let numbers = || {
            let chunks = kept.chunks();
            assert_eq!(chunks.bytes(), 1000 * chunks.len());
            chunks.keys()
        };
        (0..4).for_each(chunk);
        assert_eq!(numbers(), [0, 1, 2, 3]);
        assert_eq!(kept.chunks().get(0).unwrap()[0], 0, "which is then the last one used");
        let small = Grant::new(kept.clone(), 2500);
        assert_eq!(numbers(), [0, 3]);
        let other = Grant::new(kept.clone(), 1000);
        (4..9).for_each(chunk);
        chunk(8);
        assert_eq!(numbers(), [6, 7, 8], "loaders that share a set add their grants");
        drop(small);
        assert_eq!(numbers(), [8]);
        let none = Grant::new(kept.clone(), 0);
        drop(other);
        chunk(9);
        assert_eq!(numbers(), [9], "one chunk is kept in any case");
        drop(none);
        chunk(10);
        assert_eq!(numbers(), [9, 10]);
    }

    #[test]
    fn places_in_an_array_are_numbered_row_by_row() {
        for number in 0..24 {
            assert_eq!(raveled(&unraveled(number, &[2, 3, 4]), &[2, 3, 4]), number);
        }
        assert_eq!((unraveled(0, &[]), raveled(&[1, 2, 3], &[2, 3, 4])), (vec![], 23));
    }
}
