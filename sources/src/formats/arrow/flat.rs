//! Reads tables of FlatBuffers, the encoding of Arrow's message headers, without trusting any byte.
//!
//! Methods return `None` for bytes outside the buffer. An absent entry is its default.

/// One table.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    buffer: &'a [u8],
    at: usize,
    /// Start and length of the offsets of its entries.
    entries: (usize, usize),
}

/// A list of equal elements.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    buffer: &'a [u8],
    start: usize,
    pub(super) len: usize,
}

fn bytes<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..)?.first_chunk().copied()
}

/// The place that the offset at `at` leads to.
fn follow(buffer: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32::from_le_bytes(bytes(buffer, at)?) as usize)
}

impl<'a> Table<'a> {
    /// The root of `buffer`.
    pub(super) fn root(buffer: &'a [u8]) -> Option<Self> {
        Self::at(buffer, follow(buffer, 0)?)
    }

    fn at(buffer: &'a [u8], at: usize) -> Option<Self> {
        let back = i32::from_le_bytes(bytes(buffer, at)?);
        let start = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let len = usize::from(u16::from_le_bytes(bytes(buffer, start)?));
        let inside = len >= 4 && start.checked_add(len)? <= buffer.len();
        inside.then_some(Table { buffer, at, entries: (start, len) })
    }

    /// Place of entry `number`, or `Some(None)` if it is absent.
    fn entry(&self, number: usize) -> Option<Option<usize>> {
        let (start, len) = self.entries;
        let offset = 4 + 2 * number;
        if offset + 2 > len {
            return Some(None);
        }
        match u16::from_le_bytes(bytes(self.buffer, start + offset)?) {
            0 => Some(None),
            offset => Some(Some(self.at.checked_add(offset.into())?)),
        }
    }

    fn scalar<const N: usize>(&self, number: usize) -> Option<Option<[u8; N]>> {
        match self.entry(number)? {
            Some(at) => Some(Some(bytes(self.buffer, at)?)),
            None => Some(None),
        }
    }

    pub(super) fn byte(&self, number: usize) -> Option<u8> {
        Some(self.scalar(number)?.map_or(0, |[byte]| byte))
    }

    pub(super) fn short(&self, number: usize, default: i16) -> Option<i16> {
        Some(self.scalar(number)?.map_or(default, i16::from_le_bytes))
    }

    pub(super) fn int(&self, number: usize) -> Option<i32> {
        Some(self.scalar(number)?.map_or(0, i32::from_le_bytes))
    }

    pub(super) fn long(&self, number: usize) -> Option<i64> {
        Some(self.scalar(number)?.map_or(0, i64::from_le_bytes))
    }

    pub(super) fn table(&self, number: usize) -> Option<Option<Table<'a>>> {
        match self.entry(number)? {
            Some(at) => Some(Some(Self::at(self.buffer, follow(self.buffer, at)?)?)),
            None => Some(None),
        }
    }

    /// A list whose elements have `size` bytes. An absent list is empty.
    pub(super) fn list(&self, number: usize, size: usize) -> Option<List<'a>> {
        let Some(at) = self.entry(number)? else {
            return Some(List { buffer: self.buffer, start: 0, len: 0 });
        };
        let at = follow(self.buffer, at)?;
        let len = u32::from_le_bytes(bytes(self.buffer, at)?) as usize;
        let start = at + 4;
        let end = len.checked_mul(size)?.checked_add(start)?;
        (end <= self.buffer.len()).then_some(List { buffer: self.buffer, start, len })
    }

    /// The bytes of a text. An absent text is empty.
    pub(super) fn text(&self, number: usize) -> Option<&'a [u8]> {
        let list = self.list(number, 1)?;
        Some(&list.buffer[list.start..list.start + list.len])
    }
}

impl<'a> List<'a> {
    /// Table `number` of a list of tables.
    pub(super) fn table(&self, number: usize) -> Option<Table<'a>> {
        Table::at(self.buffer, follow(self.buffer, self.start + 4 * number)?)
    }

    /// The two numbers of structure `number`, in a list of pairs of numbers.
    pub(super) fn pair(&self, number: usize) -> Option<[i64; 2]> {
        let at = self.start + 16 * number;
        Some([i64::from_le_bytes(bytes(self.buffer, at)?), i64::from_le_bytes(bytes(self.buffer, at + 8)?)])
    }
}
