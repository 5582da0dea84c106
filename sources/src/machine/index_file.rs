//! Index files next to the data, which save scanning the data again. Writes are atomic, and reads
//! verify a hash.
//!
//! The format is little-endian: a magic number of 8 bytes, the last of which is the version; then
//! words, texts (`u32` length, bytes) and bytes in the order of the calls; then the FNV-1a hash of
//! all of this.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::attempt;
use super::file;
use super::hash::fnv1a;
use crate::error::append;

/// Bytes of the index file at `path`, if it begins with `magic`. An index only repeats the data, so
/// a file that is missing, is not a regular file, is larger than 2 GiB or is another one is like
/// none.
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
                tracing::info!("{}: {e}; the index is not used", path.display());
            }
            None
        }
    }
}

/// End of the names that only this crate uses.
const OWN: &str = "warpfeed-index";

/// Writes `bytes`, an index, to `target` atomically. Under a name that other programs may use, a
/// file that is not an index of the same kind stays.
pub(crate) fn store(target: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Err(ErrorKind::OutOfMemory.into());
    }
    if target.extension().is_none_or(|end| end != OWN) && is_foreign(target, bytes) {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "another file has this name"));
    }
    // Several processes, and several threads of one, may open the same new data.
    let (partial, mut file) = attempt::create(target)?;
    let written = file.write_all(bytes).and_then(|()| file::rename(&partial, target));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Whether there is something at `target` that does not begin as the index `bytes` does. Versions
/// may differ.
fn is_foreign(target: &Path, bytes: &[u8]) -> bool {
    let kind = &bytes[..bytes.len().min(7)];
    let begins = file::open(target).and_then(|file| {
        let mut start = Vec::new();
        file.take(kind.len() as u64).read_to_end(&mut start)?;
        Ok(start)
    });
    match begins {
        // An empty file may be what a crash left.
        Ok(start) => !start.is_empty() && start != kind,
        Err(e) => e.kind() != ErrorKind::NotFound,
    }
}

/// Modification time in ns since 1970; 0 on a system without file times.
pub(crate) fn modified(metadata: &Metadata) -> u64 {
    metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).map_or(0, |d| d.as_nanos() as u64)
}

/// Encodes an index file. Without memory there is none, and its bytes are empty.
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
        if self.0.as_mut().is_some_and(|all| append(all, bytes).is_err()) {
            self.0 = None;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        if let Some(all) = &self.0 {
            self.long(fnv1a(all));
        }
        self.0.unwrap_or_default()
    }
}

/// Decodes an index file, without trusting any byte. Methods return `None` for missing bytes.
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Returns `None` if the magic number differs or the hash does not match.
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

    /// The rest, as text.
    pub(crate) fn rest(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, after) = self.0.split_first_chunk()?;
        self.0 = after;
        Some(*taken)
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
    fn threads_that_write_one_index_at_once_all_succeed() {
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
    fn written_data_reads_back_and_every_changed_bit_is_detected() {
        let bytes = bytes();
        let mut decoder = Decoder::new(&bytes, MAGIC).unwrap();
        assert_eq!((decoder.longs(), decoder.word(), decoder.text()), (Some([1 << 40]), Some(7), Some("dög")));
        assert_eq!(decoder.rest(), Some("rest"));
        assert!(Decoder::new(&bytes, *b"wftests\x02").is_none(), "another version");
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
    fn a_file_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("index");
        store(&target, b"wftests\x01 one").unwrap();
        store(&target, b"wftests\x02 two").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"wftests\x02 two");
        // A folder has this name, so the write fails. No partial file remains.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(store(&taken, b"three").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_of_someone_else_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.tar.index");
        for foreign in [&b"0 17\n"[..], b"wf", b"wfother\x01"] {
            fs::write(&target, foreign).unwrap();
            let e = store(&target, &bytes()).unwrap_err();
            assert_eq!((e.kind(), fs::read(&target).unwrap()), (ErrorKind::AlreadyExists, foreign.to_vec()));
        }
        for (name, found) in [("x.tar.index", &b""[..]), ("x.warpfeed-index", b"damaged")] {
            let target = folder.path().join(name);
            fs::write(&target, found).unwrap();
            store(&target, &bytes()).unwrap();
            assert_eq!(fs::read(&target).unwrap(), bytes());
        }
    }
}
