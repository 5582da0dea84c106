use std::time::Duration;

use crate::error::{Error, Result, guarded};

/// Default number of retries of a read after a transient error.
pub const RETRIES: usize = 3;
/// Maximum number of retries. With pauses of a second each, they take a quarter of an hour.
const MOST_RETRIES: usize = 1000;
/// The first pause before a sample is read again. Each further pause is four times as long, up to
/// [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs `attempt` for `sample`, guarded. Repeats it up to `times` times while its error is
/// transient and `go_on` agrees.
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
                tracing::warn!(sample, "read again in {pause:?} ({time} of {times} times): {e}");
                std::thread::sleep(pause);
                pause = (4 * pause).min(LONGEST_PAUSE);
            }
            result => return result,
        }
    }
    guarded(attempt)
}

/// # Errors
/// If a read would be retried too often.
pub fn check_retries(times: usize) -> Result<()> {
    if times > MOST_RETRIES {
        return Err(Error::config(format!(
            "retries({times}): at most {MOST_RETRIES}, which take a quarter of an hour per sample"
        )));
    }
    Ok(())
}
