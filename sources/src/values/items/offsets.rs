//! Parses the table of 32-bit offsets at the start of an MDS shard or a LitData chunk.

use crate::error::{Error, Result, try_collect};
use crate::storage::OpenFile;

/// Returns the size of the table in bytes, or `None` on overflow. The table consists of the number
/// of samples, the offset of each sample, and the end of the last sample.
pub(crate) fn head_bytes(samples: u64) -> Option<u64> {
    u32::try_from(samples).ok().map(|samples| 4 * (u64::from(samples) + 2))
}

/// Returns the offset of each sample, and the end of the last sample. `head` is the beginning of a
/// file of `len` bytes, up to the end of the table. Fails if the number of samples in the file is
/// not `samples`.
pub(crate) fn offsets(head: &[u8], samples: u64, len: u64) -> Result<Vec<u64>> {
    let words = head.as_chunks::<4>().0;
    let Some((head, offsets)) = words.split_first() else {
        return Err(Error::in_source(format!("truncated: the file has only {len} bytes")));
    };
    let count = u32::from_le_bytes(*head);
    if u64::from(count) != samples {
        return Err(Error::in_source(format!("the file has {count} samples, but index.json lists {samples}")));
    }
    let first = head_bytes(samples).unwrap_or(u64::MAX);
    let offsets = try_collect(offsets.iter().map(|word| Ok(u64::from(u32::from_le_bytes(*word)))))?;
    let mut previous = first;
    for (sample, &offset) in offsets.iter().enumerate() {
        if offset < previous || offset > len {
            return Err(Error::in_source(format!(
                "offset {offset} of sample {sample} is not between byte {previous} and the end of the file at {len}"
            )));
        }
        previous = offset;
    }
    if offsets.len() as u64 != samples + 1 {
        return Err(Error::in_source(format!(
            "truncated: {samples} samples need at least {first} bytes, but the file has {len}"
        )));
    }
    Ok(offsets)
}

pub(crate) fn read_offsets(file: &OpenFile, samples: u64) -> Result<Vec<u64>> {
    let (len, mut scratch) = (file.len(), Vec::new());
    let head = file.get(0, head_bytes(samples).unwrap_or(len), &mut scratch)?;
    offsets(head, samples, len).map_err(|e| e.at_path(&file.path))
}
