use super::codecs::standard;
use crate::error::Error;

/// What [`check`] finds out about an encoded picture.
#[derive(Debug, Clone)]
pub enum Condition {
    /// It decodes, and no damage was found in it.
    Sound,
    /// It decodes, but is damaged: where and how, in lower case.
    Tolerated(String),
    /// It does not decode; the error is the decoder's.
    Damaged(Error),
}

/// Reads all of an encoded picture and says whether it is damaged.
///
/// This is what `warpfeed verify`, `warpfeed inspect` and [`Pack`](crate::pack::Pack) go by.
/// [`Damaged`](Condition::Damaged) is what the built-in codecs do not decode as a whole;
/// [`Picture::check`](super::Picture::check) is for a picture of other codecs.
/// [`Tolerated`](Condition::Tolerated) is known of JPEGs alone:
///
/// - data that make no sense, where libjpeg warns and goes on;
/// - data that T.81 does not allow in 8-bit pictures, of which libjpeg says nothing;
/// - a file whose pixels are all there, but no marker EOI behind them (libjpeg: "premature end of
///   JPEG file");
/// - a progressive file without some of its scans.
///
/// ```
/// use warpfeed::decode::{Condition, check};
///
/// # let mut jpeg = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut jpeg, 90).encode(&[99; 96 * 96 * 3], 96, 96, jpeg_encoder::ColorType::Rgb).unwrap();
/// assert!(matches!(check(&jpeg), Condition::Sound));
/// assert!(matches!(check(&jpeg[..jpeg.len() - 2]), Condition::Tolerated(_)));
/// assert!(matches!(check(&jpeg[..jpeg.len() - 9]), Condition::Damaged(_)));
/// ```
pub fn check(bytes: &[u8]) -> Condition {
    match standard().open(bytes) {
        Ok(mut picture) => picture.check(),
        Err(e) => Condition::Damaged(e),
    }
}
