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
use crate::engine::state::{self, Run};
use crate::error::{Error, Result, guarded, panicked};
use crate::order::{Entry, Schedule};
use crate::recipe::Recipe;
use crate::source::Place;
use crate::trace::{self, WAIT_FOR_SLOT};

/// Chooses the samples of batches on request, in place of a schedule.
pub(crate) trait BatchSampler: Send + Sync {
    /// Waits for a request for batch `number`, and replaces `entries` by its samples, or by nothing
    /// if the run of `epoch` is over.
    fn fill(&self, epoch: u64, number: u64, entries: &mut Vec<Entry>);

    /// Ends all waits in `fill`: no batch is wanted any more.
    fn end(&self);
}

/// The number of a run, and its batches.
pub(crate) struct Start {
    pub(crate) run: u64,
    pub(crate) course: Course,
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
        while let Some(Start { run, mut course }) = next_start.take() {
            let (mut next, mut turn) = (Some(course.first), 0);
            while let Some(place) = next.filter(|_| self.run.is_wanted(run)) {
                // The last batch of the epoch before is on its way, so it waits for nothing here.
                if place.batch == 0 && turn > 0 && !course.enter(self.length(place.epoch)) {
                    if self.run.is_wanted(run) {
                        let _ = self.outcomes.send(Err(Ended::Run { run, turn, error: None }));
                    }
                    break;
                }
                let chosen = self.choose(place, &mut entries);
                if chosen.is_ok() && entries.is_empty() {
                    // The run is over.
                    break;
                }
                next = course.after(place);
                // Time between epochs does not count as a wait.
                let (since, before) = (Instant::now(), self.run.settings.seconds());
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
                let waited = Duration::from_secs_f64((self.run.settings.seconds() - before).max(0.0));
                self.run.counters.slot(place.epoch, place.batch, since, waited);
                // An error waits for a free slot, because the consumer has one place per slot.
                if !self.run.is_wanted(run) || chosen.is_err() {
                    let _ = self.free.send(slot);
                    if let Err(error) = chosen {
                        let _ = self.outcomes.send(Err(Ended::Run { run, turn, error: Some(error) }));
                    }
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

    /// Divides a slot into parts that are filled with the samples `entries`, batch `turn` of the run.
    fn hand_out(
        &self,
        slot: Free,
        (run, turn, next): (u64, u64, Option<Place>),
        place: Place,
        entries: &mut Vec<Entry>,
    ) {
        let group = Settings::group(slot.batch(), self.run.settings.workers);
        let parts = slot.begin(group, |header| {
            (header.run, header.turn, header.next) = (run, turn, next);
            (header.epoch, header.number) = (place.epoch, place.batch);
            header.form = self.recipe.forms.at(place.epoch);
            std::mem::swap(&mut header.entries, entries);
            // A batch of one sample has no partners, and without images nothing is mixed.
            let partners = header.entries.len() > 1 && !self.recipe.any_fields().images.is_empty();
            let mixing = || self.recipe.augment.mixing(self.recipe.seed, place.epoch, place.batch);
            header.mixing = partners.then(mixing).flatten();
        });
        for part in parts {
            if let Some(part) = self.stage.divert(part) {
                self.work.send(Task { part, fetched: None, again: None });
            }
        }
    }

    /// Number of batches in the next epoch. `None` if the source or the order fails, which then is
    /// an error of that epoch once it is requested.
    fn length(&self, epoch: u64) -> Option<u64> {
        guarded(|| self.recipe.reads.check()).ok()?;
        state::batches(&self.schedule, epoch).ok()
    }

    /// Fills `entries` from the order, which may be the user's code.
    fn choose(&self, Place { epoch, batch: number }: Place, entries: &mut Vec<Entry>) -> Result<()> {
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
