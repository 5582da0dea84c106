//! The built-in codecs with default options, and [`check`], which uses them.

use std::sync::LazyLock;

use super::{Codecs, Condition, Info};
use crate::error::Result;

pub(crate) fn standard() -> &'static Codecs {
    static CODECS: LazyLock<Codecs> = LazyLock::new(Codecs::new);
    &CODECS
}

impl Info {
    /// Reads the header of `bytes`.
    ///
    /// # Errors
    /// Same as [`Codecs::open`](super::Codecs::open). To detect damage after the header, call
    /// [`check`](super::check()).
    pub fn read(bytes: &[u8]) -> Result<Info> {
        standard().open(bytes).map(|image| image.info())
    }
}

/// Reads a whole encoded image, and reports damage.
///
/// The result is [`Damaged`](Condition::Damaged) if the built-in codecs cannot decode the whole
/// image. A TIFF that only [`DenseMap`](crate::field::DenseMap) can read does not count as damaged.
/// Only a JPEG can be [`Tolerated`](Condition::Tolerated): see
/// [Damaged files](super#damaged-files). `warpfeed verify`, `warpfeed inspect` and
/// [`Pack`](crate::pack::Pack) run the same check. For custom codecs, call
/// [`EncodedImage::check`](super::EncodedImage::check).
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
    standard().open(bytes).and_then(|mut image| image.check()).unwrap_or_else(Condition::Damaged)
}
