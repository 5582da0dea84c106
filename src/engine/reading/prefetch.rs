//! Notifies a prefetching source of the samples that will be read, the start of a run, finished
//! batches, and the cancellation of the run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::state::Shared;
use crate::error::{Result, guarded, panicked};
use crate::recipe::draw_partners;
use crate::sampler::Position;
use crate::source::{BatchIndex, Lookahead, Prefetcher};

/// The source's [`Prefetcher`], if any. Its methods may be user code, so panics in them are caught.
pub(crate) struct PrefetchNotifier {
    prefetcher: Option<Box<dyn Prefetcher>>,
    /// The lock is held during each call, so that no call for a canceled run reaches the source
    /// after the next run has started.
    progress: Mutex<Progress>,
    /// The source may fetch all epochs before this one.
    epoch_limit: Arc<AtomicU64>,
}

#[derive(Default)]
struct Progress {
    /// Number of the run that the source prefetches for; 0 for none.
    run: u64,
    /// Sequence number of the first batch that still has unread samples.
    next_seq: u64,
    /// Later batches that have been read, by sequence number.
    finished: BTreeMap<u64, BatchIndex>,
}

impl PrefetchNotifier {
    pub(crate) fn none() -> Self {
        PrefetchNotifier { prefetcher: None, progress: Mutex::default(), epoch_limit: Arc::default() }
    }

    /// Passes the schedule to the source. The source may fetch all epochs that may be prepared
    /// ahead, and later epochs once the program has requested them.
    ///
    /// # Errors
    /// If the source panics.
    pub(crate) fn new(shared: &Shared) -> Result<Self> {
        let Shared { recipe, schedule, .. } = shared;
        let epoch_limit = Arc::new(AtomicU64::new(shared.epoch_limit));
        let shared_limit = epoch_limit.clone();
        let (source_len, samples_schedule, length_schedule) =
            (recipe.source.len() as u64, schedule.clone(), schedule.clone());
        // The sampler may be user code. If it panics here, the panic is ignored: if it also panics
        // when the loader itself calls it, the loader reports that panic.
        let batch_count = move |epoch| {
            if epoch < shared_limit.load(Ordering::Relaxed) {
                guarded(|| Ok(length_schedule.num_batches(epoch))).unwrap_or(0)
            } else {
                0
            }
        };
        let (augments, seed, draw_recipe) = (recipe.augments.clone(), recipe.seed, recipe.clone());
        let list_samples = move |BatchIndex { epoch, batch }| {
            let mut entries = Vec::new();
            guarded(|| {
                samples_schedule.fill(epoch, batch, &mut entries);
                Ok(())
            })
            .ok()?;
            let mut samples = Vec::with_capacity(entries.len());
            for entry in &entries {
                let draw = draw_recipe.clip_draw(entry);
                samples.push((entry.sample, draw));
                let augment = augments.for_sample(0, entry.sample);
                let partners =
                    draw_partners(augment, samples_schedule.order(), (seed, source_len), (epoch, entry)).ok()?;
                samples.extend(partners.into_iter().flat_map(|partners| partners.samples).map(|sample| (sample, draw)));
            }
            samples.iter().all(|&(sample, _)| sample < source_len).then_some(samples)
        };
        let (next_schedule, augments) = (schedule.clone(), recipe.augments.clone());
        let next_position = move |epoch, sample, batch| {
            // The other samples of a combined image are random, so any batch may read this sample.
            if augments.max_images(epoch) > 1 {
                return Position::Unknown;
            }
            guarded(|| Ok(next_schedule.next_batch_of_sample(epoch, sample, batch))).unwrap_or(Position::Unknown)
        };
        let prefetch_bytes = shared.runtime.scratch.plan().source_bytes;
        let lookahead = Lookahead::with_draws(prefetch_bytes, batch_count, list_samples).with_next(next_position);
        let prefetcher = guarded(|| Ok(recipe.read_source.prefetcher(lookahead)));
        if let (Ok(Some(_)), Some(live_order)) = (&prefetcher, schedule.live_order()) {
            live_order.set_read_ahead();
        }
        let notifier =
            prefetcher.map(|prefetcher| PrefetchNotifier { prefetcher, progress: Mutex::default(), epoch_limit });
        notifier.map_err(|e| panicked(e, || "the source panicked when it received the order".to_owned()))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.prefetcher.is_some()
    }

    /// Notifies the source that a run starts at `first`.
    ///
    /// # Errors
    /// If the source panics.
    pub(crate) fn start(&self, run: u64, first @ BatchIndex { epoch, batch }: BatchIndex) -> Result<()> {
        let mut progress = self.lock();
        *progress = Progress { run, ..Progress::default() };
        self.epoch_limit.fetch_max(epoch.saturating_add(1), Ordering::Relaxed);
        self.call(|prefetcher| prefetcher.start(first)).map_err(|e| {
            panicked(e, || format!("the source panicked when a run started at batch {batch} of epoch {epoch}"))
        })
    }

    /// Records that all samples of a batch have been read. Notifies the source once all earlier
    /// batches of the run have been read too, because one batch may use bytes that were prefetched
    /// for a different batch. Ignores canceled runs.
    pub(crate) fn finish_batch(&self, run: u64, seq: u64, batch: BatchIndex) {
        if self.prefetcher.is_none() {
            return;
        }
        let mut progress = self.lock();
        if progress.run != run {
            return;
        }
        progress.finished.insert(seq, batch);
        let mut next_seq = progress.next_seq;
        while let Some(batch) = progress.finished.remove(&next_seq) {
            next_seq += 1;
            // Ignore a panic, because the batch is complete. The source may then retain some
            // memory.
            let _ = self.call(|prefetcher| prefetcher.done(batch));
        }
        progress.next_seq = next_seq;
    }

    pub(crate) fn stop(&self) {
        let mut progress = self.lock();
        *progress = Progress::default();
        let _ = self.call(|prefetcher| prefetcher.stop());
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, notify: impl FnOnce(&dyn Prefetcher)) -> Result<()> {
        let Some(prefetcher) = &self.prefetcher else { return Ok(()) };
        guarded(|| {
            notify(&**prefetcher);
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
        let notifier =
            PrefetchNotifier { prefetcher: Some(Box::new(Calls(calls.clone()))), ..PrefetchNotifier::none() };
        let batch = |batch| BatchIndex { epoch: 0, batch };
        notifier.start(1, batch(0)).unwrap();
        notifier.finish_batch(1, 0, batch(0));
        notifier.finish_batch(1, 2, batch(2));
        notifier.stop();
        notifier.finish_batch(1, 1, batch(1));
        notifier.start(2, batch(0)).unwrap();
        notifier.finish_batch(1, 0, batch(0));
        notifier.finish_batch(2, 0, batch(0));
        assert_eq!(*calls.lock().unwrap(), ["start 0 0", "done 0 0", "stop", "start 0 0", "done 0 0"]);
    }

    #[test]
    fn batches_are_reported_as_done_in_order() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let notifier =
            PrefetchNotifier { prefetcher: Some(Box::new(Calls(calls.clone()))), ..PrefetchNotifier::none() };
        notifier.start(1, BatchIndex { epoch: 0, batch: 6 }).unwrap();
        let batches = [(0, 6), (0, 7), (1, 0), (1, 1)].map(|(epoch, batch)| BatchIndex { epoch, batch });
        for (seq, reported) in [(2, 1), (1, 1), (0, 4), (3, 5)] {
            notifier.finish_batch(1, seq, batches[seq as usize]);
            assert_eq!(calls.lock().unwrap().len(), reported);
        }
        assert_eq!(*calls.lock().unwrap(), ["start 0 6", "done 0 6", "done 0 7", "done 1 0", "done 1 1"]);
    }
}
