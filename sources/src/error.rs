//! The error type of the crate, and helpers that report panics and failed allocations as errors.
//!
//! `Display` prints the sample, the file, the kind and the cause:
//!
//! ```text
//! sample 7 (cat/x): train/cat/x.jpg: decode: jpeg ends at byte 4096 in MCU 61 of 132
//! ```

use std::collections::TryReserveError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its location and its cause.
///
/// Programs match on [`kind`](Error::kind); people read the printed text. An error is the size of a
/// pointer, so returning a `Result` is cheap on the hot path.
///
/// `Debug` prints the same text as `Display`, because Rust prints the error of `fn main() ->
/// Result<()>` with `Debug`. [`source`](std::error::Error::source) returns the underlying error, if
/// there is one. This is a [`std::io::Error`] for [`Error::io`], or the argument of
/// [`with_source`](Error::with_source). By convention, the message already includes the text of the
/// underlying error, so do not print the chain of sources as well.
///
/// Clones share the underlying error.
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    cause: String,
    path: Option<PathBuf>,
    sample: Option<u64>,
    key: Option<String>,
    os_code: Option<i32>,
    transient: bool,
    throttled: bool,
    not_found: bool,
    source: Option<Arc<Source>>,
    failed: Vec<(u64, Error)>,
}

type Source = dyn std::error::Error + Send + Sync;

type Panic = Box<dyn std::any::Any + Send>;

/// The class of an [`Error`], for programs to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An operating-system call or a request to a store failed, or a read was canceled. Some failed
    /// requests have a more specific kind, such as [`Config`](Self::Config) if access is denied.
    Io,
    /// An option, an argument or a credential is invalid. Most of these errors occur when a dataset
    /// or a loader is opened.
    Config,
    /// A container (such as a tar file, an LMDB database or an index) is damaged or has unexpected
    /// content.
    Source,
    /// The encoded bytes of a sample could not be decoded to pixels or arrays.
    Decode,
    /// The pixels of a sample could not be transformed.
    Transform,
    /// Code panicked, such as a custom source, codec or sampler. The [cause](Error::cause) contains
    /// the panic message.
    Panic,
    /// More samples failed than `OnError::Skip` allows.
    TooManySkipped,
    /// Memory could not be allocated, or the loader's memory plan exceeds the configured limit.
    Memory,
    /// The CUDA driver is missing, or one of its calls failed.
    Cuda,
    /// A wait exceeded its timeout.
    Timeout,
    /// The stream is being captured into a CUDA graph. The loader can be used again once the
    /// capture ends.
    Capturing,
    /// The queue already has `max_queued` requests.
    Busy,
}

impl ErrorKind {
    fn word(self) -> &'static str {
        match self {
            ErrorKind::Io => "io",
            ErrorKind::Config => "config",
            ErrorKind::Source => "source",
            ErrorKind::Decode => "decode",
            ErrorKind::Transform => "transform",
            ErrorKind::Panic => "panic",
            ErrorKind::TooManySkipped => "too many skipped",
            ErrorKind::Memory => "memory",
            ErrorKind::Cuda => "cuda",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Capturing => "capturing",
            ErrorKind::Busy => "busy",
        }
    }
}

impl Error {
    /// Creates an error of `kind`. By convention, `cause` starts in lower case and has no final
    /// period, and a cause about a mismatch states both values.
    pub fn new(kind: ErrorKind, cause: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            cause: cause.into(),
            path: None,
            sample: None,
            key: None,
            os_code: None,
            transient: false,
            throttled: false,
            not_found: false,
            source: None,
            failed: Vec::new(),
        }))
    }

    /// Creates an [`ErrorKind::Decode`] error, for a custom `Codec`.
    pub fn decode(cause: impl Into<String>) -> Self {
        Self::new(ErrorKind::Decode, cause)
    }

    /// Creates an [`ErrorKind::Config`] error.
    pub fn config(cause: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, cause)
    }

    /// Creates an [`ErrorKind::Source`] error, for a custom [`Source`](crate::Source).
    pub fn in_source(cause: impl Into<String>) -> Self {
        Self::new(ErrorKind::Source, cause)
    }

    /// Creates an error for a failed operating-system call on `path`. The error is
    /// [transient](Error::is_transient) if a retry may succeed. Its
    /// [source](std::error::Error::source) is a [`std::io::Error`] with the same kind, error number
    /// and text as `error`.
    pub fn io(path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{FileTooLarge, Interrupted, StaleNetworkFileHandle, TimedOut, WouldBlock};
        let code = error.raw_os_error();
        let advice = code.and_then(exhaustion_advice).map_or(String::new(), |advice| format!("; {advice}"));
        // A file that exceeds a limit of the loader has no error code.
        let exceeds_limit = error.kind() == FileTooLarge && code.is_none();
        let kind = if exceeds_limit { ErrorKind::Source } else { ErrorKind::Io };
        let mut e = Self::new(kind, format!("{error}{advice}")).at_path(path);
        e.0.os_code = code;
        e.0.transient = matches!(error.kind(), Interrupted | StaleNetworkFileHandle | TimedOut | WouldBlock)
            || code.is_some_and(|code| codes::TRANSIENT.contains(&code))
            || e.is_exhausted();
        // `std::io::Error` cannot be cloned.
        e.with_source(match error.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(error.kind(), error.to_string()),
        })
    }

    /// Creates the error for a path or URL at which nothing exists, with a cause that says more than
    /// the message of the operating system.
    pub(crate) fn no_such_path(path: impl Into<PathBuf>, cause: String) -> Self {
        /// `ENOENT`, which equals `ERROR_FILE_NOT_FOUND` on Windows.
        const NOT_FOUND: i32 = 2;
        let mut e = Self::io(path, &std::io::Error::from_raw_os_error(NOT_FOUND));
        e.0.cause = cause;
        e.not_found()
    }

    /// Sets the underlying error, which [`source`](std::error::Error::source) returns. Replaces the
    /// underlying error of an earlier call.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use warpfeed_sources::Error;
    ///
    /// let cause = "seven".parse::<u32>().unwrap_err();
    /// let error = Error::in_source(format!("the row's number: {cause}")).with_source(cause);
    /// assert!(error.source().unwrap().is::<std::num::ParseIntError>());
    /// ```
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Marks the error as transient, which means that a retry may succeed. The loader then retries
    /// the read; see `Loader::retries`.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.0.transient = true;
        self
    }

    /// Marks the error as the response of an overloaded server, such as HTTP status 503. The loader
    /// then retries the read and slows down its requests to the server.
    #[must_use]
    pub fn throttled(mut self) -> Self {
        self.0.throttled = true;
        self.transient()
    }

    /// Marks the error as a store's definite answer that the object does not exist, such as HTTP
    /// status 404.
    #[must_use]
    pub fn not_found(mut self) -> Self {
        self.0.not_found = true;
        self
    }

    /// Sets the file that the error concerns, unless a file is already set. The innermost caller,
    /// which knows the file most precisely, sets it first.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// Sets the location to a line of `file`. Moves a path that was set before into the cause.
    #[doc(hidden)]
    #[must_use]
    pub fn at_line(mut self, file: impl Into<PathBuf>, line: usize) -> Self {
        let inner = self.0.path.replace(file.into()).map_or(String::new(), |path| format!("{}: ", path.display()));
        self.0.cause = format!("line {line}: {inner}{}", self.0.cause);
        self
    }

    /// Appends to the cause that line `line` of the list `file` names the file that failed.
    #[doc(hidden)]
    #[must_use]
    pub fn named_in(mut self, file: &Path, line: usize) -> Self {
        self.0.cause = format!("{}; line {line} of {} names this file", self.0.cause, file.display());
        self
    }

    /// Sets the sample that the error concerns, unless a sample is already set.
    /// [`sample_error`](crate::sample_error) sets both the sample and its file.
    #[must_use]
    pub fn at_sample(mut self, id: u64, key: &str) -> Self {
        if self.0.sample.is_none() {
            self.0.sample = Some(id);
            self.0.key = (!key.is_empty()).then(|| key.to_owned());
        }
        self
    }

    /// Marks the error as permanent, because a retry cannot succeed or all retries have failed.
    /// Prepends `note` to the cause, if `note` is not empty.
    #[doc(hidden)]
    #[must_use]
    pub fn settled(mut self, note: &str) -> Self {
        (self.0.transient, self.0.throttled) = (false, false);
        if !note.is_empty() {
            self.0.cause = format!("{note}: {}", self.0.cause);
        }
        self
    }

    /// Moves the sample from the location into the cause. This is the error for a sample that could
    /// not be mixed into the image of another sample.
    #[doc(hidden)]
    #[must_use]
    pub fn of_partner(mut self) -> Self {
        if let Some(id) = self.0.sample.take() {
            let key = self.0.key.take().map_or(String::new(), |key| format!(" ({key})"));
            self.0.cause = format!("sample {id}{key}, its partner: {}", self.0.cause);
        }
        self
    }

    /// Sets the failed samples of a batch, each with its own error.
    #[doc(hidden)]
    #[must_use]
    pub fn of_batch(mut self, failed: Vec<(u64, Error)>) -> Self {
        self.0.failed = failed;
        self
    }

    /// Returns the failed samples of a batch, each with its own error. Empty if the error does not
    /// concern a batch.
    #[doc(hidden)]
    pub fn failed(&self) -> &[(u64, Error)] {
        &self.0.failed
    }

    /// Replaces the sample's index with `id`, and removes the key.
    #[doc(hidden)]
    #[must_use]
    pub fn of_sample(mut self, id: u64) -> Self {
        (self.0.sample, self.0.key) = (Some(id), None);
        self
    }

    /// Returns the error's kind, for programs to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the sample's index in its source, if the error concerns a sample.
    pub fn sample(&self) -> Option<u64> {
        self.0.sample
    }

    /// Returns the sample's key, if the error concerns a sample and the key could be read.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Returns the file, folder or URL that the error concerns, if it is known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the cause without the location.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// Returns whether a retry may succeed. True for the operating-system errors `EIO`, `EINTR`,
    /// `EAGAIN`, `ESTALE`, `ETIMEDOUT`, `EMFILE`, `ENFILE` and `ENOMEM`, for their Windows
    /// counterparts, and for errors that are marked as [transient](Error::transient) or
    /// [throttled](Error::throttled). A source retries failed requests to a store itself, so the
    /// errors that it returns for them are not transient.
    pub fn is_transient(&self) -> bool {
        self.0.transient
    }

    /// Returns whether the process or the machine has run out of file descriptors or memory
    /// (`EMFILE`, `ENFILE`, `ENOMEM`). The sample that was being read did not cause such an error,
    /// so it is never skipped.
    #[doc(hidden)]
    pub fn is_exhausted(&self) -> bool {
        self.0.os_code.and_then(exhaustion_advice).is_some()
    }

    /// Returns whether an overloaded server [refused](Error::throttled) the request.
    pub fn is_throttled(&self) -> bool {
        self.0.throttled
    }

    /// Returns whether a store reported that the object [does not exist](Error::not_found).
    pub fn is_not_found(&self) -> bool {
        self.0.not_found
    }

    /// Returns the operating system's error number (`errno`), if the error was created by
    /// [`Error::io`] from an error that has one.
    pub fn os_code(&self) -> Option<i32> {
        self.0.os_code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, cause, path, sample, key, .. } = &*self.0;
        match (sample, key) {
            (Some(id), Some(key)) => write!(f, "sample {id} ({key}): ")?,
            (Some(id), None) => write!(f, "sample {id}: ")?,
            _ => {}
        }
        if let Some(path) = path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}: {cause}", kind.word())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Clone for Error {
    fn clone(&self) -> Self {
        Error(self.0.clone())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Runs code that may be user-supplied, and converts panics into errors. A payload that is an
/// [`Error`] is returned unchanged, because code that cannot return an error, such as [`resize`] or
/// a sampler that returns only indices, panics with an [`Error`] instead.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    guarded_with(f, Err)
}

/// Like `guarded`, but first calls `other` to convert a panic payload that is not an [`Error`].
/// `other` must return a payload that it does not recognize.
pub fn guarded_with<T>(f: impl FnOnce() -> Result<T>, other: impl FnOnce(Panic) -> Result<Error, Panic>) -> Result<T> {
    // `AssertUnwindSafe` is sound here: a panic may leave the scratch buffer and the sample's bytes
    // partly written, but they are overwritten before they are read again.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let panic = match panic.downcast::<Error>() {
            Ok(e) => return Err(*e),
            Err(panic) => panic,
        };
        let panic = match other(panic) {
            Ok(e) => return Err(e),
            Err(panic) => panic,
        };
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| {
            // Dropping the payload would run its destructor, which may be user code and panic
            // again.
            std::mem::forget(panic);
            "with a non-string payload".into()
        });
        Err(Error::new(ErrorKind::Panic, text))
    })
}

/// Reserves space for `more` elements. Use this function for every allocation with a size that
/// depends on samples or options, because an infallible allocation aborts the process when memory
/// runs out.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation fails.
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<()> {
    vec.try_reserve(more).map_err(|_| {
        let bytes = more.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::Memory, format!("cannot allocate {bytes} bytes"))
    })
}

pub(crate) fn reservation_result(result: std::result::Result<(), TryReserveError>) -> Result<()> {
    result.map_err(|e| Error::new(ErrorKind::Memory, e.to_string()))
}

pub(crate) fn push<T>(vec: &mut Vec<T>, value: T) -> Result<()> {
    reserve(vec, 1)?;
    vec.push(value);
    Ok(())
}

pub(crate) fn try_collect<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    reserve(&mut vec, results.size_hint().0)?;
    for value in results {
        push(&mut vec, value?)?;
    }
    Ok(vec)
}

pub(crate) fn try_copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    append(&mut copy, bytes)?;
    Ok(copy)
}

/// Appends `bytes` to `out`.
///
/// # Errors
/// [`ErrorKind::Memory`] if the allocation fails.
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    reserve(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Resizes a vector. If the allocation fails, panics with the error of [`reserve`] as the payload,
/// without calling the panic hook. `guarded`, which wraps the processing of every sample, turns the
/// panic back into the error.
pub fn resize<T: Clone>(vec: &mut Vec<T>, len: usize, value: T) {
    if let Err(e) = reserve(vec, len.saturating_sub(vec.len())) {
        resume_unwind(Box::new(e));
    }
    vec.resize(len, value);
}

/// Prepends `location` to the message if `e` is a panic. Returns other errors unchanged.
pub fn panicked(e: Error, location: impl FnOnce() -> String) -> Error {
    if e.kind() != ErrorKind::Panic {
        return e;
    }
    Error::new(ErrorKind::Panic, format!("{}: {}", location(), e.cause()))
}

fn exhaustion_advice(code: i32) -> Option<&'static str> {
    match code {
        codes::PROCESS_FILES => Some("raise the process's limit on open files (ulimit -n), or close some"),
        code if codes::SYSTEM_FILES == Some(code) => {
            Some("the machine has reached its limit on open files (fs.file-max): close files, or raise the limit")
        }
        code if codes::MEMORY.contains(&code) => Some(
            "the machine is out of memory, or the process has reached its memory limit: free memory, or raise the \
             limit",
        ),
        _ => None,
    }
}

#[cfg(not(windows))]
mod codes {
    /// Network file systems report transient faults as EIO. On a failed disk, a few retries do no
    /// harm.
    pub(super) const TRANSIENT: &[i32] = &[libc::EIO];
    pub(super) const PROCESS_FILES: i32 = libc::EMFILE;
    pub(super) const SYSTEM_FILES: Option<i32> = Some(libc::ENFILE);
    pub(super) const MEMORY: &[i32] = &[libc::ENOMEM];
}

/// Windows error codes. They differ from `errno` values: 5 means "access denied", not EIO.
#[cfg(windows)]
mod codes {
    /// ERROR_CRC, ERROR_READ_FAULT, ERROR_GEN_FAILURE, ERROR_UNEXP_NET_ERR, ERROR_NETNAME_DELETED
    /// and ERROR_IO_DEVICE correspond to EIO. ERROR_SHARING_VIOLATION and ERROR_LOCK_VIOLATION are
    /// transient, because virus scanners briefly open new files.
    pub(super) const TRANSIENT: &[i32] = &[23, 30, 31, 59, 64, 1117, 32, 33];
    /// ERROR_TOO_MANY_OPEN_FILES
    pub(super) const PROCESS_FILES: i32 = 4;
    pub(super) const SYSTEM_FILES: Option<i32> = None;
    /// ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY, ERROR_NO_SYSTEM_RESOURCES and
    /// ERROR_COMMITMENT_LIMIT
    pub(super) const MEMORY: &[i32] = &[8, 14, 1450, 1455];
}

/// Formats a count with its noun: `1 file`, `2 files`.
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, singular: &str, several: &str) -> String {
    let noun = if count == N::from(1) { singular } else { several };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_location_comes_before_the_cause() {
        let e = Error::decode("jpeg ends at byte 4096 in MCU 61 of 132").at_sample(18231, "n01440764/x.jpg");
        assert_eq!(e.to_string(), "sample 18231 (n01440764/x.jpg): decode: jpeg ends at byte 4096 in MCU 61 of 132");
        let e = e.at_path("train").at_sample(7, "other");
        assert_eq!(e.sample(), Some(18231), "the first sample is kept");
        assert_eq!(
            e.to_string(),
            "sample 18231 (n01440764/x.jpg): train: decode: jpeg ends at byte 4096 in MCU 61 of 132"
        );
    }

    #[test]
    fn a_device_error_is_transient_and_a_missing_file_is_not() {
        let is_transient = |code| Error::io("x", &std::io::Error::from_raw_os_error(code)).is_transient();
        #[cfg(not(windows))]
        {
            assert!(
                [libc::EIO, libc::EINTR, libc::EAGAIN, libc::ESTALE, libc::ETIMEDOUT].into_iter().all(is_transient)
            );
            assert!([libc::EMFILE, libc::ENFILE, libc::ENOMEM].into_iter().all(is_transient));
            assert!(![libc::ENOENT, libc::EACCES, libc::ENOSPC, libc::EISDIR].into_iter().any(is_transient));
        }
        #[cfg(windows)]
        {
            assert!([1117, 32, 4, 8].into_iter().all(is_transient));
            assert!(![2, 3, 5, 112].into_iter().any(is_transient));
        }
        assert!(
            Error::in_source("status 503").transient().is_transient() && !Error::in_source("status 404").is_transient()
        );
    }

    #[test]
    fn debug_is_display() {
        let e = Error::io("train/x.jpg", &std::io::Error::from_raw_os_error(libc::ENOENT)).at_sample(3, "x");
        assert_eq!(format!("{e:?}"), e.to_string());
        assert!(format!("{e:?}").starts_with("sample 3 (x): train/x.jpg: io: "), "{e:?}");
    }

    #[test]
    fn an_error_keeps_its_source() {
        use std::error::Error as _;
        use std::io;
        // `ERROR_ACCESS_DENIED` on Windows.
        const DENIED: i32 = if cfg!(windows) { 5 } else { libc::EACCES };
        let denied = Error::io("x", &io::Error::from_raw_os_error(DENIED)).at_sample(1, "").transient();
        let clone = denied.clone();
        drop(denied);
        let source = clone.source().and_then(|e| e.downcast_ref::<io::Error>()).unwrap();
        assert_eq!((source.raw_os_error(), source.kind()), (Some(DENIED), io::ErrorKind::PermissionDenied));
        let without_code = Error::io("x", &io::Error::new(io::ErrorKind::UnexpectedEof, "half a file"));
        let source = without_code.source().and_then(|e| e.downcast_ref::<io::Error>()).unwrap();
        assert_eq!((source.kind(), source.to_string()), (io::ErrorKind::UnexpectedEof, "half a file".to_owned()));
        let outer = Error::in_source("shard 7").with_source(without_code);
        let innermost = outer.source().and_then(|e| e.source()).unwrap();
        assert!(innermost.is::<io::Error>(), "the chain of sources ends at the system error");
        assert!(Error::decode("no cause").source().is_none());
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
