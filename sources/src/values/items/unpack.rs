//! Compressed files of a dataset. Only an uncompressed file can be read at random, so each is
//! decompressed once, when the dataset is opened, into the file next to it that the original
//! library would write. No process reads a part of it: it appears under its name when it is whole.
//! Of several processes that open the dataset at once, one decompresses and the others wait.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::machine::{attempt, cancel, file, is_stopped};

/// Maximum size of a decompressed file. Offsets in it have 32 bits.
const MOST: u64 = 1 << 32;

/// Maximum time to wait for another process that decompresses the same file.
const PATIENCE: Duration = Duration::from_secs(600);

/// Bytes that one byte of a Snappy block can stand for: three bytes copy at most 64.
const SNAPPY_RATIO: usize = 22;

/// Bytes of a decompressed block that are written between two looks at the stop.
const SLICE: usize = 1 << 20;

/// A compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpack {
    Gzip,
    Snappy,
    Zstd,
}

impl Unpack {
    /// The compression with this name, in MosaicML's and LitData's indexes.
    ///
    /// # Errors
    /// If it is not read.
    pub(crate) fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "gz" => Unpack::Gzip,
            "snappy" => Unpack::Snappy,
            "zstd" => Unpack::Zstd,
            _ => {
                return Err(Error::in_source(format!(
                    "the compression {name:?} is not read, only zstd, gz and snappy; decompress the files next to the \
                     compressed ones, or write the dataset without compression"
                )));
            }
        })
    }

    /// Decompresses `packed` into `to`, at most `most` bytes and one more. Returns their number.
    fn run(self, packed: File, most: u64, to: &mut impl Write) -> io::Result<u64> {
        let limit = most.saturating_add(1);
        match self {
            Unpack::Gzip => io::copy(&mut flate2::bufread::MultiGzDecoder::new(BufReader::new(packed)).take(limit), to),
            Unpack::Zstd => zstd_frames(packed, limit, to),
            // The whole file is one block.
            Unpack::Snappy => {
                let mut block = Vec::new();
                file::append(packed, &mut block, MOST)?;
                let len = snap::raw::decompress_len(&block)?;
                if len as u64 != most {
                    return Ok(len as u64);
                }
                // The claim decides the memory, so it must be possible.
                if len / SNAPPY_RATIO > block.len() {
                    let held = block.len();
                    return Err(io::Error::other(format!(
                        "{held} bytes of Snappy cannot hold the {len} that they claim"
                    )));
                }
                let mut plain = Vec::new();
                plain.try_reserve_exact(len).map_err(|_| {
                    io::Error::new(io::ErrorKind::OutOfMemory, format!("its {len} bytes do not fit into memory"))
                })?;
                plain.resize(len, 0);
                snap::raw::Decoder::new().decompress(&block, &mut plain)?;
                plain.chunks(SLICE).try_for_each(|slice| to.write_all(slice))?;
                Ok(len as u64)
            }
        }
    }
}

/// Decompresses zstd frames, one after the other.
fn zstd_frames(packed: File, limit: u64, to: &mut impl Write) -> io::Result<u64> {
    let (mut packed, mut total) = (BufReader::new(packed), 0);
    while !io::BufRead::fill_buf(&mut packed)?.is_empty() && total < limit {
        let mut frame = ruzstd::decoding::StreamingDecoder::new(&mut packed).map_err(io::Error::other)?;
        total += io::copy(&mut (&mut frame).take(limit - total), to)?;
        let sums = (frame.decoder.get_checksum_from_data(), frame.decoder.get_calculated_checksum());
        if total < limit
            && let (Some(stored), Some(found)) = sums
            && stored != found
        {
            return Err(io::Error::other("the checksum is wrong"));
        }
    }
    Ok(total)
}

/// Checks that no decompressed copy would replace a file that the dataset consists of. `files` are
/// the names of the files in the index, each with the name of its copy if it is compressed.
///
/// # Errors
/// If a copy has the name of one of the files.
pub(crate) fn check_copies(files: &[(&str, Option<&str>)]) -> Result<()> {
    // The index may write one name in several ways.
    fn parts(name: &str) -> Vec<Component<'_>> {
        Path::new(name).components().filter(|part| *part != Component::CurDir).collect()
    }
    if files.iter().all(|(_, copy)| copy.is_none()) {
        return Ok(());
    }
    let originals: HashMap<_, _> = files.iter().enumerate().map(|(number, (name, _))| (parts(name), number)).collect();
    for (number, (name, copy)) in files.iter().enumerate() {
        if let Some(copy) = copy
            && let Some(of) = originals.get(&parts(copy))
        {
            return Err(Error::in_source(format!(
                "shard {number}: {name:?} would be decompressed to {copy:?}, and replace the file of shard {of}; \
                 correct the names in the index, or write the dataset again"
            )));
        }
    }
    Ok(())
}

/// Makes sure that `target` has the content of the compressed file `packed`, of `len` bytes.
///
/// The copy gets the modification time of `packed`, so a copy with another time or length is not of
/// this version of `packed`, or was written by another library. It is written again. Where that is
/// impossible, in a read-only folder, it is compared with `packed` on each opening.
///
/// # Errors
/// If `packed` does not decompress to `len` bytes, or its folder cannot be written to and has no
/// equal copy. Also if the calling thread is [stopped](crate::CancelToken).
pub(crate) fn unpacked(packed: &Path, target: &Path, len: u64, unpack: Unpack) -> Result<()> {
    if is_copy(packed, target, len) {
        return Ok(());
    }
    let named = |e: Error| if e.path().is_some() { e } else { e.at_path(packed) };
    if len > MOST {
        return Err(named(Error::in_source(format!(
            "claims {len} bytes when decompressed; at most {MOST} are possible"
        ))));
    }
    let file = file::open(packed).map_err(|e| Error::io(packed, &e))?;
    let alone = locked(&file, packed).map_err(named)?;
    let copied = copy((&file, packed), target, len, unpack, alone).map_err(named);
    // A process that was forked meanwhile would keep the lock.
    let _ = file.unlock();
    copied
}

/// Writes the copy of the compressed file, which is open and has the path `packed`.
fn copy((file, packed): (&File, &Path), target: &Path, len: u64, unpack: Unpack, alone: bool) -> Result<()> {
    // Another process may have written it during the wait for the lock.
    if is_copy(packed, target, len) {
        return Ok(());
    }
    if alone {
        // They have no writer, because the compressed file is locked.
        let _ = attempt::remove_abandoned_of(target, |own| target.file_name().is_some_and(|name| name == own));
    }
    tracing::info!("{}: decompressed once, to {len} bytes", packed.display());
    let moved = attempt::create(target).map_err(|e| no_room(target, &e)).and_then(|(partial, to)| {
        let written = write(file, (&partial, to), len, unpack);
        let moved = written.and_then(|()| file::rename(&partial, target).map_err(|e| no_room(target, &e)));
        moved.inspect_err(|_| drop(fs::remove_file(&partial)))
    });
    let Err(e) = moved else {
        if !has_time_of(file, target) {
            tracing::warn!(
                "{}: its modification time could not be set to that of {}, so each opening decompresses it again; put \
                 the dataset on a file system that keeps modification times, or move the compressed file elsewhere: \
                 without it the decompressed one is used",
                target.display(),
                packed.display()
            );
        }
        return Ok(());
    };
    // An error of the folder and not of the compressed file.
    if e.path().is_some() {
        if is_equal(file, target, len, unpack) {
            tracing::info!("{e}; the file that is there is the same, and is used");
            return Ok(());
        }
        cancel::check()?;
    }
    Err(e)
}

/// Whether `target` is the copy of `packed` by its length and its time. Without `packed`, which
/// other libraries may remove, it is the data.
fn is_copy(packed: &Path, target: &Path, len: u64) -> bool {
    let Ok(found) = fs::metadata(target) else { return false };
    let same_time = || match fs::metadata(packed) {
        Ok(packed) => packed.modified().ok() == found.modified().ok(),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    found.is_file() && found.len() == len && same_time()
}

/// Whether the file at `target` has the modification time of `packed`.
fn has_time_of(packed: &File, target: &Path) -> bool {
    let times = [packed.metadata(), fs::metadata(target)].map(|found| found.and_then(|found| found.modified()).ok());
    times[0] == times[1]
}

/// Locks the compressed file, so that one process of many decompresses it. Returns whether it is
/// locked: some file systems have no locks, and waiting ends at last.
///
/// # Errors
/// If the calling thread is stopped while it waits.
fn locked(file: &File, path: &Path) -> Result<bool> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => cancel::sleep(Duration::from_millis(20))?,
            Err(e) => {
                tracing::info!("{}: not locked ({e}); it may be decompressed more than once", path.display());
                return Ok(false);
            }
        }
    }
}

/// The file from its start. Where locks are mandatory, only its handle can read it.
fn from_start(packed: &File) -> io::Result<File> {
    let mut packed = packed.try_clone()?;
    packed.rewind()?;
    Ok(packed)
}

fn write(packed: &File, (partial, file): (&Path, File), len: u64, unpack: Unpack) -> Result<()> {
    let modified = packed.metadata().and_then(|metadata| metadata.modified());
    let mut to = Sink { file: BufWriter::with_capacity(SLICE, file), failed: None, stopped: false };
    let found = from_start(packed).and_then(|packed| unpack.run(packed, len, &mut to));
    let found = found.and_then(|found| to.flush().map(|()| found));
    if to.stopped {
        return Err(cancel::cancelled());
    }
    match (found, to.failed) {
        (_, Some(e)) => Err(no_room(partial, &e)),
        (Ok(found), None) if found == len => {
            // Without its time the copy is written again by the next opening. The time is compared
            // when the copy has its name: some file systems ignore it without an error.
            let _ = modified.and_then(|modified| to.file.get_ref().set_modified(modified));
            Ok(())
        }
        (Ok(found), None) => {
            let found = if found > len { format!("more than {len}") } else { found.to_string() };
            Err(Error::in_source(format!("decompresses to {found} bytes, but the index says {len}")))
        }
        (Err(e), None) => Err(Error::in_source(format!("cannot be decompressed: {e}"))),
    }
}

/// Whether the file at `target` has the content of `packed`.
fn is_equal(packed: &File, target: &Path, len: u64, unpack: Unpack) -> bool {
    let Ok(copy) = file::open(target) else { return false };
    if copy.metadata().is_ok_and(|found| found.len() != len) {
        return false;
    }
    let mut compared = Compared(BufReader::with_capacity(1 << 20, copy));
    from_start(packed).and_then(|packed| unpack.run(packed, len, &mut compared)).is_ok_and(|found| found == len)
}

/// A writer that refuses bytes that differ from those of a file.
struct Compared(BufReader<File>);

impl Write for Compared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        let there = io::BufRead::fill_buf(&mut self.0)?;
        let count = bytes.len().min(there.len());
        if there[..count] != bytes[..count] || count == 0 && !bytes.is_empty() {
            return Err(io::Error::other("the files differ"));
        }
        io::BufRead::consume(&mut self.0, count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that remembers its own errors, which are not those of the compressed file, and ends
/// when the calling thread is stopped.
struct Sink {
    file: BufWriter<File>,
    failed: Option<io::Error>,
    stopped: bool,
}

impl Sink {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|e| {
            self.failed.get_or_insert_with(|| {
                e.raw_os_error().map_or(io::Error::other("the write failed"), io::Error::from_raw_os_error)
            });
        })
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_stopped() {
            self.stopped = true;
            return Err(io::Error::other("stopped"));
        }
        let result = self.file.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.flush();
        self.note(result)
    }
}

fn no_room(path: &Path, error: &io::Error) -> Error {
    Error::new(
        crate::error::ErrorKind::Io,
        format!(
            "cannot write the decompressed file: {error}; make its folder writable, with room for the decompressed data, \
             or decompress the files yourself"
        ),
    )
    .at_path(path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    use super::*;
    use crate::machine::CancelToken;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    }

    fn set_time(path: &Path, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_copy_of_another_version_is_written_again_even_if_it_is_newer_and_as_long() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        let unpack = || unpacked(&packed, &target, 3, Unpack::Gzip).unwrap();
        fs::write(&packed, gzip(b"one")).unwrap();
        unpack();
        let written = fs::metadata(&target).unwrap().modified().unwrap();
        assert_eq!(written, fs::metadata(&packed).unwrap().modified().unwrap());
        // The archive that the new file comes from kept its time.
        fs::write(&packed, gzip(b"two")).unwrap();
        set_time(&packed, 1_000_000_000);
        unpack();
        assert_eq!(fs::read(&target).unwrap(), b"two");
        // A file that another library wrote later, of the version before.
        fs::write(&target, b"one").unwrap();
        unpack();
        assert_eq!(fs::read(&target).unwrap(), b"two");
        fs::remove_file(&packed).unwrap();
        unpack();
    }

    #[test]
    fn where_nothing_can_be_written_an_equal_copy_is_used_and_another_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        // The name of a file that is being written would be too long.
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x".repeat(250)));
        fs::write(&packed, gzip(b"one")).unwrap();
        for (copy, used) in [(&b"one"[..], true), (b"two", false), (b"on", false), (b"ones", false), (b"", false)] {
            fs::write(&target, copy).unwrap();
            set_time(&target, 2_000_000_000);
            let found = unpacked(&packed, &target, 3, Unpack::Gzip);
            assert_eq!(found.is_ok(), used, "{copy:?}: {found:?}");
            assert_eq!(fs::read(&target).unwrap(), copy);
            if let Err(e) = found {
                assert!(e.cause().contains("make its folder writable"), "{e}");
            }
        }
    }

    #[test]
    fn processes_that_open_at_once_decompress_once_and_remove_what_ended_ones_left() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        let content = vec![7; 1 << 20];
        fs::write(&packed, gzip(&content)).unwrap();
        let kept = ["x.txt.partial", "y.0123456789abcdef.partial", "x.partial"].map(|name| folder.path().join(name));
        let left = ["x.0123456789abcdef.partial", "x.00000000000000ff.partial"].map(|name| folder.path().join(name));
        kept.iter().chain(&left).for_each(|path| fs::write(path, b"half").unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    unpacked(&packed, &target, 1 << 20, Unpack::Gzip).unwrap();
                    // Each file is whole when it has its name.
                    assert_eq!(fs::read(&target).unwrap().len(), 1 << 20);
                });
            }
        });
        assert!(fs::read(&target).unwrap() == content);
        assert!(kept.iter().all(|path| path.exists()) && !left.iter().any(|path| path.exists()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 + kept.len());
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_lock_and_the_decompression() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&packed, gzip(&vec![7; 1 << 20])).unwrap();
        let unpack = || unpacked(&packed, &target, 1 << 20, Unpack::Gzip).unwrap_err();
        let cancelled = |e: Error| {
            assert!(e.path() == Some(&*packed) && e.cause().contains("cancelled"), "{e}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left");
        };
        let other = File::open(&packed).unwrap();
        other.lock().unwrap();
        let begun = Instant::now();
        cancelled(CancelToken::new(move || begun.elapsed() > Duration::from_millis(50)).during(unpack));
        other.unlock().unwrap();
        // The tenth look is in the middle of the file.
        let looks = AtomicUsize::new(0);
        cancelled(CancelToken::new(move || looks.fetch_add(1, Ordering::Relaxed) > 9).during(unpack));
        unpacked(&packed, &target, 1 << 20, Unpack::Gzip).unwrap();
    }

    #[test]
    fn a_snappy_block_that_claims_more_than_it_can_hold_is_refused_before_its_memory_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.snappy"), folder.path().join("x"));
        // Its first bytes are the length of what it holds.
        fs::write(&packed, [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).unwrap();
        let e = unpacked(&packed, &target, u64::from(u32::MAX), Unpack::Snappy).unwrap_err();
        assert!(e.cause().contains("7 bytes of Snappy cannot hold the 4294967295"), "{e}");
        let zeros = vec![0; 3 << 20];
        fs::write(&packed, snap::raw::Encoder::new().compress_vec(&zeros).unwrap()).unwrap();
        unpacked(&packed, &target, 3 << 20, Unpack::Snappy).unwrap();
        assert!(fs::read(&target).unwrap() == zeros, "the highest ratio");
    }

    #[test]
    fn a_copy_whose_time_was_not_kept_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&packed, gzip(b"one")).unwrap();
        unpacked(&packed, &target, 3, Unpack::Gzip).unwrap();
        let file = File::open(&packed).unwrap();
        assert!(has_time_of(&file, &target));
        // As a file system that stores whole days leaves it.
        set_time(&target, 86_400);
        assert!(!has_time_of(&file, &target));
    }

    #[test]
    fn a_copy_that_would_replace_a_file_of_the_dataset_is_refused() {
        for (files, refused) in [
            (&[("x.zstd", Some("x"))][..], None),
            (&[("x", None), ("x", None)], None),
            (&[("x", Some("x"))], Some("shard 0: \"x\" would be decompressed to \"x\"")),
            (&[("x.zstd", Some("./x.zstd"))], Some("shard 0: ")),
            (&[("a.zstd", Some("b.zstd")), ("b.zstd", Some("b"))], Some("and replace the file of shard 1; correct")),
            (&[("a", None), ("b.zstd", Some("a"))], Some("shard 1: \"b.zstd\" would be decompressed to \"a\"")),
        ] {
            let found = check_copies(files);
            match refused {
                None => found.unwrap(),
                Some(cause) => assert!(found.unwrap_err().cause().contains(cause), "{files:?}"),
            }
        }
    }

    #[test]
    fn a_lock_that_another_process_holds_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&packed, gzip(b"one")).unwrap();
        let other = File::open(&packed).unwrap();
        other.lock().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| unpacked(&packed, &target, 3, Unpack::Gzip));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished() && !target.exists());
            // The other process has written it.
            fs::write(&target, b"two").unwrap();
            let time = fs::metadata(&packed).unwrap().modified().unwrap();
            File::options().write(true).open(&target).unwrap().set_modified(time).unwrap();
            other.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(&target).unwrap(), b"two", "not written again");
    }
}
