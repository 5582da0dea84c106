//! Setters for the batch size, the rank, and the position at which a run resumes.

use super::batch_size::{BatchSize, RankOrigin};
use super::{DecoderBuilder, Loader};
#[cfg(doc)]
use crate::batch::HostBatch;
use crate::engine::Checkpoint;
#[cfg(doc)]
use crate::engine::{Batches, OnError};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, counted};
use crate::sampler::MixtureOptions;
#[cfg(doc)]
use crate::sampler::{LastBatch, Rank};

impl Loader {
    /// Returns the global batch size of each dataset of a mixture, or an empty slice if all
    /// datasets share one batch size.
    fn dataset_batch_sizes(&self) -> &[usize] {
        self.sampling.mixture.as_ref().map_or(&[], MixtureOptions::batch_sizes)
    }

    /// Returns the batch size. If datasets have their own batch sizes, returns the largest of them
    /// as a global batch size.
    pub(super) fn effective_batch_size(&self) -> BatchSize {
        self.dataset_batch_sizes()
            .iter()
            .max()
            .map_or(self.batch_size.unwrap_or_default(), |largest| BatchSize::Global(*largest))
    }

    /// Returns the global batch size for `world_size` ranks. If datasets have their own batch
    /// sizes, returns the largest of them. Fails if a size is too small for the number of ranks.
    pub(super) fn global_batch(&self, world_size: usize) -> Result<u64> {
        let sizes = self.dataset_batch_sizes();
        if !sizes.is_empty() && self.batch_size.is_some() {
            return Err(Error::config(
                "mixture: global_batch_sizes replaces batch_size and global_batch_size: set only one of them",
            ));
        }
        match sizes.iter().position(|size| *size < world_size) {
            Some(source) => Err(Error::config(format!(
                "mixture: global_batch_sizes: source {source} has batches of {} on {}: expected at least one sample per rank",
                counted(sizes[source] as u64, "sample", "samples"),
                counted(world_size as u64, "rank", "ranks")
            ))),
            None => self.effective_batch_size().global_size(world_size),
        }
    }
}

/// Setters for the batch size, this process's rank, and the position at which a run resumes.
impl Loader {
    /// Sets the batch size, the maximum number of samples per batch; 32 by default. Opening fails
    /// if the batch size is 0.
    ///
    /// With several [ranks](Loader::rank), this is the batch size of each rank, as with PyTorch's
    /// `DistributedSampler`. The global batch therefore grows with the world size. For a global
    /// batch of constant size, use [`global_batch_size`](Loader::global_batch_size) instead. If
    /// both setters are called, the later call takes precedence.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").batch_size(256);
    /// ```
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch_size = Some(BatchSize::PerRank(samples));
        self
    }

    /// Sets the global batch size: the number of samples per batch, summed over all
    /// [ranks](Loader::rank). The global batches are then identical for any number of ranks, apart
    /// from two exceptions that [`rank`](Loader::rank) lists.
    ///
    /// The ranks share each global batch as evenly as possible. If `samples` is not divisible by
    /// the world size, the first ranks get one sample more, so weight the gradients by
    /// [`BatchInfo::len`](crate::BatchInfo::len). With [`LastBatch::Pad`], each of the other ranks
    /// also gets a padding sample. Opening fails if `samples` is less than the number of ranks.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("train").global_batch_size(1024).distributed();
    /// ```
    pub fn global_batch_size(mut self, samples: usize) -> Self {
        self.batch_size = Some(BatchSize::Global(samples));
        self
    }

    /// Sets the rank of this process and the number of processes that train together. The loader
    /// delivers only this rank's share of each batch. The default is rank 0 of 1.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let second_of_four = Loader::new("train").batch_size(64).shuffle(42).rank(1, 4);
    /// ```
    ///
    /// Ranks do not communicate. Each rank computes the order of all samples and its share of each
    /// global batch. With the same options, all ranks get the same number of batches. Each sample
    /// of an epoch is delivered to exactly one rank, except for samples that the policy
    /// [`last_batch`](Loader::last_batch) drops or repeats.
    ///
    /// The shares of a global batch, concatenated in rank order, contain the same samples, in the
    /// same order and with the same augmentation, for any world size. There are two exceptions:
    /// [`mix`](crate::Augment::mix) and the replacement samples of [`OnError::Skip`] use only
    /// samples of the same rank, so they depend on the world size.
    pub fn rank(mut self, rank: usize, world_size: usize) -> Self {
        self.rank_origin = RankOrigin::Explicit { rank, world_size };
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
    /// If [`workers`](Loader::workers) is not set, the ranks on one machine divide its cores among
    /// themselves. Their number is read from the launcher's variables (`LOCAL_WORLD_SIZE`,
    /// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_NTASKS_PER_NODE`). If the launcher has bound a rank to
    /// certain cores, the rank starts at most as many workers as it has cores, unless a GPU decodes
    /// videos.
    pub fn distributed(mut self) -> Self {
        self.rank_origin = RankOrigin::Environment;
        self
    }

    /// Resumes an earlier run after the last batch that the run had delivered when the checkpoint
    /// was taken. The time to resume does not depend on the position in the run.
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
    /// between the runs. The global batch size must stay the same; see
    /// [`global_batch_size`](Loader::global_batch_size).
    ///
    /// [`Batches::epoch`] starts the saved epoch at the saved batch. The count of skipped samples
    /// ([`OnError::Skip`]) restarts at 0.
    ///
    /// # Errors
    /// Opening fails with [`ErrorKind::Config`] if the seed, the global batch size, the order, the
    /// augmentation or the dataset differs from the checkpoint; the message says what differs.
    /// [`Checkpoint`] describes which differences are detected. To compare the dataset, opening
    /// reads the keys of up to eight samples.
    pub fn resume(mut self, state: Checkpoint) -> Self {
        self.resume = Some(state);
        self
    }
}

shared_setters! {}
