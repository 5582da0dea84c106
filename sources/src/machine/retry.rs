use std::time::Duration;

use crate::error::{Error, Result, guarded};

/// Default number of retries per read after a transient error.
pub const RETRIES: usize = 3;
/// Maximum number of retries per read. With pauses of at most one second, that many retries take
/// about a quarter of an hour.
const MOST_RETRIES: usize = 1000;
/// Pause before the first retry. Each further pause is four times as long as the previous one, up
/// to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs `attempt`, which reads `sample`, and converts panics into errors. Retries up to `times`
/// times, as long as the error is transient and `go_on` returns true.
pub fn retried<T>(
    times: usize,
    sample: u64,
    mut go_on: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut pause = PAUSE;
    for time in 1..=times {
        match guarded(&mut attempt) {
            Err(e) if e.is_transient() && go_on() => {
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
/// If `times` exceeds `MOST_RETRIES`.
pub fn check_retries(times: usize) -> Result<()> {
    if times > MOST_RETRIES {
        return Err(Error::config(format!(
            "retries({times}): at most {MOST_RETRIES}, which take a quarter of an hour per sample"
        )));
    }
    Ok(())
}
