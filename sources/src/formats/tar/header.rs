//! Parses tar headers, which are 512-byte blocks, and the records in PAX headers. POSIX.1-2024
//! (`pax`) and GNU tar's `tar.h` describe the formats.
//!
//! The `tar` crate (0.4.46) misses damage that makes an archive look shorter: it stops silently if
//! a file is truncated between two members, or at a block of zeros that is followed by more data.
//! Its errors contain no offsets.

use std::borrow::Cow;

/// Size of a block, in bytes. Headers and the data of members start at multiples of this size.
pub(super) const BLOCK_BYTES: usize = 512;

/// A header with a valid checksum and valid numbers.
pub(super) struct Header<'a> {
    pub(super) kind: u8,
    /// Size of the member's data in bytes, as the header claims.
    pub(super) size: u64,
    pub(super) name: Cow<'a, [u8]>,
    pub(super) link: &'a [u8],
}

impl<'a> Header<'a> {
    /// Parses a header block. An error contains only the cause; the caller adds the offset.
    pub(super) fn parse(block: &'a [u8; BLOCK_BYTES]) -> Result<Self, String> {
        let claimed_sum = parse_number(&block[148..156])
            .ok_or_else(|| format!("checksum {:?} is not a number", text(&block[148..156])))?;
        // The checksum field itself counts as spaces. Accept sums of signed bytes from old writers.
        let sum = |bytes: &[u8]| bytes.iter().map(|&b| u64::from(b)).sum::<u64>();
        let unsigned_sum = sum(block) - sum(&block[148..156]) + 8 * 32;
        let high_byte_count = || block[..148].iter().chain(&block[156..]).filter(|&&b| b >= 0x80).count() as u64;
        if claimed_sum != unsigned_sum && claimed_sum.checked_add(256 * high_byte_count()) != Some(unsigned_sum) {
            return Err(format!(
                "the checksum is {unsigned_sum}, but the header claims {claimed_sum}: the header is damaged, or it is \
                 not a tar header"
            ));
        }
        let size = parse_number(&block[124..136])
            .ok_or_else(|| format!("size {:?} is not a number", text(&block[124..136])))?;
        let name = trim_at_nul(&block[..100]);
        // Only POSIX headers contain a prefix. GNU headers have timestamps at this offset.
        let prefix = if block[257..263] == *b"ustar\0" { trim_at_nul(&block[345..500]) } else { &[] };
        let name = if prefix.is_empty() { Cow::Borrowed(name) } else { Cow::Owned([prefix, b"/", name].concat()) };
        Ok(Header { kind: block[156], size, name, link: trim_at_nul(&block[157..257]) })
    }
}

pub(crate) fn is_tar(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(|block| block[0] != 0 && Header::parse(block).is_ok())
}

/// Parses octal digits surrounded by spaces or NULs. A field without digits is 0. If the first byte
/// is 0x80, the field is a big-endian binary number instead (a GNU extension).
fn parse_number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let (high, low) = field.split_last_chunk().filter(|_| field.len() > 8)?;
        return high[1..].iter().all(|&byte| byte == 0).then_some(u64::from_be_bytes(*low));
    }
    let digits = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+')) }
}

fn trim_at_nul(field: &[u8]) -> &[u8] {
    &field[..memchr::memchr(0, field).unwrap_or(field.len())]
}

fn text(field: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(field)
}

#[derive(Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// The sample's key, if a file name cannot represent it. Tar files of other programs do not
    /// contain this record.
    pub(super) key: Option<Vec<u8>>,
}

/// The keyword of the PAX record that contains a sample's key.
pub const KEY_RECORD: &str = "WARPFEED.key";

impl Pax {
    /// Parses records of the form `LENGTH KEYWORD=VALUE\n`. LENGTH includes itself.
    pub(super) fn parse(mut data: &[u8]) -> Result<Self, String> {
        let mut pax = Pax::default();
        let len = data.len();
        while !data.is_empty() {
            let offset = len - data.len();
            let error = |what: &str| format!("pax record at byte {offset} of {len}: {what}");
            // A `u64` has at most 20 digits.
            let space = memchr::memchr(b' ', &data[..data.len().min(21)]).ok_or_else(|| error("it has no length"))?;
            let len: usize = std::str::from_utf8(&data[..space])
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| error("the length is not a number"))?;
            if len <= space + 1 || len > data.len() {
                return Err(error(&format!("it claims {len} bytes, but {} remain", data.len())));
            }
            let record =
                data[space + 1..len].strip_suffix(b"\n").ok_or_else(|| error("it does not end with a line feed"))?;
            let equals = memchr::memchr(b'=', record).ok_or_else(|| error("it has no equals sign"))?;
            let (keyword, value) = (&record[..equals], &record[equals + 1..]);
            if keyword == b"path" {
                pax.path = Some(value.to_vec());
            } else if keyword == b"linkpath" {
                pax.link = Some(value.to_vec());
            } else if keyword == b"size" {
                let size = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                pax.size = Some(size.ok_or_else(|| error("the size is not a number"))?);
            } else if keyword == KEY_RECORD.as_bytes() {
                pax.key = Some(value.to_vec());
            } else if keyword.starts_with(b"GNU.sparse.") {
                return Err(error("sparse files are not supported"));
            }
            data = &data[len..];
        }
        Ok(pax)
    }
}
