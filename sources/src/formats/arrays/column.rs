use std::fmt;
use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "hdf5")]
use super::chunks::{Chunks, Kept};
use crate::error::{Error, Result};
#[cfg(feature = "hdf5")]
use crate::machine::bytes::room;
use crate::medium::{HeldFile, Part};
use crate::values::elements::Dtype;
use crate::values::record::Found;

/// An array. Its first axis counts the samples.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// The length of each axis.
    pub(super) shape: Vec<usize>,
    pub(super) place: Place,
    /// For values of varying length, whose elements are their places.
    pub(super) heap: Option<Heap>,
}

/// Values of varying length in the heaps of an HDF5 file.
#[cfg_attr(not(feature = "hdf5"), allow(dead_code))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Heap {
    pub(super) text: bool,
    /// Offset of address 0.
    pub(super) base: u64,
}

/// Chooses arrays by their names: the number of each, and the name that it gets.
pub(super) type Choose<'a> = &'a dyn Fn(&[String]) -> Result<Vec<(usize, String)>>;

/// Where the elements of an array are.
pub(super) enum Place {
    /// From this offset of a file on.
    File {
        number: usize,
        offset: u64,
    },
    Memory(Vec<u8>),
    #[cfg(feature = "hdf5")]
    Chunks(Chunks),
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

impl Column {
    /// An array in a part of file `number`: `room` bytes from `offset` on.
    ///
    /// # Errors
    /// If the part has another length than the array.
    pub(super) fn in_file(
        name: String,
        dtype: Dtype,
        shape: Vec<usize>,
        (number, offset, room): (usize, u64, u64),
    ) -> Result<Self> {
        let column = Column { name, dtype, shape, place: Place::File { number, offset }, heap: None };
        column.check(room)?;
        Ok(column)
    }

    /// An array in memory.
    ///
    /// # Errors
    /// If the bytes have another length than the array.
    pub(super) fn in_memory(name: String, dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self> {
        let room = bytes.len() as u64;
        let column = Column { name, dtype, shape, place: Place::Memory(bytes), heap: None };
        column.check(room)?;
        Ok(column)
    }

    /// Checks that the array takes exactly `room` bytes.
    fn check(&self, room: u64) -> Result<()> {
        let claimed = self.shape.iter().try_fold(self.dtype.size as u64, |size, &side| size.checked_mul(side as u64));
        // Samples without bytes could be any number.
        let has_bytes = room > 0 || self.shape.first().is_none_or(|&samples| samples == 0);
        if claimed == Some(room) && has_bytes {
            return Ok(());
        }
        let (name, shape, size) = (&self.name, &self.shape, self.dtype.size);
        if claimed == Some(room) {
            return Err(Error::in_source(format!(
                "array {name:?} of shape {shape:?} has no elements in its samples; list the columns with \
                 TableOptions::columns"
            )));
        }
        Err(Error::in_source(format!(
            "array {name:?} of shape {shape:?} with {size} bytes per element does not take the {room} bytes that it has"
        )))
    }

    /// The cache of an array in chunks, and the bytes that a loader should grant it.
    #[cfg(feature = "hdf5")]
    pub(super) fn kept(&self) -> Option<(&Arc<Kept>, usize)> {
        match &self.place {
            Place::Chunks(chunks) => Some(chunks.kept()),
            _ => None,
        }
    }

    /// Number of samples. `None` for a single number.
    pub(super) fn len(&self) -> Option<usize> {
        self.shape.first().copied()
    }

    /// The file of the array, and the place of sample `index` in it, if it lies in one.
    pub(super) fn part(&self, index: usize) -> Option<(u32, Range<u64>)> {
        let Place::File { number, offset } = self.place else { return None };
        let start = offset + (index * self.row()) as u64;
        Some((u32::try_from(number).ok()?, start..start + self.row() as u64))
    }

    /// Bytes per sample.
    fn row(&self) -> usize {
        // Checked against the length of the file.
        self.shape[1..].iter().product::<usize>() * self.dtype.size
    }

    /// The elements of sample `index`, which is less than [`len`](Column::len), in the machine's
    /// byte order. `read` is their number among the reads of a loader's order. `page` takes elements
    /// that cannot be borrowed from a map.
    pub(super) fn get<'a>(
        &'a self,
        files: &'a [Arc<HeldFile>],
        index: usize,
        read: Option<u64>,
        page: &mut Vec<u8>,
    ) -> Result<Part<'a>> {
        let row = self.row();
        let stored: &'a [u8] = match &self.place {
            Place::Memory(bytes) => &bytes[index * row..][..row],
            #[cfg(feature = "hdf5")]
            Place::Chunks(chunks) => {
                let mut stored = Vec::new();
                chunks.read(files, index, room(&mut stored, row as u64)?)?;
                let start = page.len();
                match self.dtype.is_native() {
                    true => page.extend_from_slice(&stored),
                    false => self.dtype.convert(&stored, page),
                }
                return Ok(Part::since(start, page));
            }
            Place::File { number, offset } => {
                let (file, at) = (&files[*number], offset + index as u64 * row as u64);
                match file.part(read, at..at + row as u64, page).map_err(|e| e.at_path(&file.path))? {
                    Part::Borrowed(bytes) => bytes,
                    Part::Page(place) if self.dtype.is_native() => return Ok(Part::Page(place)),
                    Part::Page(place) => {
                        let stored = page.split_off(place.start);
                        self.dtype.convert(&stored, page);
                        return Ok(Part::since(place.start, page));
                    }
                }
            }
        };
        if self.dtype.is_native() {
            return Ok(Part::Borrowed(stored));
        }
        let start = page.len();
        self.dtype.convert(stored, page);
        Ok(Part::since(start, page))
    }
}

impl Column {
    /// The value of varying length of sample `index`.
    ///
    /// # Errors
    /// If it is damaged or cannot be read.
    pub(super) fn value<'a>(
        &'a self,
        files: &'a [Arc<HeldFile>],
        index: usize,
        page: &mut Vec<u8>,
    ) -> Result<Found<'a>> {
        let (heap, file) = (self.heap.expect("a column of such values"), &files[0]);
        let mut scratch = Vec::new();
        let place = self.get(files, index, None, &mut scratch)?;
        let value = heap.get(file, place.of(&scratch), page);
        let value = value.map_err(|e| Error::new(e.kind(), format!("array {:?}: {}", self.name, e.cause())))?;
        Ok(if heap.text { Found::Text(value) } else { Found::Bytes(value) })
    }
}

impl Heap {
    /// The value whose place has the bytes `place`, in `file`. `page` takes it unless it is mapped.
    ///
    /// # Errors
    /// If the place or the heap is damaged.
    pub(super) fn get<'a>(self, file: &'a HeldFile, place: &[u8], page: &mut Vec<u8>) -> Result<Part<'a>> {
        let damaged = |what: &str| Error::in_source(format!("a value of varying length: {what}"));
        let [len, index] = [0, 12].map(|at| u32::from_le_bytes(*place[at..].first_chunk().expect("16 bytes")));
        let address = u64::from_le_bytes(*place[4..].first_chunk().expect("16 bytes"));
        if len == 0 {
            return Ok(Part::Borrowed(&[]));
        }
        let start = self.base.checked_add(address).ok_or_else(|| damaged("an address outside the file"))?;
        let mut scratch = Vec::new();
        // Signature, version, and length.
        let head = file.get(start, 16, &mut scratch)?;
        let whole = head.starts_with(b"GCOL\x01") && head.len() == 16;
        let size = if whole { u64::from_le_bytes(*head[8..].first_chunk().expect("16 bytes")) } else { 0 };
        let end = start.checked_add(size).filter(|&end| whole && end <= file.len());
        let (end, mut at) = (end.ok_or_else(|| damaged("no heap at its address"))?, start + 16);
        while at + 16 <= end {
            // Number, references, and length.
            let head = file.get(at, 16, &mut scratch)?;
            let number = u16::from_le_bytes(*head.first_chunk().expect("16 bytes"));
            let size = u64::from_le_bytes(*head[8..].first_chunk().expect("16 bytes"));
            // The rest is free.
            if number == 0 {
                break;
            }
            let next = at.checked_add(16).and_then(|at| at.checked_add(size)).filter(|&next| next <= end);
            let next = next.ok_or_else(|| damaged("a heap whose values leave it"))?;
            if u32::from(number) == index {
                if size < u64::from(len) {
                    return Err(damaged(&format!("{len} bytes, of which the heap has {size}")));
                }
                let place = at + 16..at + 16 + u64::from(len);
                return file.part(None, place, page).map_err(|e| e.at_path(&file.path));
            }
            // A heap may begin anywhere.
            at = start + (next - start).next_multiple_of(8);
        }
        Err(damaged("it is not in its heap"))
    }
}
