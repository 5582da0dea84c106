//! State that all threads of a loader share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::batch::BatchInfo;
use crate::engine::settings::{Balance, Scratch, Settings, Tuner};
use crate::error::Result;
use crate::source::CancelToken;
use crate::trace::Counters;

/// Maximum number of reader threads: enough for 10,000 reads per second at 50 ms each.
pub(crate) const MAX_READERS: usize = 512;

pub(crate) struct Runtime {
    /// Number of the current run; 0 for none. Threads discard parts and batches of other runs.
    current_run: Arc<AtomicU64>,
    /// Returns whether a run is no longer current. Blocked reads call this function regularly, and
    /// end once the result is true.
    is_ended: Arc<dyn Fn(u64) -> bool + Send + Sync>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) settings: Arc<Settings>,
    tuner: Option<Tuner>,
    pub(crate) scratch: Scratch,
    pub(crate) balance: Balance,
}

impl Runtime {
    /// `fields` contains the names of the fields that workers compute, which have their own
    /// counters. Fails if the counters cannot be allocated.
    pub(crate) fn new(
        settings: Arc<Settings>,
        scratch: Scratch,
        balance: Balance,
        fields: Vec<String>,
    ) -> Result<Self> {
        let counters = Counters::new(settings.workers, MAX_READERS, fields);
        let counters = Arc::new(counters.map_err(|e| e.settled(&format!("{} workers", settings.workers)))?);
        let current_run = Arc::new(AtomicU64::new(0));
        let current = current_run.clone();
        let is_ended = Arc::new(move |run| current.load(Ordering::Relaxed) != run);
        Ok(Runtime { current_run, is_ended, counters, tuner: Tuner::new(&settings), settings, scratch, balance })
    }

    /// Makes `run` the current run. 0 means that there is none.
    pub(crate) fn set_current(&self, run: u64) {
        self.current_run.store(run, Ordering::Relaxed);
    }

    pub(crate) fn is_current(&self, run: u64) -> bool {
        self.current_run.load(Ordering::Relaxed) == run
    }

    pub(crate) fn cancel_token(&self, run: u64) -> CancelToken {
        CancelToken::of_run(run, self.is_ended.clone())
    }

    /// Returns whether `run` is current, so that a failed read is retried. If so, counts the retry.
    pub(crate) fn may_retry(&self, run: u64) -> bool {
        let is_current = self.is_current(run);
        if is_current {
            self.counters.read_retries.add(1);
        }
        is_current
    }

    pub(crate) fn begin(&self) {
        self.settings.begin();
        self.counters.begin();
        if let Some(tuner) = &self.tuner {
            tuner.begin(&self.counters);
        }
    }

    pub(crate) fn record_delivery(&self, batch: &BatchInfo, requested: Instant) {
        self.counters.record_delivery(batch.epoch(), batch.batch_index(), (batch.len(), batch.damaged()), requested);
        if let Some(tuner) = &self.tuner {
            tuner.record_delivery(&self.counters);
        }
    }

    pub(crate) fn end(&self) {
        self.settings.end();
        if let Some(tuner) = &self.tuner {
            tuner.end(&self.counters);
        }
    }
}
