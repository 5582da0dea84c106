//! The index of a shard: the key of each sample and the location of each field.

use std::collections::HashMap;

use super::header::{BLOCK_BYTES, Header, Pax};
use super::links::{Links, UnresolvedLinks};
use crate::error::{Error, Result};
use crate::format;
use crate::machine::bytes::Bytes;
use crate::machine::hash::Hash;

/// The name of the member that contains the class names as a JSON array. WebDataset ignores members
/// with names of the form `__name__`.
pub const CLASSES_MEMBER: &str = "__classes__";

/// The samples of a shard, and the locations of their fields. A sample takes 16 bytes, plus the
/// length of its key, plus 12 bytes per field.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Index {
    /// The keys of all samples, concatenated.
    pub(super) keys: String,
    pub(super) samples: Vec<SampleEnd>,
    pub(super) fields: Vec<Field>,
    /// The distinct field names. A shard usually has only a few.
    pub(super) names: Vec<String>,
    pub(super) classes: Vec<String>,
    pub(super) unresolved_links: UnresolvedLinks,
}

/// Where a sample ends in [`Index::keys`] and [`Index::fields`]. The sample starts at the end of
/// the previous sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SampleEnd {
    pub(super) key_end: u64,
    pub(super) field_end: u64,
}

/// The location of one file in the tar, packed into 12 bytes because every process on a machine
/// keeps the fields of all samples in memory.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Field {
    /// The lower 32 bits of the offset, in blocks.
    block: u32,
    /// The lower 32 bits of the length, in bytes.
    len: u32,
    /// The index into `names` (bits 0 to 22), whether the file is a link (bit 23), bits 32 to 35 of
    /// the offset in blocks (bits 24 to 27), and bits 32 to 35 of the length (bits 28 to 31).
    name_and_high_bits: u32,
}

impl Field {
    /// Returns `None` if a value is out of range: the offset must be a multiple of [`BLOCK_BYTES`]
    /// and below 32 TiB, the length must be below 64 GiB, and `name` below [`MAX_NAMES`].
    pub(super) fn new(offset: u64, len: u64, name: u32) -> Option<Self> {
        let block = offset / BLOCK_BYTES as u64;
        let is_in_range =
            offset.is_multiple_of(BLOCK_BYTES as u64) && block >> 36 == 0 && len >> 36 == 0 && name < MAX_NAMES;
        let name_and_high_bits = name | (((block >> 32) as u32) << 24) | (((len >> 32) as u32) << 28);
        is_in_range.then_some(Field { block: block as u32, len: len as u32, name_and_high_bits })
    }

    /// Marks the field as a link. The bytes of a link belong to a different member, which may be
    /// anywhere in the shard.
    pub(super) fn as_link(self) -> Self {
        Field { name_and_high_bits: self.name_and_high_bits | LINK_FLAG, ..self }
    }

    pub(super) fn is_linked(self) -> bool {
        self.name_and_high_bits & LINK_FLAG != 0
    }

    pub(super) fn offset(self) -> u64 {
        ((u64::from((self.name_and_high_bits >> 24) & 15) << 32) | u64::from(self.block)) * BLOCK_BYTES as u64
    }

    pub(super) fn len(self) -> u64 {
        (u64::from(self.name_and_high_bits >> 28) << 32) | u64::from(self.len)
    }

    pub(super) fn end(self) -> u64 {
        self.offset() + self.len()
    }

    pub(super) fn name(self) -> usize {
        (self.name_and_high_bits & (MAX_NAMES - 1)) as usize
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link = if self.is_linked() { " (link)" } else { "" };
        write!(f, "{} at {}..{}{link}", self.name(), self.offset(), self.end())
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn sample(&self, index: usize) -> (&str, &[Field]) {
        let start = if index == 0 { SampleEnd::default() } else { self.samples[index - 1] };
        let end = self.samples[index];
        (
            &self.keys[start.key_end as usize..end.key_end as usize],
            &self.fields[start.field_end as usize..end.field_end as usize],
        )
    }

    pub(super) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.samples.shrink_to_fit();
        self.fields.shrink_to_fit();
    }

    /// Removes the fields at the sorted `indices`, and then the samples without fields.
    fn remove(&mut self, indices: &[usize]) {
        let old = std::mem::take(self);
        let mut removed = indices.iter().copied().peekable();
        let mut index = 0;
        for sample in 0..old.len() {
            let (key, fields) = old.sample(sample);
            let first_field = self.fields.len();
            for field in fields {
                if removed.next_if_eq(&index).is_none() {
                    self.fields.push(*field);
                }
                index += 1;
            }
            if self.fields.len() > first_field {
                self.keys.push_str(key);
                self.samples.push(SampleEnd { key_end: self.keys.len() as u64, field_end: self.fields.len() as u64 });
            }
        }
        (self.names, self.classes, self.unresolved_links) = (old.names, old.classes, old.unresolved_links);
    }

    /// Hashes the key and the end of each sample, and the name, offset and length of each field.
    pub(super) fn hash(&self) -> u64 {
        let hash = Hash::default().text(&self.keys);
        let hash = self.samples.iter().fold(hash, |hash, end| hash.number(end.key_end).number(end.field_end));
        let add =
            |hash: Hash, field: &Field| hash.number(field.offset()).number(field.len()).text(&self.names[field.name()]);
        self.fields.iter().fold(hash, add).finish()
    }

    /// Builds the index of the tar in `bytes` from its headers.
    ///
    /// Follows the rules of WebDataset, with additions. The stem of a member is its path up to the
    /// first dot of the base name. The field name is the text after this dot, in lower case, with
    /// the [usual spelling](format::canonical_field) of an extension, such as `jpg` for `jpeg`.
    /// Adjacent members with the same stem form a sample. Its key is the stem, or the
    /// [`KEY_RECORD`](super::KEY_RECORD) of its first member. A link is read as
    /// the file that it refers to. A hard link that has data is read as a file. Links whose target
    /// is not in the tar are omitted and [counted](UnresolvedLinks).
    ///
    /// Members other than files and links are ignored, except that a sparse file is an error.
    /// Hidden files and files without an extension are also ignored, except that
    /// [`CLASSES_MEMBER`] contains the class names.
    ///
    /// Every size is checked against the length of `bytes` before it is used. Errors about damage
    /// contain the offset.
    pub(super) fn scan(bytes: &dyn Bytes) -> Result<Index> {
        if bytes.len() >= 2 && bytes.get(0, 2, &mut Vec::new())? == [0x1f, 0x8b] {
            return Err(Error::in_source(
                "gzip-compressed tars do not support random access; decompress the file with gunzip",
            ));
        }
        Scanner { bytes, builder: IndexBuilder::default(), links: Links::default(), stem: String::new() }.run()
    }
}

fn is_classes(name: &[u8]) -> bool {
    text(name).is_ok_and(|name| name.trim_start_matches("./") == CLASSES_MEMBER)
}

/// Returns the error for a tar of `len` bytes that ends before the header or end marker at
/// `offset`.
fn truncation_error(offset: u64, len: u64) -> Error {
    // The hint applies only to a complete file. A download that was interrupted between two members
    // looks the same.
    let hint = if len == offset {
        "; if the file is complete and was written without the marker, append the marker: head -c 1024 /dev/zero >> \
         FILE"
    } else {
        ""
    };
    Error::in_source(format!(
        "tar is truncated: expected a header or the end marker (zeros) at offset {offset}, but the file has {len} \
         bytes{hint}"
    ))
}

/// Maximum number of distinct field names per shard.
const MAX_NAMES: u32 = 1 << 23;
/// Bit of [`Field::name_and_high_bits`] that marks a link: the bit above the index of the name.
const LINK_FLAG: u32 = MAX_NAMES;

/// Maximum size of metadata such as a PAX header, in bytes. Larger metadata is rejected before
/// memory is allocated.
const MAX_METADATA_BYTES: u64 = 16 << 20;

/// Collects the index of a shard that is being read or written.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    pub(super) index: Index,
    name_ids: HashMap<String, u32>,
}

impl IndexBuilder {
    /// Creates the builder of a shard with these class names.
    pub fn new(classes: &[String]) -> Self {
        IndexBuilder { index: Index { classes: classes.to_vec(), ..Index::default() }, ..Self::default() }
    }

    /// Begins a sample. The following fields belong to it.
    pub fn begin_sample(&mut self, key: &str) {
        let index = &mut self.index;
        index.keys.push_str(key);
        index.samples.push(SampleEnd { key_end: index.keys.len() as u64, field_end: index.fields.len() as u64 });
    }

    /// Adds a field. Its data has `len` bytes and begins at the offset `start` of the tar.
    ///
    /// # Errors
    /// If the shard has too many field names, or if the offset or the length is too large.
    pub fn push_field(&mut self, name: &str, start: u64, len: u64) -> Result<()> {
        let (index, name) = (&mut self.index, format::canonical_field(name));
        let name = match self.name_ids.get(name) {
            Some(&id) => id,
            None => {
                let id = index.names.len() as u32;
                if id == MAX_NAMES {
                    return Err(Error::in_source(format!("the shard has more than {MAX_NAMES} different field names")));
                }
                index.names.push(name.to_owned());
                self.name_ids.insert(name.to_owned(), id);
                id
            }
        };
        let field = Field::new(start, len, name).ok_or_else(|| {
            Error::in_source(format!(
                "a file of {len} bytes at offset {start} exceeds the limit of 64 GiB per file or 32 TiB per shard"
            ))
        })?;
        index.fields.push(field);
        index.samples.last_mut().expect("the first file of a shard pushes a sample").field_end =
            index.fields.len() as u64;
        Ok(())
    }
}

struct Scanner<'a> {
    bytes: &'a dyn Bytes,
    builder: IndexBuilder,
    links: Links,
    /// Path of the current sample's files, without the extension.
    stem: String,
}

/// Values that the preceding headers declare for the next member.
#[derive(Default)]
struct MemberOverrides {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Pax,
}

impl MemberOverrides {
    /// Returns the size in bytes of the data after this header.
    fn size(&self, header: &Header<'_>) -> u64 {
        match header.kind {
            // These types have no data. The header of a symbolic link may give the size of its
            // target.
            b'2'..=b'6' => 0,
            b'x' | b'g' | b'L' | b'K' => header.size,
            _ => self.pax.size.unwrap_or(header.size),
        }
    }
}

impl Scanner<'_> {
    fn run(mut self) -> Result<Index> {
        let (bytes, len) = (self.bytes, self.bytes.len());
        let (mut block, mut scratch) = (Vec::new(), Vec::new());
        let (mut offset, mut overrides) = (0, MemberOverrides::default());
        loop {
            if len - offset < BLOCK_BYTES as u64 {
                return Err(truncation_error(offset, len));
            }
            let block: &[u8; BLOCK_BYTES] =
                bytes.get(offset, BLOCK_BYTES, &mut block)?.first_chunk().expect("`get` returns `BLOCK_BYTES` bytes");
            if block.iter().all(|&byte| byte == 0) {
                self.check_end(offset)?;
                self.resolve_links();
                self.builder.index.shrink();
                return Ok(self.builder.index);
            }
            let error = |cause: String| Error::in_source(format!("tar header at offset {offset}: {cause}"));
            let header = Header::parse(block).map_err(error)?;
            let start = offset + BLOCK_BYTES as u64;
            let remaining = len - start;
            let size = match overrides.size(&header) {
                // In POSIX, data may follow a hard link. Older writers store the size of the target
                // in the header, but no data, so the next header follows immediately.
                1.. if header.kind == b'1' && overrides.pax.size.is_none() && self.has_header(start)? => 0,
                size => size,
            };
            if size > remaining {
                return Err(error(format!("claims {size} bytes, but {remaining} remain in the file")));
            }
            let data = |scratch| match size {
                0..=MAX_METADATA_BYTES => bytes.get(start, size as usize, scratch),
                _ => Err(error(format!("the metadata has {size} bytes: expected at most {MAX_METADATA_BYTES}"))),
            };
            let trimmed = |data: &[u8]| data.strip_suffix(b"\0").unwrap_or(data).to_vec();
            match header.kind {
                b'L' => overrides.name = Some(trimmed(data(&mut scratch)?)),
                b'K' => overrides.link = Some(trimmed(data(&mut scratch)?)),
                b'x' => overrides.pax = Pax::parse(data(&mut scratch)?).map_err(error)?,
                // A global header applies to all following members, so a path or a size in it would
                // be meaningless.
                b'g' => {}
                b'S' => return Err(error("sparse files are not supported".into())),
                kind => {
                    let overrides = std::mem::take(&mut overrides);
                    let name = overrides.pax.path.as_deref().or(overrides.name.as_deref()).unwrap_or(&header.name);
                    let target = overrides.pax.link.as_deref().or(overrides.link.as_deref()).unwrap_or(header.link);
                    let result = match kind {
                        b'0' | b'7' | 0 if is_classes(name) => self.read_classes(data(&mut scratch)?),
                        b'0' | b'7' | 0 => self.add_file(name, overrides.pax.key.as_deref(), start, size),
                        b'1' if size > 0 => self.add_file(name, overrides.pax.key.as_deref(), start, size),
                        b'1' | b'2' => self.add_link(name, overrides.pax.key.as_deref(), target, kind == b'1'),
                        _ => Ok(()),
                    };
                    result.map_err(|e| error(e.cause().to_owned()))?;
                }
            }
            // Data is padded to whole blocks. If the file ends inside the last padding, the next
            // iteration reports the missing end marker.
            offset = (start + size).next_multiple_of(BLOCK_BYTES as u64).min(len);
        }
    }

    /// Returns whether a header, a damaged header or the end of the tar is at `offset`.
    fn has_header(&self, offset: u64) -> Result<bool> {
        if self.bytes.len() - offset < BLOCK_BYTES as u64 {
            return Ok(true);
        }
        let mut block = Vec::new();
        let block =
            self.bytes.get(offset, BLOCK_BYTES, &mut block)?.first_chunk().expect("`get` returns `BLOCK_BYTES` bytes");
        Ok(block[257..262] == *b"ustar" || block.iter().all(|&byte| byte == 0) || Header::parse(block).is_ok())
    }

    /// Reads the class names from `json`, the content of [`CLASSES_MEMBER`].
    fn read_classes(&mut self, json: &[u8]) -> Result<()> {
        let error = |e| Error::in_source(format!("{CLASSES_MEMBER} is not a JSON array of names: {e}"));
        self.builder.index.classes = serde_json::from_slice(json).map_err(error)?;
        Ok(())
    }

    fn add_file(&mut self, name: &[u8], key: Option<&[u8]>, start: u64, size: u64) -> Result<()> {
        let path = text(name)?.trim_start_matches("./");
        self.add_field(path, key, start, size)?;
        self.links.add_file(path, start, size);
        Ok(())
    }

    /// Adds a link as a field. [`resolve_links`](Scanner::resolve_links) sets its location.
    fn add_link(&mut self, name: &[u8], key: Option<&[u8]>, target: &[u8], is_hard: bool) -> Result<()> {
        let path = text(name)?.trim_start_matches("./");
        let field = self.add_field(path, key, 0, 0)?;
        self.links.add_link(path, target, is_hard, field);
        Ok(())
    }

    /// Checks that only zeros follow the end marker at `start`. Without this check, samples after
    /// the marker would be lost silently.
    fn check_end(&self, start: u64) -> Result<()> {
        let mut scratch = Vec::new();
        let mut position = start;
        while position < self.bytes.len() {
            let piece = (self.bytes.len() - position).min(64 << 10);
            let piece = self.bytes.get(position, piece as usize, &mut scratch)?;
            if let Some(first_nonzero) = piece.iter().position(|&byte| byte != 0) {
                let zero_bytes = position - start + first_nonzero as u64;
                return Err(Error::in_source(format!(
                    "tar has data after {zero_bytes} zero bytes at offset {start}: part of the archive was overwritten \
                     with zeros, or several archives were concatenated"
                )));
            }
            position += piece.len() as u64;
        }
        Ok(())
    }

    /// Sets the location of each link to the bytes of its file. Removes links that do not lead to a
    /// file in the tar.
    fn resolve_links(&mut self) {
        let mut unresolved = Vec::new();
        for (index, path, file) in self.links.resolve() {
            let field = &mut self.builder.index.fields[index];
            let target = file.and_then(|(start, len)| Field::new(start, len, field.name() as u32));
            match target {
                Some(target) => *field = target.as_link(),
                None => {
                    if unresolved.is_empty() {
                        path.clone_into(&mut self.builder.index.unresolved_links.first_path);
                    }
                    unresolved.push(index);
                }
            }
        }
        if !unresolved.is_empty() {
            self.builder.index.unresolved_links.count = unresolved.len() as u64;
            self.builder.index.remove(&unresolved);
        }
    }

    /// Adds a field, and returns its index, or `None` if the file is ignored.
    fn add_field(&mut self, path: &str, key: Option<&[u8]>, start: u64, len: u64) -> Result<Option<usize>> {
        let Some((stem, name)) = split_name(path) else { return Ok(None) };
        // Normalize the extension, so that the field has the same name in every kind of dataset.
        let name = &name.to_lowercase();
        if self.stem != stem || self.builder.index.samples.is_empty() {
            self.builder.begin_sample(key.map_or(Ok(stem), text)?);
            self.stem.clear();
            self.stem.push_str(stem);
        }
        self.builder.push_field(name, start, len)?;
        // Repeated fields and too many fields are rejected only when the sample is read, so that
        // other samples remain readable.
        Ok(Some(self.builder.index.fields.len() - 1))
    }
}

/// Splits a path at the first dot of its base name. Returns `None` for hidden files and files
/// without an extension.
pub(super) fn split_name(path: &str) -> Option<(&str, &str)> {
    let base = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + path[base..].find('.').filter(|&dot| dot > 0)?;
    Some((&path[..dot], &path[dot + 1..]))
}

fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name)
        .map_err(|_| Error::in_source(format!("the name {:?} is not UTF-8", String::from_utf8_lossy(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar that stores only its first bytes, and its length. All other bytes are zero.
    struct SparseBytes(Vec<u8>, u64);

    impl Bytes for SparseBytes {
        fn len(&self) -> u64 {
            self.1
        }

        fn get<'a>(&'a self, offset: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
            let start = self.0.len().min(offset as usize);
            scratch.clear();
            scratch.extend_from_slice(&self.0[start..self.0.len().min(start + len)]);
            scratch.resize(len, 0);
            Ok(scratch)
        }
    }

    #[test]
    fn tar_file_too_large_for_the_index_fails() {
        let header = |name: &str, kind: u8, size: usize| {
            let mut block = vec![0; BLOCK_BYTES];
            block[..name.len()].copy_from_slice(name.as_bytes());
            block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
            block[156] = kind;
            block[257..265].copy_from_slice(b"ustar\x0000");
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            block
        };
        for (size, fits) in [((1_u64 << 36) - 1, true), (1 << 36, false)] {
            let record = format!("20 size={size}\n");
            let mut pax = record.clone().into_bytes();
            pax.resize(BLOCK_BYTES, 0);
            let tar = [header("x", b'x', record.len()), pax, header("a.bin", b'0', 0)].concat();
            let len = tar.len() as u64 + size.next_multiple_of(BLOCK_BYTES as u64) + 2 * BLOCK_BYTES as u64;
            let scanned = Index::scan(&SparseBytes(tar, len));
            match scanned {
                Ok(index) => assert!(fits && index.fields[0].len() == size, "{index:?}"),
                Err(e) => assert!(!fits && e.cause().contains("offset 1024: a file of 68719476736 bytes"), "{e}"),
            }
        }
    }

    #[test]
    fn fields_keep_their_location_when_packed() {
        let (block, max_block) = (BLOCK_BYTES as u64, (1 << 36) - 1);
        for offset in [0, block, (u64::from(u32::MAX) + 1) * block, max_block * block] {
            for len in [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, max_block] {
                for name in [0, 1, MAX_NAMES - 1] {
                    let field = Field::new(offset, len, name).unwrap();
                    assert_eq!((field.offset(), field.len(), field.name()), (offset, len, name as usize));
                }
            }
        }
        for (offset, len, name) in
            [(1, 0, 0), ((max_block + 1) * block, 0, 0), (0, max_block + 1, 0), (0, 0, MAX_NAMES)]
        {
            assert_eq!(Field::new(offset, len, name), None);
        }
        assert_eq!(size_of::<Field>(), 12);
    }
}
