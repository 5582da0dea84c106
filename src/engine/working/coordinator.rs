//! The coordinator thread, which assigns samples to free slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

use super::copier;
use super::fill_result::{EndReason, FillResult};
use super::queue::WorkSender;
use super::task::Task;
use crate::batch::{FreeSlot, RunPlan};
use crate::engine::reading::ReadStage;
use crate::engine::settings::Settings;
use crate::engine::state::{self, Shared};
use crate::error::{Error, Result, guarded, panicked};
use crate::sampler::Entry;
use crate::source::BatchIndex;
use crate::trace::{self, SLOT_WAIT};

/// Chooses the samples of each batch when the batch begins, instead of the schedule.
pub(crate) trait BatchSampler: Send + Sync {
    /// Replaces `entries` with the samples of batch `batch`. Blocks until they are known. Leaves
    /// `entries` empty if the run to which `epoch` belongs has ended.
    fn fill(&self, epoch: u64, batch: u64, entries: &mut Vec<Entry>);

    /// Called when no more batches are needed. Unblocks every thread in `fill`.
    fn end(&self);
}

/// The coordinator thread, which is the only thread that waits for free slots. It assigns samples
/// to a free slot, splits the slot into parts, and sends each part to the workers or the readers.
pub(crate) struct Coordinator {
    pub(crate) shared: Arc<Shared>,
    pub(crate) batch_sampler: Option<Arc<dyn BatchSampler>>,
    pub(crate) run_receiver: Receiver<RunPlan>,
    pub(crate) slot_receiver: Receiver<FreeSlot>,
    pub(crate) slot_sender: Sender<FreeSlot>,
    pub(crate) work_sender: WorkSender,
    pub(crate) read_stage: Arc<ReadStage>,
    pub(crate) fill_result_sender: Sender<FillResult>,
}

impl Coordinator {
    /// Runs until the sender of `run_receiver` is dropped.
    pub(crate) fn run(self) {
        let mut entries = Vec::new();
        let mut next_run_plan = self.run_receiver.recv().ok();
        while let Some(mut run_plan) = next_run_plan.take() {
            let (run, mut next_batch, mut seq) = (run_plan.run, Some(run_plan.first), 0);
            while let Some(index) = next_batch.filter(|_| self.shared.runtime.is_current(run)) {
                // `batch_count` may call slow user code. This does not delay the previous epoch,
                // because the workers or readers already have all its batches.
                let may_continue = index.batch > 0 || seq == 0 || run_plan.begin_epoch(self.batch_count(index.epoch));
                let result =
                    if may_continue { self.choose_samples(run, index, &mut entries).map_err(Some) } else { Err(None) };
                if let Err(error) = result {
                    if self.shared.runtime.is_current(run) {
                        let _ = self.fill_result_sender.send(Err(EndReason::Run { run, seq, error }));
                    }
                    break;
                }
                if entries.is_empty() {
                    break;
                }
                next_batch = run_plan.next_after(index);
                // `seconds()` does not advance between epochs, so time that the program spends
                // between epochs does not count as waiting for a slot.
                let (wait_start, seconds_before) = (Instant::now(), self.shared.runtime.settings.seconds());
                let range = trace::range(SLOT_WAIT);
                let slot = loop {
                    select! {
                        recv(self.run_receiver) -> run_plan => match run_plan {
                            Ok(run_plan) => { next_run_plan = Some(run_plan); break None }
                            Err(_) => return,
                        },
                        recv(self.slot_receiver) -> slot => match slot {
                            Ok(slot) => if let Some(slot) = self.shared.runtime.settings.keep_or_reserve(slot) {
                                break Some(slot)
                            },
                            Err(_) => return,
                        },
                    }
                };
                drop(range);
                let Some(slot) = slot else { break };
                let wait_time =
                    Duration::from_secs_f64((self.shared.runtime.settings.seconds() - seconds_before).max(0.0));
                self.shared.runtime.counters.record_slot_wait(index.epoch, index.batch, wait_start, wait_time);
                if !self.shared.runtime.is_current(run) {
                    let _ = self.slot_sender.send(slot);
                    break;
                }
                self.begin_batch(slot, run, seq, index, next_batch, &mut entries);
                seq += 1;
            }
            if next_run_plan.is_none() {
                next_run_plan = self.run_receiver.recv().ok();
            }
        }
    }

    /// Assigns `entries` to `slot`, splits the slot into parts, and sends them to the workers or
    /// the readers. `next_batch` is the position of the following batch, or `None` if the run ends
    /// after this batch.
    fn begin_batch(
        &self,
        slot: FreeSlot,
        run: u64,
        seq: u64,
        index: BatchIndex,
        next_batch: Option<BatchIndex>,
        entries: &mut Vec<Entry>,
    ) {
        let recipe = &self.shared.recipe;
        let batch_variant = self.shared.schedule.image_size_index(index.epoch, index.batch);
        let variant = batch_variant.unwrap_or_else(|| recipe.output_sizes.variant(index.epoch));
        let schema = slot.schemas().variant(variant);
        let mut part_len = Settings::samples_per_part(schema.batch, self.shared.runtime.settings.workers);
        if recipe.can_copy && !self.read_stage.reader_switch.readers_enabled() {
            part_len = copier::part_len(part_len, schema.batch, schema.sample_bytes());
        }
        let parts = slot.begin(part_len, |header| {
            (header.run, header.seq, header.next) = (run, seq, next_batch);
            (header.epoch, header.batch_index) = (index.epoch, index.batch);
            header.variant = variant;
            std::mem::swap(&mut header.entries, entries);
            // Mixing needs images, and at least two samples.
            let can_mix = header.entries.len() > 1 && !recipe.any_fields().images.is_empty();
            let mixing = || recipe.augments.mixing(variant, recipe.seed, (index.epoch, index.batch));
            header.mixing = can_mix.then(mixing).flatten();
        });
        for part in parts {
            if let Some(part) = self.read_stage.divert(part) {
                self.work_sender.send(Task { part, prefetched_samples: None, redecode: None });
            }
        }
    }

    /// Returns the number of batches in `epoch`, or `None` if the source or the sampler fails. The
    /// program gets that error when it requests the epoch.
    fn batch_count(&self, epoch: u64) -> Option<u64> {
        guarded(|| self.shared.recipe.read_source.check()).ok()?;
        state::count_batches(&self.shared.schedule, epoch).ok()
    }

    /// Gets the samples of a batch from the sampler, which may be user code. Fails if the sampler
    /// panics, or if it returns an index that the source does not have.
    fn choose_samples(&self, run: u64, index: BatchIndex, entries: &mut Vec<Entry>) -> Result<()> {
        let BatchIndex { epoch, batch } = index;
        let len = self.shared.recipe.source.len() as u64;
        let _batch_guard = self.shared.schedule.live_order().map(|changes| changes.begin(run, index));
        guarded(|| {
            match &self.batch_sampler {
                Some(batch_sampler) => batch_sampler.fill(epoch, batch, entries),
                None => self.shared.schedule.fill(epoch, batch, entries),
            }
            Ok(())
        })
        .map_err(|e| panicked(e, || format!("the sampler panicked in epoch {epoch}, batch {batch}")))?;
        if let Some(p) = entries.iter().find(|p| p.sample >= len) {
            return Err(Error::config(format!(
                "the sampler returned sample {} in batch {batch} of epoch {epoch}; the source has only {len} samples",
                p.sample
            )));
        }
        Ok(())
    }
}
