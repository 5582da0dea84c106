//! Decompresses the files of a dataset. Random access requires an uncompressed file, so each file
//! is decompressed once, when the dataset is opened. The copy is placed next to the compressed
//! file, under the name that the original library would use. It is renamed into place when it is
//! complete, so no process sees a partial file. If several processes open the dataset at the same
//! time, one of them decompresses each file, and the others wait.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::machine::{attempt, cancel, file, is_stopped};

/// Maximum size of a decompressed file, in which offsets have 32 bits.
const MOST: u64 = 1 << 32;

/// Maximum time to wait while another process decompresses the same file.
const PATIENCE: Duration = Duration::from_secs(600);

/// Maximum expansion ratio of a Snappy block, in which three bytes expand to at most 64.
const SNAPPY_RATIO: usize = 22;

/// Number of bytes of a decompressed block that are written between two checks of the cancel token.
const SLICE: usize = 1 << 20;

/// A compression method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpack {
    Gzip,
    Snappy,
    Zstd,
}

impl Unpack {
    /// Finds a compression method by its name in the indexes of MosaicML and LitData.
    ///
    /// # Errors
    /// If the method is not supported.
    pub(crate) fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "gz" => Unpack::Gzip,
            "snappy" => Unpack::Snappy,
            "zstd" => Unpack::Zstd,
            _ => {
                return Err(Error::in_source(format!(
                    "compression {name:?} is not supported, only zstd, gz and snappy; decompress the files next to the \
                     compressed ones, or write the dataset without compression"
                )));
            }
        })
    }

    /// Decompresses up to `most + 1` bytes of `packed` into `to`. Returns the number of bytes.
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
                // The claimed length determines the size of the allocation, so check that it is
                // plausible.
                if len / SNAPPY_RATIO > block.len() {
                    let held = block.len();
                    return Err(io::Error::other(format!(
                        "a Snappy block of {held} bytes cannot expand to the claimed {len} bytes"
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

/// Decompresses consecutive zstd frames.
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

/// Checks that no decompressed copy would replace a file of the dataset. `files` contains the file
/// names in the index, each with the name of its copy if the file is compressed.
///
/// # Errors
/// If a copy would have the name of a file of the dataset.
pub(crate) fn check_copies(files: &[(&str, Option<&str>)]) -> Result<()> {
    // An index may spell the same path in several ways.
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
                "shard {number}: {name:?} would be decompressed to {copy:?}, which would replace the file of shard {of}; \
                 correct the names in the index, or write the dataset again"
            )));
        }
    }
    Ok(())
}

/// Ensures that `target` contains the decompressed content of the file `packed`, which is `len`
/// bytes long.
///
/// The copy gets the modification time of `packed`. A copy with a different time or length was made
/// from a different version of `packed` or by another library, and is written again. If it cannot
/// be written, for example in a read-only folder, the copy is compared with `packed` each time the
/// dataset is opened.
///
/// # Errors
/// If `packed` does not decompress to `len` bytes, if the folder is not writable and contains no
/// copy with the same content, or if the calling thread is [cancelled](crate::CancelToken).
pub(crate) fn unpacked(packed: &Path, target: &Path, len: u64, unpack: Unpack) -> Result<()> {
    if is_copy(packed, target, len) {
        return Ok(());
    }
    let named = |e: Error| if e.path().is_some() { e } else { e.at_path(packed) };
    if len > MOST {
        return Err(named(Error::in_source(format!("claims {len} bytes when decompressed; the limit is {MOST}"))));
    }
    let file = file::open(packed).map_err(|e| Error::io(packed, &e))?;
    let alone = locked(&file, packed).map_err(named)?;
    let copied = copy((&file, packed), target, len, unpack, alone).map_err(named);
    // Unlock explicitly, because a process that was forked in the meantime would otherwise keep the
    // lock.
    let _ = file.unlock();
    copied
}

/// Writes the copy of the open compressed file `file`, whose path is `packed`.
fn copy((file, packed): (&File, &Path), target: &Path, len: u64, unpack: Unpack, alone: bool) -> Result<()> {
    // Another process may have written the copy while this one waited for the lock.
    if is_copy(packed, target, len) {
        return Ok(());
    }
    if alone {
        // No process is writing the partial files of this copy, because this process holds the
        // lock.
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
                "{}: cannot copy the modification time of {}, so each opening decompresses it again: use a file system \
                 that preserves modification times, or move the compressed file elsewhere, so that only the decompressed \
                 file is used",
                target.display(),
                packed.display()
            );
        }
        return Ok(());
    };
    // An error with a path comes from the folder, not from the compressed file.
    if e.path().is_some() {
        if is_equal(file, target, len, unpack) {
            tracing::info!("{e}; using the existing file, which has the same content");
            return Ok(());
        }
        cancel::check()?;
    }
    Err(e)
}

/// Returns whether `target` is a copy of `packed`, judging by its length and modification time. If
/// `packed` does not exist, because another library removed it, `target` is the only data and
/// counts as a copy.
fn is_copy(packed: &Path, target: &Path, len: u64) -> bool {
    let Ok(found) = fs::metadata(target) else { return false };
    let same_time = || match fs::metadata(packed) {
        Ok(packed) => packed.modified().ok() == found.modified().ok(),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    found.is_file() && found.len() == len && same_time()
}

/// Returns whether the file at `target` has the modification time of `packed`.
fn has_time_of(packed: &File, target: &Path) -> bool {
    let times = [packed.metadata(), fs::metadata(target)].map(|found| found.and_then(|found| found.modified()).ok());
    times[0] == times[1]
}

/// Locks the compressed file, so that only one process decompresses it. Returns whether the lock
/// was acquired, because some file systems do not support locks, and the wait is limited.
///
/// # Errors
/// If the calling thread is cancelled while it waits for the lock.
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

/// Returns the file, positioned at its start. The handle is reused because, where locks are
/// mandatory, only this handle can read the file.
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
            // If the modification time is not set, the copy is written again when the dataset is
            // next opened. The time is checked after the rename, because some file systems silently
            // ignore it.
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

/// Returns whether the file at `target` has the content of `packed`.
fn is_equal(packed: &File, target: &Path, len: u64, unpack: Unpack) -> bool {
    let Ok(copy) = file::open(target) else { return false };
    if copy.metadata().is_ok_and(|found| found.len() != len) {
        return false;
    }
    let mut compared = Compared(BufReader::with_capacity(1 << 20, copy));
    from_start(packed).and_then(|packed| unpack.run(packed, len, &mut compared)).is_ok_and(|found| found == len)
}

/// A writer that fails if the written bytes differ from the content of a file.
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

/// A writer that records its own errors, to distinguish them from errors of the compressed file,
/// and that fails when the calling thread is cancelled.
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
            "cannot write the decompressed file: {error}; make its folder writable and large enough for the decompressed data, \
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
    fn a_copy_of_a_different_version_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        let unpack = || unpacked(&packed, &target, 3, Unpack::Gzip).unwrap();
        fs::write(&packed, gzip(b"one")).unwrap();
        unpack();
        let written = fs::metadata(&target).unwrap().modified().unwrap();
        assert_eq!(written, fs::metadata(&packed).unwrap().modified().unwrap());
        // Simulates an archive that was unpacked with an old modification time.
        fs::write(&packed, gzip(b"two")).unwrap();
        set_time(&packed, 1_000_000_000);
        unpack();
        assert_eq!(fs::read(&target).unwrap(), b"two");
        // Simulates another library that wrote a file of the previous version later.
        fs::write(&target, b"one").unwrap();
        unpack();
        assert_eq!(fs::read(&target).unwrap(), b"two");
        fs::remove_file(&packed).unwrap();
        unpack();
    }

    #[test]
    fn a_read_only_folder_needs_an_equal_copy() {
        let folder = tempfile::tempdir().unwrap();
        // The name of the temporary file is too long, so the copy cannot be written.
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
    fn concurrent_processes_decompress_once_and_clean_up() {
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
                    // Once a file has its final name, it is complete.
                    assert_eq!(fs::read(&target).unwrap().len(), 1 << 20);
                });
            }
        });
        assert!(fs::read(&target).unwrap() == content);
        assert!(kept.iter().all(|path| path.exists()) && !left.iter().any(|path| path.exists()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 + kept.len());
    }

    #[test]
    fn a_cancel_ends_the_wait_and_the_decompression() {
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
        // Cancel at the tenth check, which is in the middle of the file.
        let looks = AtomicUsize::new(0);
        cancelled(CancelToken::new(move || looks.fetch_add(1, Ordering::Relaxed) > 9).during(unpack));
        unpacked(&packed, &target, 1 << 20, Unpack::Gzip).unwrap();
    }

    #[test]
    fn an_implausible_snappy_length_is_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.snappy"), folder.path().join("x"));
        // A block starts with the length of its content.
        fs::write(&packed, [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).unwrap();
        let e = unpacked(&packed, &target, u64::from(u32::MAX), Unpack::Snappy).unwrap_err();
        assert!(e.cause().contains("a Snappy block of 7 bytes cannot expand to the claimed 4294967295"), "{e}");
        let zeros = vec![0; 3 << 20];
        fs::write(&packed, snap::raw::Encoder::new().compress_vec(&zeros).unwrap()).unwrap();
        unpacked(&packed, &target, 3 << 20, Unpack::Snappy).unwrap();
        assert!(fs::read(&target).unwrap() == zeros, "the highest ratio");
    }

    #[test]
    fn a_copy_with_a_lost_time_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&packed, gzip(b"one")).unwrap();
        unpacked(&packed, &target, 3, Unpack::Gzip).unwrap();
        let file = File::open(&packed).unwrap();
        assert!(has_time_of(&file, &target));
        // Simulates a file system that stores modification times in whole days.
        set_time(&target, 86_400);
        assert!(!has_time_of(&file, &target));
    }

    #[test]
    fn a_copy_must_not_replace_a_file_of_the_dataset() {
        for (files, refused) in [
            (&[("x.zstd", Some("x"))][..], None),
            (&[("x", None), ("x", None)], None),
            (&[("x", Some("x"))], Some("shard 0: \"x\" would be decompressed to \"x\"")),
            (&[("x.zstd", Some("./x.zstd"))], Some("shard 0: ")),
            (
                &[("a.zstd", Some("b.zstd")), ("b.zstd", Some("b"))],
                Some("which would replace the file of shard 1; correct"),
            ),
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
    fn a_lock_of_a_different_process_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&packed, gzip(b"one")).unwrap();
        let other = File::open(&packed).unwrap();
        other.lock().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| unpacked(&packed, &target, 3, Unpack::Gzip));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished() && !target.exists());
            // Simulates another process that has written the copy.
            fs::write(&target, b"two").unwrap();
            let time = fs::metadata(&packed).unwrap().modified().unwrap();
            File::options().write(true).open(&target).unwrap().set_modified(time).unwrap();
            other.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(&target).unwrap(), b"two", "not written again");
    }
}
