//! Decompresses the files of a dataset, because random access needs uncompressed files.
//!
//! Opening a dataset decompresses each file once. The copy is placed next to the compressed file,
//! under the name that MosaicML Streaming or LitData would use. It gets this name only when it is
//! complete, so that no process sees a partial file. If several processes open the dataset at the
//! same time, one of them decompresses a file while the others wait for up to ten minutes.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::machine::{cancel, file, is_stopped, temp_files};

/// Maximum size of a decompressed file, in bytes. Both shard formats use 32-bit offsets.
const MAX_COPY_BYTES: u64 = 1 << 32;

/// Maximum time to wait for another process that is decompressing the same file.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Maximum compression ratio of a Snappy block, rounded up. Three bytes expand to at most 64 bytes.
const SNAPPY_RATIO: usize = 22;

/// Maximum number of bytes that are written between two checks of the cancel token.
const WRITE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Snappy,
    Zstd,
}

impl Compression {
    /// Parses a compression name from a MosaicML or LitData index.
    pub(crate) fn from_name(name: &str) -> Result<Self> {
        Ok(match name {
            "gz" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "zstd" => Compression::Zstd,
            _ => {
                return Err(Error::in_source(format!(
                    "compression {name:?} is not supported: expected zstd, gz or snappy; decompress the files in \
                     place, or write the dataset without compression"
                )));
            }
        })
    }

    /// Decompresses `compressed` into `out`, up to `max_bytes + 1` bytes, and returns the number of
    /// bytes written. If a Snappy block claims a length other than `max_bytes`, writes nothing and
    /// returns that length.
    fn decompress(self, compressed: File, max_bytes: u64, out: &mut impl Write) -> io::Result<u64> {
        let limit = max_bytes.saturating_add(1);
        match self {
            Compression::Gzip => {
                io::copy(&mut flate2::bufread::MultiGzDecoder::new(BufReader::new(compressed)).take(limit), out)
            }
            Compression::Zstd => zstd_frames(compressed, limit, out),
            // A Snappy file is a single block.
            Compression::Snappy => {
                let mut block = Vec::new();
                file::append(compressed, &mut block, MAX_COPY_BYTES)?;
                let len = snap::raw::decompress_len(&block)?;
                if len as u64 != max_bytes {
                    return Ok(len as u64);
                }
                // Check that the claimed length is plausible before allocating that many bytes.
                if len / SNAPPY_RATIO > block.len() {
                    let block_len = block.len();
                    return Err(io::Error::other(format!(
                        "a Snappy block of {block_len} bytes cannot expand to the claimed {len} bytes"
                    )));
                }
                let mut plain = Vec::new();
                plain.try_reserve_exact(len).map_err(|_| {
                    io::Error::new(io::ErrorKind::OutOfMemory, format!("its {len} bytes do not fit in memory"))
                })?;
                plain.resize(len, 0);
                snap::raw::Decoder::new().decompress(&block, &mut plain)?;
                plain.chunks(WRITE_BYTES).try_for_each(|slice| out.write_all(slice))?;
                Ok(len as u64)
            }
        }
    }
}

fn zstd_frames(compressed: File, limit: u64, out: &mut impl Write) -> io::Result<u64> {
    let (mut compressed, mut total) = (BufReader::new(compressed), 0);
    while !io::BufRead::fill_buf(&mut compressed)?.is_empty() && total < limit {
        let mut frame = ruzstd::decoding::StreamingDecoder::new(&mut compressed).map_err(io::Error::other)?;
        total += io::copy(&mut (&mut frame).take(limit - total), out)?;
        let sums = (frame.decoder.get_checksum_from_data(), frame.decoder.get_calculated_checksum());
        if total < limit
            && let (Some(expected), Some(actual)) = sums
            && expected != actual
        {
            return Err(io::Error::other("the checksum is wrong"));
        }
    }
    Ok(total)
}

/// Checks that no decompressed copy would replace a file of the dataset or the copy of a different
/// file. For each file in the index, `files` contains its name and, if it is compressed, the name
/// of its copy.
pub(crate) fn check_copies(files: &[(&str, Option<&str>)]) -> Result<()> {
    /// Normalizes a path, because an index may spell the same path in several ways.
    fn components(name: &str) -> Vec<Component<'_>> {
        Path::new(name).components().filter(|part| *part != Component::CurDir).collect()
    }
    if files.iter().all(|(_, copy)| copy.is_none()) {
        return Ok(());
    }
    let originals: HashMap<_, _> =
        files.iter().enumerate().map(|(shard, (name, _))| (components(name), shard)).collect();
    let mut copies = HashMap::new();
    for (shard, (name, copy)) in files.iter().enumerate() {
        let Some(copy) = copy else { continue };
        let replaced = match originals.get(&components(copy)) {
            Some(other) => format!("the file of shard {other}"),
            None => match copies.insert(components(copy), (shard, components(name))) {
                Some((other, original)) if original != components(name) => format!("the copy of shard {other}"),
                _ => continue,
            },
        };
        return Err(Error::in_source(format!(
            "shard {shard}: {name:?} would be decompressed to {copy:?}, which would replace {replaced}; correct the \
             names in the index, or write the dataset again"
        )));
    }
    Ok(())
}

/// Ensures that `target` contains the `len` decompressed bytes of `compressed`.
///
/// The copy has the modification time of `compressed`. An existing copy with a different time or
/// length is assumed to be outdated and is replaced. If the copy cannot be written, for example
/// because the folder is read-only, an existing copy is used if it has the same content. Its
/// content is then compared each time the dataset is opened.
pub(crate) fn decompress_file(compressed: &Path, target: &Path, len: u64, compression: Compression) -> Result<()> {
    if is_copy(compressed, target, len) {
        return Ok(());
    }
    let named = |e: Error| if e.path().is_some() { e } else { e.at_path(compressed) };
    if len > MAX_COPY_BYTES {
        return Err(named(Error::in_source(format!(
            "the file claims to decompress to {len} bytes: expected at most {MAX_COPY_BYTES}"
        ))));
    }
    let file = file::open(compressed).map_err(|e| Error::io(compressed, &e))?;
    let is_locked = try_lock(&file, compressed).map_err(named)?;
    let copied = write_copy(&file, compressed, target, len, compression, is_locked).map_err(named);
    // Unlock explicitly: a child process that was forked in the meantime shares the lock and would
    // keep it.
    let _ = file.unlock();
    copied
}

/// Writes the copy. `is_locked` is true if this process holds the lock.
fn write_copy(
    file: &File,
    compressed: &Path,
    target: &Path,
    len: u64,
    compression: Compression,
    is_locked: bool,
) -> Result<()> {
    // Another process may have written the copy while this process waited for the lock.
    if is_copy(compressed, target, len) {
        return Ok(());
    }
    if is_locked {
        // A process that stopped waiting for the lock may be writing a partial copy. That copy is
        // locked, and is not removed.
        let _ = temp_files::remove_abandoned_of(target, |file_name| {
            target.file_name().is_some_and(|name| name == file_name)
        });
    }
    tracing::info!("{}: decompressing this file to {len} bytes", compressed.display());
    let result = temp_files::create(target).map_err(|e| write_error(target, &e)).and_then(|(partial, out)| {
        let written = write(file, (&partial, out), len, compression);
        let result = written.and_then(|()| file::rename(&partial, target).map_err(|e| write_error(target, &e)));
        result.inspect_err(|_| drop(fs::remove_file(&partial)))
    });
    let Err(e) = result else {
        if !has_time_of(file, target) {
            let (target, compressed) = (target.display(), compressed.display());
            tracing::warn!(
                "{target}: this decompressed file does not have the modification time of {compressed}, so \
                 {compressed} is decompressed each time the dataset is opened: use a file system that preserves \
                 modification times, or move {compressed} elsewhere"
            );
        }
        return Ok(());
    };
    // An error with a path means that the copy could not be written. Any other error comes from
    // reading or decompressing the file, or from cancellation.
    if e.path().is_some() {
        if has_equal_content(file, target, len, compression) {
            tracing::info!("{e}; using the existing file, which has the same content");
            return Ok(());
        }
        cancel::check()?;
    }
    Err(e)
}

/// Returns whether `target` is a copy of `compressed`, according to its length and modification
/// time. If `compressed` no longer exists (some libraries delete it after decompressing), only the
/// length is compared.
fn is_copy(compressed: &Path, target: &Path, len: u64) -> bool {
    let Ok(metadata) = fs::metadata(target) else { return false };
    let has_same_time = || match fs::metadata(compressed) {
        Ok(compressed) => compressed.modified().ok() == metadata.modified().ok(),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    metadata.is_file() && metadata.len() == len && has_same_time()
}

fn has_time_of(compressed: &File, target: &Path) -> bool {
    let times = [compressed.metadata(), fs::metadata(target)]
        .map(|metadata| metadata.and_then(|metadata| metadata.modified()).ok());
    times[0] == times[1]
}

/// Locks the compressed file, so that only one process decompresses it. Returns false if the file
/// system does not support locks, or if another process still holds the lock after [`MAX_WAIT`].
/// Fails if the calling thread is canceled.
fn try_lock(file: &File, path: &Path) -> Result<bool> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if start.elapsed() < MAX_WAIT => cancel::sleep(Duration::from_millis(20))?,
            Err(e) => {
                tracing::info!(
                    "{}: cannot lock this file ({e}); it may be decompressed more than once",
                    path.display()
                );
                return Ok(false);
            }
        }
    }
}

/// Returns a clone of `compressed`, rewound to the start. Does not open the file again, because on
/// systems with mandatory locks, only the handle that holds the lock can read the file.
fn clone_rewound(compressed: &File) -> io::Result<File> {
    let mut compressed = compressed.try_clone()?;
    compressed.rewind()?;
    Ok(compressed)
}

fn write(compressed: &File, (partial, file): (&Path, File), len: u64, compression: Compression) -> Result<()> {
    let modified = compressed.metadata().and_then(|metadata| metadata.modified());
    let mut out =
        CancelableWriter { file: BufWriter::with_capacity(WRITE_BYTES, file), failed: None, is_canceled: false };
    let decompressed =
        clone_rewound(compressed).and_then(|compressed| compression.decompress(compressed, len, &mut out));
    let decompressed = decompressed.and_then(|count| out.flush().map(|()| count));
    if out.is_canceled {
        return Err(cancel::canceled_error());
    }
    match (decompressed, out.failed) {
        (_, Some(e)) => Err(write_error(partial, &e)),
        (Ok(count), None) if count == len => {
            // Ignore errors. Some file systems silently drop the time anyway, so the caller checks
            // it after the rename.
            let _ = modified.and_then(|modified| out.file.get_ref().set_modified(modified));
            Ok(())
        }
        (Ok(count), None) => {
            let actual = if count > len { format!("more than {len}") } else { count.to_string() };
            Err(Error::in_source(format!("the file decompresses to {actual} bytes, but the index lists {len}")))
        }
        (Err(e), None) => Err(Error::in_source(format!("the file cannot be decompressed: {e}"))),
    }
}

fn has_equal_content(compressed: &File, target: &Path, len: u64, compression: Compression) -> bool {
    let Ok(copy) = file::open(target) else { return false };
    if copy.metadata().is_ok_and(|metadata| metadata.len() != len) {
        return false;
    }
    let mut comparison = ComparingWriter(BufReader::with_capacity(1 << 20, copy));
    clone_rewound(compressed)
        .and_then(|compressed| compression.decompress(compressed, len, &mut comparison))
        .is_ok_and(|count| count == len)
}

/// A writer that fails if the written bytes differ from the content of a file.
struct ComparingWriter(BufReader<File>);

impl Write for ComparingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        let expected = io::BufRead::fill_buf(&mut self.0)?;
        let count = bytes.len().min(expected.len());
        if expected[..count] != bytes[..count] || count == 0 && !bytes.is_empty() {
            return Err(io::Error::other("the files differ"));
        }
        io::BufRead::consume(&mut self.0, count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A writer that fails when the calling thread is canceled. It records write errors, to distinguish
/// them from read and decompression errors.
struct CancelableWriter {
    file: BufWriter<File>,
    failed: Option<io::Error>,
    is_canceled: bool,
}

impl CancelableWriter {
    fn record<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|e| {
            self.failed.get_or_insert_with(|| {
                e.raw_os_error().map_or(io::Error::other("the write failed"), io::Error::from_raw_os_error)
            });
        })
    }
}

impl Write for CancelableWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_stopped() {
            self.is_canceled = true;
            return Err(io::Error::other("stopped"));
        }
        let result = self.file.write(bytes);
        self.record(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.flush();
        self.record(result)
    }
}

fn write_error(path: &Path, error: &io::Error) -> Error {
    Error::new(
        crate::error::ErrorKind::Io,
        format!(
            "cannot write the decompressed file: {error}; check that its folder is writable and that the disk is not \
             full, or decompress the files yourself"
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
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn set_time(path: &Path, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_copy_of_a_different_version_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (compressed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        let decompress = || decompress_file(&compressed, &target, 3, Compression::Gzip).unwrap();
        fs::write(&compressed, gzip(b"one")).unwrap();
        decompress();
        let written = fs::metadata(&target).unwrap().modified().unwrap();
        assert_eq!(written, fs::metadata(&compressed).unwrap().modified().unwrap());
        // Simulate a new version with an older modification time, as archive tools restore it.
        fs::write(&compressed, gzip(b"two")).unwrap();
        set_time(&compressed, 1_000_000_000);
        decompress();
        assert_eq!(fs::read(&target).unwrap(), b"two");
        // Simulate a copy of the previous version that another library wrote later.
        fs::write(&target, b"one").unwrap();
        decompress();
        assert_eq!(fs::read(&target).unwrap(), b"two");
        fs::remove_file(&compressed).unwrap();
        decompress();
    }

    #[test]
    fn a_read_only_folder_needs_an_equal_copy() {
        let folder = tempfile::tempdir().unwrap();
        // The name of the temporary file is too long, so the copy cannot be written.
        let (compressed, target) = (folder.path().join("x.gz"), folder.path().join("x".repeat(250)));
        fs::write(&compressed, gzip(b"one")).unwrap();
        for (copy, used) in [(&b"one"[..], true), (b"two", false), (b"on", false), (b"ones", false), (b"", false)] {
            fs::write(&target, copy).unwrap();
            set_time(&target, 2_000_000_000);
            let result = decompress_file(&compressed, &target, 3, Compression::Gzip);
            assert_eq!(result.is_ok(), used, "{copy:?}: {result:?}");
            assert_eq!(fs::read(&target).unwrap(), copy);
            if let Err(e) = result {
                assert!(e.cause().contains("check that its folder is writable"), "{e}");
            }
        }
    }

    #[test]
    fn concurrent_threads_decompress_and_clean_up() {
        let folder = tempfile::tempdir().unwrap();
        let (compressed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        let content = vec![7; 1 << 20];
        fs::write(&compressed, gzip(&content)).unwrap();
        let kept_files =
            ["x.txt.partial", "y.0123456789abcdef.partial", "x.partial"].map(|name| folder.path().join(name));
        let abandoned =
            ["x.0123456789abcdef.partial", "x.00000000000000ff.partial"].map(|name| folder.path().join(name));
        kept_files.iter().chain(&abandoned).for_each(|path| fs::write(path, b"half").unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    decompress_file(&compressed, &target, 1 << 20, Compression::Gzip).unwrap();
                    assert_eq!(fs::read(&target).unwrap().len(), 1 << 20);
                });
            }
        });
        assert!(fs::read(&target).unwrap() == content);
        assert!(kept_files.iter().all(|path| path.exists()) && !abandoned.iter().any(|path| path.exists()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 + kept_files.len());
    }

    #[test]
    fn canceling_interrupts_waiting_and_decompressing() {
        let folder = tempfile::tempdir().unwrap();
        let (compressed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&compressed, gzip(&vec![7; 1 << 20])).unwrap();
        let decompress = || decompress_file(&compressed, &target, 1 << 20, Compression::Gzip).unwrap_err();
        let check_canceled = |e: Error| {
            assert!(e.path() == Some(&*compressed) && e.cause().contains("canceled"), "{e}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left");
        };
        let other = File::open(&compressed).unwrap();
        other.lock().unwrap();
        let started = Instant::now();
        check_canceled(CancelToken::new(move || started.elapsed() > Duration::from_millis(50)).run(decompress));
        other.unlock().unwrap();
        // The eleventh check is in the middle of the file.
        let checks = AtomicUsize::new(0);
        check_canceled(CancelToken::new(move || checks.fetch_add(1, Ordering::Relaxed) > 9).run(decompress));
        decompress_file(&compressed, &target, 1 << 20, Compression::Gzip).unwrap();
    }

    #[test]
    fn an_implausible_snappy_length_is_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        let (compressed, target) = (folder.path().join("x.snappy"), folder.path().join("x"));
        fs::write(&compressed, [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).unwrap();
        let e = decompress_file(&compressed, &target, u64::from(u32::MAX), Compression::Snappy).unwrap_err();
        assert!(e.cause().contains("a Snappy block of 7 bytes cannot expand to the claimed 4294967295"), "{e}");
        let zeros = vec![0; 3 << 20];
        fs::write(&compressed, snap::raw::Encoder::new().compress_vec(&zeros).unwrap()).unwrap();
        decompress_file(&compressed, &target, 3 << 20, Compression::Snappy).unwrap();
        assert!(fs::read(&target).unwrap() == zeros, "a maximally compressed block is accepted");
    }

    #[test]
    fn a_file_system_that_changes_file_times_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (compressed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&compressed, gzip(b"one")).unwrap();
        decompress_file(&compressed, &target, 3, Compression::Gzip).unwrap();
        let file = File::open(&compressed).unwrap();
        assert!(has_time_of(&file, &target));
        // Simulate a file system that rounds modification times.
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
            (&[("x.zstd", Some("x")), ("./x.zstd", Some("./x"))], None),
            (
                &[("a.zstd", Some("x")), ("b.zstd", Some("./x"))],
                Some("shard 1: \"b.zstd\" would be decompressed to \"./x\", which would replace the copy of shard 0;"),
            ),
        ] {
            let result = check_copies(files);
            match refused {
                None => result.unwrap(),
                Some(cause) => assert!(result.unwrap_err().cause().contains(cause), "{files:?}"),
            }
        }
    }

    #[test]
    fn opening_waits_for_the_lock_of_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let (compressed, target) = (folder.path().join("x.gz"), folder.path().join("x"));
        fs::write(&compressed, gzip(b"one")).unwrap();
        let other = File::open(&compressed).unwrap();
        other.lock().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| decompress_file(&compressed, &target, 3, Compression::Gzip));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished() && !target.exists());
            // Write the copy, as another process would.
            fs::write(&target, b"two").unwrap();
            let time = fs::metadata(&compressed).unwrap().modified().unwrap();
            File::options().write(true).open(&target).unwrap().set_modified(time).unwrap();
            other.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(&target).unwrap(), b"two", "not written again");
    }
}
