//! Parses MP4 boxes (called atoms in QuickTime) and their fields from memory.

use crate::error::{Error, Result};

pub(super) fn quote_kind(kind: [u8; 4]) -> String {
    format!("\"{}\"", kind.escape_ascii())
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Atom<'a> {
    pub(super) kind: [u8; 4],
    pub(super) content: &'a [u8],
}

impl<'a> Atom<'a> {
    pub(super) fn fields(self) -> Fields<'a> {
        Fields { kind: self.kind, remaining: self.content }
    }

    /// Parses the version and the flags of a full box. Returns the remaining fields, the version
    /// and the flags.
    pub(super) fn parse_full_box(self) -> Result<(Fields<'a>, u8, u32)> {
        let mut fields = self.fields();
        let word = fields.read_u32()?;
        Ok((fields, (word >> 24) as u8, word & 0x00ff_ffff))
    }

    pub(super) fn child(self, kind: &[u8; 4]) -> Result<Option<Atom<'a>>> {
        for atom in Atoms(self.content) {
            let atom = atom?;
            if atom.kind == *kind {
                return Ok(Some(atom));
            }
        }
        Ok(None)
    }

    pub(super) fn required_child(self, kind: &[u8; 4]) -> Result<Atom<'a>> {
        self.child(kind)?.ok_or_else(|| {
            Error::damaged(format!("box {} does not contain the box {}", quote_kind(self.kind), quote_kind(*kind)))
        })
    }
}

pub(super) struct Atoms<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Atoms<'a> {
    type Item = Result<Atom<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.len() < 8 {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let mut fields = Fields { kind: *b"    ", remaining: bytes };
        let size = u64::from(fields.read_u32().ok()?);
        let kind = fields.read_kind().ok()?;
        let size = match size {
            0 => bytes.len() as u64,
            1 => fields.read_u64().ok()?,
            size => size,
        };
        let header_len = bytes.len() - fields.remaining.len();
        let split =
            usize::try_from(size).ok().filter(|&size| size >= header_len).and_then(|size| bytes.split_at_checked(size));
        let Some((atom, rest)) = split else {
            return Some(Err(Error::damaged(format!(
                "box {} claims {size} bytes, but only {} bytes remain in its parent",
                quote_kind(kind),
                bytes.len()
            ))));
        };
        self.0 = rest;
        Some(Ok(Atom { kind, content: &atom[header_len..] }))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    kind: [u8; 4],
    pub(super) remaining: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn read_bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (content, rest) = self
            .remaining
            .split_at_checked(count)
            .ok_or_else(|| Error::damaged(format!("box {} ends before its last field", quote_kind(self.kind))))?;
        self.remaining = rest;
        Ok(content)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.read_bytes(N)?.try_into().expect("`read_bytes` returns `N` bytes"))
    }

    pub(super) fn read_u8(&mut self) -> Result<u8> {
        Ok(self.read_array::<1>()?[0])
    }

    pub(super) fn read_u16(&mut self) -> Result<u16> {
        self.read_array().map(u16::from_be_bytes)
    }

    pub(super) fn read_u32(&mut self) -> Result<u32> {
        self.read_array().map(u32::from_be_bytes)
    }

    pub(super) fn read_i32(&mut self) -> Result<i32> {
        self.read_array().map(i32::from_be_bytes)
    }

    pub(super) fn read_u64(&mut self) -> Result<u64> {
        self.read_array().map(u64::from_be_bytes)
    }

    pub(super) fn read_kind(&mut self) -> Result<[u8; 4]> {
        self.read_array()
    }

    /// Reads 8 bytes if `is_wide` is true, and 4 bytes otherwise.
    pub(super) fn read_u32_or_u64(&mut self, is_wide: bool) -> Result<u64> {
        if is_wide { self.read_u64() } else { self.read_u32().map(u64::from) }
    }

    pub(super) fn read_entries(&mut self, count: u32, entry_bytes: usize) -> Result<std::slice::ChunksExact<'a, u8>> {
        let bytes = (count as usize).checked_mul(entry_bytes).filter(|&bytes| bytes <= self.remaining.len());
        let bytes = bytes.ok_or_else(|| {
            Error::damaged(format!(
                "box {} claims {count} entries of {entry_bytes} bytes, but has only {} bytes",
                quote_kind(self.kind),
                self.remaining.len()
            ))
        })?;
        Ok(self.read_bytes(bytes)?.chunks_exact(entry_bytes))
    }
}

pub(super) fn u32_at(entry: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes([entry[offset], entry[offset + 1], entry[offset + 2], entry[offset + 3]])
}
