//! A piece: one request, its attempts in flight, and the response that readers wait for.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::machine::cancel;
use crate::model::BatchIndex;
use crate::model::store::Canceller;

/// A request that makes no progress for this long counts as lost and is retried. Stores should
/// report a stalled connection much earlier; this limit catches a store that never responds.
pub(super) const LOST: Duration = Duration::from_secs(120);

/// One request for bytes of one object.
pub(super) struct Piece {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    /// The first batch that needs the piece.
    pub(super) place: BatchIndex,
    /// Number of samples that have not been read yet.
    pub(super) left: usize,
    pub(super) answer: Arc<Answer>,
    pub(super) answered: bool,
    /// Number of attempts so far, without hedges.
    pub(super) attempts: u32,
    /// Number of requests in flight for the piece.
    pub(super) flying: usize,
    pub(super) hedged: bool,
}

/// A request in flight.
pub(super) struct Flight {
    pub(super) piece: u64,
    pub(super) weight: usize,
    pub(super) begun: Instant,
    pub(super) cancel: Canceller,
}

impl Flight {
    /// Returns whether no bytes have arrived for [`LOST`]. The whole response may take longer on a
    /// slow link.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun).saturating_sub(self.cancel.progress()) >= LOST
    }
}

/// The outcome of a piece, which readers wait for.
#[derive(Default)]
pub(super) struct Answer {
    outcome: Mutex<Option<Outcome>>,
    came: Condvar,
}

#[derive(Clone)]
pub(super) enum Outcome {
    Bytes(Arc<Vec<u8>>),
    Failed(Error),
    /// The piece was dropped, so its samples must be read directly.
    Dropped,
    /// The reader was [cancelled](CancelToken).
    Cancelled,
}

impl Answer {
    pub(super) fn set(&self, outcome: Outcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
        self.came.notify_all();
    }

    pub(super) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            if cancel::is_stopped() {
                return Outcome::Cancelled;
            }
            outcome = self.came.wait_timeout(outcome, cancel::SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::store::ReadCompletion;

    #[test]
    fn a_request_is_lost_after_silence_not_after_a_time() {
        let reply = ReadCompletion::new(|_| ());
        let flight = Flight { piece: 0, weight: 1, begun: Instant::now(), cancel: reply.canceller() };
        let limit = flight.begun + LOST;
        assert!(flight.is_lost(limit) && !flight.is_lost(limit - Duration::from_nanos(1)));
        reply.progress();
        let progress = flight.cancel.progress();
        assert!(!flight.is_lost(limit) && flight.is_lost(limit + progress));
    }
}
