use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

use super::crew::Giver;
use super::filled::{Broken, Filled};
use super::task::Task;
use crate::batch::Free;
use crate::engine::reading::ReadStage;
use crate::engine::settings::Settings;
use crate::engine::state::Run;
use crate::error::{Error, Result};
use crate::order::{Pick, Schedule};
use crate::recipe::{Recipe, guarded, panicked};
use crate::trace::{self, WAIT_FOR_SLOT};

/// Says what goes into a batch when somebody asks for one.
pub(crate) trait Asked: Send + Sync {
    /// Waits until somebody asks for batch `number`, and puts its places into `picks`: none if the
    /// run of `epoch` is over.
    fn fill(&self, epoch: u64, number: u64, picks: &mut Vec<Pick>);
}

/// A run: the batches with the numbers `batches` of `epoch`.
pub(crate) struct Start {
    pub(crate) run: u64,
    pub(crate) epoch: u64,
    pub(crate) batches: Range<u64>,
}

/// The thread that takes a free slot, decides which samples go in, and hands it out in parts.
///
/// It is the only one that waits for slots, so that no worker ever does.
pub(crate) struct Coordinator {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) run: Arc<Run>,
    pub(crate) schedule: Schedule,
    pub(crate) asked: Option<Arc<dyn Asked>>,
    pub(crate) started: Receiver<Start>,
    pub(crate) freed: Receiver<Free>,
    pub(crate) free: Sender<Free>,
    pub(crate) crew: Giver,
    pub(crate) stage: Arc<ReadStage>,
    pub(crate) broken: Sender<Filled>,
}

impl Coordinator {
    /// Runs until the other end of `started` is dropped.
    pub(crate) fn run(self) {
        let mut picks = Vec::new();
        let mut next_start = self.started.recv().ok();
        while let Some(Start { run, epoch, batches }) = next_start.take() {
            if let Err(e) = self.check() {
                // Of a run that is not wanted any more nobody takes the error.
                if self.run.is_wanted(run) {
                    let _ = self.broken.send(Err(Broken { run, number: batches.start, error: e }));
                }
                next_start = self.started.recv().ok();
                continue;
            }
            for number in batches {
                let wanted = self.run.is_wanted(run);
                let picked = if wanted { self.pick(epoch, number, &mut picks) } else { Ok(()) };
                if wanted && picked.is_ok() && picks.is_empty() {
                    // Nobody asks any more.
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
                // An error waits for its slot: the consumer has no place for it before.
                let wanted = wanted && self.run.is_wanted(run);
                if !wanted || picked.is_err() {
                    let _ = self.free.send(slot);
                    if let Err(e) = picked {
                        let _ = self.broken.send(Err(Broken { run, number, error: e }));
                    }
                    break;
                }
                let group = Settings::group(slot.batch(), self.run.settings.workers);
                let parts = slot.begin(group, |header| {
                    (header.run, header.epoch, header.number) = (run, epoch, number);
                    std::mem::swap(&mut header.picks, &mut picks);
                    // A batch of one has no partners, and one without images nothing to mix.
                    let partners = header.picks.len() > 1 && !self.recipe.fields.images.is_empty();
                    let mixing = partners.then(|| self.recipe.augment.mixing(self.recipe.seed, epoch, number));
                    header.mixing = mixing.flatten();
                });
                for part in parts {
                    if let Some(part) = self.stage.divert(part) {
                        self.crew.give(Task { part, fetched: None, again: None });
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

    /// Asks the order, which may be the user's, for the places of a batch.
    fn pick(&self, epoch: u64, number: u64, picks: &mut Vec<Pick>) -> Result<()> {
        let len = self.recipe.source.len() as u64;
        guarded(|| {
            match &self.asked {
                Some(asked) => asked.fill(epoch, number, picks),
                None => self.schedule.fill(epoch, number, picks),
            }
            Ok(())
        })
        .map_err(|e| panicked(e, || format!("the order panicked at batch {number} of epoch {epoch}")))?;
        if let Some(p) = picks.iter().find(|p| p.sample >= len) {
            return Err(Error::config(format!(
                "the order gives sample {} in batch {number} of epoch {epoch}; the source has {len}",
                p.sample
            )));
        }
        Ok(())
    }
}
