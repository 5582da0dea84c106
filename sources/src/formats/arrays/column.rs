//! A *column* is one array of a dataset. Its first axis is the index of the sample.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "hdf5")]
use super::chunks::{ChunkCache, ChunkedArray};
use crate::error::{Error, Result};
#[cfg(feature = "hdf5")]
use crate::machine::bytes::grow_to;
use crate::storage::{OpenFile, RowBytes};
use crate::values::elements::Dtype;
use crate::values::record::ColumnValue;

pub(super) struct Column {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) storage: Storage,
    /// Set if the elements are references to variable-length values.
    pub(super) heap: Option<Heap>,
}

/// The global heaps of an HDF5 file, which contain variable-length values.
#[cfg_attr(not(feature = "hdf5"), allow(dead_code))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Heap {
    pub(super) is_text: bool,
    /// File offset of heap address 0.
    pub(super) base_offset: u64,
}

/// Maps the names of arrays to the index and the column name of each selected array.
pub(super) type ArraySelector<'a> = &'a dyn Fn(&[String]) -> Result<Vec<(usize, String)>>;

pub(super) enum Storage {
    File {
        file_index: usize,
        offset: u64,
    },
    Memory(Vec<u8>),
    #[cfg(feature = "hdf5")]
    ChunkedArray(ChunkedArray),
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

impl Column {
    /// The array starts at byte `offset` of the file, and `len` is the number of bytes that the
    /// file stores for it. Fails if the shape and the element type imply a different size, or if
    /// samples have zero bytes.
    pub(super) fn in_file(
        name: String,
        dtype: Dtype,
        shape: Vec<usize>,
        file_index: usize,
        offset: u64,
        len: u64,
    ) -> Result<Self> {
        let column = Column { name, dtype, shape, storage: Storage::File { file_index, offset }, heap: None };
        column.check(len)?;
        Ok(column)
    }

    pub(super) fn in_memory(name: String, dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self> {
        let len = bytes.len() as u64;
        let column = Column { name, dtype, shape, storage: Storage::Memory(bytes), heap: None };
        column.check(len)?;
        Ok(column)
    }

    fn check(&self, len: u64) -> Result<()> {
        let claimed = self.shape.iter().try_fold(self.dtype.size as u64, |size, &side| size.checked_mul(side as u64));
        // Reject samples of zero bytes: with them, a small file could claim any number of samples.
        let has_bytes = len > 0 || self.shape.first().is_none_or(|&samples| samples == 0);
        if claimed == Some(len) && has_bytes {
            return Ok(());
        }
        let (name, shape, size) = (&self.name, &self.shape, self.dtype.size);
        if claimed == Some(len) {
            return Err(Error::in_source(format!(
                "array {name:?} of shape {shape:?} has samples of zero bytes: leave it out with \
                 TableOptions::columns"
            )));
        }
        Err(Error::in_source(format!(
            "array {name:?} of shape {shape:?} with {size} bytes per element does not match its {len} bytes of data"
        )))
    }

    #[cfg(feature = "hdf5")]
    pub(super) fn cache(&self) -> Option<(&Arc<ChunkCache>, usize)> {
        match &self.storage {
            Storage::ChunkedArray(chunks) => Some(chunks.cache()),
            _ => None,
        }
    }

    pub(super) fn len(&self) -> Option<usize> {
        self.shape.first().copied()
    }

    /// Returns the file index and the byte range of a sample. Returns `None` if the array is in
    /// memory or in chunks.
    pub(super) fn byte_range(&self, index: usize) -> Option<(u32, Range<u64>)> {
        let Storage::File { file_index, offset } = self.storage else { return None };
        let start = offset + (index * self.sample_size()) as u64;
        Some((u32::try_from(file_index).ok()?, start..start + self.sample_size() as u64))
    }

    fn sample_size(&self) -> usize {
        // Cannot overflow: `check` or `ChunkedArray::new` has limited the size of an array that has
        // samples.
        self.shape[1..].iter().product::<usize>() * self.dtype.size
    }

    /// Returns the elements of sample `index`, converted to the type of [`Dtype::element`] in
    /// native byte order. Bytes that need no conversion are borrowed if they are in a memory map or
    /// in [`Storage::Memory`]; all others are appended to `buffer`. `prefetch_index` is the
    /// prefetch index of these bytes, or `None` if they are not prefetched. `index` must be less
    /// than [`len`](Column::len).
    pub(super) fn read_sample<'a>(
        &'a self,
        files: &'a [Arc<OpenFile>],
        index: usize,
        prefetch_index: Option<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<RowBytes<'a>> {
        let sample_size = self.sample_size();
        let stored_bytes: &'a [u8] = match &self.storage {
            Storage::Memory(bytes) => &bytes[index * sample_size..][..sample_size],
            #[cfg(feature = "hdf5")]
            Storage::ChunkedArray(chunks) => {
                let mut stored_bytes = Vec::new();
                chunks.read(files, index, grow_to(&mut stored_bytes, sample_size as u64)?)?;
                let start = buffer.len();
                match self.dtype.is_native() {
                    true => buffer.extend_from_slice(&stored_bytes),
                    false => self.dtype.convert(&stored_bytes, buffer),
                }
                return Ok(RowBytes::page_tail(start, buffer));
            }
            Storage::File { file_index, offset } => {
                let (file, offset) = (&files[*file_index], offset + index as u64 * sample_size as u64);
                match file
                    .read_range(prefetch_index, offset..offset + sample_size as u64, buffer)
                    .map_err(|e| e.at_path(&file.path))?
                {
                    RowBytes::Borrowed(bytes) => bytes,
                    RowBytes::Page(range) if self.dtype.is_native() => return Ok(RowBytes::Page(range)),
                    RowBytes::Page(range) => {
                        let stored_bytes = buffer.split_off(range.start);
                        self.dtype.convert(&stored_bytes, buffer);
                        return Ok(RowBytes::page_tail(range.start, buffer));
                    }
                }
            }
        };
        if self.dtype.is_native() {
            return Ok(RowBytes::Borrowed(stored_bytes));
        }
        let start = buffer.len();
        self.dtype.convert(stored_bytes, buffer);
        Ok(RowBytes::page_tail(start, buffer))
    }
}

impl Column {
    pub(super) fn read_heap_value<'a>(
        &'a self,
        files: &'a [Arc<OpenFile>],
        index: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<ColumnValue<'a>> {
        let (heap, file) =
            (self.heap.expect("`read_heap_value` is called only for variable-length columns"), &files[0]);
        let mut scratch = Vec::new();
        let reference = self.read_sample(files, index, None, &mut scratch)?;
        let value = heap.read_value(file, reference.resolve(&scratch), buffer);
        let value = value.map_err(|e| Error::new(e.kind(), format!("array {:?}: {}", self.name, e.cause())))?;
        Ok(if heap.is_text { ColumnValue::Text(value) } else { ColumnValue::Bytes(value) })
    }
}

impl Heap {
    /// Reads the value of a 16-byte `reference`: a length (4 bytes), the address of a heap (8
    /// bytes), and the index of an object in this heap (4 bytes). The value is borrowed from a
    /// memory map if possible, and appended to `buffer` if not. See the HDF5 File Format
    /// Specification, section III.E, "Global Heap".
    pub(super) fn read_value<'a>(
        self,
        file: &'a OpenFile,
        reference: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<RowBytes<'a>> {
        let damaged = |what: &str| Error::in_source(format!("damaged variable-length value: {what}"));
        let [len, index] =
            [0, 12].map(|offset| u32::from_le_bytes(*reference[offset..].first_chunk().expect("16 bytes")));
        let address = u64::from_le_bytes(*reference[4..].first_chunk().expect("16 bytes"));
        if len == 0 {
            return Ok(RowBytes::Borrowed(&[]));
        }
        let start =
            self.base_offset.checked_add(address).ok_or_else(|| damaged("its heap address is outside the file"))?;
        let mut scratch = Vec::new();
        // The heap's header contains a signature, a version, and the size of the heap at offset 8.
        let header = file.get(start, 16, &mut scratch)?;
        let is_heap = header.starts_with(b"GCOL\x01") && header.len() == 16;
        let size = if is_heap { u64::from_le_bytes(*header[8..].first_chunk().expect("16 bytes")) } else { 0 };
        let end = start.checked_add(size).filter(|&end| is_heap && end <= file.len());
        let (end, mut offset) =
            (end.ok_or_else(|| damaged(&format!("there is no heap at address {address}")))?, start + 16);
        while offset + 16 <= end {
            // An object's header contains an index, a reference count, and the size of the object
            // at offset 8.
            let header = file.get(offset, 16, &mut scratch)?;
            let object_index = u16::from_le_bytes(*header.first_chunk().expect("16 bytes"));
            let size = u64::from_le_bytes(*header[8..].first_chunk().expect("16 bytes"));
            // Index 0 is the free space at the end of the heap.
            if object_index == 0 {
                break;
            }
            let next = offset.checked_add(16).and_then(|offset| offset.checked_add(size)).filter(|&next| next <= end);
            let next = next.ok_or_else(|| damaged("an object extends past the end of its heap"))?;
            if u32::from(object_index) == index {
                if size < u64::from(len) {
                    return Err(damaged(&format!("the reference claims {len} bytes, but the heap object has {size}")));
                }
                let range = offset + 16..offset + 16 + u64::from(len);
                return file.read_range(None, range, buffer).map_err(|e| e.at_path(&file.path));
            }
            // Objects are aligned to 8 bytes from the start of the heap, which may be at any
            // offset.
            offset = start + (next - start).next_multiple_of(8);
        }
        Err(damaged("the heap does not contain the object"))
    }
}
