use crate::batch::Full;
use crate::error::Error;

/// A full slot, or the error that ends a run.
pub(crate) type Outcome = Result<Full, RunError>;

/// The error of a batch that could not be started. It ends its run.
pub(crate) struct RunError {
    pub(crate) run: u64,
    /// Number of the batch in the run.
    pub(crate) turn: u64,
    pub(crate) error: Error,
}

impl RunError {
    /// The error of a thread that has ended. Every batch from now on is this error, in any run.
    pub(crate) fn thread(error: Error) -> Self {
        RunError { run: ANY_RUN, turn: 0, error }
    }
}

/// Run number of errors that end every run.
pub(crate) const ANY_RUN: u64 = u64::MAX;
