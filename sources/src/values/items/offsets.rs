use crate::error::{Error, Result, collected};
use crate::medium::HeldFile;

/// Returns the length of the head of a file with `samples` samples. The head consists of the number
/// of samples and their offsets. Returns `None` if the length overflows.
pub(crate) fn head_bytes(samples: u64) -> Option<u64> {
    u32::try_from(samples).ok().map(|samples| 4 * (u64::from(samples) + 2))
}

/// Parses the sample offsets of a file of `len` bytes from its first bytes, `head`.
///
/// # Errors
/// If the file contains a different number of samples, or if an offset is invalid.
pub(crate) fn offsets(head: &[u8], samples: u64, len: u64) -> Result<Vec<u64>> {
    let words = head.as_chunks::<4>().0;
    let Some((found, offsets)) = words.split_first() else {
        return Err(Error::in_source(format!("cut short: the file has {len} bytes")));
    };
    let found = u32::from_le_bytes(*found);
    if u64::from(found) != samples {
        return Err(Error::in_source(format!("the file has {found} samples, but index.json says {samples}")));
    }
    let first = head_bytes(samples).unwrap_or(u64::MAX);
    let offsets = collected(offsets.iter().map(|word| Ok(u64::from(u32::from_le_bytes(*word)))))?;
    let mut before = first;
    for (sample, &offset) in offsets.iter().enumerate() {
        if offset < before || offset > len {
            return Err(Error::in_source(format!(
                "offset {offset} of sample {sample} is not between byte {before} and the end of the file at {len}"
            )));
        }
        before = offset;
    }
    if offsets.len() as u64 != samples + 1 {
        return Err(Error::in_source(format!("cut short: {samples} samples need {first} bytes, the file has {len}")));
    }
    Ok(offsets)
}

/// Reads the offsets of the local `file` with `samples` samples.
///
/// # Errors
/// If the file cannot be read. The errors of [`offsets`] also apply.
pub(crate) fn read_offsets(file: &HeldFile, samples: u64) -> Result<Vec<u64>> {
    let (len, mut scratch) = (file.len(), Vec::new());
    let head = file.get(0, head_bytes(samples).unwrap_or(len), &mut scratch)?;
    offsets(head, samples, len).map_err(|e| e.at_path(&file.path))
}
