use crate::batch::Full;
use crate::error::Error;

/// A full slot, or the reason why no more slots will follow.
pub(crate) type Outcome = Result<Full, Ended>;

/// Reason why no more batches will follow.
pub(crate) enum Ended {
    /// Run `run` has no batch `turn`. Either the batch could not be started because of `error`, or
    /// it belongs to an epoch that cannot be prepared ahead; in that case, `error` is `None`.
    Run { run: u64, turn: u64, error: Option<Error> },
    /// A thread has ended. From now on every batch of every run fails with this error.
    Thread(Error),
}
