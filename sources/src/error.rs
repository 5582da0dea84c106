//! One error type that names the place before the cause.
//!
//! `Display` reads like a path walked from the outside in: `sample 18231 (n01440764/x):
//! train/n01440764/x.JPEG: decode: jpeg ends at byte 4096 in MCU 61 of 132`.

use std::collections::TryReserveError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its place and its cause.
///
/// Programs match on [`kind`](Error::kind); people read the printed text. The type is one pointer
/// wide, so a `Result` costs the hot path nothing.
///
/// `Debug` prints the same text as `Display`, because `fn main() -> Result<()>` prints `Debug`.
/// [`source`](std::error::Error::source) returns the underlying error, if there is one: a
/// [`std::io::Error`] for [`Error::io`], otherwise the argument of
/// [`with_source`](Error::with_source). The text already names the cause.
///
/// It is `Send`, `Sync` and `Clone`; clones share their source.
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
    absent: bool,
    source: Option<Arc<Source>>,
    failed: Vec<(u64, Error)>,
}

/// Type of the underlying error.
type Source = dyn std::error::Error + Send + Sync;

/// The value of a panic.
type Panic = Box<dyn std::any::Any + Send>;

/// The class of an [`Error`], for programs to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused to open, read, map or write.
    Io,
    /// An option has a value that cannot work; found when the loader is opened.
    Config,
    /// A container (tar, LMDB, index) is damaged or holds something unexpected.
    Source,
    /// Encoded bytes of one sample could not be turned into pixels or arrays.
    Decode,
    /// Pixels of one sample could not be transformed.
    Transform,
    /// Code supplied by the user panicked; the message is in the cause.
    Panic,
    /// More samples failed than `OnError::Skip` allows.
    TooManySkipped,
    /// Memory could not be allocated, or the plan exceeds the limit that was set.
    Memory,
    /// The CUDA driver is missing, or one of its calls failed.
    Cuda,
    /// A wait exceeded its timeout.
    Timeout,
    /// The stream is being captured into a CUDA graph. The loader continues when the capture has
    /// ended.
    Capturing,
    /// As many requests are queued as `max_queued` allows.
    Busy,
}

impl ErrorKind {
    /// The word between place and cause in the message.
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
    /// Creates an error of `kind`. `cause` is in lower case, without a full stop, and gives both
    /// numbers if two disagree.
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
            absent: false,
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

    /// Creates an operating-system error at `path`. It is [transient](Error::is_transient) if a
    /// retry may help. Its [source](std::error::Error::source) is a [`std::io::Error`] of the same
    /// kind, number and text.
    pub fn io(path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{Interrupted, StaleNetworkFileHandle, TimedOut, WouldBlock};
        let code = error.raw_os_error();
        let advice = code.and_then(exhausted).map_or(String::new(), |advice| format!("; {advice}"));
        let mut e = Self::new(ErrorKind::Io, format!("{error}{advice}")).at_path(path);
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

    /// Adds the underlying error, for [`source`](std::error::Error::source). A later call replaces
    /// it.
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

    /// Marks the error as transient: a retry may succeed. Sources that read over a network use
    /// this. See `Loader::retries`.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.0.transient = true;
        self
    }

    /// Marks the error as a refusal by a server that has too much to do, such as HTTP's status 503.
    /// The error is also [transient](Error::transient), and requests to the server slow down.
    #[must_use]
    pub fn throttled(mut self) -> Self {
        self.0.throttled = true;
        self.transient()
    }

    /// Marks the error as the certain answer of a store that there is no such object, such as
    /// HTTP's status 404.
    #[must_use]
    pub fn absent(mut self) -> Self {
        self.0.absent = true;
        self
    }

    /// Adds the file that the error belongs to. An existing path stays, because the innermost place
    /// is the exact one.
    #[must_use]
    pub fn at_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// Sets the place to line `line` of `file`. A previous path moves into the cause.
    #[doc(hidden)]
    #[must_use]
    pub fn at_line(mut self, file: impl Into<PathBuf>, line: usize) -> Self {
        let inner = self.0.path.replace(file.into()).map_or(String::new(), |path| format!("{}: ", path.display()));
        self.0.cause = format!("line {line}: {inner}{}", self.0.cause);
        self
    }

    /// Adds line `line` of `file`, which names the file that the error belongs to.
    #[doc(hidden)]
    #[must_use]
    pub fn named_in(mut self, file: &Path, line: usize) -> Self {
        self.0.cause = format!("{}; line {line} of {} names this file", self.0.cause, file.display());
        self
    }

    /// Adds the sample that the error belongs to. An existing sample stays.
    /// [`source::sample_error`](crate::sample_error) also adds its file.
    #[must_use]
    pub fn at_sample(mut self, id: u64, key: &str) -> Self {
        if self.0.sample.is_none() {
            self.0.sample = Some(id);
            self.0.key = (!key.is_empty()).then(|| key.to_owned());
        }
        self
    }

    /// Marks the error as lasting, after retries did not help. `note` comes before the cause.
    #[doc(hidden)]
    #[must_use]
    pub fn settled(mut self, note: &str) -> Self {
        (self.0.transient, self.0.throttled) = (false, false);
        if !note.is_empty() {
            self.0.cause = format!("{note}: {}", self.0.cause);
        }
        self
    }

    /// Moves the sample into the cause, as one that is a part of another sample's image.
    #[doc(hidden)]
    #[must_use]
    pub fn of_partner(mut self) -> Self {
        if let Some(id) = self.0.sample.take() {
            let key = self.0.key.take().map_or(String::new(), |key| format!(" ({key})"));
            self.0.cause = format!("sample {id}{key}, its partner: {}", self.0.cause);
        }
        self
    }

    /// Sets the samples that failed in the batch of this error, with their errors.
    #[doc(hidden)]
    #[must_use]
    pub fn of_batch(mut self, failed: Vec<(u64, Error)>) -> Self {
        self.0.failed = failed;
        self
    }

    /// The samples that failed in the batch of this error. Empty if the error is not that of a
    /// batch.
    #[doc(hidden)]
    pub fn failed(&self) -> &[(u64, Error)] {
        &self.0.failed
    }

    /// Sets the sample to `id` and removes the key.
    #[doc(hidden)]
    #[must_use]
    pub fn of_sample(mut self, id: u64) -> Self {
        (self.0.sample, self.0.key) = (Some(id), None);
        self
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The sample's index in its source, if the error belongs to one.
    pub fn sample(&self) -> Option<u64> {
        self.0.sample
    }

    /// The sample's key, if the error belongs to one and the key could be read.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The file or folder that the error belongs to. For the error of a sample, this is the file
    /// that contains the sample, if the [source](crate::Source::path) knows one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The cause alone, without the place.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// Whether reading again may help. True for the operating-system errors `EIO`, `EINTR`,
    /// `EAGAIN`, `ESTALE`, `EMFILE`, `ENFILE`, `ENOMEM` and timeouts, and for errors that their
    /// source [marked as transient](Error::transient).
    pub fn is_transient(&self) -> bool {
        self.0.transient
    }

    /// Whether the process or the machine had no file descriptor or no memory left (`EMFILE`,
    /// `ENFILE`, `ENOMEM`). Such an error says nothing about the sample that was read, so that
    /// sample is never skipped.
    #[doc(hidden)]
    pub fn is_exhausted(&self) -> bool {
        self.0.os_code.and_then(exhausted).is_some()
    }

    /// Whether a server [refused](Error::throttled) because it has too much to do.
    pub fn is_throttled(&self) -> bool {
        self.0.throttled
    }

    /// Whether a store said that there is [no such object](Error::absent).
    pub fn is_absent(&self) -> bool {
        self.0.absent
    }

    /// The operating system's error number (`errno`), for [`ErrorKind::Io`].
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

/// Runs code that may be the user's, and turns a panic into an error. The program's panic hook has
/// reported the panic by then. A panic with an [`Error`] becomes that error. An order, which returns
/// only numbers, reports its failures like this, and so do functions that run out of memory.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    guarded_with(f, Err)
}

/// Like `guarded`. `other` knows further values that a panic may have, and returns the rest.
pub fn guarded_with<T>(f: impl FnOnce() -> Result<T>, other: impl FnOnce(Panic) -> Result<Error, Panic>) -> Result<T> {
    // A panic may leave scratch and the sample's own bytes half written. Both are overwritten
    // before they are read again.
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
            // Dropping a user's value may panic again, outside any guard.
            std::mem::forget(panic);
            "with a non-string payload".into()
        });
        Err(Error::new(ErrorKind::Panic, text))
    })
}

/// Makes room for `more` further elements. All memory whose size depends on samples or options is
/// allocated like this, because an allocation that cannot fail ends the process.
///
/// # Errors
/// [`ErrorKind::Memory`] if there is no memory.
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<()> {
    vec.try_reserve(more).map_err(|_| {
        let bytes = more.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::Memory, format!("no memory for {bytes} bytes"))
    })
}

/// The result of making room in a collection that is not a [`Vec`].
///
/// # Errors
/// [`ErrorKind::Memory`] if there is no memory.
pub(crate) fn reserved(room: std::result::Result<(), TryReserveError>) -> Result<()> {
    room.map_err(|e| Error::new(ErrorKind::Memory, e.to_string()))
}

/// Like [`Vec::push`].
///
/// # Errors
/// [`ErrorKind::Memory`] if there is no memory.
pub(crate) fn push<T>(vec: &mut Vec<T>, value: T) -> Result<()> {
    reserve(vec, 1)?;
    vec.push(value);
    Ok(())
}

/// Like [`Iterator::collect`].
///
/// # Errors
/// The first error in `all`, and [`ErrorKind::Memory`] if there is no memory.
pub(crate) fn collected<T>(all: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    reserve(&mut vec, all.size_hint().0)?;
    for value in all {
        push(&mut vec, value?)?;
    }
    Ok(vec)
}

/// A copy of `bytes`.
///
/// # Errors
/// [`ErrorKind::Memory`] if there is no memory.
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    append(&mut copy, bytes)?;
    Ok(copy)
}

/// Like [`Vec::extend_from_slice`].
///
/// # Errors
/// [`ErrorKind::Memory`] if there is no memory.
pub fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    reserve(to, bytes.len())?;
    to.extend_from_slice(bytes);
    Ok(())
}

/// Like [`Vec::resize`]. If there is no memory, raises the error of [`reserve`] as a panic, which no
/// hook reports and `guarded` turns into the error again. Every sample is processed inside it.
pub fn resize<T: Clone>(vec: &mut Vec<T>, len: usize, value: T) {
    if let Err(e) = reserve(vec, len.saturating_sub(vec.len())) {
        resume_unwind(Box::new(e));
    }
    vec.resize(len, value);
}

/// Puts the place of a panic before its message. Other errors do not change.
pub fn panicked(e: Error, place: impl FnOnce() -> String) -> Error {
    if e.kind() != ErrorKind::Panic {
        return e;
    }
    Error::new(ErrorKind::Panic, format!("{}: {}", place(), e.cause()))
}

/// Advice for the error `code` if it means that file descriptors or memory ran out.
fn exhausted(code: i32) -> Option<&'static str> {
    match code {
        codes::PROCESS_FILES => Some("raise the limit of open files of the process (ulimit -n), or close files"),
        code if codes::SYSTEM_FILES == Some(code) => {
            Some("the machine has as many open files as its system allows (fs.file-max)")
        }
        code if codes::MEMORY.contains(&code) => Some("the machine has no memory left, or the process is at its limit"),
        _ => None,
    }
}

/// The system's numbers of errors.
#[cfg(not(windows))]
mod codes {
    /// A network file system reports transient faults as EIO. For EIO from a disk, retries are
    /// futile but short.
    pub(super) const TRANSIENT: &[i32] = &[libc::EIO];
    pub(super) const PROCESS_FILES: i32 = libc::EMFILE;
    pub(super) const SYSTEM_FILES: Option<i32> = Some(libc::ENFILE);
    pub(super) const MEMORY: &[i32] = &[libc::ENOMEM];
}

/// The system's numbers of errors, which are not those of C: there 5 is EIO, here it is a denied
/// access.
#[cfg(windows)]
mod codes {
    /// ERROR_CRC, ERROR_READ_FAULT, ERROR_GEN_FAILURE, ERROR_UNEXP_NET_ERR, ERROR_NETNAME_DELETED
    /// and ERROR_IO_DEVICE, as EIO elsewhere; ERROR_SHARING_VIOLATION and ERROR_LOCK_VIOLATION,
    /// because scanners hold a new file for a moment.
    pub(super) const TRANSIENT: &[i32] = &[23, 30, 31, 59, 64, 1117, 32, 33];
    /// ERROR_TOO_MANY_OPEN_FILES
    pub(super) const PROCESS_FILES: i32 = 4;
    pub(super) const SYSTEM_FILES: Option<i32> = None;
    /// ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY, ERROR_NO_SYSTEM_RESOURCES and
    /// ERROR_COMMITMENT_LIMIT
    pub(super) const MEMORY: &[i32] = &[8, 14, 1450, 1455];
}

/// A number with its noun, for messages: `1 file`, `2 files`.
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, one: &str, several: &str) -> String {
    let noun = if count == N::from(1) { one } else { several };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_comes_before_the_cause() {
        let e = Error::decode("jpeg ends at byte 4096 in MCU 61 of 132").at_sample(18231, "n01440764/x.jpg");
        assert_eq!(e.to_string(), "sample 18231 (n01440764/x.jpg): decode: jpeg ends at byte 4096 in MCU 61 of 132");
        let e = e.at_path("train").at_sample(7, "other");
        assert_eq!(e.sample(), Some(18231), "the innermost sample stays");
        assert_eq!(
            e.to_string(),
            "sample 18231 (n01440764/x.jpg): train: decode: jpeg ends at byte 4096 in MCU 61 of 132"
        );
    }

    #[test]
    fn a_failing_medium_is_transient_and_a_missing_file_is_not() {
        let of = |code| Error::io("x", &std::io::Error::from_raw_os_error(code)).is_transient();
        #[cfg(not(windows))]
        {
            assert!([libc::EIO, libc::EINTR, libc::EAGAIN, libc::ESTALE, libc::ETIMEDOUT].into_iter().all(of));
            assert!([libc::EMFILE, libc::ENFILE, libc::ENOMEM].into_iter().all(of));
            assert!(![libc::ENOENT, libc::EACCES, libc::ENOSPC, libc::EISDIR].into_iter().any(of));
        }
        #[cfg(windows)]
        {
            // A device's error, a file in use, too many open files and no memory.
            assert!([1117, 32, 4, 8].into_iter().all(of));
            // A missing file, a missing folder, a denied access and a full disk.
            assert!(![2, 3, 5, 112].into_iter().any(of));
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
        // Windows has numbers of its own.
        const DENIED: i32 = if cfg!(windows) { 5 } else { libc::EACCES };
        let denied = Error::io("x", &io::Error::from_raw_os_error(DENIED)).at_sample(1, "").transient();
        let clone = denied.clone();
        drop(denied);
        let source = clone.source().and_then(|e| e.downcast_ref::<io::Error>()).unwrap();
        assert_eq!((source.raw_os_error(), source.kind()), (Some(DENIED), io::ErrorKind::PermissionDenied));
        let own = Error::io("x", &io::Error::new(io::ErrorKind::UnexpectedEof, "half a file"));
        let source = own.source().and_then(|e| e.downcast_ref::<io::Error>()).unwrap();
        assert_eq!((source.kind(), source.to_string()), (io::ErrorKind::UnexpectedEof, "half a file".to_owned()));
        let outer = Error::in_source("shard 7").with_source(own);
        let down = outer.source().and_then(|e| e.source()).unwrap();
        assert!(down.is::<io::Error>(), "a chain leads down to the system's error");
        assert!(Error::decode("no cause").source().is_none());
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
