//! Turns panics into errors, and retries reads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind, Result};
use crate::source;

/// Runs `attempt` for `sample`, guarded, and [retries](source::retried) it.
pub(crate) fn retried<T>(
    times: usize,
    sample: u64,
    go_on: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    source::retried(times, sample, go_on, || guarded(&mut attempt))
}

/// Runs code that may be the user's, and turns a panic into an error. The program's panic hook has
/// reported the panic by then.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // A panic may leave scratch and the sample's own bytes half written. Both are overwritten
    // before they are read again.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| {
            // Dropping a user's value may panic again, outside any guard.
            std::mem::forget(panic);
            "with a non-string payload".into()
        });
        Err(Error::new(ErrorKind::Panic, text))
    })
}

/// Puts the place of a panic before its message. Other errors do not change.
pub(crate) fn panicked(e: Error, place: impl FnOnce() -> String) -> Error {
    if e.kind() != ErrorKind::Panic {
        return e;
    }
    Error::new(ErrorKind::Panic, format!("{}: {}", place(), e.cause()))
}
