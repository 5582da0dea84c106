//! Markers and their segments.

use crate::error::{Error, Result};

/// Finds the next marker at or after byte `at`. Returns its second byte and the offset of its first
/// byte. Like libjpeg, it skips stray bytes, fill bytes (`ff ff`) and stuffed bytes (`ff 00`).
///
/// # Errors
/// If the file ends before the next marker.
pub(crate) fn next_marker(bytes: &[u8], at: usize) -> Result<(u8, usize)> {
    let rest = bytes.get(at..).unwrap_or_default();
    for i in memchr::memchr_iter(0xff, rest) {
        match rest.get(i + 1) {
            Some(0 | 0xff) | None => {}
            Some(&marker) => return Ok((marker, at + i)),
        }
    }
    Err(Error::new(format!("jpeg ends at byte {}: no marker from byte {at} on", bytes.len())))
}

/// Returns whether the entropy-coded data, which starts at byte `at`, is followed by a marker that
/// cannot be part of the data, such as EOI in a complete file.
///
/// EOI is usually at the end of the file, so the end is checked first. If the file does not end
/// with EOI, all of the data is searched.
pub(crate) fn is_closed(bytes: &[u8], at: usize) -> bool {
    let mut from = at;
    bytes[at..].ends_with(&[0xff, 0xd9])
        || loop {
            match next_marker(bytes, from) {
                Ok((..0xc0 | 0xd0..=0xd7, place)) => from = place + 2,
                found => return found.is_ok(),
            }
        }
}

/// Returns the name of a marker, given its second byte.
pub(crate) fn marker_name(marker: u8) -> String {
    match marker {
        0xc4 => "DHT".into(),
        0xc8 => "JPG".into(),
        0xcc => "DAC".into(),
        0xc0..=0xcf => format!("SOF{}", marker - 0xc0),
        0xd0..=0xd7 => format!("RST{}", marker - 0xd0),
        0xd8 => "SOI".into(),
        0xd9 => "EOI".into(),
        0xda => "SOS".into(),
        0xdb => "DQT".into(),
        0xdc => "DNL".into(),
        0xdd => "DRI".into(),
        0xe0..=0xef => format!("APP{}", marker - 0xe0),
        0xfe => "COM".into(),
        _ => format!("ff {marker:02x}"),
    }
}

/// A marker segment and its unread bytes.
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    /// Offset of the marker.
    pub(super) place: usize,
    /// Value of the length field, which counts itself (two bytes) and the body.
    pub(super) length: usize,
    pub(super) body: &'a [u8],
}

impl<'a> Segment<'a> {
    pub(super) fn new(bytes: &'a [u8], marker: u8, place: usize) -> Result<Self> {
        let rest = &bytes[place + 2..];
        let mut segment = Segment { marker, place, length: 0, body: rest };
        segment.length = segment.u16()?.into();
        if segment.length < 2 {
            return Err(segment.error(format!("claims {} bytes, but its length field alone takes 2", segment.length)));
        }
        segment.body = rest.get(2..segment.length).ok_or_else(|| {
            segment.error(format!("claims {} bytes, but the file has {} left", segment.length, rest.len()))
        })?;
        Ok(segment)
    }

    /// Returns the offset of the next unread byte.
    pub(super) fn at(&self) -> usize {
        self.place + 2 + self.length - self.body.len()
    }

    pub(super) fn error(&self, cause: impl std::fmt::Display) -> Error {
        Error::new(format!("jpeg {} at byte {}: {cause}", marker_name(self.marker), self.place))
    }

    /// Returns the segment if exactly `left` bytes of it are unread.
    pub(super) fn exactly(self, left: usize) -> Result<Self> {
        if self.body.len() == left {
            return Ok(self);
        }
        Err(self.error(format!("{} bytes instead of {left}", self.body.len())))
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.body.split_at_checked(count) else {
            return Err(self.error(format!("ends {} bytes early", count - self.body.len())));
        };
        self.body = tail;
        Ok(head)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}
