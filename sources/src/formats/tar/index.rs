//! The index of a shard: for each sample, its key and the offsets of its fields.

use std::collections::HashMap;

use super::header::{BLOCK, Header, Pax};
use super::links::{Links, Lost};
use crate::error::{Error, Result};
use crate::format;
use crate::machine::bytes::Bytes;
use crate::machine::hash::Hash;

/// Name of the member that contains the class names as a JSON array. WebDataset ignores members
/// whose names have the form `__name__`.
pub const CLASSES_MEMBER: &str = "__classes__";

/// The samples of one shard. Each sample takes 16 bytes, plus the length of its key, plus 12 bytes
/// per field.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Index {
    /// All keys, concatenated.
    pub(super) keys: String,
    pub(super) samples: Vec<End>,
    pub(super) fields: Vec<Field>,
    /// Distinct field names. A shard usually has only a few.
    pub(super) names: Vec<String>,
    pub(super) classes: Vec<String>,
    pub(super) lost: Lost,
}

/// End offsets of a sample in [`Index::keys`] and [`Index::fields`]. The sample starts where the
/// previous one ends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct End {
    pub(super) key: u64,
    pub(super) field: u64,
}

/// Location of one file in the tar. It is packed into 12 bytes because every process on a machine
/// holds the fields of all samples in memory.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Field {
    /// Lower 32 bits of the offset, which is counted in blocks.
    block: u32,
    /// Lower 32 bits of the length.
    len: u32,
    /// From the lowest bit: the index into `names` (23 bits), the link flag (1 bit), bits 32 to 35
    /// of the offset in blocks, and bits 32 to 35 of the length.
    rest: u32,
}

impl Field {
    /// Returns `None` unless the offset is a multiple of [`BLOCK`] and below 32 TiB, the length is
    /// below 64 GiB, and `name` is below [`MOST_NAMES`].
    pub(super) fn new(offset: u64, len: u64, name: u32) -> Option<Self> {
        let block = offset / BLOCK as u64;
        let fits = offset.is_multiple_of(BLOCK as u64) && block >> 36 == 0 && len >> 36 == 0 && name < MOST_NAMES;
        let rest = name | (((block >> 32) as u32) << 24) | (((len >> 32) as u32) << 28);
        fits.then_some(Field { block: block as u32, len: len as u32, rest })
    }

    /// Marks the field as a link. Its bytes may then be anywhere in the shard, under a different
    /// name.
    pub(super) fn linked(self) -> Self {
        Field { rest: self.rest | LINKED, ..self }
    }

    pub(super) fn is_linked(self) -> bool {
        self.rest & LINKED != 0
    }

    pub(super) fn offset(self) -> u64 {
        ((u64::from((self.rest >> 24) & 15) << 32) | u64::from(self.block)) * BLOCK as u64
    }

    pub(super) fn len(self) -> u64 {
        (u64::from(self.rest >> 28) << 32) | u64::from(self.len)
    }

    /// Returns the offset after the last byte.
    pub(super) fn end(self) -> u64 {
        self.offset() + self.len()
    }

    /// Returns the field's index into [`Index::names`].
    pub(super) fn name(self) -> usize {
        (self.rest & (MOST_NAMES - 1)) as usize
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let linked = if self.is_linked() { " by a link" } else { "" };
        write!(f, "{} at {}..{}{linked}", self.name(), self.offset(), self.end())
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns the key and the fields of sample `index`.
    pub(super) fn sample(&self, index: usize) -> (&str, &[Field]) {
        let start = if index == 0 { End::default() } else { self.samples[index - 1] };
        let end = self.samples[index];
        (&self.keys[start.key as usize..end.key as usize], &self.fields[start.field as usize..end.field as usize])
    }

    /// Frees the unused capacity of all lists.
    pub(super) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.samples.shrink_to_fit();
        self.fields.shrink_to_fit();
    }

    /// Removes the fields at the indices `numbers`, which are sorted, and the samples that have no
    /// fields left.
    fn remove(&mut self, numbers: &[usize]) {
        let old = std::mem::take(self);
        let mut lost = numbers.iter().copied().peekable();
        let mut number = 0;
        for sample in 0..old.len() {
            let (key, fields) = old.sample(sample);
            let before = self.fields.len();
            for field in fields {
                if lost.next_if_eq(&number).is_none() {
                    self.fields.push(*field);
                }
                number += 1;
            }
            if self.fields.len() > before {
                self.keys.push_str(key);
                self.samples.push(End { key: self.keys.len() as u64, field: self.fields.len() as u64 });
            }
        }
        (self.names, self.classes, self.lost) = (old.names, old.classes, old.lost);
    }

    /// Returns a hash of the keys, and of the name, offset and length of each field.
    pub(super) fn hash(&self) -> u64 {
        let hash = Hash::default().text(&self.keys);
        let hash = self.samples.iter().fold(hash, |hash, end| hash.number(end.key).number(end.field));
        let add =
            |hash: Hash, field: &Field| hash.number(field.offset()).number(field.len()).text(&self.names[field.name()]);
        self.fields.iter().fold(hash, add).end()
    }

    /// Builds the index of the tar in `bytes` by reading its headers.
    ///
    /// The rules follow WebDataset. The path of a member up to the first dot of its base name is
    /// the key, and the part after this dot, in lower case, is the field name. Adjacent members
    /// with the same key form one sample. Folders, hidden files and files without an extension are
    /// ignored. A link is replaced by the file that it refers to. Links to files outside the tar
    /// are left out and [counted](Lost).
    ///
    /// # Errors
    /// If the tar is damaged or uses an unsupported feature; the message contains the offset. Every
    /// number is checked against the length of `bytes` before it is used.
    pub(super) fn scan(bytes: &dyn Bytes) -> Result<Index> {
        if bytes.len() >= 2 && bytes.get(0, 2, &mut Vec::new())? == [0x1f, 0x8b] {
            return Err(Error::in_source("compressed with gzip: only uncompressed tar files support random access"));
        }
        Scan { bytes, index: Index::default(), links: Links::default(), name_ids: HashMap::new(), stem: String::new() }
            .run()
    }
}

/// Returns whether `name` is the member with the class names.
fn is_classes(name: &[u8]) -> bool {
    text(name).is_ok_and(|name| name.trim_start_matches("./") == CLASSES_MEMBER)
}

/// Returns the error for a tar that is `len` bytes long and has neither a header nor an end marker
/// at offset `at`.
fn cut_short(at: u64, len: u64) -> Error {
    // A download that was interrupted between two members looks the same, so this is only a hint.
    let mend = if len == at {
        "; if the file is complete and was written without the marker, append the marker: head -c 1024 /dev/zero >> \
         FILE"
    } else {
        ""
    };
    Error::in_source(format!(
        "tar is truncated: expected a header or the end marker (zeros) at offset {at}, but the file has {len} \
         bytes{mend}"
    ))
}

/// Maximum number of distinct field names per shard.
const MOST_NAMES: u32 = 1 << 23;
/// The bit in [`Field::rest`] that marks a link.
const LINKED: u32 = MOST_NAMES;

/// Maximum size of metadata such as a PAX header. Larger metadata is rejected before memory is
/// allocated.
const MOST: u64 = 16 << 20;

struct Scan<'a> {
    bytes: &'a dyn Bytes,
    index: Index,
    links: Links,
    name_ids: HashMap<String, u32>,
    /// Path of the current sample, without the extension.
    stem: String,
}

/// Properties of the next member that preceding headers have declared.
#[derive(Default)]
struct Said {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Pax,
}

impl Said {
    /// Returns the size of the data of the member with this header, in bytes.
    fn size(&self, header: &Header<'_>) -> u64 {
        match header.kind {
            // Members of these types have no data, even if they claim a size: a link may state the
            // size of its target.
            b'1'..=b'6' => 0,
            b'x' | b'g' | b'L' | b'K' => header.size,
            _ => self.pax.size.unwrap_or(header.size),
        }
    }
}

impl Scan<'_> {
    fn run(mut self) -> Result<Index> {
        let (bytes, len) = (self.bytes, self.bytes.len());
        let (mut block, mut scratch) = (Vec::new(), Vec::new());
        let (mut at, mut said) = (0, Said::default());
        loop {
            if len - at < BLOCK as u64 {
                return Err(cut_short(at, len));
            }
            let block: &[u8; BLOCK] =
                bytes.get(at, BLOCK, &mut block)?.first_chunk().expect("as long as was asked for");
            if block.iter().all(|&byte| byte == 0) {
                self.end(at)?;
                self.follow_links();
                self.index.shrink();
                return Ok(self.index);
            }
            let bad = |cause: String| Error::in_source(format!("tar header at offset {at}: {cause}"));
            let header = Header::parse(block).map_err(bad)?;
            let size = said.size(&header);
            let start = at + BLOCK as u64;
            let left = len - start;
            if size > left {
                return Err(bad(format!("claims {size} bytes, but {left} remain in the file")));
            }
            let data = |scratch| match size {
                0..=MOST => bytes.get(start, size as usize, scratch),
                _ => Err(bad(format!("PAX/GNU header has {size} bytes: the limit is {MOST}"))),
            };
            let owned = |data: &[u8]| data.strip_suffix(b"\0").unwrap_or(data).to_vec();
            match header.kind {
                b'L' => said.name = Some(owned(data(&mut scratch)?)),
                b'K' => said.link = Some(owned(data(&mut scratch)?)),
                b'x' => said.pax = Pax::parse(data(&mut scratch)?).map_err(bad)?,
                // Global headers are ignored. No tool writes a path or a size in them, because it
                // would apply to every member.
                b'g' => {}
                b'S' => return Err(bad("sparse files are not supported".into())),
                kind => {
                    let said = std::mem::take(&mut said);
                    let name = said.pax.path.as_deref().or(said.name.as_deref()).unwrap_or(&header.name);
                    let target = said.pax.link.as_deref().or(said.link.as_deref()).unwrap_or(header.link);
                    let added = match kind {
                        b'0' | b'7' | 0 if is_classes(name) => self.classes(data(&mut scratch)?),
                        b'0' | b'7' | 0 => self.file(name, said.pax.key.as_deref(), start, size),
                        b'1' | b'2' => self.link(name, said.pax.key.as_deref(), target, kind == b'1'),
                        _ => Ok(()),
                    };
                    added.map_err(|e| bad(e.cause().to_owned()))?;
                }
            }
            // Data is padded to whole blocks. If a file ends before the last padding, it also has
            // no end marker.
            at = (start + size).next_multiple_of(BLOCK as u64).min(len);
        }
    }

    /// Parses the class names from the content of [`CLASSES_MEMBER`].
    fn classes(&mut self, json: &[u8]) -> Result<()> {
        let bad = |e| Error::in_source(format!("{CLASSES_MEMBER}: expected a JSON array of names: {e}"));
        self.index.classes = serde_json::from_slice(json).map_err(bad)?;
        Ok(())
    }

    /// Adds the file `name`, both as a field and as a possible target of links.
    fn file(&mut self, name: &[u8], key: Option<&[u8]>, start: u64, size: u64) -> Result<()> {
        let path = text(name)?.trim_start_matches("./");
        self.member(path, key, start, size)?;
        self.links.file(path, start, size);
        Ok(())
    }

    /// Adds the link `name`, whose target is resolved later.
    fn link(&mut self, name: &[u8], key: Option<&[u8]>, target: &[u8], hard: bool) -> Result<()> {
        let path = text(name)?.trim_start_matches("./");
        // The location of the target is not known until all headers have been read.
        let field = self.member(path, key, 0, 0)?;
        self.links.link(path, target, hard, field);
        Ok(())
    }

    /// Checks that only zeros follow the end marker at `at`. Otherwise, samples after a run of
    /// zeros would be lost silently.
    fn end(&self, at: u64) -> Result<()> {
        let mut scratch = Vec::new();
        let mut looked = at;
        while looked < self.bytes.len() {
            let piece = (self.bytes.len() - looked).min(64 << 10);
            let piece = self.bytes.get(looked, piece as usize, &mut scratch)?;
            if let Some(zeros) = piece.iter().position(|&byte| byte != 0) {
                let zeros = looked - at + zeros as u64;
                return Err(Error::in_source(format!(
                    "tar has data after {zeros} zero bytes at offset {at}: it has a hole, or several archives are \
                     concatenated"
                )));
            }
            looked += piece.len() as u64;
        }
        Ok(())
    }

    /// Sets the location of each link to that of its file. Removes links that do not lead to a
    /// file.
    fn follow_links(&mut self) {
        let mut lost = Vec::new();
        for (number, path, file) in self.links.followed() {
            let field = &mut self.index.fields[number];
            let found = file.and_then(|(start, len)| Field::new(start, len, field.name() as u32));
            match found {
                Some(found) => *field = found.linked(),
                None => {
                    if lost.is_empty() {
                        path.clone_into(&mut self.index.lost.first);
                    }
                    lost.push(number);
                }
            }
        }
        if !lost.is_empty() {
            self.index.lost.count = lost.len() as u64;
            self.index.remove(&lost);
        }
    }

    /// Adds a member as a field. Returns the index of the field, or `None` if the member is
    /// ignored.
    fn member(&mut self, path: &str, key: Option<&[u8]>, start: u64, len: u64) -> Result<Option<usize>> {
        let Some((stem, name)) = parts(path) else { return Ok(None) };
        // Normalizing the extension gives the field the same name in every format.
        let lower = name.to_lowercase();
        let name = format::field(&lower);

        let index = &mut self.index;
        if self.stem != stem || index.samples.is_empty() {
            let key = key.map_or(Ok(stem), text)?;
            index.keys.push_str(key);
            index.samples.push(End { key: index.keys.len() as u64, field: index.fields.len() as u64 });
            self.stem.clear();
            self.stem.push_str(stem);
        }
        let name = match self.name_ids.get(name) {
            Some(&id) => id,
            None => {
                let id = index.names.len() as u32;
                if id == MOST_NAMES {
                    return Err(Error::in_source(format!("more than {MOST_NAMES} distinct field names")));
                }
                index.names.push(name.to_owned());
                self.name_ids.insert(name.to_owned(), id);
                id
            }
        };
        let field = Field::new(start, len, name).ok_or_else(|| {
            Error::in_source(format!("file of {len} bytes: expected at most 64 GiB per file and 32 TiB per shard"))
        })?;
        index.fields.push(field);
        index.samples.last_mut().expect("pushed above").field = index.fields.len() as u64;
        // A repeated field, or more fields than allowed, does not make the shard invalid. Only the
        // sample fails, when it is read.
        Ok(Some(index.fields.len() - 1))
    }
}

/// Splits a path at the first dot of its base name. Returns `None` for hidden files and files
/// without an extension.
pub(super) fn parts(path: &str) -> Option<(&str, &str)> {
    let base = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + path[base..].find('.').filter(|&dot| dot > 0)?;
    Some((&path[..dot], &path[dot + 1..]))
}

fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name)
        .map_err(|_| Error::in_source(format!("name {:?} is not UTF-8", String::from_utf8_lossy(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar of which only the first bytes are stored. Up to the given length, all other bytes are
    /// zero.
    struct Hole(Vec<u8>, u64);

    impl Bytes for Hole {
        fn len(&self) -> u64 {
            self.1
        }

        fn get<'a>(&'a self, at: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
            let start = self.0.len().min(at as usize);
            scratch.clear();
            scratch.extend_from_slice(&self.0[start..self.0.len().min(start + len)]);
            scratch.resize(len, 0);
            Ok(scratch)
        }
    }

    #[test]
    fn tar_file_too_large_for_the_index_fails() {
        let header = |name: &str, kind: u8, size: usize| {
            let mut block = vec![0; BLOCK];
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
            pax.resize(BLOCK, 0);
            let tar = [header("x", b'x', record.len()), pax, header("a.bin", b'0', 0)].concat();
            let len = tar.len() as u64 + size.next_multiple_of(BLOCK as u64) + 2 * BLOCK as u64;
            let scanned = Index::scan(&Hole(tar, len));
            match scanned {
                Ok(index) => assert!(fits && index.fields[0].len() == size, "{index:?}"),
                Err(e) => assert!(!fits && e.cause().contains("offset 1024: file of 68719476736 bytes"), "{e}"),
            }
        }
    }

    #[test]
    fn packed_field_round_trips() {
        let (block, most) = (BLOCK as u64, (1 << 36) - 1);
        for offset in [0, block, (u64::from(u32::MAX) + 1) * block, most * block] {
            for len in [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, most] {
                for name in [0, 1, MOST_NAMES - 1] {
                    let field = Field::new(offset, len, name).unwrap();
                    assert_eq!((field.offset(), field.len(), field.name()), (offset, len, name as usize));
                }
            }
        }
        for (offset, len, name) in [(1, 0, 0), ((most + 1) * block, 0, 0), (0, most + 1, 0), (0, 0, MOST_NAMES)] {
            assert_eq!(Field::new(offset, len, name), None);
        }
        assert_eq!(size_of::<Field>(), 12);
    }
}
