//! Parses FlatBuffers tables, the encoding of Arrow's message headers, from untrusted bytes.
//!
//! Methods return `None` if an offset points outside the buffer. Absent fields have their default
//! values.

#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    buffer: &'a [u8],
    start: usize,
    /// Start and length in bytes of the vtable, which contains the offset of each field from the
    /// start of the table.
    vtable: (usize, usize),
}

#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    buffer: &'a [u8],
    start: usize,
    pub(super) len: usize,
}

fn bytes<const N: usize>(buffer: &[u8], offset: usize) -> Option<[u8; N]> {
    buffer.get(offset..)?.first_chunk().copied()
}

fn follow(buffer: &[u8], offset: usize) -> Option<usize> {
    offset.checked_add(u32::from_le_bytes(bytes(buffer, offset)?) as usize)
}

impl<'a> Table<'a> {
    pub(super) fn root(buffer: &'a [u8]) -> Option<Self> {
        Self::at(buffer, follow(buffer, 0)?)
    }

    fn at(buffer: &'a [u8], offset: usize) -> Option<Self> {
        let back = i32::from_le_bytes(bytes(buffer, offset)?);
        let start = usize::try_from(i64::try_from(offset).ok()? - i64::from(back)).ok()?;
        let len = usize::from(u16::from_le_bytes(bytes(buffer, start)?));
        let is_inside = len >= 4 && start.checked_add(len)? <= buffer.len();
        is_inside.then_some(Table { buffer, start: offset, vtable: (start, len) })
    }

    /// Returns the offset of field `index` in the buffer, or `Some(None)` if the field is absent.
    /// Returns `None` if the offset is invalid.
    fn field_offset(&self, index: usize) -> Option<Option<usize>> {
        let (start, len) = self.vtable;
        let offset = 4 + 2 * index;
        if offset + 2 > len {
            return Some(None);
        }
        match u16::from_le_bytes(bytes(self.buffer, start + offset)?) {
            0 => Some(None),
            offset => Some(Some(self.start.checked_add(offset.into())?)),
        }
    }

    fn scalar<const N: usize>(&self, index: usize) -> Option<Option<[u8; N]>> {
        match self.field_offset(index)? {
            Some(offset) => Some(Some(bytes(self.buffer, offset)?)),
            None => Some(None),
        }
    }

    pub(super) fn byte(&self, index: usize) -> Option<u8> {
        Some(self.scalar(index)?.map_or(0, |[byte]| byte))
    }

    pub(super) fn short(&self, index: usize, default: i16) -> Option<i16> {
        Some(self.scalar(index)?.map_or(default, i16::from_le_bytes))
    }

    pub(super) fn int(&self, index: usize) -> Option<i32> {
        Some(self.scalar(index)?.map_or(0, i32::from_le_bytes))
    }

    pub(super) fn long(&self, index: usize) -> Option<i64> {
        Some(self.scalar(index)?.map_or(0, i64::from_le_bytes))
    }

    pub(super) fn table(&self, index: usize) -> Option<Option<Table<'a>>> {
        match self.field_offset(index)? {
            Some(offset) => Some(Some(Self::at(self.buffer, follow(self.buffer, offset)?)?)),
            None => Some(None),
        }
    }

    /// Returns the vector in field `index`, with elements of `size` bytes. An absent vector is
    /// empty.
    pub(super) fn list(&self, index: usize, size: usize) -> Option<List<'a>> {
        let Some(offset) = self.field_offset(index)? else {
            return Some(List { buffer: self.buffer, start: 0, len: 0 });
        };
        let offset = follow(self.buffer, offset)?;
        let len = u32::from_le_bytes(bytes(self.buffer, offset)?) as usize;
        let start = offset + 4;
        let end = len.checked_mul(size)?.checked_add(start)?;
        (end <= self.buffer.len()).then_some(List { buffer: self.buffer, start, len })
    }

    /// Returns the text in field `index`, which is empty if the field is absent.
    pub(super) fn text(&self, index: usize) -> Option<&'a [u8]> {
        let list = self.list(index, 1)?;
        Some(&list.buffer[list.start..list.start + list.len])
    }
}

impl<'a> List<'a> {
    pub(super) fn table(&self, index: usize) -> Option<Table<'a>> {
        Table::at(self.buffer, follow(self.buffer, self.start + 4 * index)?)
    }

    pub(super) fn pair(&self, index: usize) -> Option<[i64; 2]> {
        let offset = self.start + 16 * index;
        Some([i64::from_le_bytes(bytes(self.buffer, offset)?), i64::from_le_bytes(bytes(self.buffer, offset + 8)?)])
    }
}
