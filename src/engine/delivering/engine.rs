//! [`Engine`] controls the threads, puts full slots in order, and applies the error policy.
//!
//! A *slot* is the memory of one batch. A *part* is a group of rows of a slot that one worker
//! fills. A *run plan* contains the number of a run, its first batch, and the epochs that it may
//! prepare in advance. A *reclaimer* holds slots back while a device may still be reading them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::batch::{
    Feed, FilledSlot, FreeSlot, HostBatch, MakeReclaimer, RunPlan, Schema, Schemas, SlotReturn, Wait,
    threads_ended_error,
};
use crate::device::CAPTURE;
use crate::engine::reading::{PrefetchNotifier, ReadStage};
use crate::engine::settings::Settings;
use crate::engine::state::{OnError, Shared};
#[cfg(feature = "_device")]
use crate::engine::working::RedecodeRequest;
use crate::engine::working::{BatchSampler, Coordinator, EndReason, FillResult, Pool, Task, WorkSender};
use crate::error::{Error, ErrorKind, Result, guarded, panicked};
use crate::source::BatchIndex;
use crate::trace;

/// Interval at which a waiting consumer logs what the threads are doing.
const STALL_LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Validated options and opened source of a loader, before memory is allocated and threads started.
pub(crate) struct EngineConfig {
    pub(crate) shared: Shared,
    pub(crate) schemas: Schemas,
    /// If set, chooses the samples of each batch instead of the schedule. A failed sample is then
    /// reported in its batch, and does not fail the batch.
    pub(crate) batch_sampler: Option<Arc<dyn BatchSampler>>,
    /// How long the consumer may wait for a batch while its own batches occupy every slot.
    pub(crate) timeout: Duration,
    pub(crate) trace: Option<(PathBuf, trace::Schedule)>,
}

/// Converts a full slot into the batch that the consumer receives.
pub(crate) type Deliver<B> = Box<dyn Fn(FilledSlot, &SlotReturn) -> B + Send>;

/// A full slot, or the end of the run, which is `Err(None)` unless an error ended it.
type Arrival = std::result::Result<FilledSlot, Option<Error>>;

pub(crate) struct Engine<B> {
    shared: Arc<Shared>,
    pub(crate) deliver: Deliver<B>,
    run_sender: Option<Sender<RunPlan>>,
    fill_results: Receiver<FillResult>,
    slot_return: SlotReturn,
    /// Reorder buffer of full slots, and possibly the end of the run, that wait for an earlier
    /// batch. The index of an entry is the sequence number of its batch, modulo the length.
    arrivals: Box<[Option<Arrival>]>,
    run: u64,
    /// `None` if the run has ended.
    next_batch: Option<BatchIndex>,
    next_seq: u64,
    /// How long the consumer had been waiting when the last message was logged.
    logged_wait: Duration,
    /// Time from which at least `prefetch` later batches were full while the consumer was waiting
    /// for the next batch, or `None` if this has not happened.
    straggler_wait_start: Option<Instant>,
    /// If set, chooses the samples instead of the schedule. [`BatchSampler::fill`] may block the
    /// coordinator thread.
    batch_sampler: Option<Arc<dyn BatchSampler>>,
    timeout: Duration,
    coordinator: Option<JoinHandle<()>>,
    /// Sends parts of a full slot back to the workers.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    work_sender: Option<WorkSender>,
    read_stage: Arc<ReadStage>,
    /// Error of a thread that panicked. A slot of the thread may be lost, so every later batch
    /// fails.
    thread_error: Option<Error>,
    // Declared last: dropping the pool joins the workers, which end only after all other handles to
    // the pool have been dropped.
    _pool: Pool,
}

impl Engine<HostBatch> {
    /// Creates an engine with batches in host memory. `slots` includes the slots that are reserved
    /// for a higher prefetch depth.
    pub(crate) fn to_host(
        config: EngineConfig,
        slots: Vec<FreeSlot>,
        reclaimer: Option<MakeReclaimer>,
    ) -> Result<Self> {
        Self::new(config, slots, reclaimer, Box::new(HostBatch::new))
    }
}

/// Starts the coordinator thread. If it panics, the engine receives the panic as an error.
fn spawn_coordinator(coordinator: Coordinator) -> Result<JoinHandle<()>> {
    let (fill_result_sender, read_stage) = (coordinator.fill_result_sender.clone(), coordinator.read_stage.clone());
    let run = move || {
        let result = guarded(|| {
            coordinator.run();
            Ok(())
        });
        if let Err(e) = result {
            let _ =
                fill_result_sender.send(Err(EndReason::Thread(panicked(e, || "the coordinator panicked".to_owned()))));
        }
    };
    std::thread::Builder::new().name("warpfeed-order".into()).spawn(run).map_err(|e| {
        read_stage.close();
        Error::new(ErrorKind::Io, format!("cannot start the coordinator thread: {e}")).with_source(e)
    })
}

/// Creates the read stage. Without a schedule, no readers start, and the source does not prefetch.
fn create_read_stage(shared: &Shared, max_parts: usize, has_schedule: bool) -> Result<Arc<ReadStage>> {
    if !has_schedule {
        let read_stage = ReadStage::new(shared, max_parts, PrefetchNotifier::none());
        read_stage.reader_switch.disable();
        return Ok(read_stage);
    }
    let notifier = PrefetchNotifier::new(shared)?;
    if notifier.is_some() {
        // `check` may need the read-ahead budget that `PrefetchNotifier::new` has just granted.
        guarded(|| shared.recipe.read_source.check())?;
    }
    Ok(ReadStage::new(shared, max_parts, notifier))
}

impl<B> Engine<B> {
    pub(crate) fn new(
        config: EngineConfig,
        slots: Vec<FreeSlot>,
        reclaimer: Option<MakeReclaimer>,
        deliver: Deliver<B>,
    ) -> Result<Self> {
        let EngineConfig { shared, batch_sampler, timeout, .. } = config;
        let (shared, slot_count) = (Arc::new(shared), slots.len());
        let settings = shared.runtime.settings.clone();
        // Each bounded channel has capacity for all items that can exist at once, so no send
        // blocks.
        let (run_sender, run_receiver) = unbounded();
        let (slot_sender, slot_receiver) = bounded(slot_count);
        // `fill_results` has capacity for every slot, two end-of-run messages (of the current run
        // and of a canceled one), and a panic message from each worker and from the coordinator.
        let (fill_result_sender, fill_results) = bounded(slot_count + 3 + settings.workers);
        let max_parts = slot_count * parts_per_slot(&slots, &settings);
        settings.distribute_slots(slots, slot_sender.clone());
        let reclaimer = reclaimer.map(|make| make(slot_sender.clone())).transpose()?;
        let slot_return = SlotReturn {
            free: slot_sender.clone(),
            consumer_slots: Arc::default(),
            reclaimer,
            process: std::process::id(),
        };

        let pool = Pool::new(settings.workers, settings)?;
        let read_stage = create_read_stage(&shared, max_parts, batch_sampler.is_none())?;
        let work_sender = WorkSender::new(&shared, &read_stage, &pool, max_parts, &fill_result_sender, &slot_sender);
        let part_sender = work_sender.clone();
        read_stage.open(Arc::new(move |part, prefetched_samples| {
            part_sender.send(Task { part, prefetched_samples: Some(prefetched_samples), redecode: None })
        }));
        let coordinator = Coordinator {
            shared: shared.clone(),
            batch_sampler: batch_sampler.clone(),
            run_receiver,
            slot_receiver,
            slot_sender,
            work_sender: work_sender.clone(),
            read_stage: read_stage.clone(),
            fill_result_sender,
        };
        Ok(Engine {
            shared,
            deliver,
            run_sender: Some(run_sender),
            fill_results,
            slot_return,
            // One more entry than slots: the end-of-run message may also arrive out of order.
            arrivals: (0..=slot_count).map(|_| None).collect(),
            run: 0,
            next_batch: None,
            next_seq: 0,
            logged_wait: Duration::ZERO,
            straggler_wait_start: None,
            batch_sampler,
            timeout,
            coordinator: Some(spawn_coordinator(coordinator)?),
            work_sender: Some(work_sender),
            read_stage,
            thread_error: None,
            _pool: pool,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cfg(feature = "_device")]
    pub(crate) fn slot_return(&self) -> &SlotReturn {
        &self.slot_return
    }

    fn arrival_index(&self, seq: u64) -> usize {
        (seq % self.arrivals.len() as u64) as usize
    }

    /// Returns an error if the consumer holds all slots after the timeout, if a CUDA graph capture
    /// prevents the reclaimer from releasing the other slots, or if the reclaimer fails. Logs long
    /// waits. `waited` is how long the consumer has been waiting for the batch.
    fn check_stall(&mut self, waited: Duration) -> Result<()> {
        let batch = self.next_batch.map_or(0, |batch| batch.batch);
        let (consumer_slots, reclaimer) =
            (self.slot_return.consumer_slots.load(Ordering::Relaxed), &self.slot_return.reclaimer);
        reclaimer.as_ref().map_or(Ok(()), |reclaimer| reclaimer.set_waiting(true))?;
        let pending_slots = reclaimer.as_ref().map_or(0, |reclaimer| reclaimer.pending_slots());
        if consumer_slots + pending_slots >= self.shared.runtime.settings.slots_in_use()
            && waited > CAPTURE
            && reclaimer.as_ref().is_some_and(|reclaimer| reclaimer.is_blocked_by_capture())
        {
            let cause = format!(
                "batch {batch} cannot be filled: a stream is being captured into a CUDA graph, so {pending_slots} slots \
                 of dropped batches cannot be reused; end the capture before requesting more batches, or raise prefetch"
            );
            return Err(Error::new(ErrorKind::Capturing, cause));
        }
        if consumer_slots >= self.shared.runtime.settings.slots_in_use() && waited > self.timeout {
            let cause = format!(
                "batch {batch} cannot be filled: for {:.1} s, the program has held batches in all {consumer_slots} \
                 slots; drop some before requesting more, or raise prefetch",
                waited.as_secs_f64()
            );
            return Err(Error::new(ErrorKind::Timeout, cause));
        }
        if waited.saturating_sub(self.logged_wait) > STALL_LOG_INTERVAL {
            self.logged_wait = waited;
            tracing::warn!(
                batch,
                waited_seconds = waited.as_secs(),
                slots_held_by_the_consumer = consumer_slots,
                slots_that_a_device_may_read = pending_slots,
                "waiting for a batch: {}",
                self.shared.runtime.counters.activity().join(", ")
            );
        }
        Ok(())
    }

    /// Waits for the next batch. Returns `None` if the caller gives up, or if the run ends first.
    fn receive_slot(&mut self, wait: &mut Wait<'_>) -> Option<Result<FilledSlot>> {
        loop {
            if let Some(error) = &self.thread_error {
                return Some(Err(error.clone()));
            }
            if let Some(arrival) = self.arrivals[self.arrival_index(self.next_seq)].take() {
                if let Err(None) = arrival {
                    self.next_batch = None;
                }
                if let Some(start) = self.straggler_wait_start.take() {
                    self.shared.runtime.counters.straggler_wait.add(trace::nanos(Instant::now(), start), 0);
                }
                return arrival.map_or_else(|error| error.map(Err), |full| Some(Ok(full)));
            }
            let settings = &self.shared.runtime.settings;
            if self.straggler_wait_start.is_none()
                && self.arrivals.iter().flatten().flatten().count() >= settings.prefetch()
            {
                self.straggler_wait_start = Some(Instant::now());
            }
            settings.add_slot_if_all_held(self.slot_return.consumer_slots.load(Ordering::Relaxed));
            match self.fill_results.recv_timeout(wait.pause()?) {
                Ok(Ok(full)) if full.header().run != self.run => drop(self.slot_return.free.send(full.release())),
                Ok(Ok(full)) => {
                    let index = self.arrival_index(full.header().seq);
                    self.arrivals[index] = Some(Ok(full));
                }
                Ok(Err(EndReason::Thread(e))) => self.thread_error = Some(e),
                Ok(Err(EndReason::Run { run, .. })) if run != self.run => {}
                Ok(Err(EndReason::Run { seq, error, .. })) => self.arrivals[self.arrival_index(seq)] = Some(Err(error)),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(e) = self.check_stall(wait.since.elapsed()) {
                        return Some(Err(e));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Some(Err(threads_ended_error())),
            }
        }
    }

    /// Sends the samples of `request` back to the workers. Does not block, because the workers have
    /// already taken the original parts of the slot from the queue.
    #[cfg(feature = "_device")]
    pub(crate) fn redecode(&self, full: FilledSlot, request: &RedecodeRequest) {
        let part_len = Settings::samples_per_part(full.schema().batch, self.shared.runtime.settings.workers);
        let work_sender = self.work_sender.as_ref().expect("only drop takes the sender");
        for part in full.split_for_refill(part_len, &request.rows) {
            work_sender.send(Task { part, prefetched_samples: None, redecode: Some(request.clone()) });
        }
    }

    /// Applies the error policy. Returns an error and releases the slot if a sample failed and the
    /// policy is to stop, if every sample failed, or if the process or the machine ran out of
    /// memory or file descriptors. Other failures are recorded only when the program receives the
    /// batch ([`Shared::record_failures`]). With a batch sampler, returns the slot unchanged.
    pub(crate) fn apply_error_policy(&mut self, full: FilledSlot) -> Result<FilledSlot> {
        let mut failures: Vec<_> = full.info().failed().map(|(sample, error)| (sample, error.clone())).collect();
        let (None, Some((_, last_error))) = (&self.batch_sampler, failures.last().cloned()) else { return Ok(full) };
        let error = if let OnError::Stop = self.shared.on_error {
            failures.truncate(1);
            failures[0].1.clone()
        } else if let Some((_, error)) = failures.iter().find(|(_, error)| error.is_exhausted()) {
            // Memory or file descriptors ran out, so the samples may be intact.
            error.clone()
        } else if failures.len() < full.len() {
            return Ok(full);
        } else {
            let (count, epoch, batch) = (failures.len(), full.header().epoch, full.header().batch_index);
            let cause =
                format!("all {count} samples of batch {batch} of epoch {epoch} failed; last error: {last_error}");
            Error::new(ErrorKind::TooManySkipped, cause).with_source(last_error)
        };
        let _ = self.slot_return.free.send(full.release());
        Err(error.of_batch(failures))
    }
}

impl<B> Feed for Engine<B> {
    type Batch = B;

    fn start(&mut self, mut run_plan: RunPlan) {
        self.stop();
        (self.run, self.next_batch, self.next_seq) = (run_plan.run, Some(run_plan.first), 0);
        self.shared.runtime.set_current(run_plan.run);
        self.shared.runtime.balance.begin();
        (self.logged_wait, self.straggler_wait_start) = (Duration::ZERO, None);
        if run_plan.repeats_epoch && self.read_stage.notifier.is_some() {
            // Stop after this epoch, because the run would repeat the epoch, but the source would
            // prefetch the next epoch.
            run_plan.epoch_limit = 0;
        }
        let run_sender = self.run_sender.as_ref().expect("open until drop");
        let result = self.read_stage.notifier.start(run_plan.run, run_plan.first);
        if let Err(e) = result.and_then(|()| run_sender.send(run_plan).map_err(|_| threads_ended_error())) {
            // The consumer receives this error in place of the first batch.
            self.arrivals[0] = Some(Err(Some(e)));
        }
    }

    fn position(&self) -> Option<BatchIndex> {
        self.next_batch
    }

    fn receive(&mut self, wait: &mut Wait<'_>) -> Option<Result<B>> {
        let reclaimer = self.slot_return.reclaimer.clone();
        let result = match reclaimer.as_ref().map_or(Ok(()), |reclaimer| reclaimer.set_waiting(true)) {
            Ok(()) => self.receive_slot(wait),
            Err(e) => Some(Err(e)),
        };
        // Ignore an error here: the reclaimer stores the error, and returns it from the next call.
        let _ = reclaimer.map(|reclaimer| reclaimer.set_waiting(false));
        let result = result?;
        self.logged_wait = Duration::ZERO;
        Some(result.and_then(|full| self.apply_error_policy(full)).map(|full| {
            self.shared.runtime.balance.record_batch(self.next_seq);
            (self.next_batch, self.next_seq) = (full.header().next, self.next_seq + 1);
            (self.deliver)(full, &self.slot_return)
        }))
    }

    /// Cancels the run. A slot that is being filled becomes free once its remaining parts are done.
    fn stop(&mut self) {
        self.shared.runtime.set_current(0);
        if self.next_batch.take().is_some() {
            self.read_stage.notifier.stop();
        }
        for arrival in &mut self.arrivals {
            if let Some(Ok(full)) = arrival.take() {
                let _ = self.slot_return.free.send(full.release());
            }
        }
        for fill_result in self.fill_results.try_iter() {
            match fill_result {
                Ok(full) => drop(self.slot_return.free.send(full.release())),
                Err(EndReason::Thread(e)) => self.thread_error = Some(e),
                Err(EndReason::Run { .. }) => {}
            }
        }
    }

    fn set_batches_ahead(&self, batches: usize) {
        self.shared.runtime.balance.set_batches_ahead(batches);
    }

    fn ready(&self) -> usize {
        self.fill_results.len() + self.arrivals.iter().flatten().flatten().count()
    }

    fn delayed_since(&self, requested: Instant) -> Instant {
        self.slot_return.stall_start(requested)
    }
}

fn parts_per_slot(slots: &[FreeSlot], settings: &Settings) -> usize {
    let part_count =
        |schema: &Schema| schema.batch.div_ceil(Settings::samples_per_part(schema.batch, settings.workers));
    slots.first().and_then(|slot| slot.schemas().iter().map(part_count).max()).unwrap_or(1)
}

impl<B> Drop for Engine<B> {
    fn drop(&mut self) {
        self.stop();
        // No more batches will be requested, so the reclaimer must release slots immediately.
        let _ = self.slot_return.reclaimer.as_ref().map(|reclaimer| reclaimer.set_waiting(true));
        // Closing its channel ends the coordinator, which then drops its handle to the pool, so
        // that the pool's threads can be joined.
        drop(self.run_sender.take());
        if let Some(batch_sampler) = &self.batch_sampler {
            batch_sampler.end();
        }
        if let Some(coordinator) = self.coordinator.take() {
            let _ = coordinator.join();
        }
        self.read_stage.close();
        self.work_sender = None;
        // A `LoaderHandle` may outlive the loader, but must not keep the memory of slots alive.
        self.shared.runtime.settings.clear_reserve();
    }
}
