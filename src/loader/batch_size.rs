//! The batch size, and the rank of this process.

use crate::error::{Error, Result, counted};
use crate::sampler::Rank;

/// Number of samples per batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchSize {
    PerRank(usize),
    /// Number of samples per batch, summed over all ranks.
    Global(usize),
}

impl Default for BatchSize {
    fn default() -> Self {
        BatchSize::PerRank(32)
    }
}

impl BatchSize {
    pub(super) fn global_size(self, world_size: usize) -> Result<u64> {
        match self {
            BatchSize::PerRank(0) => Err(Error::config("batch_size(0): expected at least 1")),
            BatchSize::PerRank(n) => n
                .checked_mul(world_size)
                .map(|n| n as u64)
                .ok_or_else(|| Error::config(format!("batch_size({n}) on {world_size} ranks: the product overflows"))),
            BatchSize::Global(n) if n < world_size => Err(Error::config(format!(
                "global_batch_size({n}) on {}: expected at least one sample per rank",
                counted(world_size as u64, "rank", "ranks")
            ))),
            BatchSize::Global(n) => Ok(n as u64),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum RankOrigin {
    Explicit { rank: usize, world_size: usize },
    Environment,
}

impl RankOrigin {
    /// Returns the rank. `local_world_size` is the number of ranks on this machine. If it is
    /// `None`, the number comes from the launcher's environment, provided that the environment
    /// specifies the same rank and world size.
    pub(super) fn rank(self, local_world_size: Option<usize>) -> Result<Rank> {
        let rank = match self {
            RankOrigin::Environment => Rank::from_launcher()?,
            RankOrigin::Explicit { rank, world_size } => {
                let launched_rank = Rank::from_env().ok().flatten();
                launched_rank
                    .filter(|launched| (launched.rank, launched.world_size) == (rank, world_size))
                    .unwrap_or(Rank::new(rank, world_size)?)
            }
        };
        if local_world_size == Some(0) {
            return Err(Error::config("local_world_size(0): expected at least 1, because it includes this process"));
        }
        Ok(Rank { local_world_size: local_world_size.or(rank.local_world_size), ..rank })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_number_of_local_ranks_has_precedence() {
        let origin = RankOrigin::Explicit { rank: 1, world_size: 4 };
        assert_eq!(origin.rank(Some(2)).unwrap().local_world_size, Some(2));
        assert_eq!(origin.rank(None).unwrap().local_world_size, None);
        assert!(origin.rank(Some(0)).unwrap_err().to_string().contains("local_world_size(0)"));
    }
}
