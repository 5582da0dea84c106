//! The error for bytes that no codec matches.

use warpfeed_sources::format;

use crate::error::Error;

pub(super) fn unsupported(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::decode("the image is empty (0 bytes)");
    }
    match name_of(bytes) {
        Some(("video", true)) if cfg!(not(feature = "video")) => Error::decode(
            "this is a frame of a video, and this build of warpfeed lacks the Cargo feature \"video\" that decodes it",
        ),
        Some((name, true)) if cfg!(not(feature = "formats")) => Error::decode(format!(
            "this is a {name}, and this build of warpfeed lacks the Cargo feature \"formats\" that decodes it"
        )),
        // A format without a codec, or one whose codec is missing in a custom `Codecs`.
        Some((name, _)) => Error::decode(format!(
            "{name} images are not supported; convert them, for example to PNG, or add a custom codec"
        )),
        None => {
            let prefix = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]);
            Error::decode(format!("no known image format starts with {prefix:?} ({} bytes in total)", bytes.len()))
        }
    }
}

/// Formats without a codec that the error can name. Each entry contains an offset, the bytes at
/// this offset, and the name.
const UNSUPPORTED_FORMATS: &[(usize, &[u8], &str)] = &[
    (4, b"ftypavif", "AVIF"),
    (4, b"ftyphei", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"P1", "PBM"),
    (0, b"P4", "PBM"),
    (0, b"P2", "PGM"),
    (0, b"P5", "PGM"),
    (0, b"P3", "PPM"),
    (0, b"P6", "PPM"),
    (0, b"P7", "PAM"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"DDS ", "DDS"),
    (0, b"\0\0\x01\0", "ICO"),
    (0, b"qoif", "QOI"),
    (0, b"8BPS", "Photoshop"),
    (0, b"%PDF", "PDF"),
    (0, b"<svg", "SVG"),
];

/// Returns the name of the format of `bytes`, and whether the format is built in. Returns `None`
/// for an unrecognized format.
fn name_of(bytes: &[u8]) -> Option<(&'static str, bool)> {
    let others = || {
        UNSUPPORTED_FORMATS
            .iter()
            .find(|(offset, start, _)| bytes.get(*offset..).is_some_and(|rest| rest.starts_with(start)))
    };
    let built_in = format::detect(bytes).map(|format| (format.name, true));
    built_in.or_else(|| others().map(|&(.., name)| (name, false)))
}
