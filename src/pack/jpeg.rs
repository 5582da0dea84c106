//! [`repack_jpeg`] rewrites a JPEG for fast crops.

use crate::error::{Result, from_jpeg};

/// Rewrites a JPEG so that crops can be decoded without decoding the whole image, and appends the
/// result to `out`. The coefficients do not change, so every decoder produces the same pixels. See
/// [`warpfeed_jpeg::repack`].
///
/// # Errors
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the header is invalid, if the JPEG is
/// lossless, arithmetic-coded, hierarchical or 12-bit, if an MCU would have more than 10 blocks, or
/// if [`check`](crate::decode::check) finds damage, including damage that decoders tolerate.
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation fails. After an error, `out` is
/// unchanged.
///
/// ```
/// use warpfeed::pack::repack_jpeg;
///
/// # let mut jpeg = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut jpeg, 90).encode(&[99; 96 * 96 * 3], 96, 96, jpeg_encoder::ColorType::Rgb).unwrap();
/// let mut packed = Vec::new();
/// repack_jpeg(&jpeg, &mut packed)?;
/// assert!(packed.windows(2).any(|pair| pair == b"\xff\xd0"), "restart markers");
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn repack_jpeg(bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    warpfeed_jpeg::repack(bytes, out).map_err(from_jpeg)
}
