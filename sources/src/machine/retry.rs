//! Repeats reads that fail with a transient error.

use std::time::Duration;

use crate::error::{Error, Result, guarded};

/// Default number of retries per read after a transient error.
pub const RETRIES: usize = 3;
/// Maximum number of retries per read. The pauses of 1000 retries add up to about 17 minutes.
const MAX_RETRIES: usize = 1000;
/// Pause before the first retry. Each later pause is four times the previous one, up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs `attempt` and turns panics into errors. Retries after a transient error, up to `times`
/// times, as long as `may_retry` returns true. Logs a warning that names `sample` before each
/// retry.
pub fn retried<T>(
    times: usize,
    sample: u64,
    mut may_retry: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut pause = FIRST_PAUSE;
    for time in 1..=times {
        match guarded(&mut attempt) {
            Err(e) if e.is_transient() && may_retry() => {
                tracing::warn!(sample, "retry {time} of {times} in {pause:?}: {e}");
                std::thread::sleep(pause);
                pause = (4 * pause).min(LONGEST_PAUSE);
            }
            result => return result,
        }
    }
    guarded(attempt)
}

/// Checks that `times` is a valid number of retries.
///
/// # Errors
/// If `times` exceeds 1000.
pub fn check_retries(times: usize) -> Result<()> {
    if times > MAX_RETRIES {
        return Err(Error::config(format!(
            "retries({times}): expected at most {MAX_RETRIES}, because their pauses take about 17 minutes per read"
        )));
    }
    Ok(())
}
