use warpfeed_jpeg::Jpeg;

use super::{Oriented, Size};

/// Information from the header of an encoded image.
///
/// ```
/// use warpfeed::decode::Info;
///
/// # let png = { let mut file = std::io::Cursor::new(Vec::new()); image::RgbImage::new(4, 3).write_to(&mut file, image::ImageFormat::Png).unwrap(); file.into_inner() };
/// let info = Info::read(&png)?;
/// assert_eq!((info.format, info.size.width, info.size.height), ("png", 4, 3));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Name of the format: `jpeg`, `png`, `webp`, `bmp`, `tiff`, `gif`, `npy` (an array of pixels),
    /// `video` (a frame of a video), or the name of a custom format. Empty if a codec opened the
    /// image directly, instead of [`Codecs`](crate::decode::Codecs).
    pub format: &'static str,
    /// Size of the decoded image, after the EXIF orientation has been applied.
    pub size: Size,
    /// The `size` and the EXIF orientation, for converting the coordinates of annotations.
    pub oriented: Oriented,
    /// Details about a JPEG, or `None` for other formats.
    pub jpeg: Option<JpegInfo>,
}

/// Details about how a JPEG is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JpegInfo {
    /// Chroma subsampling: `4:4:4`, `4:2:2`, `4:4:0`, `4:2:0`, `4:1:1`, `gray`, `cmyk` (four
    /// components) or `other`.
    pub chroma: &'static str,
    /// Whether the JPEG is progressive. A progressive JPEG must be decoded completely, even for a
    /// small crop.
    pub progressive: bool,
    /// Number of MCUs between restart markers, or 0 if there are none. In a JPEG that is not
    /// progressive, decoding can start at a restart marker.
    pub restart_interval: u32,
    /// EXIF orientation, from 1 (upright) to 8.
    pub orientation: u8,
}

impl JpegInfo {
    pub(super) fn from_jpeg(jpeg: &Jpeg<'_>) -> Self {
        JpegInfo {
            chroma: jpeg.chroma(),
            progressive: jpeg.is_progressive(),
            restart_interval: jpeg.restart_interval(),
            orientation: jpeg.orientation().tag(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use super::*;
    use crate::decode::standard;

    fn jpeg(sampling: SamplingFactor, color: ColorType, progressive: bool) -> JpegInfo {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 80);
        encoder.set_sampling_factor(sampling);
        encoder.set_progressive(progressive);
        let channels = if color == ColorType::Luma { 1 } else { 3 };
        encoder.encode(&vec![90; 40 * 30 * channels], 40, 30, color).unwrap();
        let info = Info::read(&bytes).unwrap();
        assert_eq!((info.format, info.size), ("jpeg", Size::new(40, 30)));
        info.jpeg.unwrap()
    }

    #[test]
    fn jpegs_with_restart_markers_are_recognized() {
        let encode = |interval: u16| {
            let mut bytes = Vec::new();
            let mut encoder = Encoder::new(&mut bytes, 80);
            encoder.set_restart_interval(interval);
            encoder.encode(&[90; 40 * 30 * 3], 40, 30, ColorType::Rgb).unwrap();
            bytes
        };
        let (plain, marked) = (encode(0), encode(2));
        let is_plain = |bytes: &[u8]| standard().open(bytes).unwrap().is_plain_jpeg();
        assert!(is_plain(&plain) && !is_plain(&marked));
        let mut png = std::io::Cursor::new(Vec::new());
        ::image::RgbImage::new(4, 3).write_to(&mut png, ::image::ImageFormat::Png).unwrap();
        assert!(!is_plain(png.get_ref()));
    }

    #[test]
    fn chroma_subsampling_has_its_usual_name() {
        for (sampling, name) in [
            (SamplingFactor::R_4_4_4, "4:4:4"),
            (SamplingFactor::R_4_2_2, "4:2:2"),
            (SamplingFactor::R_4_4_0, "4:4:0"),
            (SamplingFactor::R_4_2_0, "4:2:0"),
            (SamplingFactor::R_4_1_1, "4:1:1"),
        ] {
            let info = jpeg(sampling, ColorType::Rgb, name == "4:2:0");
            assert_eq!((info.chroma, info.progressive), (name, name == "4:2:0"));
            assert_eq!((info.restart_interval, info.orientation), (0, 1));
        }
        assert_eq!(jpeg(SamplingFactor::R_4_4_4, ColorType::Luma, false).chroma, "gray");
    }

    #[test]
    fn bytes_that_are_not_an_image_are_rejected() {
        for bytes in [&b""[..], b"hello, I am a text", b"\xff\xd8\xff"] {
            assert!(Info::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
