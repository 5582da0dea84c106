//! Reads and writes block files. The header identifies the bytes that follow, and contains their
//! checksum.
//!
//! The format is little-endian. The header begins with the magic number, the last byte of which is
//! the version. Five 64-bit numbers follow: the offset in the object, the number of bytes, the
//! length of the object, the dataset, and the sample. Three 32-bit numbers follow: the length of
//! the tag, the length of the name, and the CRC-32 of the bytes. The header ends with the tag, the
//! name, and the CRC-32 of the preceding header.
//!
//! A missing tag has the length `u32::MAX`. The name is the URL of the object. If the object has a
//! server, the name starts with the server between two line feeds.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::path::Path;
use std::sync::Arc;

use warpfeed_sources::Object;

use super::eviction::{BlockKey, Owner};

const MAGIC: [u8; 8] = *b"wfblock\x01";
/// Length of the header up to the tag, in bytes.
const FIXED_HEADER_BYTES: usize = 8 + 5 * 8 + 3 * 4;
/// Maximum size of the header, in bytes.
const MAX_HEADER_BYTES: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct BlockRange<'a> {
    pub(super) object: &'a Object,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl BlockRange<'_> {
    /// Returns a 128-bit FNV-1a hash of the range and of the object's URL, length, tag and server.
    /// The header contains all of these, so a hash collision causes only a cache miss.
    pub(super) fn key(&self) -> BlockKey {
        let tag = self.object.tag.as_deref();
        let numbers = [self.object.len, self.offset, self.len, u64::from(tag.is_some())];
        let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
        let url = self.object.url.bytes().chain([0]);
        let server = self.object.server.iter().flat_map(|server| [0].into_iter().chain(server.bytes()));
        let bytes = url.chain(tag.unwrap_or_default().bytes()).chain(numbers).chain(server);
        bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
    }

    fn header(&self, owner: Owner, checksum: u32) -> Vec<u8> {
        let (tag, name) = (self.object.tag.as_deref(), block_name(self.object));
        let mut header = MAGIC.to_vec();
        for number in [self.offset, self.len, self.object.len, owner.dataset, owner.sample] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        let tag_len = tag.map_or(u32::MAX, |tag| tag.len() as u32);
        for number in [tag_len, name.len() as u32, checksum] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(tag.unwrap_or_default().as_bytes());
        header.extend_from_slice(name.as_bytes());
        let checksum = crc32fast::hash(&header);
        header.extend_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Returns the size of the file on a disk with 4 KiB pages.
    pub(super) fn disk_bytes(&self) -> u64 {
        (self.len + (FIXED_HEADER_BYTES + self.names_len() + 4) as u64).next_multiple_of(4096)
    }

    pub(super) fn header_fits(&self) -> bool {
        self.names_len() + FIXED_HEADER_BYTES + 4 <= MAX_HEADER_BYTES
    }

    fn names_len(&self) -> usize {
        let server = self.object.server.as_ref().map_or(0, |server| server.len() + 2);
        self.object.url.len() + self.object.tag.as_ref().map_or(0, String::len) + server
    }
}

/// Precedes and follows the server in a block's name. No URL begins with this character.
const SERVER_SEPARATOR: char = '\n';

/// Returns the name of the object in a header: its URL, preceded by its server, if any.
fn block_name(object: &Object) -> Cow<'_, str> {
    match &object.server {
        Some(server) => format!("{SERVER_SEPARATOR}{server}{SERVER_SEPARATOR}{}", object.url).into(),
        None => object.url.as_str().into(),
    }
}

fn split_block_name(name: &str) -> (Option<Arc<str>>, &str) {
    let split = name.strip_prefix(SERVER_SEPARATOR).and_then(|name| name.split_once(SERVER_SEPARATOR));
    split.map_or((None, name), |(server, url)| (Some(server.into()), url))
}

pub(super) fn write(file: &mut File, range: BlockRange<'_>, owner: Owner, bytes: &[u8]) -> io::Result<()> {
    let header = range.header(owner, crc32fast::hash(bytes));
    // Write both with a single system call, which suffices for nearly every block.
    let written_bytes = match file.write_vectored(&[IoSlice::new(&header), IoSlice::new(bytes)]) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
        written_bytes => written_bytes?,
    };
    file.write_all(&header[written_bytes.min(header.len())..])?;
    file.write_all(&bytes[written_bytes.saturating_sub(header.len())..])
}

/// Reads a block into `out`. Returns `false` if the block is damaged or contains a different range.
pub(super) fn read(file: &mut File, range: BlockRange<'_>, out: &mut [u8]) -> io::Result<bool> {
    // The file's owner and checksum replace these placeholders.
    let mut header = range.header(Owner::default(), 0);
    let expected = header.clone();
    // Read one more byte, to detect a file that is too long.
    let mut extra = [0];
    let expected_len = header.len() + out.len();
    let mut read = 0;
    loop {
        let filled_lens = (read.min(header.len()), read.saturating_sub(header.len()).min(out.len()));
        let buffers = &mut [
            IoSliceMut::new(&mut header[filled_lens.0..]),
            IoSliceMut::new(&mut out[filled_lens.1..]),
            IoSliceMut::new(&mut extra),
        ];
        match file.read_vectored(buffers) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if read > expected_len {
            return Ok(false);
        }
    }
    let (fields, header_checksum) = header.split_at(header.len() - 4);
    let is_intact = read == expected_len && crc32fast::hash(fields).to_le_bytes() == header_checksum;
    let is_same_range = [0..32, 48..56, FIXED_HEADER_BYTES..fields.len()]
        .into_iter()
        .all(|range| fields[range.clone()] == expected[range]);
    Ok(is_intact && is_same_range && crc32fast::hash(out).to_le_bytes() == fields[56..60])
}

pub(super) fn has_magic(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) object: Object,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) owner: Owner,
    checksum: u32,
}

impl Header {
    pub(super) fn read(file: &mut File) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; FIXED_HEADER_BYTES];
        if let Err(e) = file.read_exact(&mut bytes) {
            return if e.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(e) };
        }
        let long = |offset: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]));
        let word = |offset: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]));
        let (tag_len, name_len, checksum) = (word(48), word(52) as usize, word(56));
        let tag_bytes = if tag_len == u32::MAX { 0 } else { tag_len as usize };
        let owner = Owner { dataset: long(32), sample: long(40) };
        let (offset, len, object_len) = (long(8), long(16), long(24));
        if bytes[..8] != MAGIC || tag_bytes + name_len > MAX_HEADER_BYTES {
            return Ok(None);
        }
        let mut rest = vec![0; tag_bytes + name_len + 4];
        if let Err(e) = file.read_exact(&mut rest) {
            return if e.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(e) };
        }
        let (names, header_checksum) = rest.split_at(tag_bytes + name_len);
        bytes.extend_from_slice(names);
        let Ok(names) = std::str::from_utf8(names) else { return Ok(None) };
        let Some((tag, url)) = names.split_at_checked(tag_bytes) else { return Ok(None) };
        if crc32fast::hash(&bytes).to_le_bytes() != header_checksum {
            return Ok(None);
        }
        let tag = (tag_len != u32::MAX).then(|| tag.to_owned());
        let (server, url) = split_block_name(url);
        let object = Object { url: url.to_owned(), len: object_len, tag, server };
        Ok(Some(Header { object, offset, len, owner, checksum }))
    }

    pub(super) fn range(&self) -> BlockRange<'_> {
        BlockRange { object: &self.object, offset: self.offset, len: self.len }
    }

    pub(super) fn check(&self, file: &mut File) -> io::Result<bool> {
        let (mut hasher, mut remaining) = (crc32fast::Hasher::new(), self.len);
        let mut buffer = [0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(remaining == 0 && hasher.finalize() == self.checksum),
                n if n as u64 > remaining => return Ok(false),
                n => {
                    hasher.update(&buffer[..n]);
                    remaining -= n as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn object(tag: Option<&str>) -> Object {
        Object { url: "s3://b/x.tar".to_owned(), len: 99, tag: tag.map(str::to_owned), server: None }
    }

    #[test]
    fn a_block_is_read_as_written_and_damage_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        let (object, owner) = (object(Some("v\"1\"")), Owner { dataset: 3, sample: 5 });
        let range = BlockRange { object: &object, offset: 7, len: 9 };
        write(&mut File::create(&path).unwrap(), range, owner, b"the bytes").unwrap();
        let bytes = fs::read(&path).unwrap();
        let mut out = [0; 9];
        let mut reads = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let is_intact = read(&mut File::open(&path).unwrap(), range, &mut out).unwrap();
            let header = Header::read(&mut File::open(&path).unwrap()).unwrap();
            let mut file = File::open(&path).unwrap();
            let is_valid = Header::read(&mut file).unwrap().is_some_and(|header| header.check(&mut file).unwrap());
            assert_eq!(is_intact, is_valid, "`read` and `check` agree");
            (is_intact, header)
        };
        let (is_intact, header) = reads(&bytes);
        let header = header.unwrap();
        assert!(is_intact && header.owner == owner && header.object == object && header.range().key() == range.key());
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!reads(&flipped).0, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(!reads(&bytes[..len]).0, "{len} bytes");
        }
        assert!(!reads(&[&bytes[..], b"x"].concat()).0);
        assert!(reads(&bytes).0);
        assert_eq!(out, *b"the bytes");
    }

    #[test]
    fn a_block_matches_only_its_object_version_and_range() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        let cached = object(Some("1"));
        let range = BlockRange { object: &cached, offset: 7, len: 9 };
        write(&mut File::create(&path).unwrap(), range, Owner::default(), b"the bytes").unwrap();
        let others = [
            object(Some("2")),
            object(None),
            object(Some("")),
            Object { len: 98, ..cached.clone() },
            Object { url: "s3://b/x.taq".to_owned(), ..cached.clone() },
            // One character has moved from the URL to the tag.
            Object { url: "s3://b/x.ta".to_owned(), tag: Some("r1".to_owned()), ..cached.clone() },
            Object { server: Some("http://127.0.0.1:9000".into()), ..cached.clone() },
            Object { server: Some("".into()), ..cached.clone() },
        ];
        for object in &others {
            let other = BlockRange { object, ..range };
            let path = folder.path().join("other");
            write(&mut File::create(&path).unwrap(), other, Owner::default(), b"the bytes").unwrap();
            let header = Header::read(&mut File::open(&path).unwrap()).unwrap().unwrap();
            assert_eq!(header.object, *object);
        }
        let mut ranges = vec![BlockRange { offset: 8, ..range }, BlockRange { len: 8, ..range }];
        ranges.extend(others.iter().map(|object| BlockRange { object, ..range }));
        for other in ranges {
            assert_ne!(other.key(), range.key());
            let mut out = vec![0; other.len as usize];
            assert!(!read(&mut File::open(&path).unwrap(), other, &mut out).unwrap(), "{other:?}");
        }
        // The keys are part of the file format.
        assert_eq!(range.key(), 0x4baf_da83_b638_7a9b_bd93_9c9a_6298_ca90);
    }
}
