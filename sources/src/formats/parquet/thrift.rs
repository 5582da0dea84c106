//! Parses Thrift's compact encoding, and checks data before the `parquet` crate decodes it. The
//! crate is recursive, so the depth of the schema is limited. It also allocates memory for the
//! claimed length of a list, so lengths are checked.

use parquet::file::page_index::offset_index::PageLocation;

/// Maximum depth of a schema, and of nested structs.
pub(super) const MAX_DEPTH: usize = 64;
/// Minimum size of a struct in a list, in bytes.
const MIN_STRUCT_BYTES: usize = 3;

/// Parses an `OffsetIndex`, which contains the locations of a column chunk's pages.
pub(super) fn locations(bytes: &[u8]) -> Option<Vec<PageLocation>> {
    let mut reader = Compact::new(bytes);
    let (field, kind) = reader.field(0)?;
    if (field, kind) != (1, 9) {
        return None;
    }
    let (count, 12) = reader.list()? else { return None };
    let mut pages = Vec::with_capacity(count.min(1 << 16));
    for _ in 0..count {
        let mut values = [0_i64; 3];
        let mut last = 0;
        loop {
            let (field, kind) = reader.field(last)?;
            match (field, kind) {
                (_, 0) => break,
                (1..=3, 5 | 6) => values[field as usize - 1] = reader.integer()?,
                _ => reader.skip(kind, 0)?,
            }
            last = field;
        }
        let [offset, size, first_row_index] = values;
        pages.push(PageLocation { offset, compressed_page_size: i32::try_from(size).ok()?, first_row_index });
    }
    Some(pages)
}

/// Reads values in Thrift's compact encoding. Methods return `None` if the bytes are damaged.
pub(super) struct Compact<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Compact<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Compact { bytes, position: 0 }
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

    /// Returns the number and the type of the next field in a struct. Type 0 means that the struct
    /// has ended. `last` is the number of the previous field.
    pub(super) fn field(&mut self, last: i64) -> Option<(i64, u8)> {
        let byte = self.byte()?;
        match (byte >> 4, byte & 15) {
            (_, 0) => Some((last, 0)),
            (0, kind) => Some((self.integer()?, kind)),
            (step, kind) => Some((last.wrapping_add(step.into()), kind)),
        }
    }

    /// Returns the length of a list and the type of its elements.
    fn list(&mut self) -> Option<(usize, u8)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            count => count.into(),
        };
        let kind = byte & 15;
        let min_bytes = if kind == 12 { MIN_STRUCT_BYTES } else { 1 };
        // The minimum size of an element is only an estimate, so short lists are not checked.
        let fits = count <= 15 || count.checked_mul(min_bytes)? <= self.bytes.len() - self.position;
        fits.then_some((count, kind))
    }

    fn take(&mut self, len: u64) -> Option<()> {
        let end = self.position.checked_add(usize::try_from(len).ok()?)?;
        self.position = end;
        (end <= self.bytes.len()).then_some(())
    }

    pub(super) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            1 | 2 => {}
            3 => _ = self.byte()?,
            4..=6 => _ = self.varint()?,
            7 => self.take(8)?,
            8 => {
                let len = self.varint()?;
                self.take(len)?;
            }
            9 | 10 => {
                let (count, kind) = self.list()?;
                for _ in 0..count {
                    self.skip(if kind <= 2 { 3 } else { kind }, depth + 1)?;
                }
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                for _ in 0..count {
                    self.skip(if kinds >> 4 <= 2 { 3 } else { kinds >> 4 }, depth + 1)?;
                    self.skip(if kinds & 15 <= 2 { 3 } else { kinds & 15 }, depth + 1)?;
                }
            }
            12 => _ = self.structure(depth + 1, None)?,
            _ => return None,
        }
        Some(())
    }

    /// Skips a struct. Returns the depth of the schema in field number `schema`, or 0 if the field
    /// is missing.
    pub(super) fn structure(&mut self, depth: usize, schema: Option<i64>) -> Option<usize> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (mut last, mut deepest) = (0, 0);
        loop {
            let (field, kind) = self.field(last)?;
            if kind == 0 {
                return Some(deepest);
            }
            if Some(field) == schema && kind == 9 {
                deepest = self.schema()?;
            } else {
                self.skip(kind, depth)?;
            }
            last = field;
        }
    }

    /// Returns the depth of a schema. The elements of a schema are in depth-first order, and each
    /// element contains the number of its children.
    fn schema(&mut self) -> Option<usize> {
        let (count, 12) = self.list()? else { return None };
        // The number of remaining children at each level.
        let (mut open, mut deepest) = (Vec::<u64>::new(), 0);
        for _ in 0..count {
            let (mut last, mut children) = (0, 0);
            loop {
                let (field, kind) = self.field(last)?;
                match (field, kind) {
                    (_, 0) => break,
                    (5, 5) => children = u64::try_from(self.integer()?).ok()?,
                    _ => self.skip(kind, 1)?,
                }
                last = field;
            }
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(remaining) = open.last_mut() {
                *remaining -= 1;
            }
            if children > 0 {
                // The `parquet` crate allocates memory for this number of children.
                if children > count as u64 {
                    return None;
                }
                open.push(children);
            }
            deepest = deepest.max(open.len());
            if deepest > MAX_DEPTH {
                return None;
            }
        }
        Some(deepest)
    }
}
