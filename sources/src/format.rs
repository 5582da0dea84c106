//! The built-in image formats.
//!
//! A format determines which files in a folder are images, which field of a sample contains the
//! image, and which codec decodes it. Each [`Format`] has a `Codec`. `Loader::codec` adds a format.

/// An image format and its signature.
///
/// ```
/// use warpfeed_sources::format::Format;
///
/// const PPM: Format = Format {
///     name: "ppm",
///     field: "ppm",
///     extensions: &["ppm"],
///     matches: |bytes| bytes.starts_with(b"P6"),
/// };
/// assert!((PPM.matches)(b"P6 4 3 255\n"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Name of the format, as used in messages.
    pub name: &'static str,
    /// Name of the sample field that contains the image, in lower case, as in WebDataset.
    pub field: &'static str,
    /// File extensions, in lower case and without the dot. A file with one of these extensions, in
    /// any case, becomes the field named by `field`. In a sample, the extensions are aliases for
    /// this name.
    pub extensions: &'static [&'static str],
    /// Returns whether a file that starts with the given bytes has this format. The bytes may be
    /// empty or the whole file.
    pub matches: fn(&[u8]) -> bool,
}

/// Huffman-coded JPEG. Other JPEG variants are rejected with an error that names the variant.
pub const JPEG: Format =
    Format { name: "jpeg", field: "jpg", extensions: &["jpg", "jpeg"], matches: |b| b.starts_with(b"\xff\xd8") };
/// Uncompressed pixels in a NumPy array; see `decode::raw`.
pub const NPY: Format =
    Format { name: "npy", field: "rgb.npy", extensions: &[], matches: |b| b.starts_with(b"\x93NUMPY") };
/// PNG and APNG. Only the first four bytes of the signature are compared, so that a file is
/// recognized even if its line endings were converted.
pub const PNG: Format =
    Format { name: "png", field: "png", extensions: &["png"], matches: |b| b.starts_with(b"\x89PNG") };
/// WebP.
pub const WEBP: Format = Format {
    name: "webp",
    field: "webp",
    extensions: &["webp"],
    matches: |b| b.starts_with(b"RIFF") && b.get(8..12) == Some(b"WEBP"),
};
/// GIF.
pub const GIF: Format = Format { name: "gif", field: "gif", extensions: &["gif"], matches: |b| b.starts_with(b"GIF8") };
/// BMP.
pub const BMP: Format = Format { name: "bmp", field: "bmp", extensions: &["bmp"], matches: |b| b.starts_with(b"BM") };
/// TIFF and BigTIFF, in either byte order.
pub const TIFF: Format = Format {
    name: "tiff",
    field: "tif",
    extensions: &["tif", "tiff"],
    matches: |b| matches!(b.get(..4), Some(b"II*\0" | b"MM\0*" | b"II+\0" | b"MM\0+")),
};

/// A video frame, with the packets that its decoder needs. Sources create such frames from videos;
/// files never have this format. Decoding requires the `video` Cargo feature.
pub const VIDEO: Format =
    Format { name: "video", field: "wfvideo", extensions: &[], matches: |b| b.starts_with(b"WFvideo\x01") };

/// All built-in formats.
pub const FORMATS: &[Format] = &[JPEG, NPY, PNG, WEBP, GIF, BMP, TIFF, VIDEO];

pub(crate) const VIDEO_FILES: &[&str] = &["mp4", "m4v", "mov", "mkv", "webm"];

/// Names of fields that may contain an image in any format.
pub const ANY_FIELDS: [&str; 2] = ["img", "image"];

impl Format {
    /// Creates a format that matches any bytes, for encodings without a signature. The format has
    /// no field name and no extensions, so the image must be in the field `img`, in `image`, or in
    /// the field of a different format.
    pub const fn any(name: &'static str) -> Self {
        Format { name, field: "", extensions: &[], matches: |_| true }
    }

    /// Returns whether a field called `name` contains an image of this format.
    pub fn has_field(&self, name: &str) -> bool {
        !name.is_empty() && (self.field == name || self.extensions.contains(&name))
    }

    /// Returns whether a file with this extension, in any case, has this format.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.extensions.iter().any(|ending| ending.eq_ignore_ascii_case(extension))
    }
}

/// Returns the built-in format of a file that starts with `bytes`, or `None` if no format matches.
pub fn detect(bytes: &[u8]) -> Option<&'static Format> {
    FORMATS.iter().find(|format| (format.matches)(bytes))
}

/// Returns whether a field of this name contains an image. The name must be the field of a built-in
/// format, one of its aliases, or one of [`ANY_FIELDS`].
pub fn is_image_field(field: &str) -> bool {
    ANY_FIELDS.contains(&field) || FORMATS.iter().any(|format| format.has_field(field))
}

/// Returns the canonical name of a field: `jpg` for `jpeg`, `tif` for `tiff`, and all other names
/// unchanged.
pub fn canonical_field(name: &str) -> &str {
    FORMATS.iter().find(|format| format.extensions.contains(&name)).map_or(name, |format| format.field)
}

/// Returns the name of the field for an image file with this extension, or `None` if no image
/// format has the extension. Formats in `more` take precedence over built-in formats.
pub fn field_for_extension(extension: &str, more: &[Format]) -> Option<&'static str> {
    more.iter().chain(FORMATS).find(|format| format.has_extension(extension)).map(|format| format.field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_signature_matches_one_format() {
        let signatures: [&[u8]; 11] = [
            b"\xff\xd8\xff",
            b"\x93NUMPY",
            b"\x89PNG\r\n\x1a\n",
            b"RIFF0000WEBP",
            b"GIF89a",
            b"BM",
            b"II*\0",
            b"MM\0*",
            b"II+\0",
            b"MM\0+",
            b"WFvideo\x01",
        ];
        for bytes in signatures {
            let matching: Vec<_> = FORMATS.iter().filter(|f| (f.matches)(bytes)).map(|f| f.name).collect();
            assert_eq!(matching.len(), 1, "{bytes:?}: {matching:?}");
        }
        for format in FORMATS {
            assert!(!(format.matches)(b""));
            for name in format.extensions.iter().chain([&format.field]) {
                assert_eq!(FORMATS.iter().filter(|f| f.has_field(name)).count(), 1, "{name}");
                assert_eq!(canonical_field(name), format.field);
                assert!(is_image_field(name));
            }
        }
        assert!(detect(b"hello").is_none() && !is_image_field("txt") && !is_image_field(""));
    }

    #[test]
    fn extensions_match_in_any_case() {
        assert!(JPEG.has_extension("JPEG") && JPEG.has_extension("jpg") && !JPEG.has_extension("jp"));
        assert_eq!((canonical_field("jpeg"), canonical_field("tiff"), canonical_field("json")), ("jpg", "tif", "json"));
        assert_eq!((field_for_extension("JPEG", &[]), field_for_extension("txt", &[])), (Some("jpg"), None));
        let mine = Format { name: "mine", field: "mine", extensions: &["png"], matches: |_| false };
        assert_eq!(
            field_for_extension("Png", &[mine]),
            Some("mine"),
            "a user's format takes precedence over a built-in one"
        );
        assert!(!is_image_field("JPG") && is_image_field("img"));
    }

    #[test]
    fn a_format_without_signature_has_no_field() {
        let any = Format::any("raw");
        assert!((any.matches)(b"") && !any.has_field("") && !any.has_field("raw") && !any.has_extension("raw"));
    }
}
