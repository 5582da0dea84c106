//! MessagePack in place: values borrow from the bytes, every length is checked against what is
//! left.

use rmp::Marker;

use crate::error::{Error, Result};

/// Reads values one after the other.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// One value; of arrays and maps only the number of elements, which follow as values of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Int(i64),
    /// Bytes, or text: Python's `msgpack` has written either for both.
    Bytes(&'a [u8]),
    Array(u32),
    /// Number of pairs.
    Map(u32),
    /// Nil, a boolean, a float, an extension, an integer beyond `i64`.
    Other,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Offset of the next value.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn next(&mut self) -> Result<Value<'a>> {
        Ok(match Marker::from_u8(self.uint(1)? as u8) {
            Marker::FixPos(v) => Value::Int(v.into()),
            Marker::FixNeg(v) => Value::Int(v.into()),
            Marker::U8 => Value::Int(self.uint(1)? as i64),
            Marker::U16 => Value::Int(self.uint(2)? as i64),
            Marker::U32 => Value::Int(self.uint(4)? as i64),
            Marker::U64 => i64::try_from(self.uint(8)?).map_or(Value::Other, Value::Int),
            Marker::I8 => Value::Int((self.uint(1)? as i8).into()),
            Marker::I16 => Value::Int((self.uint(2)? as i16).into()),
            Marker::I32 => Value::Int((self.uint(4)? as i32).into()),
            Marker::I64 => Value::Int(self.uint(8)? as i64),
            Marker::FixStr(len) => Value::Bytes(self.take(len.into())?),
            Marker::Str8 | Marker::Bin8 => Value::Bytes(self.sized(1)?),
            Marker::Str16 | Marker::Bin16 => Value::Bytes(self.sized(2)?),
            Marker::Str32 | Marker::Bin32 => Value::Bytes(self.sized(4)?),
            Marker::FixArray(len) => Value::Array(len.into()),
            Marker::Array16 => Value::Array(self.uint(2)? as u32),
            Marker::Array32 => Value::Array(self.uint(4)? as u32),
            Marker::FixMap(len) => Value::Map(len.into()),
            Marker::Map16 => Value::Map(self.uint(2)? as u32),
            Marker::Map32 => Value::Map(self.uint(4)? as u32),
            Marker::Null | Marker::True | Marker::False => Value::Other,
            Marker::F32 => self.other(4)?,
            Marker::F64 => self.other(8)?,
            // An extension's type takes a byte before its data.
            Marker::FixExt1 => self.other(2)?,
            Marker::FixExt2 => self.other(3)?,
            Marker::FixExt4 => self.other(5)?,
            Marker::FixExt8 => self.other(9)?,
            Marker::FixExt16 => self.other(17)?,
            Marker::Ext8 => self.extension(1)?,
            Marker::Ext16 => self.extension(2)?,
            Marker::Ext32 => self.extension(4)?,
            Marker::Reserved => {
                return Err(Error::in_source(format!("messagepack: reserved byte 0xc1 at {}", self.at - 1)));
            }
        })
    }

    /// Passes over what `value` contains, without recursion: `depth` of nesting costs nothing, so a
    /// hostile value cannot exhaust the stack. Each turn consumes a byte at least.
    pub(super) fn skip(&mut self, value: Value<'a>) -> Result<()> {
        let elements = |value: Value| match value {
            Value::Array(len) => u64::from(len),
            Value::Map(pairs) => 2 * u64::from(pairs),
            _ => 0,
        };
        let mut left = elements(value);
        while left > 0 {
            left = left - 1 + elements(self.next()?);
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..len).ok_or_else(|| {
            let (at, all) = (self.at, self.bytes.len());
            Error::in_source(format!("messagepack: {len} bytes claimed at {at}, value ends at {all}"))
        })?;
        self.at += len;
        Ok(taken)
    }

    /// A big-endian number of `bytes` bytes, 8 at most.
    fn uint(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    /// Bytes whose number stands before them.
    fn sized(&mut self, len_bytes: usize) -> Result<&'a [u8]> {
        let len = self.uint(len_bytes)?;
        self.take(len as usize)
    }

    fn other(&mut self, len: usize) -> Result<Value<'a>> {
        self.take(len)?;
        Ok(Value::Other)
    }

    fn extension(&mut self, len_bytes: usize) -> Result<Value<'a>> {
        let len = self.uint(len_bytes)?;
        self.other(len as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_integer_that_rmp_writes_reads_back() {
        let ints = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 4_294_967_295, 4_294_967_296, i64::MAX];
        for int in ints.into_iter().chain(ints.map(|i| -i)).chain([-32, -33, -128, -129, i64::MIN]) {
            let mut bytes = Vec::new();
            rmp::encode::write_sint(&mut bytes, int).unwrap();
            assert_eq!(Reader::new(&bytes).next().unwrap(), Value::Int(int));
        }
        let mut bytes = Vec::new();
        rmp::encode::write_u64(&mut bytes, u64::MAX).unwrap();
        assert_eq!(Reader::new(&bytes).next().unwrap(), Value::Other);
    }

    #[test]
    fn bytes_and_text_of_every_length_class_read_back() {
        for len in [0, 31, 32, 255, 256, 65_535, 65_536] {
            let text = "x".repeat(len);
            let mut bytes = Vec::new();
            rmp::encode::write_str(&mut bytes, &text).unwrap();
            rmp::encode::write_bin(&mut bytes, text.as_bytes()).unwrap();
            let mut reader = Reader::new(&bytes);
            for _ in 0..2 {
                assert_eq!(reader.next().unwrap(), Value::Bytes(text.as_bytes()));
            }
            assert!(reader.is_at_end());
        }
    }

    #[test]
    fn lengths_are_checked_and_nesting_is_passed_over() {
        let error = Reader::new(&[0xc6, 0xff, 0xff, 0xff, 0xff, 1]).next().unwrap_err();
        assert_eq!(error.cause(), "messagepack: 4294967295 bytes claimed at 5, value ends at 6");
        let deep = [&[0x91_u8].repeat(1 << 20)[..], &[7, 9]].concat();
        let mut reader = Reader::new(&deep);
        let value = reader.next().unwrap();
        reader.skip(value).unwrap();
        assert_eq!(reader.next().unwrap(), Value::Int(9));
        let mut endless = Reader::new(&[0xdf, 0xff, 0xff, 0xff, 0xff, 1, 2]);
        let value = endless.next().unwrap();
        assert!(endless.skip(value).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            while let Ok(value) = reader.next() {
                if reader.skip(value).is_err() { break; }
            }
            prop_assert!(reader.at() <= bytes.len());
        }
    }
}
