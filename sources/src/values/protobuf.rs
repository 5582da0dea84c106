//! Parses Protocol Buffers messages field by field, without copying.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(&'a [u8]),
    /// A string, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes, little-endian.
    Fixed32(&'a [u8]),
}

/// Iterator over the fields of a message. Yields the offset, the number and the value of each
/// field.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Fields { bytes, at: 0 }
    }

    fn varint(&mut self) -> Result<u64, String> {
        varint(self.bytes, &mut self.at).ok_or_else(|| format!("no varint at byte {}", self.at))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let left = &self.bytes[self.at..];
        let taken = usize::try_from(length).ok().and_then(|length| left.get(..length));
        let (at, end) = (self.at, self.bytes.len());
        let taken =
            taken.ok_or_else(|| format!("{length} bytes claimed at byte {at}, but the message ends at {end}"))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn field(&mut self) -> Result<(usize, u64, Field<'a>), String> {
        let at = self.at;
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(self.take(4)?),
            kind => return Err(format!("a field of the unknown wire type {kind} at byte {at}")),
        };
        Ok((at, tag >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(usize, u64, Field<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// Reads a varint of up to ten bytes at `at`. Returns `None` if the varint does not end or exceeds
/// 64 bits.
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_type_is_read_and_lengths_are_checked() {
        let message = b"\x08\x96\x01\x12\x02ab\x1d\x01\x02\x03\x04\x21\x01\x02\x03\x04\x05\x06\x07\x08";
        let fields: Vec<_> = Fields::new(message).map(|field| field.unwrap()).collect();
        assert_eq!(fields[0], (0, 1, Field::Varint(150)));
        assert_eq!(fields[1], (3, 2, Field::Bytes(b"ab")));
        assert_eq!(fields[2], (7, 3, Field::Fixed32(&[1, 2, 3, 4])));
        assert_eq!(fields[3], (12, 4, Field::Fixed64(&[1, 2, 3, 4, 5, 6, 7, 8])));
        let e = |message: &[u8]| Fields::new(message).find_map(Result::err).unwrap();
        assert_eq!(e(b"\x12\x7f"), "127 bytes claimed at byte 2, but the message ends at 2");
        assert_eq!(e(b"\x0b"), "a field of the unknown wire type 3 at byte 0");
        assert!(e(&[0x08, 0xff]).contains("no varint") && e(&[0x80; 11]).contains("no varint"));
        let mut at = 0;
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &mut at), Some(u64::MAX));
    }
}
