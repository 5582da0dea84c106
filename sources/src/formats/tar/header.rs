//! One tar header: a block of 512 bytes, and the records of a PAX header (POSIX.1-2024 `pax`, GNU
//! tar's `tar.h`).
//!
//! It is written by hand because the crate `tar` (0.4.46) mistakes damaged files for shorter ones:
//! it stops silently where a file is truncated between two members, and at a block of zeros with
//! data after it. Its errors have no offsets.

use std::borrow::Cow;

/// Headers and data both begin at multiples of this many bytes.
pub(super) const BLOCK: usize = 512;

/// Content of a header, with its numbers checked.
pub(super) struct Header<'a> {
    pub(super) kind: u8,
    /// Bytes of data that the header claims.
    pub(super) size: u64,
    pub(super) name: Cow<'a, [u8]>,
    /// What a link leads to.
    pub(super) link: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads a header. The error is only the cause; the caller adds the offset.
    pub(super) fn parse(block: &'a [u8; BLOCK]) -> Result<Self, String> {
        let claimed =
            number(&block[148..156]).ok_or_else(|| format!("checksum {:?} is not a number", text(&block[148..156])))?;
        // The checksum field counts as spaces. Some old writers summed signed bytes.
        let sum = |bytes: &[u8]| bytes.iter().map(|&b| u64::from(b)).sum::<u64>();
        let unsigned = sum(block) - sum(&block[148..156]) + 8 * 32;
        let negative = || block[..148].iter().chain(&block[156..]).filter(|&&b| b >= 0x80).count() as u64;
        if claimed != unsigned && claimed.checked_add(256 * negative()) != Some(unsigned) {
            return Err(format!("checksum is {unsigned}, header claims {claimed}: not a tar header, or damaged"));
        }
        let size =
            number(&block[124..136]).ok_or_else(|| format!("size {:?} is not a number", text(&block[124..136])))?;
        let name = until_nul(&block[..100]);
        // Only POSIX has a prefix; GNU tar keeps times in its place.
        let prefix = if block[257..263] == *b"ustar\0" { until_nul(&block[345..500]) } else { &[] };
        let name = if prefix.is_empty() { Cow::Borrowed(name) } else { Cow::Owned([prefix, b"/", name].concat()) };
        Ok(Header { kind: block[156], size, name, link: until_nul(&block[157..257]) })
    }
}

/// Whether a file that begins with `start` has a tar header.
pub(crate) fn is_tar(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(|block| block[0] != 0 && Header::parse(block).is_ok())
}

/// Parses octal digits between spaces and NULs. If the top bit of the first byte is set, the field
/// is a big-endian number (GNU).
fn number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let (high, low) = field.split_last_chunk().filter(|_| field.len() > 8)?;
        return high[1..].iter().all(|&byte| byte == 0).then_some(u64::from_be_bytes(*low));
    }
    let digits = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+')) }
}

fn until_nul(field: &[u8]) -> &[u8] {
    &field[..memchr::memchr(0, field).unwrap_or(field.len())]
}

fn text(field: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(field)
}

/// The records of a PAX header that are used.
#[derive(Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    /// What a link leads to.
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// The sample's key, if the file name cannot express it. This record is specific to this crate;
    /// other readers ignore it.
    pub(super) key: Option<Vec<u8>>,
}

/// The record that holds `Pax::key`.
pub const KEY_RECORD: &str = "WARPFEED.key";

impl Pax {
    /// Reads `LENGTH KEYWORD=VALUE\n` records. LENGTH counts the whole record.
    pub(super) fn parse(mut data: &[u8]) -> Result<Self, String> {
        let mut pax = Pax::default();
        let all = data.len();
        while !data.is_empty() {
            let at = all - data.len();
            let bad = |what: &str| format!("pax record at byte {at} of {all}: {what}");
            // 20 digits hold any u64, so a longer run of digits is not searched.
            let space = memchr::memchr(b' ', &data[..data.len().min(21)]).ok_or_else(|| bad("no length"))?;
            let len: usize = std::str::from_utf8(&data[..space])
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| bad("length is not a number"))?;
            if len <= space + 1 || len > data.len() {
                return Err(bad(&format!("claims {len} bytes, {} are left", data.len())));
            }
            let record = data[space + 1..len].strip_suffix(b"\n").ok_or_else(|| bad("does not end in a line feed"))?;
            let equals = memchr::memchr(b'=', record).ok_or_else(|| bad("no equals sign"))?;
            let (keyword, value) = (&record[..equals], &record[equals + 1..]);
            if keyword == b"path" {
                pax.path = Some(value.to_vec());
            } else if keyword == b"linkpath" {
                pax.link = Some(value.to_vec());
            } else if keyword == b"size" {
                let size = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                pax.size = Some(size.ok_or_else(|| bad("size is not a number"))?);
            } else if keyword == KEY_RECORD.as_bytes() {
                pax.key = Some(value.to_vec());
            } else if keyword.starts_with(b"GNU.sparse.") {
                return Err(bad("sparse files are not supported"));
            }
            data = &data[len..];
        }
        Ok(pax)
    }
}
