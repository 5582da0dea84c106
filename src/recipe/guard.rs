//! Doing again what failed for a moment, and making errors of panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::report::Guard;
use crate::error::{Error, ErrorKind, Result};

/// The pause before a sample is read again; each further one is four times as long, up to
/// [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What `attempt` makes of `sample`, tried again up to `times` times as long as its error may be
/// gone then and `go_on` says so.
pub(crate) fn retried<T>(
    times: usize,
    sample: u64,
    mut go_on: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut pause = PAUSE;
    for time in 1..=times {
        match guarded(&mut attempt) {
            Err(e) if e.is_transient() && go_on() => {
                tracing::warn!(sample, "read again in {pause:?} ({time} of {times} times): {e}");
                std::thread::sleep(pause);
                pause = (4 * pause).min(LONGEST_PAUSE);
            }
            result => return result,
        }
    }
    guarded(attempt)
}

/// Runs code that may be the user's, and makes an error of a panic. What the panic hook prints is
/// in `report.rs`.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = Guard::new();
    // What `f` can leave half done is scratch and the sample's own bytes; both are overwritten
    // before they are read again.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| {
            // A value of the user's may panic again when it is dropped, where nobody catches it.
            std::mem::forget(panic);
            "non-string payload".into()
        });
        Err(Error::new(ErrorKind::Panic, text))
    })
}

/// Says whose panic it was, and where, before what it said; other errors stay as they are.
pub(crate) fn panicked(e: Error, place: impl FnOnce() -> String) -> Error {
    if e.kind() != ErrorKind::Panic {
        return e;
    }
    Error::new(ErrorKind::Panic, format!("{}: {}", place(), e.cause()))
}
