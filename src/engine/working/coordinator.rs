//! The coordinator thread, which assigns samples to free slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

use super::copier;
use super::outcome::{Ended, Outcome};
use super::queue::WorkSender;
use super::task::Task;
use crate::batch::{Course, Free};
use crate::engine::reading::ReadStage;
use crate::engine::settings::Settings;
use crate::engine::state::{self, Shared};
use crate::error::{Error, Result, guarded, panicked};
use crate::sampler::Entry;
use crate::source::BatchIndex;
use crate::trace::{self, WAIT_FOR_SLOT};

/// Chooses the samples of each batch when the batch begins, instead of the schedule.
pub(crate) trait BatchSampler: Send + Sync {
    /// Replaces `entries` with the samples of batch `batch`. Blocks until they are known. Leaves
    /// `entries` empty if the run to which `epoch` belongs has ended.
    fn fill(&self, epoch: u64, batch: u64, entries: &mut Vec<Entry>);

    /// Called when no more batches are needed. Unblocks every thread in `fill`.
    fn end(&self);
}

/// The only thread that waits for free slots. It assigns samples to a free slot, splits the slot
/// into parts, and sends each part to the workers or the readers.
pub(crate) struct Coordinator {
    pub(crate) shared: Arc<Shared>,
    pub(crate) batch_sampler: Option<Arc<dyn BatchSampler>>,
    pub(crate) started: Receiver<Course>,
    pub(crate) freed: Receiver<Free>,
    pub(crate) free: Sender<Free>,
    pub(crate) work: WorkSender,
    pub(crate) stage: Arc<ReadStage>,
    pub(crate) outcomes: Sender<Outcome>,
}

impl Coordinator {
    /// Runs until the sender of `started` is dropped.
    pub(crate) fn run(self) {
        let mut entries = Vec::new();
        let mut next_start = self.started.recv().ok();
        while let Some(mut course) = next_start.take() {
            let (run, mut next, mut seq) = (course.run, Some(course.first), 0);
            while let Some(index) = next.filter(|_| self.shared.run.is_wanted(run)) {
                // `length` may run slow user code. The consumer does not wait for it, because the
                // workers or readers already have every batch of the previous epoch.
                let may_continue = index.batch > 0 || seq == 0 || course.enter(self.length(index.epoch));
                let chosen = if may_continue { self.choose(run, index, &mut entries).map_err(Some) } else { Err(None) };
                if let Err(error) = chosen {
                    if self.shared.run.is_wanted(run) {
                        let _ = self.outcomes.send(Err(Ended::Run { run, seq, error }));
                    }
                    break;
                }
                if entries.is_empty() {
                    break;
                }
                next = course.after(index);
                // `seconds()` does not advance between epochs, so time that the program spends
                // between epochs does not count as waiting for a slot.
                let (since, before) = (Instant::now(), self.shared.run.settings.seconds());
                let range = trace::range(WAIT_FOR_SLOT);
                let slot = loop {
                    select! {
                        recv(self.started) -> start => match start {
                            Ok(start) => { next_start = Some(start); break None }
                            Err(_) => return,
                        },
                        recv(self.freed) -> slot => match slot {
                            Ok(slot) => if let Some(slot) = self.shared.run.settings.keep(slot) { break Some(slot) },
                            Err(_) => return,
                        },
                    }
                };
                drop(range);
                let Some(slot) = slot else { break };
                let waited = Duration::from_secs_f64((self.shared.run.settings.seconds() - before).max(0.0));
                self.shared.run.counters.slot(index.epoch, index.batch, since, waited);
                if !self.shared.run.is_wanted(run) {
                    let _ = self.free.send(slot);
                    break;
                }
                self.hand_out(slot, run, seq, index, next, &mut entries);
                seq += 1;
            }
            if next_start.is_none() {
                next_start = self.started.recv().ok();
            }
        }
    }

    /// Assigns `entries` to `slot`, splits the slot into parts, and sends them to the workers or
    /// the readers. `next` is the position of the following batch.
    fn hand_out(
        &self,
        slot: Free,
        run: u64,
        seq: u64,
        index: BatchIndex,
        next: Option<BatchIndex>,
        entries: &mut Vec<Entry>,
    ) {
        let recipe = &self.shared.recipe;
        let of_batch = self.shared.schedule.size_of(index.epoch, index.batch);
        let variant = of_batch.unwrap_or_else(|| recipe.output_sizes.at(index.epoch));
        let schema = slot.schemas().variant(variant);
        let mut group = Settings::samples_per_part(schema.batch, self.shared.run.settings.workers);
        if recipe.can_copy && !self.stage.waits.readers_enabled() {
            group = copier::part_len(group, schema.batch, schema.sample_bytes());
        }
        let parts = slot.begin(group, |header| {
            (header.run, header.seq, header.next) = (run, seq, next);
            (header.epoch, header.number) = (index.epoch, index.batch);
            header.variant = variant;
            std::mem::swap(&mut header.entries, entries);
            // Mixing needs images, and at least two samples.
            let partners = header.entries.len() > 1 && !recipe.any_fields().images.is_empty();
            let mixing = || recipe.augments.mixing(variant, recipe.seed, (index.epoch, index.batch));
            header.mixing = partners.then(mixing).flatten();
        });
        for part in parts {
            if let Some(part) = self.stage.divert(part) {
                self.work.send(Task { part, fetched: None, redecode: None });
            }
        }
    }

    /// Returns the number of batches in `epoch`, or `None` if the source or the sampler fails. The
    /// program gets that error when it requests the epoch.
    fn length(&self, epoch: u64) -> Option<u64> {
        guarded(|| self.shared.recipe.read_source.check()).ok()?;
        state::batches(&self.shared.schedule, epoch).ok()
    }

    /// Gets the samples of a batch from the sampler, which may be user code, and checks their
    /// indices.
    fn choose(&self, run: u64, index: BatchIndex, entries: &mut Vec<Entry>) -> Result<()> {
        let BatchIndex { epoch, batch } = index;
        let len = self.shared.recipe.source.len() as u64;
        let _begun = self.shared.schedule.live_order().map(|changes| changes.begin(run, index));
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
