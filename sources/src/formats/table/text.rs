//! Reads the text of a table, and computes line numbers.

use std::path::Path;

use crate::error::{Error, Result};
use crate::machine::file;
use crate::model::store::{Location, Stores};
use crate::storage::prefetch::Remote;

/// Reads the text of the table without its byte order mark. Errors about the encoding contain the
/// line.
pub(super) fn read_text(path: &Path, stores: &Stores) -> Result<String> {
    let mut bytes = match Location::parse(path) {
        Location::Path(path) => file::read(&path, u64::MAX).map_err(|e| Error::io(&path, &e))?,
        Location::Url(url) => {
            let remote = Remote::new(stores.for_url(&url)?.clone());
            let object = remote.repeated(move |store| store.object(&url))?;
            remote.bytes(&object, 0, object.len)?
        }
    };
    let encoding_error = |line: usize, cause: &str| {
        Err(Error::in_source(format!("{cause}: save the table as UTF-8")).at_line(path, line))
    };
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return encoding_error(1, "the text is UTF-16");
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    bytes.shrink_to_fit();
    if let Some(offset) = memchr::memchr(0, &bytes) {
        return encoding_error(line_of(&bytes, offset), "the text contains a zero byte, so it may be UTF-16");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(e) => {
            let offset = e.utf8_error().valid_up_to();
            let byte = e.as_bytes()[offset];
            encoding_error(line_of(e.as_bytes(), offset), &format!("byte {byte:#04x} is not UTF-8"))
        }
    }
}

/// Returns the line that contains the byte at `offset`, counted from 1. A line ends with `\n`,
/// `\r\n` or `\r`.
pub(super) fn line_of(text: &[u8], offset: usize) -> usize {
    let ends = memchr::memchr2_iter(b'\n', b'\r', &text[..offset]);
    1 + ends.filter(|&offset| text[offset] == b'\n' || text.get(offset + 1) != Some(&b'\n')).count()
}
