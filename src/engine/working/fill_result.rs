//! The messages that the workers and the coordinator send to the engine.

use crate::batch::FilledSlot;
use crate::error::Error;

pub(crate) type FillResult = Result<FilledSlot, EndReason>;

/// Why no more full slots of a run will follow.
pub(crate) enum EndReason {
    /// The run ends before the batch with sequence number `seq`. If there is no error, the epoch of
    /// that batch is empty or cannot be prepared in advance.
    Run { run: u64, seq: u64, error: Option<Error> },
    /// A thread panicked. Every later batch of any run fails with this error.
    Thread(Error),
}
