use std::fmt;

use crate::error::{Error, Result};
use crate::source::elements::Dtype;
use crate::source::held::{Held, HeldFile};
use crate::source::record::Part;

/// An array. Its first axis counts the samples.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// The length of each axis.
    pub(super) shape: Vec<usize>,
    pub(super) place: Place,
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
        let column = Column { name, dtype, shape, place: Place::File { number, offset } };
        column.check(room)?;
        Ok(column)
    }

    /// An array in memory.
    ///
    /// # Errors
    /// If the bytes have another length than the array.
    pub(super) fn in_memory(name: String, dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self> {
        let room = bytes.len() as u64;
        let column = Column { name, dtype, shape, place: Place::Memory(bytes) };
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

    /// Number of samples. `None` for a single number.
    pub(super) fn len(&self) -> Option<usize> {
        self.shape.first().copied()
    }

    /// Bytes per sample.
    fn row(&self) -> usize {
        // Checked against the length of the file.
        self.shape[1..].iter().product::<usize>() * self.dtype.size
    }

    /// The elements of sample `index`, which is less than [`len`](Column::len), in the machine's byte
    /// order. `page` takes them if they are not mapped as they are.
    pub(super) fn get<'a>(&'a self, files: &'a [HeldFile], index: usize, page: &mut Vec<u8>) -> Result<Part<'a>> {
        let row = self.row();
        let stored: &'a [u8] = match &self.place {
            Place::Memory(bytes) => &bytes[index * row..][..row],
            Place::File { number, offset } => {
                let (file, at) = (&files[*number], offset + index as u64 * row as u64);
                match &file.held {
                    Held::Map { map, .. } => {
                        let bytes = &map[at as usize..][..row];
                        file.load(bytes, at + row as u64).map_err(|e| e.at_path(&file.path))?;
                        bytes
                    }
                    Held::Read(medium) => {
                        let start = page.len();
                        page.try_reserve(row).map_err(|_| Error::in_source(format!("no memory for {row} bytes")))?;
                        page.resize(start + row, 0);
                        medium.read_ranges(&mut [(at, &mut page[start..])])?;
                        if self.dtype.is_native() {
                            return Ok(Part::Page(start..page.len()));
                        }
                        let stored = page.split_off(start);
                        self.dtype.convert(&stored, page);
                        return Ok(Part::Page(start..page.len()));
                    }
                    Held::Stored(_) => unreachable!("arrays are on this machine"),
                }
            }
        };
        if self.dtype.is_native() {
            return Ok(Part::Borrowed(stored));
        }
        let start = page.len();
        self.dtype.convert(stored, page);
        Ok(Part::Page(start..page.len()))
    }
}
