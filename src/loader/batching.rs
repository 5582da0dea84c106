use super::share::{RankOrigin, Share};
use super::{DecoderBuilder, Loader};
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::engine::Checkpoint;
#[cfg(doc)]
use crate::engine::{Batches, OnError};
#[cfg(doc)]
use crate::error::ErrorKind;
#[cfg(doc)]
use crate::sampler::{LastBatch, Rank};

/// Setters for the batch size, this process's rank, and the start of a run.
impl Loader {
    /// Sets the batch size N: the number of samples per batch. The default is 32. Opening fails if
    /// it is 0. Every slot is allocated for N samples.
    ///
    /// With several [ranks](Loader::rank) this is the batch size of each rank, like PyTorch's
    /// `batch_size` under `DistributedSampler`. The size of the global batch then grows with the
    /// world size. To fix the size of the global batch, use
    /// [`global_batch_size`](Loader::global_batch_size) instead. If both are called, the later call
    /// takes precedence.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(256);
    /// ```
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Rank(samples);
        self
    }

    /// Sets the global batch size: the number of samples per batch, summed over all
    /// [ranks](Loader::rank). A run then has the same global batches on any number of ranks.
    ///
    /// Each rank gets an equal share. If `samples` is not divisible by the world size, the first
    /// ranks get one sample more than the others. In that case, weight the gradients by
    /// [`BatchInfo::len`](crate::BatchInfo::len). With [`LastBatch::Pad`], the other ranks get a
    /// padding sample, so that all shares are equal. If there are fewer samples than ranks, opening
    /// fails.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").global_batch_size(1024).distributed();
    /// ```
    pub fn global_batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Global(samples);
        self
    }

    /// Sets this process's rank and the number of processes that train together. The loader yields
    /// only this rank's share. The default is rank 0 of 1.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let second_of_four = Loader::new("train").batch_size(64).shuffle(42).rank(1, 4);
    /// ```
    ///
    /// Ranks do not communicate. Each rank computes the order of all samples and takes its share of
    /// each global batch. With the same options, all ranks get the same number of batches. Each
    /// sample of an epoch goes to exactly one rank; [`last_batch`](Loader::last_batch) defines the
    /// exceptions at the end of the epoch.
    ///
    /// Concatenating the ranks' shares of each global batch, starting at rank 0, gives the same
    /// samples, order and augmentation for any world size. Two features draw only on samples of the
    /// same rank: [`mix`](crate::Augment::mix), and the replacement samples of [`OnError::Skip`].
    pub fn rank(mut self, rank: usize, world_size: usize) -> Self {
        self.place = RankOrigin::Given { rank, world: world_size };
        self
    }

    /// Reads the [`rank`](Loader::rank) from the launcher's environment (torchrun, Open MPI,
    /// SLURM); see [`Rank::from_env`]. Without a launcher, opening fails.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(64).shuffle(42).distributed();
    /// ```
    ///
    /// With automatic [`workers`](Loader::workers), the ranks on one machine divide its cores. The
    /// number of these ranks is taken from the launcher's variables (`LOCAL_WORLD_SIZE`,
    /// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_NTASKS_PER_NODE`). A rank that the launcher has bound
    /// to certain cores uses those cores.
    pub fn distributed(mut self) -> Self {
        self.place = RankOrigin::Environment;
        self
    }

    /// Resumes an earlier run at the exact batch, in constant time.
    ///
    /// ```no_run
    /// # use warpfeed::{Checkpoint, Loader};
    /// # fn load() -> Option<Checkpoint> { None }
    /// let mut loader = Loader::new("train").batch_size(256).shuffle(42);
    /// if let Some(checkpoint) = load() {
    ///     loader = loader.resume(checkpoint);
    /// }
    /// let mut batches = loader.host()?;
    /// for epoch in batches.first_epoch()..90 {
    ///     for batch in batches.epoch(epoch) {
    ///         // ...
    ///     }
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// The number of workers, the prefetch depth and the number of [ranks](Loader::rank) may change
    /// between the runs. The global batch must stay the same; see
    /// [`global_batch_size`](Loader::global_batch_size).
    ///
    /// [`Batches::epoch`] starts the saved epoch at the saved batch. The counter of
    /// [`OnError::Skip`] restarts at 0.
    ///
    /// # Errors
    /// Opening fails with [`ErrorKind::Config`] if the seed, the global batch, the order or the
    /// dataset differs from the checkpoint. The error message states both values. [`Checkpoint`]
    /// describes which differences are detected. The check reads eight samples.
    pub fn resume(mut self, state: Checkpoint) -> Self {
        self.resume = Some(state);
        self
    }
}

shared_setters! {}
