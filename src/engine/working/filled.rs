use crate::batch::Full;
use crate::error::Error;

/// A full slot, or why a run ends with the batch before this one.
pub(crate) type Filled = Result<Full, Broken>;

/// A batch that could not be begun, the last of its run.
pub(crate) struct Broken {
    pub(crate) run: u64,
    pub(crate) number: u64,
    pub(crate) error: Error,
}

impl Broken {
    /// A thread has ended: the next batch is an error, whatever the run, and so is every one after
    /// it.
    pub(crate) fn thread(error: Error) -> Self {
        Broken { run: ANY_RUN, number: 0, error }
    }
}

/// The number of no run.
pub(crate) const ANY_RUN: u64 = u64::MAX;
