//! Reads the directories of a TIFF or BigTIFF: tags and their values (TIFF 6.0, section 2).

#[derive(Debug, Clone, Copy)]
pub(super) struct TiffFile<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) is_big_endian: bool,
    /// Whether the file is a BigTIFF, which has 64-bit offsets and counts.
    is_bigtiff: bool,
}

/// A directory of the file, which describes one page, such as an image, a thumbnail or a mask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directory<'a> {
    file: TiffFile<'a>,
    /// The entries, which have 12 bytes each, or 20 in a BigTIFF.
    entries: &'a [u8],
    /// Offset of the next directory, or 0 if there is none.
    next: u64,
}

impl<'a> TiffFile<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, Directory<'a>), String> {
        let is_big_endian = bytes.starts_with(b"MM");
        let mut file = TiffFile { bytes, is_big_endian, is_bigtiff: false };
        file.is_bigtiff = file.number(2, 2) == Some(43);
        if file.is_bigtiff && file.number(4, 4) != Some(8 << if is_big_endian { 16 } else { 0 }) {
            return Err("the header of a BigTIFF does not declare 64-bit offsets".into());
        }
        let first = if file.is_bigtiff { file.number(8, 8) } else { file.number(4, 4) };
        let first =
            first.and_then(|offset| file.directory(offset)).ok_or_else(|| file.end_error("the first directory"))?;
        Ok((file, first))
    }

    fn end_error(self, what: &str) -> String {
        format!("{what} is beyond the end of the file at byte {}", self.bytes.len())
    }

    fn number(self, offset: u64, length: usize) -> Option<u64> {
        let offset = usize::try_from(offset).ok()?;
        let digits = self.bytes.get(offset..offset.checked_add(length)?)?;
        let push = |number: u64, &digit: &u8| number << 8 | u64::from(digit);
        Some(if self.is_big_endian { digits.iter().fold(0, push) } else { digits.iter().rev().fold(0, push) })
    }

    fn directory(self, start: u64) -> Option<Directory<'a>> {
        let (count_bytes, entry_bytes, offset_bytes) = if self.is_bigtiff { (8, 20, 8) } else { (2, 12, 4) };
        let length = self.number(start, count_bytes)?.checked_mul(entry_bytes)?;
        let from = start.checked_add(count_bytes as u64)?;
        let next = from.checked_add(length)?;
        let entries = self.bytes.get(usize::try_from(from).ok()?..usize::try_from(next).ok()?)?;
        Some(Directory { file: self, entries, next: self.number(next, offset_bytes)? })
    }
}

impl<'a> Directory<'a> {
    pub(super) fn next(&self) -> Option<Directory<'a>> {
        (self.next != 0).then(|| self.file.directory(self.next)).flatten()
    }

    /// Returns the type of a tag's values and the bytes of all its values, or `None` if the
    /// directory does not contain the tag.
    fn find(&self, tag: u16) -> Result<Option<(u64, &'a [u8])>, String> {
        let (file, entry_bytes) = (self.file, if self.file.is_bigtiff { 20 } else { 12 });
        let (count_bytes, inline_bytes) = if file.is_bigtiff { (8, 8) } else { (4, 4) };
        let file_of = |entry: &'a [u8]| TiffFile { bytes: entry, ..file };
        let entry =
            self.entries.chunks_exact(entry_bytes).find(|entry| file_of(entry).number(0, 2) == Some(tag.into()));
        let Some(entry) = entry else { return Ok(None) };
        let number = |offset, length| file_of(entry).number(offset, length).unwrap_or(0);
        let value_type = number(2, 2);
        let value_bytes = match value_type {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16 | 17 | 18 => 8,
            _ => return Err(format!("tag {tag} has values of the unknown type {value_type}")),
        };
        let value_count = number(4, count_bytes);
        let length = value_count.checked_mul(value_bytes).and_then(|length| usize::try_from(length).ok());
        let offset = match length {
            Some(length) if length <= inline_bytes => entry.get(4 + count_bytes..4 + count_bytes + length),
            Some(length) => usize::try_from(number(4 + count_bytes as u64, inline_bytes))
                .ok()
                .and_then(|offset| file.bytes.get(offset..offset.checked_add(length)?)),
            None => None,
        };
        offset.map(|bytes| Some((value_type, bytes))).ok_or_else(|| file.end_error(&format!("tag {tag}")))
    }

    pub(super) fn bytes(&self, tag: u16) -> Result<Option<&'a [u8]>, String> {
        Ok(self.find(tag)?.map(|(_, bytes)| bytes))
    }

    fn iter_numbers(&self, tag: u16) -> Result<Option<impl ExactSizeIterator<Item = u64> + use<'a>>, String> {
        let Some((value_type, bytes)) = self.find(tag)? else { return Ok(None) };
        let value_bytes = match value_type {
            1 => 1,
            3 => 2,
            4 | 13 => 4,
            16 | 18 => 8,
            _ => return Err(format!("tag {tag} has type {value_type}: expected unsigned integers")),
        };
        let file = self.file;
        let value = move |value| TiffFile { bytes: value, ..file }.number(0, value_bytes).expect("as long as its type");
        Ok(Some(bytes.chunks_exact(value_bytes).map(value)))
    }

    /// Returns the values of `tag` as unsigned integers, or `None` if the directory does not
    /// contain the tag. More than `max_values` values are an error.
    pub(super) fn numbers(&self, tag: u16, max_values: u64) -> Result<Option<Vec<u64>>, String> {
        match self.iter_numbers(tag)? {
            Some(values) if values.len() as u64 > max_values => {
                Err(format!("tag {tag} has {} values: expected at most {max_values}", values.len()))
            }
            values => Ok(values.map(Iterator::collect)),
        }
    }

    pub(super) fn number(&self, tag: u16) -> Result<Option<u64>, String> {
        Ok(self.iter_numbers(tag)?.and_then(|mut values| values.next()))
    }
}
