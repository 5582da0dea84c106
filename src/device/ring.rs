//! The prefetch ring. A thread uploads full host slots ahead of the consumer, and events order the
//! work on the device. The thread receives the host slots from its *feed*, which is the engine.
//!
//! The consumer holds one device slot while the next batches are uploaded into the other slots. The
//! consumer's thread makes no blocking device calls. Instead, each stream waits on the device for
//! the events that it depends on. The ring allocates `prefetch + 1` slots of device memory, and at
//! least two.
//!
//! ```text
//! copy stream      wait converted[s]  images -> staging[s]   wait released   fields -> slot   record copied
//! convert stream                                                             wait copied   convert   record ready, converted[s]
//! consumer stream                                                                          wait ready   its kernels   record released
//! ```
//!
//! Images that need no conversion are copied directly into the slot, after `released`. If the
//! device neither decodes nor computes anything, `ready` is recorded on the copy stream. For the
//! statistics, pairs of timed events enclose the copy of the images, the decoding, the conversion
//! and the consumer's wait (`timing`).
//!
//! A ring *orders batches when they are taken* if a stream waits for a batch only when a thread
//! takes the batch ([`ConsumerBatch::take_on`]). Decoders use such a ring. In other rings, `next`
//! makes the consumer's stream wait.
//!
//! **Invariants**
//! 1. The thread holds a host slot, and does not change its bytes, from the upload until `copied`
//!    has completed: in `in_flight`, or in `queue` while the device decodes images. Before the
//!    thread ends, even after an error, it waits for its streams.
//! 2. A device slot is a token (`Box<Slot>`) with exactly one owner: the channel of free slots, the
//!    thread, the channel of messages, one [`ConsumerBatch`], or `deferred_slots`.
//! 3. Every write to a device slot waits for the slot's `released`, and for no other event of the
//!    consumer. The consumer's stream waits only for `ready` of the batch that it receives, unless
//!    the program registers several users of a batch (`use_on`): when the batch is dropped, the
//!    first of them waits for the others.
//! 4. The conversion that reads staging buffer `s` is done (`converted[s]`) before the next copy
//!    into `s` begins. Small batches of a decoder use other parts of the same memory, each with its
//!    own convert stream, so that they overlap. When the batches change from large to small or
//!    back, the next copy begins after all earlier conversions.
//! 5. Device memory outlives all work on it: the ring, the thread and each batch share ownership of
//!    `Shared`, and after its drop, the memory is freed only after the device's work.
//! 6. While the consumer's stream is being captured into a graph, the ring neither records an event
//!    in the stream nor makes it wait. (`next` checks this only before it waits for a batch, so no
//!    other thread may begin a capture during the call.) The slot of a batch that is dropped during
//!    the capture stays in `deferred_slots` until a call to `next` after the capture. In a ring
//!    that orders batches when they are taken, it stays there until, after the capture, a thread
//!    submits a request, waits for a response, or takes or drops a batch.
//! 7. The consumer's thread makes no device call that waits for work, neither for a batch nor when
//!    the ring is dropped. If its streams still have work, the copy thread outlives the ring.
//! 8. In a ring that orders batches when they are taken, only the threads of invariant 6 make
//!    device calls for a stream of the consumer. The thread that calls `next` makes none.
//! 9. The copy thread does not block on a batch with images that workers decode again. Such a batch
//!    stays in the queue while later batches are uploaded. Workers never wait for a device slot, so
//!    they always return the batch.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

pub(crate) use self::consumer_batch::ConsumerBatch;
pub(crate) use self::device_stats::DeviceCounters;
pub use self::device_stats::DeviceStats;
pub(crate) use self::repair::{HostFeed, Repair};
pub(crate) use self::shared::{FullSlot, Shared, Variant};

use self::in_flight::{InFlight, Workspace};
use self::shared::{IDLE_INTERVAL, Message, POLL_INTERVAL, Slot};
use self::thread::Thread;
use super::Gpu;
use super::spec::Spec;
use crate::batch::{BatchInfo, Feed, ReleaseDeferred, RunPlan, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::source::BatchIndex;
use crate::trace;

mod consumer_batch;
mod device_stats;
mod in_flight;
mod on_time;
mod repair;
mod shared;
#[allow(unsafe_code)] // upholds the contract of `Gpu::upload`
mod thread;
mod timing;

/// Time after which the consumer reports slots that a capture defers.
pub(crate) const CAPTURE: Duration = Duration::from_secs(1);
/// Maximum time that [`Ring::join`] waits for the copy thread after the thread has dropped the
/// feed. The streams of the thread usually finish earlier.
const GRACE: Duration = Duration::from_millis(20);

pub(crate) struct Ring<G: Gpu, B = ConsumerBatch<G>> {
    shared: Arc<Shared<G>>,
    run_sender: Option<Sender<RunPlan>>,
    messages: Receiver<Message<G>>,
    thread: Option<JoinHandle<()>>,
    /// A channel that closes once the thread has dropped the feed, which ends the engine's threads.
    ended: Receiver<()>,
    run: u64,
    /// Position of the next batch, or `None` if no run is in progress.
    next: Option<BatchIndex>,
    timeout: Duration,
    /// Recorded in the consumer's stream when a batch is requested. When the batch is delivered,
    /// this event is swapped with one of the slot's events.
    request: G::Event,
    delivers: PhantomData<fn() -> B>,
}

type Allocated<G> = (Arc<Shared<G>>, Vec<<G as Gpu>::Kernels>, Receiver<Box<Slot<G>>>);

fn allocate<G: Gpu>(gpu: G, consumer: G::Stream, specs: Vec<Spec>, prefetch: usize) -> Result<Allocated<G>> {
    let (plan, batch) = (Spec::device_memory(&specs, prefetch), specs.iter().map(|spec| spec.batch).max().unwrap_or(0));
    let memory = gpu.memory(plan.total_bytes())?;
    let kernels = specs.iter().map(|spec| gpu.kernels(spec)).collect::<Result<_>>()?;
    let variants = specs
        .into_iter()
        .map(|spec| Variant { layout: spec.layout(), small_layout: spec.small_layout(), spec })
        .collect();
    // Every channel has capacity for everything that it can contain at once, so sending never
    // blocks.
    let (free, freed) = bounded(plan.slots);
    for i in 0..plan.slots {
        let (info, ready, released) = (BatchInfo::new(batch), gpu.event()?, gpu.event()?);
        let offset = i * plan.slot_bytes;
        let slot =
            Slot { offset, info, ready, released, wait_events: None, is_handed_over: false, is_taken_back: false };
        free.send(Box::new(slot)).expect("the receiver is alive");
    }
    let shared = Shared {
        gpu,
        consumer,
        order_on_take: AtomicBool::new(false),
        memory,
        variants,
        plan,
        free,
        current_run: AtomicU64::new(0),
        failure: Mutex::default(),
        deferred_slots: Mutex::default(),
        counters: Arc::default(),
    };
    Ok((Arc::new(shared), kernels, freed))
}

impl<G: Gpu, B: From<ConsumerBatch<G>>> Ring<G, B> {
    /// Allocates the device memory and starts the thread. `specs` contains the spec of each variant
    /// (see `engine/README.md`).
    pub(crate) fn new<F: HostFeed + 'static>(
        gpu: G,
        consumer: G::Stream,
        specs: Vec<Spec>,
        prefetch: usize,
        timeout: Duration,
        feed: F,
        times: Arc<trace::Counters>,
    ) -> Result<Self> {
        let lanes = specs.first().and_then(|spec| spec.lanes);
        let (shared, kernels, freed_slots) = allocate(gpu, consumer, specs, prefetch)?;
        let (gpu, plan) = (&shared.gpu, shared.plan);
        let flags = shared.fault_flags();
        let faults = (0..if flags > 0 { plan.slots } else { 0 }).map(|_| gpu.faults(flags)).collect::<Result<_>>()?;
        // Requests use high-priority streams, because their callers wait. Batches of a loader are
        // prepared ahead, and would delay the consumer's kernels if they ran first.
        let stream = || if lanes.is_some() { gpu.urgent_stream() } else { gpu.stream() };
        let (copy_stream, lanes) = (stream()?, lanes.map_or(0, |lanes| lanes.count));
        let convert_streams = (0..lanes.max(1)).map(|_| stream()).collect::<Result<_>>()?;
        let workspace =
            |(staging, scratch), stream| Ok(Workspace { staging, scratch, stream, converted: gpu.event()? });
        let large_workspaces =
            (0..plan.staging_buffers).map(|i| workspace((plan.staging_offset(i), plan.scratch_offset()), 0));
        let large_workspaces = large_workspaces.collect::<Result<_>>()?;
        let small_workspaces =
            (0..lanes).map(|lane| workspace(plan.lane_offsets(lane, lanes), lane)).collect::<Result<_>>()?;
        // Capacity for all slots, an error, and the end of a run.
        let (sender, messages) = bounded(plan.slots + 2);
        let request = gpu.timed_event()?;
        let (run_sender, run_receiver) = unbounded();
        let (end_sender, ended) = bounded(0);
        let thread = Thread {
            shared: shared.clone(),
            feed: Some(feed),
            end_sender: Some(end_sender),
            run_receiver,
            freed_slots,
            messages: sender,
            kernels,
            copy_stream,
            convert_streams,
            workspaces: [large_workspaces, small_workspaces],
            is_small: false,
            submitted_batches: 0,
            in_flight: InFlight::new(faults, times),
            queue: VecDeque::new(),
        };
        let thread = std::thread::Builder::new()
            .name("warpfeed-copy".into())
            .spawn(move || thread.run())
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the copy thread: {e}")))?;
        Ok(Ring {
            shared,
            run_sender: Some(run_sender),
            messages,
            thread: Some(thread),
            ended,
            run: 0,
            next: None,
            timeout,
            request,
            delivers: PhantomData,
        })
    }

    /// Returns an error if no batch can arrive because the program holds all slots, or because a
    /// capture defers their reuse, once the wait exceeds `timeout` or [`CAPTURE`], respectively.
    fn check_stall(&self, waited: Duration) -> Option<Error> {
        let held_count = self.shared.counters.held.load(Ordering::Relaxed);
        let deferred = self.shared.deferred_slots.lock().expect("no code panics while holding this lock").len();
        if deferred > 0 && held_count + deferred == self.shared.plan.slots && waited > CAPTURE {
            let cause = format!(
                "{deferred} device slots of batches that the program has dropped cannot be reused until the capture of \
                 a CUDA graph ends: end the capture before the next batch, or raise {}",
                self.option_name()
            );
            return Some(Error::new(ErrorKind::Capturing, cause));
        }
        if held_count == self.shared.plan.slots && waited > self.timeout {
            let waited = waited.as_secs_f64();
            let cause = format!(
                "no batch for {waited:.1} s: all {held_count} device slots are in use by batches that the program \
                 still holds; drop some of them before the next batch, or raise {}",
                self.option_name()
            );
            return Some(Error::new(ErrorKind::Timeout, cause));
        }
        None
    }

    /// Returns the name of the option that sets the number of device slots.
    fn option_name(&self) -> &'static str {
        if self.shared.is_ordered_when_taken() { "max_in_flight" } else { "prefetch" }
    }

    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) fn device_counters(&self) -> DeviceCounters {
        DeviceCounters { counters: self.shared.counters.clone(), plan: self.shared.plan }
    }

    /// Makes a stream wait for a batch only when the batch is taken ([`ConsumerBatch::take_on`]).
    pub(crate) fn order_when_taken(&self) {
        self.shared.order_on_take.store(true, Ordering::Relaxed);
    }

    fn fail(&self, e: Error) -> Error {
        self.shared.fail(&e);
        e
    }

    fn hand_over(&mut self, mut slot: Box<Slot<G>>) -> Result<ConsumerBatch<G>> {
        let shared = self.shared.clone();
        shared.check()?;
        self.next = slot.info.header.next;
        shared.counters.held.fetch_add(1, Ordering::Relaxed);
        if shared.is_ordered_when_taken() {
            return Ok(ConsumerBatch::new(slot, shared));
        }
        slot.is_handed_over = true;
        let wait_events = slot.wait_events.as_mut().expect("every sent batch has timed events");
        std::mem::swap(&mut wait_events.begin, &mut self.request);
        let batch = ConsumerBatch::new(slot, shared);
        batch.wait().inspect_err(|e| batch.shared.fail(e))?;
        Ok(batch)
    }
}

impl<G: Gpu, B> Ring<G, B> {
    fn end_run(&mut self) {
        self.next = None;
        self.shared.current_run.store(0, Ordering::Relaxed);
        while let Ok((_, message)) = self.messages.try_recv() {
            self.shared.take_back(message);
        }
    }

    /// Waits until the thread has dropped the feed, and joins the thread if it ends within
    /// [`GRACE`] after that. Does not wait longer for the work in its streams, because that work
    /// may depend on work of the consumer.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.ended.recv();
            let start = Instant::now();
            while !thread.is_finished() && start.elapsed() < GRACE {
                std::thread::sleep(POLL_INTERVAL);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

impl<G: Gpu, B: From<ConsumerBatch<G>>> Feed for Ring<G, B> {
    type Batch = B;

    fn start(&mut self, run_plan: RunPlan) {
        self.stop();
        (self.run, self.next) = (run_plan.run, Some(run_plan.first));
        self.shared.current_run.store(run_plan.run, Ordering::Relaxed);
        // If the send fails, the thread has ended after an error, which `next` reports.
        let _ = self.run_sender.as_ref().expect("the channel is open until the ring is dropped").send(run_plan);
    }

    fn position(&self) -> Option<BatchIndex> {
        self.next
    }

    fn stop(&mut self) {
        self.end_run();
    }

    /// Makes the consumer's stream wait for the next batch, unless batches are ordered when they
    /// are taken. The host waits until all work for the batch has been queued and, if the device
    /// decodes images, until these are decoded.
    fn receive(&mut self, wait: &mut Wait<'_>) -> Option<Result<B>> {
        let order_on_take = self.shared.is_ordered_when_taken();
        if !order_on_take && self.shared.failure().is_none() {
            match self.shared.record_request(&self.request, wait.continues) {
                Ok(()) => {}
                // The ring can still be used after this error.
                Err(e) if e.kind() == ErrorKind::Capturing => return Some(Err(e)),
                Err(e) => return Some(Err(self.fail(e))),
            }
        }
        loop {
            match self.messages.recv_timeout(wait.pause()?.min(IDLE_INTERVAL)) {
                Ok((run, message)) if run != self.run => self.shared.take_back(message),
                Ok((_, Some(Ok(slot)))) => return Some(self.hand_over(slot).map(B::from)),
                Ok((_, Some(Err(e)))) => {
                    if self.shared.failure().is_some() {
                        self.join();
                    }
                    return Some(Err(e));
                }
                Ok((_, None)) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let result = if order_on_take { Ok(()) } else { self.shared.release_deferred() };
                    if let Err(e) = result {
                        return Some(Err(self.fail(e)));
                    }
                    if let Some(e) = self.check_stall(wait.since.elapsed()) {
                        return Some(Err(e));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.join();
                    let panic_error =
                        || Error::new(ErrorKind::Panic, "the copy thread panicked; see standard error for the cause");
                    return Some(Err(self.shared.failure().unwrap_or_else(panic_error)));
                }
            }
        }
    }

    fn ready(&self) -> usize {
        self.messages.len()
    }

    fn deferred_release(&self) -> Option<ReleaseDeferred> {
        let shared = Arc::downgrade(&self.shared);
        Some(Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.try_release_deferred();
            }
        }))
    }
}

impl<G: Gpu, B> Drop for Ring<G, B> {
    fn drop(&mut self) {
        self.end_run();
        drop(self.run_sender.take());
        // The thread can no longer block on a send.
        self.messages = crossbeam::channel::never();
        self.join();
    }
}

#[cfg(test)]
mod tests;
