//! Reads chunked HDF5 arrays.
//!
//! A chunk can only be decoded as a whole, and neighboring samples are usually in the same chunk,
//! so decoded chunks are cached. Each array has a separate cache, which evicts the least recently
//! used chunk. A loader grants memory to the cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::filters::Filter;
use crate::error::{Error, Result};
use crate::storage::OpenFile;
use crate::values::grants::{GrantedCache, Grants};
use crate::values::lru_cache::LruCache;

/// Maximum size of a decoded chunk, in bytes.
const MAX_CHUNK_BYTES: u64 = 256 << 20;
/// Size of an array's cache in bytes, unless loaders grant memory to it. A loader grants at most
/// this size, or the size of one chunk if a chunk is larger. The most recently used chunk stays in
/// the cache even if it exceeds the grants.
const DEFAULT_CACHE_BYTES: usize = 32 << 20;
/// Maximum number of bytes by which a filter's output may exceed a chunk. The output may end in a
/// checksum, which the next filter removes.
const MAX_EXCESS_BYTES: usize = 64;

pub(super) struct ChunkedArray {
    file_index: usize,
    shape: Vec<usize>,
    element_size: usize,
    chunk_shape: Vec<usize>,
    /// Number of chunks along each axis.
    grid: Vec<usize>,
    /// For each chunk, in row-major order of the grid: its offset and length in the file, in bytes,
    /// and a bit mask of the filters that were not applied.
    locations: Vec<(u64, u64, u32)>,
    filters: Vec<Filter>,
    cache: Arc<ChunkCache>,
}

/// The decoded chunks of an array, keyed by their index in row-major order of the grid.
#[derive(Default)]
pub(super) struct ChunkCache {
    grants: Grants,
    chunks: Mutex<LruCache<usize, Arc<Vec<u8>>>>,
}

impl ChunkCache {
    fn chunks(&self) -> MutexGuard<'_, LruCache<usize, Arc<Vec<u8>>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, index: usize, chunk: Arc<Vec<u8>>) {
        let bytes = chunk.len();
        self.chunks().insert(index, chunk, bytes);
        self.shrink();
    }
}

impl GrantedCache for ChunkCache {
    fn grants(&self) -> &Grants {
        &self.grants
    }

    fn shrink(&self) {
        let limit = self.grants.sum().unwrap_or(DEFAULT_CACHE_BYTES);
        self.chunks().shrink(limit, 1);
    }
}

impl ChunkedArray {
    /// Creates the chunk table of an array with elements of `element_size` bytes. For each chunk,
    /// `chunk_records` yields the position of its first element in the array, its offset and length
    /// in the file, and the bit mask of filters that were not applied. Fails if a chunk of the
    /// array is missing.
    pub(super) fn new(
        file_index: usize,
        file_len: u64,
        shape: &[usize],
        element_size: usize,
        chunk_shape: &[u64],
        filters: Vec<Filter>,
        chunk_records: impl ExactSizeIterator<Item = (Vec<u64>, u64, u64, u32)>,
    ) -> Result<Self> {
        let bytes = chunk_shape.iter().try_fold(element_size as u64, |bytes, &side| bytes.checked_mul(side));
        let bytes = bytes.filter(|bytes| (1..=MAX_CHUNK_BYTES).contains(bytes) && chunk_shape.len() == shape.len());
        let Some(bytes) = bytes else {
            return Err(Error::in_source(format!(
                "chunks of shape {chunk_shape:?} with {element_size}-byte elements: expected {} axes, and 1 to \
                 {MAX_CHUNK_BYTES} bytes per chunk",
                shape.len()
            )));
        };
        // If samples had zero bytes, a small file could claim any number of samples.
        if shape.is_empty() || shape[1..].contains(&0) {
            return Err(Error::in_source(format!("an array of shape {shape:?} has samples of zero bytes")));
        }
        let chunk_shape: Vec<usize> = chunk_shape.iter().map(|&side| side as usize).collect();
        let grid: Vec<usize> = shape.iter().zip(&chunk_shape).map(|(length, side)| length.div_ceil(*side)).collect();
        let count = grid.iter().try_fold(1_usize, |count, &side| count.checked_mul(side));
        let listed_count = chunk_records.len();
        let missing_error = |written: usize| {
            let count = count.map_or_else(|| format!("more than {}", usize::MAX), |count| count.to_string());
            Error::in_source(format!(
                "only {written} of {count} chunks were written: write all samples, or shrink the dataset to the \
                 samples that were written"
            ))
        };
        let count = count.filter(|&count| count <= listed_count).ok_or_else(|| missing_error(listed_count))?;
        let mut locations = vec![None; count];
        for (position, offset, length, skipped_filters) in chunk_records {
            let grid_cell = |(position, (&side, &grid)): (&u64, (&usize, &usize))| {
                let index = usize::try_from(*position).ok()? / side;
                (index < grid).then_some(index)
            };
            // A shrunk array may have chunks outside its shape.
            let cell: Option<Vec<usize>> = position.iter().zip(chunk_shape.iter().zip(&grid)).map(grid_cell).collect();
            let Some(cell) = cell.filter(|cell| cell.len() == grid.len()) else { continue };
            if offset.checked_add(length).is_none_or(|end| end > file_len) {
                return Err(Error::in_source(format!(
                    "the {length} bytes of the chunk at byte {offset} extend past the end of the file ({file_len} \
                     bytes): the file is truncated"
                )));
            }
            if filters.is_empty() && length != bytes {
                return Err(Error::in_source(format!(
                    "the chunk at byte {offset} has {length} bytes: expected {bytes}"
                )));
            }
            locations[ravel(&cell, &grid)] = Some((offset, length, skipped_filters));
        }
        let written = locations.iter().flatten().count();
        let locations = locations.into_iter().collect::<Option<_>>().ok_or_else(|| missing_error(written))?;
        let cache = Arc::default();
        Ok(ChunkedArray {
            file_index,
            shape: shape.to_vec(),
            element_size,
            chunk_shape,
            grid,
            locations,
            filters,
            cache,
        })
    }

    /// Returns the cache, and the number of bytes that a loader should grant it.
    pub(super) fn cache(&self) -> (&Arc<ChunkCache>, usize) {
        let chunk = self.chunk_shape.iter().product::<usize>() * self.element_size;
        (&self.cache, chunk.saturating_mul(self.locations.len()).min(DEFAULT_CACHE_BYTES).max(chunk))
    }

    /// Reads sample `index` into `out`, which has the size of a sample, in the byte order of the
    /// file.
    pub(super) fn read(&self, files: &[Arc<OpenFile>], index: usize, out: &mut [u8]) -> Result<()> {
        let (dims, chunk_shape, grid) = (&self.shape[1..], &self.chunk_shape[1..], &self.grid[1..]);
        let (chunk_row, row_in_chunk) = (index / self.chunk_shape[0], index % self.chunk_shape[0]);
        let cells: usize = grid.iter().product();
        let row_len: usize = chunk_shape.iter().product();
        for cell in 0..cells {
            let chunk = self.load_chunk(files, chunk_row * cells + cell)?;
            let corner: Vec<usize> =
                unravel(cell, grid).iter().zip(chunk_shape).map(|(coordinate, side)| coordinate * side).collect();
            let lens: Vec<usize> = corner
                .iter()
                .zip(dims)
                .zip(chunk_shape)
                .map(|((start, length), side)| (*side).min(length - start))
                .collect();
            // A run of elements along the last axis is contiguous both in the chunk and in the
            // sample.
            let (run_len, outer) = lens.split_last().map_or((1, &[][..]), |(run, outer)| (*run, outer));
            for run_index in 0..outer.iter().product() {
                let mut position = unravel(run_index, outer);
                position.resize(lens.len(), 0);
                let chunk_start = (row_in_chunk * row_len + ravel(&position, chunk_shape)) * self.element_size;
                position.iter_mut().zip(&corner).for_each(|(coordinate, corner)| *coordinate += corner);
                let out_start = ravel(&position, dims) * self.element_size;
                let bytes = run_len * self.element_size;
                out[out_start..out_start + bytes].copy_from_slice(&chunk[chunk_start..chunk_start + bytes]);
            }
        }
        Ok(())
    }

    fn load_chunk(&self, files: &[Arc<OpenFile>], index: usize) -> Result<Arc<Vec<u8>>> {
        let cached = self.cache.chunks().get(index).cloned();
        if let Some(chunk) = cached {
            return Ok(chunk);
        }
        let (offset, length, skipped_filters) = self.locations[index];
        let mut scratch = Vec::new();
        let stored = files[self.file_index].get(offset, length, &mut scratch)?;
        let damaged = |e: Error| Error::in_source(format!("the chunk at byte {offset}: {}", e.cause()));
        let chunk = Arc::new(self.decode(stored, skipped_filters).map_err(damaged)?);
        self.cache.insert(index, chunk.clone());
        Ok(chunk)
    }

    fn decode(&self, stored: &[u8], skipped_filters: u32) -> Result<Vec<u8>> {
        let expected = self.chunk_shape.iter().product::<usize>() * self.element_size;
        let mut bytes = stored.to_vec();
        for (position, filter) in self.filters.iter().enumerate().rev() {
            if position < 32 && skipped_filters >> position & 1 == 1 {
                continue;
            }
            bytes = filter.undo(bytes, expected + MAX_EXCESS_BYTES)?;
        }
        if bytes.len() != expected {
            return Err(Error::in_source(format!("decoded to {} bytes instead of {expected}", bytes.len())));
        }
        Ok(bytes)
    }
}

fn ravel(position: &[usize], shape: &[usize]) -> usize {
    position.iter().zip(shape).fold(0, |index, (coordinate, side)| index * side + coordinate)
}

fn unravel(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut position = vec![0; shape.len()];
    for (coordinate, side) in position.iter_mut().zip(shape).rev() {
        (*coordinate, index) = (index % side, index / side);
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::grants::Grant;

    #[test]
    fn chunk_cache_stays_within_the_grants() {
        let cache = Arc::new(ChunkCache::default());
        let insert = |index: usize| cache.insert(index, Arc::new(vec![index as u8; 1000]));
        let cached = || {
            let chunks = cache.chunks();
            assert_eq!(chunks.bytes(), 1000 * chunks.len());
            chunks.keys()
        };
        (0..4).for_each(insert);
        assert_eq!(cached(), [0, 1, 2, 3]);
        // Makes chunk 0 the most recently used.
        assert_eq!(cache.chunks().get(0).unwrap()[0], 0);
        let first_grant = Grant::new(cache.clone(), 2500);
        assert_eq!(cached(), [0, 3]);
        let second_grant = Grant::new(cache.clone(), 1000);
        (4..9).for_each(insert);
        insert(8);
        assert_eq!(cached(), [6, 7, 8], "loaders that share a dataset add their grants");
        drop(first_grant);
        assert_eq!(cached(), [8]);
        let empty_grant = Grant::new(cache.clone(), 0);
        drop(second_grant);
        insert(9);
        assert_eq!(cached(), [9], "one chunk always stays cached");
        drop(empty_grant);
        insert(10);
        assert_eq!(cached(), [9, 10]);
    }

    #[test]
    fn array_positions_are_row_major() {
        for index in 0..24 {
            assert_eq!(ravel(&unravel(index, &[2, 3, 4]), &[2, 3, 4]), index);
        }
        assert_eq!((unravel(0, &[]), ravel(&[1, 2, 3], &[2, 3, 4])), (vec![], 23));
    }
}
