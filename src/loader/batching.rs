use super::Loader;
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::engine::Checkpoint;
#[cfg(doc)]
use crate::engine::{Batches, OnError};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::order::LastBatch;
#[cfg(doc)]
use crate::order::Rank;

/// How large a batch is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Share {
    /// Samples of each rank.
    Rank(usize),
    /// Samples of all ranks together.
    Global(usize),
}

/// Which rank this is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Given { rank: usize, world: usize },
    Environment,
}

/// How large batches are, which of them this process gets, and where it begins.
impl Loader {
    /// Samples in a batch, N; 32 by default. Larger batches cost N times the memory of a sample in
    /// every slot. 0 is an error.
    ///
    /// With several [ranks](Loader::rank) it is the batch of each of them, as PyTorch's
    /// `batch_size` is under `DistributedSampler`: the global batch grows with the world.
    /// [`global_batch_size`](Loader::global_batch_size) says it the other way round; the later of the two
    /// calls counts.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Rank(samples);
        self
    }

    /// Samples that all [ranks](Loader::rank) together have in a batch: a run then sees the same
    /// global batches on any number of them.
    ///
    /// Each rank has an equal share. Where the world does not divide `samples`, the first ranks
    /// have one sample more than the others (weigh their gradients by [`HostBatch::len`]), or, with
    /// [`LastBatch::Pad`], the others have one place of padding. Fewer samples than ranks are an error.
    pub fn global_batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Global(samples);
        self
    }

    /// What happens to an epoch's last batch when the samples do not fill it; [`LastBatch::Keep`] by
    /// default.
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.last = last;
        self
    }

    /// Delivers the share of process `rank` of `world`, of processes that train together; 0 of 1 by
    /// default.
    ///
    /// Nothing is exchanged between the ranks: each knows the order of all samples, and takes its
    /// own part of each global batch. So with the same options all of them have the same number of
    /// batches, and each sample of an epoch goes to exactly one rank, but for what
    /// [`last_batch`](Loader::last_batch) does at its end. Global batch g is the same samples in the same
    /// order, with the same augmentation, for any world, when rank 0's part comes first, then rank
    /// 1's, and so on. What pairs samples of a batch stays within a rank: [`mix`](Augment::mix),
    /// and the stand-ins of [`OnError::Skip`].
    pub fn rank(mut self, rank: usize, world_size: usize) -> Self {
        self.place = Place::Given { rank, world: world_size };
        self
    }

    /// [`rank`](Loader::rank) as the launcher's environment says (torchrun, Open MPI, SLURM); see
    /// [`Rank::from_env`]. Opening it without a launcher is an error.
    ///
    /// Ranks on one machine share its processors when [`workers`](Loader::workers) is automatic:
    /// each takes its part, by what the launcher says of their number (`LOCAL_WORLD_SIZE`,
    /// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_NTASKS_PER_NODE`), or what the launcher binds it to.
    pub fn distributed(mut self) -> Self {
        self.place = Place::Environment;
        self
    }

    /// Seed of the shuffle and of all augmentation; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Goes on where another run stood, exact to the batch, in constant time. The number of
    /// workers, of batches made ahead and of [ranks](Loader::rank) may be another than in that run,
    /// as long as the global batch is the same (see [`global_batch_size`](Loader::global_batch_size)).
    ///
    /// [`Batches::epoch`] then begins the saved epoch at the saved batch. The samples that
    /// [`OnError::Skip`] allows are counted anew.
    ///
    /// Opening it is an [`ErrorKind::Config`] that names both values if the state was saved by a
    /// loader of another seed, batch, order or data set, as far as [`Checkpoint`] can tell; it reads
    /// eight samples for that.
    pub fn resume(mut self, state: Checkpoint) -> Self {
        self.resume = Some(state);
        self
    }
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
