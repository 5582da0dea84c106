//! The table of image formats.
//!
//! It determines which files of a folder are images, which field of a sample is its image, and
//! which codec decodes it. Each format has one line here and one `Codec`.
//! To add a format, add its codec: `Loader::codec`.

/// An image format, and how to recognize it.
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
    /// Name of the format in messages.
    pub name: &'static str,
    /// Name of the sample's field that contains the image, in lower case as in WebDataset.
    pub field: &'static str,
    /// File extensions, in lower case and without the dot. A file with one of them becomes the
    /// field `field`, whatever the case of its extension. A field named after one of them is
    /// treated as `field`.
    pub extensions: &'static [&'static str],
    /// Whether a file that starts with these bytes has this format. The slice may be the whole
    /// file, or empty.
    pub matches: fn(&[u8]) -> bool,
}

/// Huffman-coded JPEGs, and the kinds of JPEG that are refused by name.
pub const JPEG: Format =
    Format { name: "jpeg", field: "jpg", extensions: &["jpg", "jpeg"], matches: |b| b.starts_with(b"\xff\xd8") };
/// Arrays of pixels; see `decode::raw`.
pub const NPY: Format =
    Format { name: "npy", field: "rgb.npy", extensions: &[], matches: |b| b.starts_with(b"\x93NUMPY") };
/// PNG and APNG. Only four bytes are compared, so a file with converted line ends is still
/// recognized.
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
/// TIFF and BigTIFF of either byte order.
pub const TIFF: Format = Format {
    name: "tiff",
    field: "tif",
    extensions: &["tif", "tiff"],
    matches: |b| matches!(b.get(..4), Some(b"II*\0" | b"MM\0*" | b"II+\0" | b"MM\0+")),
};

/// All built-in formats.
pub const FORMATS: &[Format] = &[JPEG, NPY, PNG, WEBP, GIF, BMP, TIFF];

/// Field names for images of any format.
pub const ANY_FIELDS: [&str; 2] = ["img", "image"];

impl Format {
    /// Creates a format that matches any bytes, for encodings without a signature. The image must
    /// be in `img` or in a field named after another format, because this format has no field or
    /// extension.
    pub const fn any(name: &'static str) -> Self {
        Format { name, field: "", extensions: &[], matches: |_| true }
    }

    /// Whether a field of this name contains an image of this format.
    pub fn has_field(&self, name: &str) -> bool {
        !name.is_empty() && (self.field == name || self.extensions.contains(&name))
    }

    /// Whether a file with this extension, in any case, has this format.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
    }
}

/// The built-in format of a file that starts with `bytes`.
pub fn of(bytes: &[u8]) -> Option<&'static Format> {
    FORMATS.iter().find(|format| (format.matches)(bytes))
}

/// Whether a field of this name contains an image. True for the fields of the built-in formats and
/// for [`ANY_FIELDS`].
pub fn is_image(field: &str) -> bool {
    ANY_FIELDS.contains(&field) || FORMATS.iter().any(|format| format.has_field(field))
}

/// The canonical field name: `jpg` for `jpeg`, `tif` for `tiff`. Other names are returned
/// unchanged.
pub fn field(name: &str) -> &str {
    FORMATS.iter().find(|format| format.extensions.contains(&name)).map_or(name, |format| format.field)
}

/// The field for a file with this extension, from a format in `more` or a built-in one. `None` if
/// the file is not an image.
pub fn field_of_file(extension: &str, more: &[Format]) -> Option<&'static str> {
    more.iter().chain(FORMATS).find(|format| format.has_extension(extension)).map(|format| format.field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_file_are_of_one_format_at_most() {
        let signatures: [&[u8]; 10] = [
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
        ];
        for bytes in signatures {
            let of: Vec<_> = FORMATS.iter().filter(|f| (f.matches)(bytes)).map(|f| f.name).collect();
            assert_eq!(of.len(), 1, "{bytes:?}: {of:?}");
        }
        for format in FORMATS {
            assert!(!(format.matches)(b""));
            for name in format.extensions.iter().chain([&format.field]) {
                assert_eq!(FORMATS.iter().filter(|f| f.has_field(name)).count(), 1, "{name}");
                assert_eq!(field(name), format.field);
                assert!(is_image(name));
            }
        }
        assert!(of(b"hello").is_none() && !is_image("txt") && !is_image(""));
    }

    #[test]
    fn an_extension_in_any_case_has_one_field() {
        assert!(JPEG.has_extension("JPEG") && JPEG.has_extension("jpg") && !JPEG.has_extension("jp"));
        assert_eq!((field("jpeg"), field("tiff"), field("json")), ("jpg", "tif", "json"));
        assert_eq!((field_of_file("JPEG", &[]), field_of_file("txt", &[])), (Some("jpg"), None));
        let mine = Format { name: "mine", field: "mine", extensions: &["png"], matches: |_| false };
        assert_eq!(field_of_file("Png", &[mine]), Some("mine"), "a user's format takes precedence over a built-in one");
        // Field names are case-sensitive, as in WebDataset.
        assert!(!is_image("JPG") && is_image("img"));
    }

    #[test]
    fn a_format_of_any_bytes_has_no_field() {
        let any = Format::any("raw");
        assert!((any.matches)(b"") && !any.has_field("") && !any.has_field("raw") && !any.has_extension("raw"));
    }
}
