//! Parses Thrift's compact encoding, and checks metadata before the `parquet` crate decodes it. The
//! crate builds schemas recursively and allocates memory for the length in a list's header, so this
//! module limits the depth and checks the lengths.

use parquet::file::page_index::offset_index::PageLocation;

/// Maximum depth of a schema, and of nested structs, lists, sets and maps.
pub(super) const MAX_DEPTH: usize = 64;
/// Estimated size in bytes of the smallest structs in Parquet metadata.
const MIN_STRUCT_BYTES: usize = 3;

// Types of values and of list elements in Thrift's compact encoding.
/// Marks the end of a struct.
const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// ID of the field `num_children` of a `SchemaElement`.
const NUM_CHILDREN: i64 = 5;

/// Parses an `OffsetIndex`, which contains the locations of a column chunk's pages. Returns `None`
/// if the bytes are damaged.
pub(super) fn page_locations(bytes: &[u8]) -> Option<Vec<PageLocation>> {
    let mut reader = CompactReader::new(bytes);
    let (field, kind) = reader.field_header(0)?;
    if (field, kind) != (1, LIST) {
        return None;
    }
    let (count, STRUCT) = reader.list_header()? else { return None };
    let mut pages = Vec::with_capacity(count.min(1 << 16));
    for _ in 0..count {
        let mut values = [0_i64; 3];
        let mut last = 0;
        loop {
            let (field, kind) = reader.field_header(last)?;
            match (field, kind) {
                (_, STOP) => break,
                (1..=3, I32 | I64) => values[field as usize - 1] = reader.integer()?,
                _ => reader.skip(kind, 0)?,
            }
            last = field;
        }
        let [offset, size, first_row_index] = values;
        pages.push(PageLocation { offset, compressed_page_size: i32::try_from(size).ok()?, first_row_index });
    }
    Some(pages)
}

/// Returns the type of a struct field that is encoded like a list element of type `kind`. The types
/// differ only for booleans: in lists, sets and maps, a boolean takes a byte, whereas in structs,
/// the field's header contains the value.
fn element_kind(kind: u8) -> u8 {
    if kind <= FALSE { BYTE } else { kind }
}

/// A cursor in Thrift's compact encoding. Methods return `None` if the bytes are damaged or nested
/// deeper than [`MAX_DEPTH`].
pub(super) struct CompactReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> CompactReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        CompactReader { bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Returns the ID and the type of the next field; the type `STOP` ends the struct. `last` is
    /// the ID of the previous field.
    pub(super) fn field_header(&mut self, last: i64) -> Option<(i64, u8)> {
        let byte = self.byte()?;
        match (byte >> 4, byte & 15) {
            (_, STOP) => Some((last, STOP)),
            (0, kind) => Some((self.integer()?, kind)),
            (step, kind) => Some((last.wrapping_add(step.into()), kind)),
        }
    }

    fn list_header(&mut self) -> Option<(usize, u8)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            count => count.into(),
        };
        let kind = byte & 15;
        let min_bytes = if kind == STRUCT { MIN_STRUCT_BYTES } else { 1 };
        // A struct may be smaller than the estimate, so lists of up to 15 elements are not checked.
        let fits = count <= 15 || count.checked_mul(min_bytes)? <= self.bytes.len() - self.position;
        fits.then_some((count, kind))
    }

    fn skip_bytes(&mut self, len: u64) -> Option<()> {
        let end = self.position.checked_add(usize::try_from(len).ok()?)?;
        self.position = end;
        (end <= self.bytes.len()).then_some(())
    }

    pub(super) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            TRUE | FALSE => {}
            BYTE => _ = self.byte()?,
            I16 | I32 | I64 => _ = self.varint()?,
            DOUBLE => self.skip_bytes(8)?,
            BINARY => {
                let len = self.varint()?;
                self.skip_bytes(len)?;
            }
            LIST | SET => {
                let (count, kind) = self.list_header()?;
                for _ in 0..count {
                    self.skip(element_kind(kind), depth + 1)?;
                }
            }
            MAP => {
                let count = self.varint()?;
                let key_value_kinds = if count > 0 { self.byte()? } else { 0 };
                for _ in 0..count {
                    self.skip(element_kind(key_value_kinds >> 4), depth + 1)?;
                    self.skip(element_kind(key_value_kinds & 15), depth + 1)?;
                }
            }
            STRUCT => _ = self.skip_struct(depth + 1, None)?,
            _ => return None,
        }
        Some(())
    }

    /// Skips a struct. Returns the depth of the schema in field `schema_field`, or 0 without one.
    pub(super) fn skip_struct(&mut self, depth: usize, schema_field: Option<i64>) -> Option<usize> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (mut last, mut max_depth) = (0, 0);
        loop {
            let (field, kind) = self.field_header(last)?;
            if kind == STOP {
                return Some(max_depth);
            }
            if Some(field) == schema_field && kind == LIST {
                max_depth = self.schema_depth()?;
            } else {
                self.skip(kind, depth)?;
            }
            last = field;
        }
    }

    /// Skips a schema and returns its depth. Elements are in depth-first order, and each contains
    /// the number of its children.
    fn schema_depth(&mut self) -> Option<usize> {
        let (count, STRUCT) = self.list_header()? else { return None };
        // The number of remaining children at each level.
        let (mut remaining_children, mut max_depth) = (Vec::<u64>::new(), 0);
        for _ in 0..count {
            let (mut last, mut children) = (0, 0);
            loop {
                let (field, kind) = self.field_header(last)?;
                match (field, kind) {
                    (_, STOP) => break,
                    (NUM_CHILDREN, I32) => children = u64::try_from(self.integer()?).ok()?,
                    _ => self.skip(kind, 1)?,
                }
                last = field;
            }
            while remaining_children.last() == Some(&0) {
                remaining_children.pop();
            }
            if let Some(remaining) = remaining_children.last_mut() {
                *remaining -= 1;
            }
            if children > 0 {
                // The `parquet` crate allocates memory for all children, so reject impossible
                // numbers.
                if children > count as u64 {
                    return None;
                }
                remaining_children.push(children);
            }
            max_depth = max_depth.max(remaining_children.len());
            if max_depth > MAX_DEPTH {
                return None;
            }
        }
        Some(max_depth)
    }
}
