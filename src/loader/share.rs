use crate::error::{Error, Result};

/// How large a batch is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Share {
    /// Samples of each rank.
    Rank(usize),
    /// Samples of all ranks together.
    Global(usize),
}

impl Share {
    /// Samples of all ranks together.
    pub(super) fn of_all(self, world: usize) -> Result<u64> {
        match self {
            Share::Rank(0) => Err(Error::config("batch_size(0): a batch has at least one sample")),
            Share::Rank(n) => n.checked_mul(world).map(|n| n as u64).ok_or_else(|| {
                Error::config(format!("batch_size({n}) on {world} ranks: more samples than can be counted"))
            }),
            Share::Global(n) if n < world => {
                Err(Error::config(format!("global_batch_size({n}) on {world} ranks: each has at least one sample")))
            }
            Share::Global(n) => Ok(n as u64),
        }
    }
}

/// Which rank this is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Given { rank: usize, world: usize },
    Environment,
}
