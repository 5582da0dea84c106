use crate::error::{Result, of_jpeg};

/// Rewrites the JPEG `bytes` so that a crop can be decoded alone, and appends the result to `out`.
/// The coefficients are the same, so every decoder gives the same pixels. This is
/// [`warpfeed_jpeg::repack`], whose documentation has the details.
///
/// # Errors
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the coding is lossless, arithmetic,
/// hierarchical or 12-bit; if an MCU would have more than 10 blocks; or if
/// [`check`](crate::decode::check) finds damage, even if decoders accept it. `out` is then
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
    warpfeed_jpeg::repack(bytes, out).map_err(of_jpeg)
}
