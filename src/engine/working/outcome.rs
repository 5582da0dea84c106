use crate::batch::Full;
use crate::error::Error;

/// A full slot, or the end of a run.
pub(crate) type Outcome = Result<Full, Ended>;

/// Why no further batch comes.
pub(crate) enum Ended {
    /// Run `run` has no batch `turn`: it could not be started because of `error`, or, without an
    /// error, it belongs to an epoch that cannot be prepared ahead.
    Run { run: u64, turn: u64, error: Option<Error> },
    /// A thread has ended. Every batch from now on is this error, in any run.
    Thread(Error),
}
