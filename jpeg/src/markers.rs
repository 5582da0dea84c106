use crate::error::{Error, Result};

/// Finds the next marker at or after byte `start`. Returns the second byte of the marker and the
/// offset of its first byte. Like libjpeg, skips stray bytes, fill bytes (`ff ff`) and stuffed
/// bytes (`ff 00`).
pub(crate) fn next_marker(bytes: &[u8], start: usize) -> Result<(u8, usize)> {
    let remaining = bytes.get(start..).unwrap_or_default();
    for i in memchr::memchr_iter(0xff, remaining) {
        match remaining.get(i + 1) {
            Some(0 | 0xff) | None => {}
            Some(&marker) => return Ok((marker, start + i)),
        }
    }
    Err(Error::new(format!("jpeg ends at byte {}: there is no marker at or after byte {start}", bytes.len())))
}

/// Returns whether a marker such as EOI follows the entropy-coded data that begins at byte `start`.
/// Restart markers and markers below `ff c0` do not count. Most files end with EOI, so the end of
/// the file is checked before the data is searched.
pub(crate) fn is_followed_by_marker(bytes: &[u8], start: usize) -> bool {
    let mut offset = start;
    bytes[start..].ends_with(&[0xff, 0xd9])
        || loop {
            match next_marker(bytes, offset) {
                Ok((..0xc0 | 0xd0..=0xd7, marker_offset)) => offset = marker_offset + 2,
                result => return result.is_ok(),
            }
        }
}

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

pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    pub(super) offset: usize,
    /// The body's number of bytes plus two for the length field.
    pub(super) length: usize,
    pub(super) body: &'a [u8],
}

impl<'a> Segment<'a> {
    pub(super) fn new(bytes: &'a [u8], marker: u8, offset: usize) -> Result<Self> {
        let rest = &bytes[offset + 2..];
        let mut segment = Segment { marker, offset, length: 0, body: rest };
        segment.length = segment.read_u16()?.into();
        if segment.length < 2 {
            return Err(segment
                .error(format!("the segment declares {} bytes, but its length field alone takes 2", segment.length)));
        }
        segment.body = rest.get(2..segment.length).ok_or_else(|| {
            segment.error(format!(
                "the segment declares {} bytes, but the file has only {} left",
                segment.length,
                rest.len()
            ))
        })?;
        Ok(segment)
    }

    pub(super) fn position(&self) -> usize {
        self.offset + 2 + self.length - self.body.len()
    }

    pub(super) fn error(&self, cause: impl std::fmt::Display) -> Error {
        Error::new(format!("jpeg {} at byte {}: {cause}", marker_name(self.marker), self.offset))
    }

    pub(super) fn expect_unread(self, unread: usize) -> Result<Self> {
        if self.body.len() == unread {
            return Ok(self);
        }
        Err(self.error(format!("{} bytes remain in the segment: expected {unread}", self.body.len())))
    }

    pub(super) fn read(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.body.split_at_checked(count) else {
            return Err(self.error(format!("the segment is {} bytes too short", count - self.body.len())));
        };
        self.body = tail;
        Ok(head)
    }

    pub(super) fn read_u8(&mut self) -> Result<u8> {
        Ok(self.read(1)?[0])
    }

    pub(super) fn read_u16(&mut self) -> Result<u16> {
        let bytes = self.read(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}
