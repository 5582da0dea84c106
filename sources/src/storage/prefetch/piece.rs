//! [`Piece`]: a request for one or more samples, and the outcome that readers wait for.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::machine::cancel;
use crate::model::BatchIndex;
use crate::model::store::Canceler;

/// Time without a byte after which a request is considered lost and is sent again. This is a last
/// resort: stores should notice a stalled connection much earlier.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(120);

/// A byte range of one object, with one or more samples, that is fetched with one request.
pub(super) struct Piece {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    /// The first batch that needs the piece.
    pub(super) batch: BatchIndex,
    pub(super) unread_samples: usize,
    pub(super) outcome: Arc<PendingOutcome>,
    pub(super) is_complete: bool,
    /// Number of requests that have been sent, without hedges.
    pub(super) attempts: u32,
    pub(super) in_flight: usize,
    pub(super) is_hedged: bool,
}

impl Piece {
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

pub(super) struct InFlightRequest {
    pub(super) piece: u64,
    pub(super) weight: usize,
    pub(super) sent_at: Instant,
    pub(super) cancel: Canceler,
}

impl InFlightRequest {
    /// Returns whether no bytes have arrived for [`LOST_AFTER`]. On a slow link, the whole response
    /// may take longer than that.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.sent_at).saturating_sub(self.cancel.progress()) >= LOST_AFTER
    }
}

#[derive(Default)]
pub(super) struct PendingOutcome {
    outcome: Mutex<Option<Outcome>>,
    is_set: Condvar,
}

#[derive(Clone)]
pub(super) enum Outcome {
    Bytes(Arc<Vec<u8>>),
    Failed(Error),
    /// The piece was dropped, so its samples must be read directly.
    Dropped,
    Canceled,
}

impl PendingOutcome {
    pub(super) fn set(&self, outcome: Outcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
        self.is_set.notify_all();
    }

    pub(super) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            if cancel::is_stopped() {
                return Outcome::Canceled;
            }
            outcome =
                self.is_set.wait_timeout(outcome, cancel::POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::store::ReadCompletion;

    #[test]
    fn a_request_without_progress_is_lost() {
        let completion = ReadCompletion::new(|_| ());
        let request = InFlightRequest { piece: 0, weight: 1, sent_at: Instant::now(), cancel: completion.canceler() };
        let limit = request.sent_at + LOST_AFTER;
        assert!(request.is_lost(limit) && !request.is_lost(limit - Duration::from_nanos(1)));
        completion.record_progress();
        let progress = request.cancel.progress();
        assert!(!request.is_lost(limit) && request.is_lost(limit + progress));
    }
}
