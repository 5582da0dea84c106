use crate::error::{Error, Result, collected};
use crate::medium::HeldFile;

/// Length of the head of a file of `samples` samples: their number, then their offsets. `None` if
/// no file can have so many.
pub(crate) fn head_bytes(samples: u64) -> Option<u64> {
    u32::try_from(samples).ok().map(|samples| 4 * (u64::from(samples) + 2))
}

/// The offsets of a file of `len` bytes that begins with `head`, which has the offsets of `samples`
/// samples.
///
/// # Errors
/// If the file has another number of samples, or an offset is wrong.
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

/// The offsets of `file` on this machine, with `samples` samples.
///
/// # Errors
/// If it cannot be read, and those of [`offsets`].
pub(crate) fn read_offsets(file: &HeldFile, samples: u64) -> Result<Vec<u64>> {
    let (len, mut scratch) = (file.len(), Vec::new());
    let head = file.get(0, head_bytes(samples).unwrap_or(len), &mut scratch)?;
    offsets(head, samples, len).map_err(|e| e.at_path(&file.path))
}
