//! Reads the footer of a file. Rejects footers that the `parquet` crate would decode with unbounded
//! memory or recursion.

use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::input::{self, guarded};
use super::thrift::{CompactReader, MAX_DEPTH};
use crate::error::{Error, Result};
use crate::storage::OpenFile;

const MAGIC: &[u8] = b"PAR1";
const MAX_FOOTER_BYTES: u64 = 64 << 20;

pub(super) fn read(file: &OpenFile) -> Result<ParquetMetaData> {
    let file_len = file.len();
    let truncated = || Error::in_source("not a Parquet file, or truncated: it does not end with `PAR1`");
    let end = file_len.checked_sub(8).ok_or_else(truncated)?;
    let tail = input::read(file, end, 8)?;
    let (footer_len, magic) = tail.split_at(4);
    if magic == b"PARE" {
        return Err(Error::in_source("encrypted Parquet is not supported"));
    }
    if magic != MAGIC {
        return Err(truncated());
    }
    let footer_len = u64::from(u32::from_le_bytes(footer_len.try_into().expect("four bytes")));
    if footer_len > end || footer_len > MAX_FOOTER_BYTES {
        return Err(Error::in_source(format!(
            "the footer claims {footer_len} bytes: the file has {file_len} bytes, and the limit is \
             {MAX_FOOTER_BYTES} bytes"
        )));
    }
    let footer = input::read(file, end - footer_len, footer_len)?;
    let mut reader = CompactReader::new(&footer);
    let depth = reader.skip_struct(0, Some(2));
    if depth.is_none_or(|depth| depth > MAX_DEPTH) {
        return Err(Error::in_source(format!(
            "the footer is damaged, or its columns are nested more than {MAX_DEPTH} deep"
        )));
    }
    guarded(|| {
        ParquetMetaDataReader::decode_metadata(&footer)
            .map_err(|e| Error::in_source(format!("the footer is damaged: {e}")))
    })
}
