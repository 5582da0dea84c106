//! Parses the header of FFCV's `.beton` files, version 2, as `ffcv/types.py` defines it.

use crate::error::{Error, Result};
use crate::model::value::Element;

pub(super) const HEADER_BYTES: usize = 24;
/// Length of a field description, in bytes: type (1), name (16) and arguments (1024).
pub(super) const FIELD_BYTES: usize = 1 + 16 + 1024;
/// Length of an entry in the allocation table, in bytes.
pub(super) const ALLOCATION_BYTES: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) field_count: usize,
    pub(super) sample_count: u64,
    /// Offset of the allocation table, which follows the samples' data.
    pub(super) table_offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Float,
    Int,
    /// A JPEG or raw pixels.
    Image,
    Bytes,
    Json,
    Array(Dtype, Vec<usize>),
    /// An unsupported type. The string completes an error message that begins with "field NAME ".
    Unsupported(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dtype {
    Element(Element),
    Half,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Offset of the field in a sample's record, in bytes.
    pub(super) offset: usize,
}

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

impl Header {
    /// `bytes` are the first bytes of the file, and `len` is its length.
    pub(super) fn parse(bytes: &[u8], len: u64) -> Result<Self> {
        let truncated =
            || Error::in_source(format!("not a .beton file: it has only {len} bytes, fewer than the header"));
        let version = u16_at(bytes, 0).ok_or_else(truncated)?;
        if version != 2 {
            return Err(Error::in_source(format!(
                "unsupported FFCV version {version} (expected 2), or not a .beton file"
            )));
        }
        let field_count = u16_at(bytes, 2).ok_or_else(truncated)?.into();
        let (sample_count, table_offset) = u64_at(bytes, 8).zip(u64_at(bytes, 16)).ok_or_else(truncated)?;
        if table_offset == 0 {
            return Err(Error::in_source(
                "the allocation table is missing: the writer did not finish the file, so write it again",
            ));
        }
        if table_offset > len || !(len - table_offset).is_multiple_of(ALLOCATION_BYTES as u64) {
            return Err(Error::in_source(format!(
                "the allocation table at byte {table_offset} is outside the file of {len} bytes or ends in a partial \
                 entry: the file is damaged or truncated"
            )));
        }
        Ok(Header { field_count, sample_count, table_offset })
    }
}

impl Field {
    /// Parses the descriptions of all fields. Also returns the length of a record in bytes.
    pub(super) fn parse_all(descriptions: &[u8]) -> Result<(Vec<Field>, usize)> {
        let (mut fields, mut offset, mut max_align) = (Vec::new(), 0_usize, 1);
        for (index, description) in descriptions.chunks_exact(FIELD_BYTES).enumerate() {
            let (name, arguments) = description[1..].split_at(16);
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let name = std::str::from_utf8(name)
                .map_err(|_| Error::in_source(format!("the name of field {index} is not UTF-8")))?;
            if name.is_empty() {
                return Err(Error::in_source(format!("field {index} has no name: the file is damaged")));
            }
            let kind = Kind::parse(description[0], arguments);
            // Size and alignment of the field in a record. A record is a NumPy structured type with
            // `align=True`, but the nested records of images, bytes and JSON are not aligned.
            let (size, align) = match kind {
                Kind::Float | Kind::Int | Kind::Array(..) => (8, 8),
                Kind::Image => (13, 1),
                Kind::Bytes | Kind::Json => (16, 1),
                Kind::Unsupported(ref reason) => {
                    return Err(Error::in_source(format!(
                        "field {name:?} {reason}, so the size of a record is unknown: write the dataset without this \
                         field"
                    )));
                }
            };
            offset = offset.next_multiple_of(align);
            fields.push(Field { name: name.to_owned(), kind, offset });
            offset += size;
            max_align = max_align.max(align);
        }
        Ok((fields, offset.next_multiple_of(max_align)))
    }
}

impl Kind {
    /// Returns the type with the given ID in `ffcv/types.py`.
    fn parse(code: u8, arguments: &[u8]) -> Self {
        match code {
            0 => Kind::Float,
            1 => Kind::Int,
            2 => Kind::Image,
            3 => Kind::Bytes,
            4 | 6 => Self::parse_array(arguments)
                .unwrap_or_else(|| Kind::Unsupported("is an array of an unsupported type".into())),
            5 => Kind::Json,
            255 => Kind::Unsupported("has a custom type".into()),
            _ => Kind::Unsupported(format!("has the unknown type {code}")),
        }
    }

    /// Parses the arguments of an array field: the shape, padded with zeros, and a NumPy type in
    /// JSON, such as `[["", "<f4"]]`.
    fn parse_array(arguments: &[u8]) -> Option<Self> {
        let sides: Option<Vec<u64>> = (0..32).map(|axis| u64_at(arguments, 8 * axis)).collect();
        let mut shape: Vec<usize> = sides?.into_iter().map(|side| usize::try_from(side).ok()).collect::<Option<_>>()?;
        while shape.last() == Some(&0) {
            shape.pop();
        }
        let length = usize::try_from(u64_at(arguments, 256)?).ok()?;
        let descr: Vec<(String, String)> = serde_json::from_slice(arguments.get(264..)?.get(..length)?).ok()?;
        let [(_, descr)] = &descr[..] else { return None };
        let dtype = match &**descr {
            "<f2" => Dtype::Half,
            "|u1" | "|b1" => Dtype::Element(Element::U8),
            "<u2" => Dtype::Element(Element::U16),
            "<u4" => Dtype::Element(Element::U32),
            "<u8" => Dtype::Element(Element::U64),
            "|i1" => Dtype::Element(Element::I8),
            "<i2" => Dtype::Element(Element::I16),
            "<i4" => Dtype::Element(Element::I32),
            "<i8" => Dtype::Element(Element::I64),
            "<f4" => Dtype::Element(Element::F32),
            "<f8" => Dtype::Element(Element::F64),
            _ => return None,
        };
        Some(Kind::Array(dtype, shape))
    }
}
