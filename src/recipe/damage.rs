//! Logs each sample with a damaged image once.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::error::Error;

/// Maximum number of damaged samples that are logged. All others appear only in the statistics.
const MAX_NAMED: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Damaged {
    reported: Mutex<HashSet<u64>>,
}

impl Damaged {
    /// Logs a damaged image of `sample`, unless the sample has been logged before. `describe`
    /// returns an error with the damage and its position.
    pub(crate) fn note(&self, sample: u64, describe: impl FnOnce() -> Error) {
        let Ok(mut named) = self.reported.lock() else { return };
        if named.len() > MAX_NAMED || !named.insert(sample) {
            return;
        }
        let number = named.len();
        drop(named);
        if number <= MAX_NAMED {
            tracing::warn!(sample, "a damaged image was decoded: {}", describe());
        } else {
            tracing::warn!(
                "more than {MAX_NAMED} samples are damaged; additional damaged samples are counted, but not logged"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_is_named_once_up_to_a_bound() {
        let (damaged, mut named) = (Damaged::default(), 0);
        for sample in (0..3).flat_map(|_| 0..150) {
            damaged.note(sample, || {
                named += 1;
                Error::decode("x")
            });
        }
        assert_eq!(damaged.reported.lock().unwrap().len(), MAX_NAMED + 1);
        assert!(named <= MAX_NAMED);
    }
}
