//! A piece: one request, its attempts in flight, and the answer for which readers wait.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::machine::cancel;
use crate::model::BatchIndex;
use crate::model::store::Canceller;

/// A request without progress for this long is lost, and repeated. Stores report silence much
/// earlier; this is for one that never answers.
pub(super) const LOST: Duration = Duration::from_secs(120);

/// Bytes of one object that are one request.
pub(super) struct Piece {
    pub(super) object: u32,
    pub(super) range: Range<u64>,
    pub(super) place: BatchIndex,
    /// Samples that were not read yet.
    pub(super) left: usize,
    pub(super) answer: Arc<Answer>,
    pub(super) answered: bool,
    pub(super) attempts: u32,
    /// Requests in flight.
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
    /// Whether nothing has come for too long. A slow link may take longer for the whole answer.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun).saturating_sub(self.cancel.progress()) >= LOST
    }
}

/// The answer to a piece, for which readers wait.
#[derive(Default)]
pub(super) struct Answer {
    outcome: Mutex<Option<Outcome>>,
    came: Condvar,
}

#[derive(Clone)]
pub(super) enum Outcome {
    Bytes(Arc<Vec<u8>>),
    Failed(Error),
    /// The piece was dropped: its samples are read directly.
    Dropped,
    /// The reader was [stopped](CancelToken).
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
    fn a_request_is_lost_after_silence_however_long_it_takes() {
        let reply = ReadCompletion::new(|_| ());
        let flight = Flight { piece: 0, weight: 1, begun: Instant::now(), cancel: reply.canceller() };
        let limit = flight.begun + LOST;
        assert!(flight.is_lost(limit) && !flight.is_lost(limit - Duration::from_nanos(1)));
        reply.progress();
        let progress = flight.cancel.progress();
        assert!(!flight.is_lost(limit) && flight.is_lost(limit + progress));
    }
}
