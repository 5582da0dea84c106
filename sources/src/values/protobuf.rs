//! Parses Protocol Buffers messages field by field, without copying.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    /// A 64-bit number in little-endian order.
    Fixed64(&'a [u8]),
    /// A string, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// A 32-bit number in little-endian order.
    Fixed32(&'a [u8]),
}

/// Iterates over the fields of a message. Yields the byte offset, the number and the value of each
/// field.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Fields { bytes, position: 0 }
    }

    fn read_varint(&mut self) -> Result<u64, String> {
        varint(self.bytes, &mut self.position).ok_or_else(|| format!("invalid varint at byte {}", self.position))
    }

    fn read_bytes(&mut self, length: u64) -> Result<&'a [u8], String> {
        let remaining = &self.bytes[self.position..];
        let content = usize::try_from(length).ok().and_then(|length| remaining.get(..length));
        let (offset, end) = (self.position, self.bytes.len());
        let content = content.ok_or_else(|| {
            format!("the value at byte {offset} claims {length} bytes, but the message has only {end}")
        })?;
        self.position += content.len();
        Ok(content)
    }

    fn read_field(&mut self) -> Result<(usize, u64, Field<'a>), String> {
        let offset = self.position;
        let tag = self.read_varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.read_varint()?),
            1 => Field::Fixed64(self.read_bytes(8)?),
            2 => {
                let length = self.read_varint()?;
                Field::Bytes(self.read_bytes(length)?)
            }
            5 => Field::Fixed32(self.read_bytes(4)?),
            kind => return Err(format!("the field at byte {offset} has the unknown wire type {kind}")),
        };
        Ok((offset, tag >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(usize, u64, Field<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.bytes.len() {
            return None;
        }
        let field = self.read_field();
        if field.is_err() {
            self.position = self.bytes.len();
        }
        Some(field)
    }
}

/// Parses the varint at `offset`, and advances `offset` to its end. Returns `None` if the varint is
/// unterminated or exceeds 64 bits.
pub(crate) fn varint(bytes: &[u8], offset: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.get(*offset)?;
        *offset += 1;
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
        assert_eq!(e(b"\x12\x7f"), "the value at byte 2 claims 127 bytes, but the message has only 2");
        assert_eq!(e(b"\x0b"), "the field at byte 0 has the unknown wire type 3");
        assert!(e(&[0x08, 0xff]).contains("invalid varint") && e(&[0x80; 11]).contains("invalid varint"));
        let mut offset = 0;
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &mut offset), Some(u64::MAX));
    }
}
