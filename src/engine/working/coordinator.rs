use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

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

/// Chooses the samples of each batch on demand, in place of a fixed schedule.
pub(crate) trait BatchSampler: Send + Sync {
    /// Waits until the samples of batch `number` are known, and replaces `entries` with them.
    /// Leaves `entries` empty if the run that `epoch` belongs to has ended.
    fn fill(&self, epoch: u64, number: u64, entries: &mut Vec<Entry>);

    /// Called when no further batch is needed. Wakes every thread that is blocked in `fill`.
    fn end(&self);
}

/// The thread that takes a free slot, assigns samples to it, splits it into parts, and sends these
/// to workers or readers. No other thread waits for free slots.
pub(crate) struct Coordinator {
    pub(crate) shared: Arc<Shared>,
    pub(crate) asked: Option<Arc<dyn BatchSampler>>,
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
            let (run, mut next, mut turn) = (course.run, Some(course.first), 0);
            while let Some(place) = next.filter(|_| self.shared.run.is_wanted(run)) {
                // Nothing waits for this call, because the last batch of the previous epoch has
                // already been handed out.
                let goes_on = place.batch > 0 || turn == 0 || course.enter(self.length(place.epoch));
                let chosen = if goes_on { self.choose(place, &mut entries).map_err(Some) } else { Err(None) };
                if let Err(error) = chosen {
                    if self.shared.run.is_wanted(run) {
                        let _ = self.outcomes.send(Err(Ended::Run { run, turn, error }));
                    }
                    break;
                }
                if entries.is_empty() {
                    // The run is over.
                    break;
                }
                next = course.after(place);
                // `seconds()` pauses between epochs, so that this time does not count as waiting
                // for a slot.
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
                self.shared.run.counters.slot(place.epoch, place.batch, since, waited);
                if !self.shared.run.is_wanted(run) {
                    let _ = self.free.send(slot);
                    break;
                }
                self.hand_out(slot, (run, turn, next), place, &mut entries);
                turn += 1;
            }
            if next_start.is_none() {
                next_start = self.started.recv().ok();
            }
        }
    }

    /// Splits a slot into parts for `entries` and sends them to the workers. `turn` is the batch's
    /// number within the run.
    fn hand_out(
        &self,
        slot: Free,
        (run, turn, next): (u64, u64, Option<BatchIndex>),
        place: BatchIndex,
        entries: &mut Vec<Entry>,
    ) {
        let recipe = &self.shared.recipe;
        let group = Settings::group(slot.batch(), self.shared.run.settings.workers);
        let parts = slot.begin(group, |header| {
            (header.run, header.turn, header.next) = (run, turn, next);
            (header.epoch, header.number) = (place.epoch, place.batch);
            header.form = recipe.forms.at(place.epoch);
            std::mem::swap(&mut header.entries, entries);
            // Samples are mixed only if the batch has other samples and the fields include images.
            let partners = header.entries.len() > 1 && !recipe.any_fields().images.is_empty();
            let mixing = || recipe.augment.mixing(recipe.seed, place.epoch, place.batch);
            header.mixing = partners.then(mixing).flatten();
        });
        for part in parts {
            if let Some(part) = self.stage.divert(part) {
                self.work.send(Task { part, fetched: None, again: None });
            }
        }
    }

    /// Returns the number of batches in `epoch`. Returns `None` if the source or the order fails;
    /// the program receives the error when it requests the epoch.
    fn length(&self, epoch: u64) -> Option<u64> {
        guarded(|| self.shared.recipe.reads.check()).ok()?;
        state::batches(&self.shared.schedule, epoch).ok()
    }

    /// Fills `entries` with the samples of a batch, as chosen by the order, which may be user code.
    fn choose(&self, BatchIndex { epoch, batch: number }: BatchIndex, entries: &mut Vec<Entry>) -> Result<()> {
        let len = self.shared.recipe.source.len() as u64;
        guarded(|| {
            match &self.asked {
                Some(asked) => asked.fill(epoch, number, entries),
                None => self.shared.schedule.fill(epoch, number, entries),
            }
            Ok(())
        })
        .map_err(|e| panicked(e, || format!("the order panicked at batch {number} of epoch {epoch}")))?;
        if let Some(p) = entries.iter().find(|p| p.sample >= len) {
            return Err(Error::config(format!(
                "the sampler returned sample {} in batch {number} of epoch {epoch}; the source has {len}",
                p.sample
            )));
        }
        Ok(())
    }
}
