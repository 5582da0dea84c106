//! Logs each of the first 100 samples with a damaged image once.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::error::Error;

/// Maximum number of damaged samples that are logged. The statistics count all of them.
const MAX_LOGGED: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct DamageLog {
    logged_samples: Mutex<HashSet<u64>>,
}

impl DamageLog {
    /// Logs a damaged image of `sample`, unless the sample has been logged before. After
    /// [`MAX_LOGGED`] samples, logs once that no more samples are named, and then nothing.
    /// `describe` returns an error that describes the damage and its position.
    pub(crate) fn log_once(&self, sample: u64, describe: impl FnOnce() -> Error) {
        let Ok(mut samples) = self.logged_samples.lock() else { return };
        if samples.len() > MAX_LOGGED || !samples.insert(sample) {
            return;
        }
        let number = samples.len();
        drop(samples);
        if number <= MAX_LOGGED {
            tracing::warn!(sample, "a damaged image was decoded: {}", describe());
        } else {
            tracing::warn!(
                "more than {MAX_LOGGED} samples are damaged; additional damaged samples are counted, but not logged"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_is_named_once_up_to_a_bound() {
        let (log, mut described_count) = (DamageLog::default(), 0);
        for sample in (0..3).flat_map(|_| 0..150) {
            log.log_once(sample, || {
                described_count += 1;
                Error::decode("x")
            });
        }
        assert_eq!(log.logged_samples.lock().unwrap().len(), MAX_LOGGED + 1);
        assert!(described_count <= MAX_LOGGED);
    }
}
