use crate::error::Error;
use crate::format;

/// The error for bytes that no codec matches.
pub(super) fn unknown(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::decode("0 bytes, not an image");
    }
    match name_of(bytes) {
        // A registry may lack codecs.
        Some((name, true)) if cfg!(not(feature = "formats")) => Error::decode(format!(
            "this is a {name}, and this build of warpfeed lacks the Cargo feature \"formats\" that decodes it"
        )),
        Some((name, _)) => Error::decode(format!(
            "{name} images are not supported; convert them, for example to PNG, or read them with a codec of your own"
        )),
        None => {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]);
            Error::decode(format!("no known image format starts with {start:?} ({} bytes in total)", bytes.len()))
        }
    }
}

/// The name of the format, and whether it is built in.
fn name_of(bytes: &[u8]) -> Option<(String, bool)> {
    let built_in = format::of(bytes).map(|format| (format.name.to_owned(), true));
    // The `image` crate names more formats than this module reads, some by several extensions.
    #[cfg(feature = "formats")]
    let built_in = built_in
        .or_else(|| Some((::image::guess_format(bytes).ok()?.extensions_str().join(", ").to_uppercase(), false)));
    built_in
}
