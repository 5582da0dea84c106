//! Notifies a prefetching source of the samples that will be read, the start of a run, finished
//! batches, and the cancellation of the run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::state::Shared;
use crate::error::{Result, guarded, panicked};
use crate::recipe::draw_partners;
use crate::sampler::Position;
use crate::source::{BatchIndex, Lookahead, Prefetcher};

/// The source's [`Prefetcher`], if any. Its methods may be user code, so panics in them are caught.
pub(crate) struct Following {
    follow: Option<Box<dyn Prefetcher>>,
    /// Number of the run that the source prefetches for; 0 for none. The lock is held during each
    /// call, so that no call for a canceled run reaches the source after the next run has started.
    run: Mutex<u64>,
    /// The source may fetch all epochs before this one.
    epochs: Arc<AtomicU64>,
}

impl Following {
    pub(crate) fn none() -> Self {
        Following { follow: None, run: Mutex::new(0), epochs: Arc::default() }
    }

    /// Passes the schedule to the source. The source may fetch all epochs that may be prepared
    /// ahead, and later epochs once the program has requested them.
    ///
    /// # Errors
    /// If the source panics.
    pub(crate) fn new(shared: &Shared) -> Result<Self> {
        let Shared { recipe, schedule, .. } = shared;
        let epochs = Arc::new(AtomicU64::new(shared.epochs));
        let end = epochs.clone();
        let (len, order, lengths) = (recipe.source.len() as u64, schedule.clone(), schedule.clone());
        // The order may be user code. If it panics here, it also panics in the coordinator, which
        // reports the error.
        let batches = move |epoch| {
            if epoch < end.load(Ordering::Relaxed) {
                guarded(|| Ok(lengths.num_batches(epoch))).unwrap_or(0)
            } else {
                0
            }
        };
        let (augments, seed, of_draws) = (recipe.augments.clone(), recipe.seed, recipe.clone());
        let samples = move |BatchIndex { epoch, batch }| {
            let mut entries = Vec::new();
            guarded(|| {
                order.fill(epoch, batch, &mut entries);
                Ok(())
            })
            .ok()?;
            let mut samples = Vec::with_capacity(entries.len());
            for entry in &entries {
                let draw = of_draws.clip_draw(entry);
                samples.push((entry.sample, draw));
                let augment = augments.for_sample(0, entry.sample);
                let partners = draw_partners(augment, order.order(), (seed, len), (epoch, entry)).ok()?;
                samples.extend(partners.into_iter().flat_map(|partners| partners.samples).map(|sample| (sample, draw)));
            }
            samples.iter().all(|&(sample, _)| sample < len).then_some(samples)
        };
        let (inverse, augments) = (schedule.clone(), recipe.augments.clone());
        let next = move |epoch, sample, batch| {
            // The other samples of a mosaic are random, so any batch may read the sample.
            if augments.max_images(epoch) > 1 {
                return Position::Unknown;
            }
            guarded(|| Ok(inverse.next(epoch, sample, batch))).unwrap_or(Position::Unknown)
        };
        let bytes = shared.run.scratch.plan().source;
        let order = Lookahead::drawn(bytes, batches, samples).with_next(next);
        let follow = guarded(|| Ok(recipe.read_source.follow(order)));
        if let (Ok(Some(_)), Some(changes)) = (&follow, schedule.live_order()) {
            changes.read_ahead();
        }
        let following = follow.map(|follow| Following { follow, run: Mutex::new(0), epochs });
        following.map_err(|e| panicked(e, || "the source panicked when it received the order".to_owned()))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.follow.is_some()
    }

    /// Notifies the source that a run starts at `first`.
    ///
    /// # Errors
    /// If the source panics.
    pub(crate) fn start(&self, run: u64, first @ BatchIndex { epoch, batch }: BatchIndex) -> Result<()> {
        let mut now = self.lock();
        *now = run;
        self.epochs.fetch_max(epoch.saturating_add(1), Ordering::Relaxed);
        self.call(|follow| follow.start(first)).map_err(|e| {
            panicked(e, || format!("the source panicked when a run started at batch {batch} of epoch {epoch}"))
        })
    }

    /// Notifies the source that all samples of the batch have been read, unless the run has been
    /// canceled.
    pub(crate) fn done(&self, run: u64, epoch: u64, batch: u64) {
        if self.follow.is_none() {
            return;
        }
        let now = self.lock();
        if *now == run {
            // Ignore a panic, because the batch is complete. At worst, the source does not release
            // some memory.
            let _ = self.call(|follow| follow.done(BatchIndex { epoch, batch }));
        }
    }

    pub(crate) fn stop(&self) {
        let mut now = self.lock();
        *now = 0;
        let _ = self.call(|follow| follow.stop());
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, notify: impl FnOnce(&dyn Prefetcher)) -> Result<()> {
        let Some(follow) = &self.follow else { return Ok(()) };
        guarded(|| {
            notify(&**follow);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Calls(Arc<Mutex<Vec<String>>>);

    impl Prefetcher for Calls {
        fn start(&self, BatchIndex { epoch, batch }: BatchIndex) {
            self.0.lock().unwrap().push(format!("start {epoch} {batch}"));
        }
        fn done(&self, BatchIndex { epoch, batch }: BatchIndex) {
            self.0.lock().unwrap().push(format!("done {epoch} {batch}"));
        }
        fn stop(&self) {
            self.0.lock().unwrap().push("stop".to_owned());
        }
    }

    #[test]
    fn batches_of_a_canceled_run_are_not_reported_as_done() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let following = Following { follow: Some(Box::new(Calls(calls.clone()))), ..Following::none() };
        let first = BatchIndex::default();
        following.start(1, first).unwrap();
        following.done(1, 0, 0);
        following.stop();
        following.done(1, 0, 1);
        following.start(2, first).unwrap();
        following.done(1, 0, 2);
        following.done(2, 0, 0);
        assert_eq!(*calls.lock().unwrap(), ["start 0 0", "done 0 0", "stop", "start 0 0", "done 0 0"]);
    }
}
