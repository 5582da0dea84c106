//! Reads and writes index files, so that a dataset is scanned only once. Writes are atomic, and
//! [`Decoder`] verifies a hash.
//!
//! The format is little-endian. The file begins with an 8-byte magic number, which ends with the
//! version. Then come numbers (`u32` or `u64`), strings (a `u32` length, then the bytes) and raw
//! bytes, in the order of the calls to `Encoder`. The last 8 bytes are the FNV-1a hash of all bytes
//! before them.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::file;
use super::hash::fnv1a;
use super::temp_files;
use crate::error::append;

/// Reads an index file. Returns `None` if the file cannot be read, does not begin with `magic`, or
/// is larger than 2 GiB. None of these is an error, because the index can be rebuilt from the data.
pub(crate) fn load(path: &Path, magic: [u8; 8]) -> Option<Vec<u8>> {
    let read = || {
        let (mut file, mut bytes) = (file::open(path)?, magic.to_vec());
        file.read_exact(&mut bytes)?;
        if bytes != magic {
            return Err(io::Error::new(ErrorKind::InvalidData, "not an index"));
        }
        file::append(file, &mut bytes, file::MAX_FILE)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            if e.kind() != ErrorKind::NotFound {
                tracing::info!("{}: {e}; ignoring this index", path.display());
            }
            None
        }
    }
}

/// The extension of indexes that this project defines. A file with this extension may always be
/// replaced.
const OWN_EXTENSION: &str = "warpfeed-index";

/// Writes the index `bytes` to `target` atomically. Fails if `target` exists and may belong to a
/// different program, because it has neither our file extension nor our magic number.
pub(crate) fn store(target: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Err(ErrorKind::OutOfMemory.into());
    }
    if target.extension().is_none_or(|extension| extension != OWN_EXTENSION) && is_foreign(target, bytes) {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "the existing file is not an index, so it is not overwritten",
        ));
    }
    let (partial, mut file) = temp_files::create(target)?;
    let written = file.write_all(bytes).and_then(|()| file::rename(&partial, target));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Returns whether `target` may belong to a different program, because its magic number differs in
/// more than the version, or because it cannot be read.
fn is_foreign(target: &Path, bytes: &[u8]) -> bool {
    let magic = &bytes[..bytes.len().min(7)];
    let start = file::open(target).and_then(|file| {
        let mut start = Vec::new();
        file.take(magic.len() as u64).read_to_end(&mut start)?;
        Ok(start)
    });
    match start {
        // A crash may have left an empty file behind.
        Ok(start) => !start.is_empty() && start != magic,
        Err(e) => e.kind() != ErrorKind::NotFound,
    }
}

/// Returns the modification time in ns since 1970, or 0 if it is unknown.
pub(crate) fn modification_ns(metadata: &Metadata) -> u64 {
    metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).map_or(0, |d| d.as_nanos() as u64)
}

/// Writes numbers, strings and bytes into an index. If memory runs out, the bytes are discarded,
/// and no index is written.
pub(crate) struct Encoder(Option<Vec<u8>>);

impl Encoder {
    pub(crate) fn new(magic: [u8; 8]) -> Self {
        Encoder(Some(magic.to_vec()))
    }

    pub(crate) fn long(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) fn word(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u32);
        self.bytes(text.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if self.0.as_mut().is_some_and(|buffer| append(buffer, bytes).is_err()) {
            self.0 = None;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if let Some(buffer) = &self.0 {
            self.long(fnv1a(buffer));
        }
        self.0.unwrap_or_default()
    }
}

/// Reads the content of an index. The content is untrusted, so the methods return `None` if the
/// file is too short or a string is not UTF-8.
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Checks the magic number and the hash. Returns `None` if either is wrong.
    pub(crate) fn new(bytes: &'a [u8], magic: [u8; 8]) -> Option<Self> {
        let (body, hash) = bytes.split_last_chunk()?;
        let body = (fnv1a(body) == u64::from_le_bytes(*hash)).then_some(body)?;
        body.strip_prefix(&magic).map(Decoder)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn longs<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.long()?;
        }
        Some(numbers)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.word()?;
        let (text, after) = self.0.split_at_checked(length as usize)?;
        self.0 = after;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn rest(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, after) = self.0.split_first_chunk()?;
        self.0 = after;
        Some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 8] = *b"wftests\x01";

    fn bytes() -> Vec<u8> {
        let mut encoder = Encoder::new(MAGIC);
        encoder.long(1 << 40);
        encoder.word(7);
        encoder.text("dög");
        encoder.bytes(b"rest");
        encoder.finish()
    }

    #[test]
    fn threads_can_write_the_same_index_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("set.warpfeed-index");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| store(&target, &bytes()).unwrap()));
            }
        });
        assert_eq!(fs::read(&target).unwrap(), bytes());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no partial file is left");
    }

    #[test]
    fn an_index_reads_back_and_detects_every_bit_flip() {
        let bytes = bytes();
        let mut decoder = Decoder::new(&bytes, MAGIC).unwrap();
        assert_eq!((decoder.longs(), decoder.word(), decoder.text()), (Some([1 << 40]), Some(7), Some("dög")));
        assert_eq!(decoder.rest(), Some("rest"));
        assert!(Decoder::new(&bytes, *b"wftests\x02").is_none(), "a different version");
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Decoder::new(&flipped, MAGIC).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Decoder::new(&bytes[..length], MAGIC).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn missing_bytes_are_none() {
        let bytes = Encoder::new(MAGIC).finish();
        let mut decoder = Decoder::new(&bytes, MAGIC).unwrap();
        assert_eq!((decoder.long(), decoder.word(), decoder.text(), decoder.longs::<2>()), (None, None, None, None));
    }

    #[test]
    fn index_writes_are_atomic() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("index");
        store(&target, b"wftests\x01 one").unwrap();
        store(&target, b"wftests\x02 two").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"wftests\x02 two");
        // The target is a folder, so the write fails. The failure must not leave a partial file
        // behind.
        let existing = folder.path().join("folder");
        fs::create_dir(&existing).unwrap();
        assert!(store(&existing, b"three").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_unrelated_file_is_left_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.tar.index");
        for foreign in [&b"0 17\n"[..], b"wf", b"wfother\x01"] {
            fs::write(&target, foreign).unwrap();
            let e = store(&target, &bytes()).unwrap_err();
            assert_eq!((e.kind(), fs::read(&target).unwrap()), (ErrorKind::AlreadyExists, foreign.to_vec()));
        }
        for (name, content) in [("x.tar.index", &b""[..]), ("x.warpfeed-index", b"damaged")] {
            let target = folder.path().join(name);
            fs::write(&target, content).unwrap();
            store(&target, &bytes()).unwrap();
            assert_eq!(fs::read(&target).unwrap(), bytes());
        }
    }
}
