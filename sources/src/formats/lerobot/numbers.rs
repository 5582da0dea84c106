//! [`NumberFile`]: an `.npy` file of a packed dataset with a feature's numbers in all frames.

use std::path::Path;

use crate::error::{Error, Result, resize};
use crate::model::value::Element;
use crate::storage::{OpenFile, Storage};
use crate::values::elements::Dtype;
use crate::values::npy::Npy;

const MAX_HEADER_BYTES: u64 = 4096;
/// Maximum size of a file in an object store, in bytes. Such a file stays in memory.
const MAX_MEMORY_FILE_BYTES: u64 = 4 << 30;

/// The numbers of a feature in all frames: an array with one row for each frame. A local file is
/// read in place. A file in an object store is read into memory once, because each of the many
/// short rows of a sample would otherwise cost a request.
pub(super) struct NumberFile {
    file: OpenFile,
    data_start: u64,
    row_bytes: usize,
    pub(super) element: Element,
    pub(super) shape: Vec<usize>,
}

impl NumberFile {
    pub(super) fn open(storage: &Storage, path: &Path, rows: usize) -> Result<Self> {
        let file = match storage.is_store() {
            true => OpenFile::in_memory(path.to_owned(), storage.read(path, MAX_MEMORY_FILE_BYTES)?),
            false => storage.open(path)?,
        };
        Self::parse(file, rows).map_err(|e| e.at_path(path))
    }

    fn parse(file: OpenFile, rows: usize) -> Result<Self> {
        let mut scratch = Vec::new();
        let npy = Npy::read(file.get(0, MAX_HEADER_BYTES, &mut scratch)?)?;
        let dtype = Dtype { kind: npy.kind, size: npy.item_size, big_endian: npy.big_endian };
        let element = dtype.element()?;
        let shape = npy.shape.as_ref().filter(|_| dtype.is_native() && !npy.fortran_order);
        let Some((&actual, shape)) = shape.and_then(|shape| shape.split_first()) else {
            return Err(Error::in_source(format!(
                "unsupported array: expected one row for each frame, in C order and the byte order of this machine: {}",
                npy.header_for_message()
            )));
        };
        let row_bytes = shape.iter().try_fold(element.size(), |bytes, &side| bytes.checked_mul(side));
        let expected_len =
            row_bytes.and_then(|bytes| bytes.checked_mul(actual)).map(|bytes| npy.data_offset as u64 + bytes as u64);
        if actual != rows {
            return Err(Error::in_source(format!(
                "the file has {actual} rows, but the dataset has {rows} frames; pack the dataset again"
            )));
        }
        if expected_len != Some(file.len()) {
            return Err(Error::in_source(format!(
                "the file has {} bytes, which does not match its header: {}; pack the dataset again",
                file.len(),
                npy.header_for_message()
            )));
        }
        let (data_start, shape) = (npy.data_offset as u64, shape.to_vec());
        let row_bytes = row_bytes.expect("the length of the file was checked");
        Ok(NumberFile { file, data_start, row_bytes, element, shape })
    }

    pub(super) fn append_row(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        resize(out, start + self.row_bytes, 0);
        let offset = self.data_start + row as u64 * self.row_bytes as u64;
        self.file.fill(offset, &mut out[start..]).map_err(|e| e.at_path(&self.file.path))
    }

    pub(super) fn check(&self) -> Result<()> {
        self.file.check()
    }

    /// Returns an error with the message "row ROW CAUSE".
    pub(super) fn error(&self, row: usize, cause: impl std::fmt::Display) -> Error {
        Error::in_source(format!("row {row} {cause}")).at_path(&self.file.path)
    }
}
