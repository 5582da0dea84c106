use crate::error::{Error, Result};
use crate::source::Npy;
use crate::source::Sample;

/// Renumbers the classes in `bytes`, the sample's field `name`, as the source renumbers the label.
/// The names of class fields end in `.class` before the extension of the encoding. Negative numbers
/// mean no class and stay unchanged.
///
/// # Errors
/// If a class has no new number, or the field is not a NumPy array of `int64`. Another type might
/// not hold the new number.
pub(super) fn renumber(sample: &Sample<'_>, name: &str, bytes: &mut [u8]) -> Result<()> {
    let stem = [".npy", ".json", ".txt"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    if !stem.ends_with(".class") || !sample.is_relabelled() {
        return Ok(());
    }
    let start = match Npy::read(bytes) {
        Ok(npy) if (npy.kind, npy.size, npy.big_endian) == (b'i', 8, false) && name.ends_with(".npy") => npy.start,
        _ => {
            let cause = format!("field {name:?}: classes can be renumbered only in npy arrays of int64");
            return Err(Error::in_source(cause));
        }
    };
    for number in bytes[start..].as_chunks_mut::<8>().0 {
        let old = i64::from_le_bytes(*number);
        let new = if old < 0 { old } else { sample.class(old)? };
        *number = new.to_le_bytes();
    }
    Ok(())
}
