//! Tells the source which samples are read next, and which are cancelled.

use crate::error::Result;
use crate::order::Schedule;
use crate::recipe::{Recipe, guarded, panicked};
use crate::source::{Follow, Lookahead, Place};

/// The [`Follow`] of the source, if it fetches ahead. Its methods are the user's code, so their
/// panics are caught.
pub(crate) struct Following(Option<Box<dyn Follow>>);

impl Following {
    /// For a source that does not fetch ahead.
    pub(crate) fn none() -> Self {
        Following(None)
    }

    /// Lets the source of `recipe` follow `schedule` with up to `bytes` bytes.
    ///
    /// # Errors
    /// If the source panics.
    pub(crate) fn new(recipe: &Recipe, schedule: &Schedule, bytes: usize) -> Result<Self> {
        let (len, order, lengths) = (recipe.source.len() as u64, schedule.clone(), schedule.clone());
        // The order may be the user's. If it fails, the coordinator finds the same error at that batch.
        let batches = move |epoch| guarded(|| Ok(lengths.num_batches(epoch))).unwrap_or(0);
        let samples = move |Place { epoch, batch }| {
            let mut entries = Vec::new();
            guarded(|| {
                order.fill(epoch, batch, &mut entries);
                Ok(())
            })
            .ok()?;
            let samples: Vec<u64> = entries.iter().map(|entry| entry.sample).collect();
            samples.iter().all(|&sample| sample < len).then_some(samples)
        };
        let follow = guarded(|| Ok(recipe.source.follow(Lookahead::new(bytes, batches, samples))));
        follow.map(Following).map_err(|e| panicked(e, || "the source panicked when it was given the order".to_owned()))
    }

    /// Notes that reads continue at batch `batch` of `epoch`.
    ///
    /// # Errors
    /// If the source panics.
    pub(crate) fn start(&self, epoch: u64, batch: u64) -> Result<()> {
        self.call(|follow| follow.start(Place { epoch, batch }))
            .map_err(|e| panicked(e, || format!("the source panicked when told of batch {batch} of epoch {epoch}")))
    }

    /// Notes that all samples of the batch were read.
    pub(crate) fn done(&self, epoch: u64, batch: u64) {
        // The batch is complete, so a panic here costs only the bytes that the source keeps.
        let _ = self.call(|follow| follow.done(Place { epoch, batch }));
    }

    /// Notes that the rest of the epoch is cancelled.
    pub(crate) fn stop(&self) {
        let _ = self.call(|follow| follow.stop());
    }

    fn call(&self, told: impl FnOnce(&dyn Follow)) -> Result<()> {
        let Some(follow) = &self.0 else { return Ok(()) };
        guarded(|| {
            told(&**follow);
            Ok(())
        })
    }
}
