use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

use super::outcome::{Outcome, RunError};
use super::queue::WorkSender;
use super::task::Task;
use crate::batch::Free;
use crate::engine::reading::ReadStage;
use crate::engine::settings::Settings;
use crate::engine::state::Run;
use crate::error::{Error, Result, guarded, panicked};
use crate::order::{Entry, Schedule};
use crate::recipe::Recipe;
use crate::trace::{self, WAIT_FOR_SLOT};

/// Chooses the samples of batches on request, in place of a schedule.
pub(crate) trait BatchSampler: Send + Sync {
    /// Waits for a request for batch `number`, and replaces `entries` by its samples, or by nothing if
    /// the run of `epoch` is over.
    fn fill(&self, epoch: u64, number: u64, entries: &mut Vec<Entry>);
}

/// A run: the batches with the numbers `batches` of `epoch`.
pub(crate) struct Start {
    pub(crate) run: u64,
    pub(crate) epoch: u64,
    pub(crate) batches: Range<u64>,
}

/// The thread that takes free slots, assigns samples to them, and sends their parts to workers or
/// readers.
///
/// No other thread waits for free slots.
pub(crate) struct Coordinator {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) run: Arc<Run>,
    pub(crate) schedule: Schedule,
    pub(crate) asked: Option<Arc<dyn BatchSampler>>,
    pub(crate) started: Receiver<Start>,
    pub(crate) freed: Receiver<Free>,
    pub(crate) free: Sender<Free>,
    pub(crate) work: WorkSender,
    pub(crate) stage: Arc<ReadStage>,
    pub(crate) outcomes: Sender<Outcome>,
}

impl Coordinator {
    /// Runs until the other end of `started` is dropped.
    pub(crate) fn run(self) {
        let mut entries = Vec::new();
        let mut next_start = self.started.recv().ok();
        while let Some(Start { run, epoch, batches }) = next_start.take() {
            if let Err(e) = self.check() {
                // Errors of cancelled runs are dropped.
                if self.run.is_wanted(run) {
                    let _ = self.outcomes.send(Err(RunError { run, number: batches.start, error: e }));
                }
                next_start = self.started.recv().ok();
                continue;
            }
            for number in batches {
                let wanted = self.run.is_wanted(run);
                let chosen = if wanted { self.choose(epoch, number, &mut entries) } else { Ok(()) };
                if wanted && chosen.is_ok() && entries.is_empty() {
                    // The run is over.
                    break;
                }
                let since = Instant::now();
                let range = trace::range(WAIT_FOR_SLOT);
                let slot = loop {
                    select! {
                        recv(self.started) -> start => match start {
                            Ok(start) => { next_start = Some(start); break None }
                            Err(_) => return,
                        },
                        recv(self.freed) -> slot => match slot {
                            Ok(slot) => if let Some(slot) = self.run.settings.keep(slot) { break Some(slot) },
                            Err(_) => return,
                        },
                    }
                };
                drop(range);
                let Some(slot) = slot else { break };
                self.run.counters.slot(epoch, number, since);
                // An error waits for a free slot, because the consumer has one place per slot.
                let wanted = wanted && self.run.is_wanted(run);
                if !wanted || chosen.is_err() {
                    let _ = self.free.send(slot);
                    if let Err(e) = chosen {
                        let _ = self.outcomes.send(Err(RunError { run, number, error: e }));
                    }
                    break;
                }
                let group = Settings::group(slot.batch(), self.run.settings.workers);
                let parts = slot.begin(group, |header| {
                    (header.run, header.epoch, header.number) = (run, epoch, number);
                    std::mem::swap(&mut header.entries, &mut entries);
                    // A batch of one sample has no partners, and without images nothing is mixed.
                    let partners = header.entries.len() > 1 && !self.recipe.fields.images.is_empty();
                    let mixing = partners.then(|| self.recipe.augment.mixing(self.recipe.seed, epoch, number));
                    header.mixing = mixing.flatten();
                });
                for part in parts {
                    if let Some(part) = self.stage.divert(part) {
                        self.work.send(Task { part, fetched: None, again: None });
                    }
                }
            }
            if next_start.is_none() {
                next_start = self.started.recv().ok();
            }
        }
    }

    fn check(&self) -> Result<()> {
        guarded(|| self.recipe.source.check())
            .map_err(|e| panicked(e, || "the source panicked when it was checked".to_owned()))
    }

    /// Fills `entries` from the order, which may be the user's code.
    fn choose(&self, epoch: u64, number: u64, entries: &mut Vec<Entry>) -> Result<()> {
        let len = self.recipe.source.len() as u64;
        guarded(|| {
            match &self.asked {
                Some(asked) => asked.fill(epoch, number, entries),
                None => self.schedule.fill(epoch, number, entries),
            }
            Ok(())
        })
        .map_err(|e| panicked(e, || format!("the order panicked at batch {number} of epoch {epoch}")))?;
        if let Some(p) = entries.iter().find(|p| p.sample >= len) {
            return Err(Error::config(format!(
                "the order gives sample {} in batch {number} of epoch {epoch}; the source has {len}",
                p.sample
            )));
        }
        Ok(())
    }
}
