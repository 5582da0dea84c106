use super::Loader;
use super::share::{Place, Share};
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::engine::Checkpoint;
#[cfg(doc)]
use crate::engine::{Batches, OnError};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::order::LastBatch;
#[cfg(doc)]
use crate::order::Rank;

/// How large batches are, which of them this process gets, and where it begins.
impl Loader {
    /// Samples in a batch, N; 32 by default. Every slot has room for N samples. 0 is an error.
    ///
    /// With several [ranks](Loader::rank) this is the batch size of each rank, like PyTorch's
    /// `batch_size` under `DistributedSampler`. The global batch then grows with the world size.
    /// [`global_batch_size`](Loader::global_batch_size) fixes the global batch instead. The later
    /// of the two calls counts.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(256);
    /// ```
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Rank(samples);
        self
    }

    /// Samples in a batch of all [ranks](Loader::rank) together. A run then sees the same global
    /// batches on any number of ranks.
    ///
    /// Each rank gets an equal share. If the world size does not divide `samples`, the first ranks
    /// get one sample more than the others: weigh their gradients by [`HostBatch::len`]. With
    /// [`LastBatch::Pad`] the others get one place of padding instead. Fewer samples than ranks are
    /// an error.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").global_batch_size(1024).distributed();
    /// ```
    pub fn global_batch_size(mut self, samples: usize) -> Self {
        self.batch = Share::Global(samples);
        self
    }

    /// What happens to the last batch of an epoch if the samples do not fill it;
    /// [`LastBatch::Keep`] by default.
    ///
    /// ```
    /// # use warpfeed::{LastBatch, Loader};
    /// let loader = Loader::new("train").last_batch(LastBatch::Drop);
    /// ```
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.last = last;
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
    /// sample of an epoch goes to exactly one rank; [`last_batch`](Loader::last_batch) says what
    /// happens at the end.
    ///
    /// Put rank 0's part of global batch g first, then rank 1's, and so on. The result has the same
    /// samples, order and augmentation for any world size. Two things pair samples within a rank
    /// only: [`mix`](crate::Augment::mix), and the replacements of [`OnError::Skip`].
    pub fn rank(mut self, rank: usize, world_size: usize) -> Self {
        self.place = Place::Given { rank, world: world_size };
        self
    }

    /// Takes the [`rank`](Loader::rank) from the launcher's environment (torchrun, Open MPI,
    /// SLURM); see [`Rank::from_env`]. Opening the loader without a launcher is an error.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(64).shuffle(42).distributed();
    /// ```
    ///
    /// With automatic [`workers`](Loader::workers), ranks on one machine share its processors. The
    /// launcher's variables give their number (`LOCAL_WORLD_SIZE`, `OMPI_COMM_WORLD_LOCAL_SIZE`,
    /// `SLURM_NTASKS_PER_NODE`). A rank that the launcher has bound to processors uses those.
    pub fn distributed(mut self) -> Self {
        self.place = Place::Environment;
        self
    }

    /// Number of ranks on this machine, this one included. They share its processors: with automatic
    /// [`workers`](Loader::workers) each rank starts its part of them. 0 is an error.
    ///
    /// By default the launcher's environment says so ([`Rank::from_env`]). Set it where ranks are
    /// started in another way, such as by a program that starts itself again.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let third_of_eight_on_one_machine = Loader::new("train").rank(2, 8).local_world_size(8);
    /// ```
    pub fn local_world_size(mut self, ranks: usize) -> Self {
        self.local_world_size = Some(ranks);
        self
    }

    /// The seed of the shuffle and of all augmentation; 0 by default.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// let in_order = Loader::new("train").augment(Augment::train(224)).seed(42);
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Goes on where another run stood: exact to the batch, in constant time.
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
    /// [`Batches::epoch`] begins the saved epoch at the saved batch. The count of [`OnError::Skip`]
    /// starts again at 0.
    ///
    /// # Errors
    /// Opening is an [`ErrorKind::Config`] if the seed, the global batch, the order or the data set
    /// differs from the checkpoint's. The message names both values. [`Checkpoint`] says which
    /// differences are found. The check reads eight samples.
    pub fn resume(mut self, state: Checkpoint) -> Self {
        self.resume = Some(state);
        self
    }
}
