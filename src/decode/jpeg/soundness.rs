use std::cell::RefCell;

use super::KEPT_BYTES;
use super::coefficients::Coefficients;
use super::decoder::open;
use crate::error::Result;

/// Reads all of a file and says what in it is damaged, `None` if nothing is.
///
/// # Errors
/// If the file does not decode: as [`Jpeg`](super::Jpeg) says it of the whole picture.
pub(in crate::decode) fn damage(bytes: &[u8], max_pixels: u64) -> Result<Option<String>> {
    thread_local!(static COEFFICIENTS: RefCell<Coefficients> = RefCell::default());
    let (header, _) = open(bytes, max_pixels)?;
    COEFFICIENTS.with_borrow_mut(|coefficients| {
        let damage = coefficients.decode(bytes, &header).map(|()| coefficients.damage());
        coefficients.shrink(KEPT_BYTES);
        damage
    })
}
