//! Changes a mixture's proportions or the sample weights during a run.

use super::batches::{Batches, NextStep};
use crate::engine::state::{self, Shared};
use crate::error::{Error, Result};
use crate::sampler::UpdateKind;
use crate::source::BatchIndex;

/// Maximum value of `after_batches`.
const MAX_DELAY: u64 = 1 << 24;

impl<B> Batches<B> {
    /// Changes the proportions of a [mixture](crate::Loader::mixture) during the run, for example
    /// based on losses. Returns the index of the first batch that contains samples drawn with the
    /// new proportions.
    ///
    /// ```no_run
    /// # fn main() -> warpfeed::Result<()> {
    /// # let train_step = |_| [0.2, 0.8];
    /// let loader = warpfeed::Loader::mixture([("photos", 0.5), ("sketches", 0.5)]).seed(42);
    /// let mut batches = loader.host()?;
    /// let mut epoch = batches.epoch(0);
    /// while let Some(batch) = epoch.next() {
    ///     let losses: [f64; 2] = train_step(batch?);
    ///     epoch.set_mixture(&losses, 0)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The change takes effect at the start of the first
    /// [round](crate::sampler::MixtureOptions::draws_per_round) that begins after at least
    /// `after_batches` further batches. Neither the prefetch depth nor the number of ranks affects
    /// this point. If batches from this point on have been prepared, or if the source itself
    /// prefetches, all prepared batches are dropped and prepared again. The change replaces the
    /// remaining schedule of proportions, and all earlier changes that would take effect at this
    /// point or later.
    ///
    /// Every rank must make the same calls after the same batches. [Checkpoints](crate::Checkpoint)
    /// contain all calls.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the loader is not a mixture, if the
    /// proportions are invalid, if they would change the length of the run (see
    /// [`single_pass`](crate::sampler::MixtureOptions::single_pass)), if images are combined with
    /// other samples of the epoch, as in a mosaic, if `after_batches` exceeds 2^24, or if called in
    /// a forked child. After an error, nothing has changed.
    pub fn set_mixture(&self, proportions: &[f64], after_batches: u64) -> Result<BatchIndex> {
        self.change(UpdateKind::Proportions, proportions, after_batches)
    }

    /// Changes the [weights](crate::Loader::weights) of the samples during the run. Pass one weight
    /// for each sample of the source. Returns the index of the first batch that contains samples
    /// drawn with the new weights.
    ///
    /// The change takes effect after `after_batches` further batches. If later batches have been
    /// prepared, or if the source itself prefetches, all prepared batches are dropped and prepared
    /// again. To avoid this delay with other sources, set `after_batches` to a few batches more
    /// than the [prefetch depth](Batches::prefetch), and to the same number on every rank.
    ///
    /// Every rank must make the same calls after the same batches. [Checkpoints](crate::Checkpoint)
    /// contain the calls that affect the epoch in progress or later epochs. After a call, the
    /// weights of earlier epochs may be lost, and requesting such an epoch then fails.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the loader was opened without weights, if
    /// the weights are invalid, if images are combined with other samples of the epoch, as in a
    /// mosaic, if `after_batches` exceeds 2^24, or if called in a forked child. After an error,
    /// nothing has changed.
    pub fn set_weights(&self, weights: &[f64], after_batches: u64) -> Result<BatchIndex> {
        self.change(UpdateKind::Weights, weights, after_batches)
    }

    fn change(&self, kind: UpdateKind, values: &[f64], delay: u64) -> Result<BatchIndex> {
        self.check_process()?;
        let Shared { schedule, recipe, .. } = self.shared();
        let (call, requirement) = match kind {
            UpdateKind::Proportions => ("set_mixture", "a mixture"),
            UpdateKind::Weights => ("set_weights", "weights or balanced()"),
        };
        let live_order = schedule.live_order().filter(|live_order| live_order.kind() == kind);
        let Some(live_order) = live_order else {
            return Err(Error::config(format!("{call}: this loader was opened without {requirement}")));
        };
        if recipe.all_augments().any(|augment| augment.max_images_of_all_epochs() > 1) {
            return Err(Error::config(format!(
                "{call}: the augmentation combines each image with other samples of the epoch, which the change would replace; \
                 remove mosaic and copy_paste"
            )));
        }
        if delay > MAX_DELAY {
            return Err(Error::config(format!(
                "{call}: after_batches={delay} is too large; the maximum is {MAX_DELAY}"
            )));
        }
        let positions_per_epoch = live_order.current().positions_per_epoch();
        let first = self.first_batch_after(delay)?;
        let position = |index| schedule.positions_before(index, positions_per_epoch);
        let (Some(start_position), Some(epoch)) =
            (position(first), position(BatchIndex { batch: 0, ..self.shared().position() }))
        else {
            return Err(Error::config(format!(
                "{call}: batch {} of epoch {} is too far ahead",
                first.batch, first.epoch
            )));
        };
        let (effective_position, begun_batch) = live_order.update(start_position, values, epoch)?;
        let first_affected = schedule.first_batch_from(effective_position, positions_per_epoch);
        if begun_batch.is_some_and(|begun_batch| begun_batch >= first_affected) {
            self.shared().mark_outdated();
        }
        tracing::debug!(epoch = first_affected.epoch, batch = first_affected.batch, "{call}");
        Ok(first_affected)
    }

    fn first_batch_after(&self, delay: u64) -> Result<BatchIndex> {
        let BatchIndex { mut epoch, mut batch } = self.shared().position();
        // The failed batch counts as received, because it may not have failed on other ranks.
        let failed_count = u64::from(matches!(self.next_step, NextStep::AfterFailed));
        batch = batch.saturating_add(failed_count).saturating_add(delay);
        loop {
            let batches = state::count_batches(&self.shared().schedule, epoch)?;
            if batch < batches || batches == 0 {
                return Ok(BatchIndex { epoch, batch });
            }
            (epoch, batch) = (epoch.saturating_add(1), batch - batches);
        }
    }

    pub(super) fn restart_if_changed(&mut self) {
        if !self.shared().take_outdated() {
            return;
        }
        self.stop();
        let run_plan = self.plan_run(self.shared().position());
        self.next_step = NextStep::Batch;
        if let Some(feed) = self.feed() {
            feed.start(run_plan);
        }
    }
}
