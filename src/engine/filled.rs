use crate::batch::Full;
use crate::error::Error;

/// A full slot, or why a run ends with the batch before this one.
pub(super) type Filled = Result<Full, Broken>;

/// A batch that could not be begun, the last of its run.
pub(super) struct Broken {
    pub(super) run: u64,
    pub(super) number: u64,
    pub(super) error: Error,
}

impl Broken {
    /// A thread has ended: the next batch is an error, whatever the run, and so is every one after
    /// it.
    pub(super) fn thread(error: Error) -> Self {
        Broken { run: ANY_RUN, number: 0, error }
    }
}

/// The number of no run.
pub(super) const ANY_RUN: u64 = u64::MAX;
