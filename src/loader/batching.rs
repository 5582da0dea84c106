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

/// Setters for the batch size, the share of this process, and the start of a run.
impl Loader {
    /// Sets the number of samples in a batch, N; 32 by default. Every slot has room for N samples.
    /// 0 is an error.
    ///
    /// With several [ranks](Loader::rank) this is the batch size of each rank, like PyTorch's
    /// `batch_size` under `DistributedSampler`. The global batch then grows with the world size.
    /// [`global_batch_size`](Loader::global_batch_size) fixes the global batch instead. If both are
    /// called, the later call wins.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(256);
    /// ```
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Rank(samples);
        self
    }

    /// Sets the number of samples in a batch over all [ranks](Loader::rank). A run then has the
    /// same global batches on any number of ranks.
    ///
    /// Each rank gets an equal share. If the world size does not divide `samples`, the first ranks
    /// get one sample more than the others: weight their gradients by
    /// [`BatchInfo::len`](crate::BatchInfo::len). With [`LastBatch::Pad`] the others get one
    /// padding sample instead. If there are fewer samples than ranks, opening fails.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").global_batch_size(1024).distributed();
    /// ```
    pub fn global_batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Global(samples);
        self
    }

    /// Delivers the share of process `rank` of the `world_size` processes that train together; 0 of
    /// 1 by default.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let second_of_four = Loader::new("train").batch_size(64).shuffle(42).rank(1, 4);
    /// ```
    ///
    /// Ranks do not communicate. Each rank knows the order of all samples and takes its part of
    /// each global batch. With the same options all ranks get the same number of batches. Each
    /// sample of an epoch goes to exactly one rank, except as [`last_batch`](Loader::last_batch)
    /// specifies for the end of the epoch.
    ///
    /// Concatenating the ranks' parts of each global batch, from rank 0 on, gives the same samples,
    /// order and augmentation for any world size. Two features pair samples within a rank only:
    /// [`mix`](crate::Augment::mix), and the replacements of [`OnError::Skip`].
    pub fn rank(mut self, rank: usize, world_size: usize) -> Self {
        self.place = RankOrigin::Given { rank, world: world_size };
        self
    }

    /// Takes the [`rank`](Loader::rank) from the launcher's environment (torchrun, Open MPI,
    /// SLURM); see [`Rank::from_env`]. Without a launcher, opening fails.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(64).shuffle(42).distributed();
    /// ```
    ///
    /// With automatic [`workers`](Loader::workers), ranks on one machine share its cores. The
    /// launcher's variables give their number (`LOCAL_WORLD_SIZE`, `OMPI_COMM_WORLD_LOCAL_SIZE`,
    /// `SLURM_NTASKS_PER_NODE`). A rank that the launcher has bound to certain cores uses
    /// those.
    pub fn distributed(mut self) -> Self {
        self.place = RankOrigin::Environment;
        self
    }

    /// Resumes another run at the exact batch, in constant time.
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
    /// The number of workers, the prefetch and the number of [ranks](Loader::rank) may change
    /// between the runs. The global batch must stay the same; see
    /// [`global_batch_size`](Loader::global_batch_size).
    ///
    /// [`Batches::epoch`] starts the saved epoch at the saved batch. The count of [`OnError::Skip`]
    /// starts at 0 again.
    ///
    /// # Errors
    /// Opening fails with [`ErrorKind::Config`] if the seed, the global batch, the order or the
    /// dataset differs from the checkpoint's. The message names both values. [`Checkpoint`]
    /// describes which differences are detected. The check reads eight samples.
    pub fn resume(mut self, state: Checkpoint) -> Self {
        self.resume = Some(state);
        self
    }
}

shared_setters! {}
