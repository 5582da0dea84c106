#![allow(unsafe_code)]
//! The prefetch ring: a thread that copies full host slots ahead of the consumer, and the events
//! that order it all.
//!
//! ```text
//! copy stream      wait converted[s]  images -> staging[s]   wait released   fields -> slot   record copied
//! convert stream                                                             wait copied   convert   record ready, converted[s]
//! consumer stream                                                                          wait ready   its kernels   record released
//! ```
//!
//! Pictures that are used as they come need no staging: they go straight into the slot after
//! `released`. Where nothing is computed, `ready` follows on the copy stream. The copy of the
//! pictures, the conversion and the consumer's wait are each bracketed by two events with timing,
//! which order nothing (`timing`).
//!
//! **Invariants**
//! 1. A host slot is kept, untouched, in `in_flight` from its upload until `copied` is done; when
//!    the thread ends, or fails, it waits for the copy stream first.
//! 2. A device slot is a token (`Box<Slot>`): it is in the channel of free slots, with the thread,
//!    in the channel of messages, or in one [`Held`], never in two of them.
//! 3. Whatever writes a device slot waits for its `released`, and for nothing else of the
//!    consumer's; the consumer's stream waits for the `ready` of its own batch, and for nothing
//!    else.
//! 4. The conversion that reads staging buffer `s` is done (`converted[s]`) before the next copy
//!    into `s` begins.
//! 5. Device memory outlives all work on it: `Shared` is dropped by the last of ring, thread and
//!    batches, and freeing waits for the device.
//! 6. Nothing is recorded in the consumer's stream, and it waits for nothing, while it is captured
//!    into a graph. A batch that is dropped then lies in `deferred` until the next call of `next`.
//! 7. The consumer's thread waits for no work of a device: neither for a batch, nor when the ring
//!    is dropped. The thread outlives the ring while its streams have work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use self::timing::{Bracket, Bracketed, Pair, Timing};
use super::spec::{At, DeviceMemory, Places, Spec, Upload};
use super::{Gpu, Job, Recorded};
use crate::batch::Feed;
use crate::error::{Error, ErrorKind, Result};
use crate::order::Pick;
use crate::trace;
use crate::transform::Mixing;

mod timing;

/// How often the thread looks after its copies while some are under way. A copy of a batch takes
/// some hundreds of microseconds.
const POLL: Duration = Duration::from_micros(100);
/// How often it looks whether it is still wanted, and how often the consumer looks whether anything
/// can still come.
const TICK: Duration = Duration::from_millis(20);

/// How long a consumer waits for slots that wait for the end of a capture.
pub(crate) const CAPTURE: Duration = Duration::from_secs(1);
/// How long a ring that is dropped looks whether its streams have ended: their work, if it waits
/// for nobody, takes less.
const GRACE: Duration = Duration::from_millis(20);

/// A full host slot, in page-locked memory. Dropping it gives it back to the workers.
pub(crate) trait FullSlot: Send + 'static {
    fn epoch(&self) -> u64;
    fn number(&self) -> u64;
    fn picks(&self) -> &[Pick];
    /// Key of the sample at `place`.
    fn key(&self, place: usize) -> &str;
    fn mixing(&self) -> Option<Mixing>;
    /// Whether the labels may be read.
    fn labelled(&self) -> bool;
    /// Bytes of span `span` of the host's schema, all samples.
    fn bytes(&self, span: usize) -> &[u8];
}

/// Device memory as PyTorch's `torch.cuda.memory_stats` calls it, in bytes; and what went through
/// the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceStats {
    /// In batches that are ready or in the consumer's hands.
    pub allocated: usize,
    /// The most that was ever allocated.
    pub peak: usize,
    /// Taken from the device when the loader was opened.
    pub reserved: usize,
    /// Batches copied to the device.
    pub batches: u64,
    /// Bytes copied to the device.
    pub copied_bytes: u64,
}

/// What went through a ring, for whoever asks, on any thread.
#[derive(Clone)]
pub(crate) struct Gauge {
    counters: Arc<Counters>,
    plan: DeviceMemory,
}

impl Gauge {
    pub(crate) fn stats(&self) -> DeviceStats {
        let Gauge { counters, plan } = self;
        let bytes = |slots: &AtomicUsize| slots.load(Ordering::Relaxed) * plan.slot_bytes;
        DeviceStats {
            allocated: bytes(&counters.slots),
            peak: bytes(&counters.peak),
            reserved: plan.total(),
            batches: counters.batches.load(Ordering::Relaxed),
            copied_bytes: counters.bytes.load(Ordering::Relaxed),
        }
    }
}

#[derive(Default)]
struct Counters {
    slots: AtomicUsize,
    peak: AtomicUsize,
    held: AtomicUsize,
    batches: AtomicU64,
    bytes: AtomicU64,
}

/// What ring, thread and batches share.
pub(crate) struct Shared<G: Gpu> {
    pub(crate) gpu: G,
    pub(crate) consumer: G::Stream,
    pub(crate) memory: G::Memory,
    pub(crate) spec: Spec,
    pub(crate) places: Places,
    plan: DeviceMemory,
    free: Sender<Box<Slot<G>>>,
    /// The run that is wanted; 0 is none.
    wanted: AtomicU64,
    /// The first driver error. No call is made after it.
    failed: Mutex<Option<Error>>,
    /// Batches that were dropped when the consumer's stream could not be marked, or that another
    /// framework had: who used them is not known.
    deferred: Mutex<Vec<(Box<Slot<G>>, Used)>>,
    counters: Arc<Counters>,
}

/// A batch's place on the device.
pub(crate) struct Slot<G: Gpu> {
    /// Offset in the device memory.
    pub(crate) offset: usize,
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    /// Its memory is kept from batch to batch.
    pub(crate) picks: Vec<Pick>,
    /// As many as the largest batch has samples. Their memory is kept too.
    pub(crate) keys: Box<[String]>,
    pub(crate) mixing: Option<Mixing>,
    pub(crate) labelled: bool,
    ready: G::Event,
    released: G::Event,
    /// Around the consumer's wait, from asking for the batch on; recorded if it was handed over.
    waited: Option<Pair<G>>,
    handed_over: bool,
    /// It was prepared and never handed over: what fills it again waits for what filled it.
    taken_back: bool,
}

/// Whose work a dropped batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Used {
    /// That of the consumer's stream.
    OnItsStream,
    /// All there is.
    Anywhere,
}

type Message<G> = (u64, Option<Result<Box<Slot<G>>>>);

/// The consumer's end.
pub(crate) struct Ring<G: Gpu> {
    shared: Arc<Shared<G>>,
    starts: Option<Sender<(u64, u64, u64)>>,
    messages: Receiver<Message<G>>,
    thread: Option<JoinHandle<()>>,
    /// Closes when the thread has let go of the feed, and with it of all other threads.
    ended: Receiver<()>,
    run: u64,
    open: bool,
    timeout: Duration,
    /// Marks the consumer's stream when a batch is asked for; changes places with the mark of the
    /// slot that is then handed over.
    asked: G::Event,
}

impl<G: Gpu> Ring<G> {
    /// Takes the device memory, and starts the thread.
    pub(crate) fn new<F: Feed<Batch: FullSlot> + 'static>(
        gpu: G,
        consumer: G::Stream,
        spec: Spec,
        prefetch: usize,
        timeout: Duration,
        feed: F,
        times: Arc<trace::Counters>,
    ) -> Result<Self> {
        let (plan, places) = (spec.memory(prefetch), spec.places());
        let memory = gpu.memory(plan.total())?;
        let kernels = gpu.kernels(&spec)?;
        let (copy, convert) = (gpu.stream()?, gpu.stream()?);
        // Each channel can hold all there can be of what it carries, so that no thread ever waits
        // to send: every slot, an error, an end.
        let (free, freed) = bounded(plan.slots);
        let (sender, messages) = bounded(plan.slots + 2);
        for i in 0..plan.slots {
            let slot = Slot {
                offset: i * plan.slot_bytes,
                epoch: 0,
                number: 0,
                picks: Vec::with_capacity(spec.batch),
                keys: vec![String::new(); spec.batch].into(),
                mixing: None,
                labelled: false,
                ready: gpu.event()?,
                released: gpu.event()?,
                waited: None,
                handed_over: false,
                taken_back: false,
            };
            free.send(Box::new(slot)).expect("the receiver is alive");
        }
        let staging = (0..plan.staging).map(|i| {
            let offset = plan.slots * plan.slot_bytes + i * plan.staging_bytes;
            Ok(Staging { offset, converted: gpu.event()? })
        });
        let staging = staging.collect::<Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            gpu,
            consumer,
            memory,
            spec,
            places,
            plan,
            free,
            wanted: AtomicU64::new(0),
            failed: Mutex::default(),
            deferred: Mutex::default(),
            counters: Arc::default(),
        });
        let asked = shared.gpu.timed_event()?;
        let (starts, started) = unbounded();
        let (end, ended) = bounded(0);
        let thread = Thread {
            shared: shared.clone(),
            feed: Some(feed),
            end: Some(end),
            started,
            freed,
            messages: sender,
            kernels,
            copy,
            convert,
            staging,
            turn: 0,
            flight: Flight { in_flight: VecDeque::new(), events: Vec::new(), timing: Timing::new(times) },
        };
        let thread = std::thread::Builder::new()
            .name("warpfeed-copy".into())
            .spawn(move || thread.run())
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the copy thread: {e}")))?;
        let thread = Some(thread);
        Ok(Ring { shared, starts: Some(starts), messages, thread, ended, run: 0, open: false, timeout, asked })
    }

    /// What goes through it.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge { counters: self.shared.counters.clone(), plan: self.shared.plan }
    }

    fn hand_over(&mut self, mut slot: Box<Slot<G>>) -> Result<Held<G>> {
        let shared = self.shared.clone();
        shared.check()?;
        shared.counters.held.fetch_add(1, Ordering::Relaxed);
        slot.handed_over = true;
        let waited = slot.waited.as_mut().expect("every batch that was sent has one");
        std::mem::swap(&mut waited.begin, &mut self.asked);
        let held = Held { slot: Some(slot), shared, exported: AtomicBool::new(false) };
        if let Err(e) = held.wait() {
            self.open = false;
            held.shared.fail(&e);
            return Err(e);
        }
        Ok(held)
    }

    /// Waits until the thread has nothing left but the work of its streams, which may depend on the
    /// consumer's.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.ended.recv();
            let since = Instant::now();
            while !thread.is_finished() && since.elapsed() < GRACE {
                std::thread::sleep(POLL);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

impl<G: Gpu> Feed for Ring<G> {
    type Batch = G::Batch;

    fn start(&mut self, epoch: u64, first: u64) {
        self.stop();
        self.run += 1;
        self.open = true;
        self.shared.wanted.store(self.run, Ordering::Relaxed);
        // Where the thread has ended after an error, `next` says so.
        let _ = self.starts.as_ref().expect("open until drop").send((self.run, epoch, first));
    }

    /// What was prepared goes back.
    fn stop(&mut self) {
        self.open = false;
        self.shared.wanted.store(0, Ordering::Relaxed);
        while let Ok((_, message)) = self.messages.try_recv() {
            self.shared.take_back(message);
        }
    }

    /// The consumer's stream waits for the batch; the host waits only while there is none.
    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<G::Batch>> {
        if !self.open {
            return None;
        }
        if self.shared.failure().is_none() {
            match self.shared.ask(&self.asked) {
                Ok(()) => {}
                // The capture and the ring go on.
                Err(e) if e.kind() == ErrorKind::Capturing => return Some(Err(e)),
                Err(e) => {
                    self.open = false;
                    self.shared.fail(&e);
                    return Some(Err(e));
                }
            }
        }
        let since = Instant::now();
        loop {
            match self.messages.recv_timeout(idle()?.min(TICK)) {
                Ok((run, message)) if run != self.run => self.shared.take_back(message),
                Ok((_, Some(Ok(slot)))) => return Some(self.hand_over(slot).map(G::Batch::from)),
                Ok((_, Some(Err(e)))) => {
                    self.open = false;
                    if self.shared.failure().is_some() {
                        self.join();
                    }
                    return Some(Err(e));
                }
                Ok((_, None)) => {
                    self.open = false;
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(e) = self.shared.release_deferred() {
                        self.open = false;
                        self.shared.fail(&e);
                        return Some(Err(e));
                    }
                    let held = self.shared.counters.held.load(Ordering::Relaxed);
                    let deferred = self.shared.deferred.lock().expect("nothing panics while holding it").len();
                    if deferred > 0 && held + deferred == self.shared.plan.slots && since.elapsed() > CAPTURE {
                        let cause = format!(
                            "no batch can be copied: a stream is being captured into a CUDA graph, and until then {deferred} slots that \
                             another framework had cannot be marked; end the capture before asking for more, or raise prefetch"
                        );
                        return Some(Err(Error::new(ErrorKind::Capturing, cause)));
                    }
                    if held == self.shared.plan.slots && since.elapsed() > self.timeout {
                        let waited = since.elapsed().as_secs_f64();
                        let cause = format!(
                            "no batch can be copied: all {held} slots on the device are held by batches that are still alive, for \
                             {waited:.0} s; drop them before asking for more, or raise prefetch"
                        );
                        return Some(Err(Error::new(ErrorKind::Timeout, cause)));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.open = false;
                    self.join();
                    let gone = || Error::new(ErrorKind::Panic, "the copy thread has ended; see standard error for why");
                    return Some(Err(self.shared.failure().unwrap_or_else(gone)));
                }
            }
        }
    }

    fn ready(&self) -> usize {
        self.messages.len()
    }
}

impl<G: Gpu> Drop for Ring<G> {
    fn drop(&mut self) {
        self.stop();
        drop(self.starts.take());
        // A thread that is just sending must not wait for room.
        self.messages = crossbeam::channel::never();
        self.join();
    }
}

impl<G: Gpu> Shared<G> {
    fn take_back(&self, message: Option<Result<Box<Slot<G>>>>) {
        if let Some(Ok(mut slot)) = message {
            slot.taken_back = true;
            self.release(slot);
        }
    }

    /// Lets the slot be written after its mark.
    fn release(&self, slot: Box<Slot<G>>) {
        self.counters.slots.fetch_sub(1, Ordering::Relaxed);
        let _ = self.free.send(slot);
    }

    /// Marks in the consumer's stream that it asks for a batch.
    fn ask(&self, asked: &G::Event) -> Result<()> {
        if self.gpu.is_capturing(&self.consumer)? {
            let cause = "the loader's stream is being captured into a CUDA graph; take the batch before the capture, copy it into a \
                         buffer that the graph keeps, and replay the graph for each batch";
            return Err(Error::new(ErrorKind::Capturing, cause));
        }
        self.release_deferred()?;
        self.gpu.record(asked, &self.consumer)
    }

    /// Marks what was dropped while that was impossible.
    fn release_deferred(&self) -> Result<()> {
        let mut deferred = self.deferred.lock().expect("nothing panics while holding it");
        if deferred.is_empty() || self.gpu.is_capturing(&self.consumer)? {
            return Ok(());
        }
        for (slot, used) in std::mem::take(&mut *deferred) {
            let recorded = match used {
                Used::OnItsStream => Recorded::Never,
                Used::Anywhere => self.gpu.record_all(&slot.released)?,
            };
            match recorded {
                Recorded::Yes => {}
                Recorded::Never => self.gpu.record(&slot.released, &self.consumer)?,
                Recorded::NotNow => {
                    deferred.push((slot, used));
                    continue;
                }
            }
            self.release(slot);
        }
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        self.failed.lock().expect("nothing panics while holding it").clone()
    }

    /// The error that ended all use of the device, if there was one.
    fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    fn fail(&self, e: &Error) {
        self.failed.lock().expect("nothing panics while holding it").get_or_insert_with(|| e.clone());
    }
}

/// A batch that the consumer holds. Dropping it marks the consumer's stream: the slot is written
/// again after that mark.
pub(crate) struct Held<G: Gpu> {
    slot: Option<Box<Slot<G>>>,
    pub(crate) shared: Arc<Shared<G>>,
    /// Whether another framework has its address.
    exported: AtomicBool,
}

impl<G: Gpu> Held<G> {
    /// Another framework is given the batch's address: nobody knows on which streams it is used.
    /// The slot is written again after all work that the device had been given when it came back.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn export(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }

    pub(crate) fn slot(&self) -> &Slot<G> {
        self.slot.as_ref().expect("the slot leaves in drop only")
    }

    /// Lets the consumer's stream wait for the batch, and marks when it has.
    fn wait(&self) -> Result<()> {
        let (Shared { gpu, consumer, .. }, slot) = (&*self.shared, self.slot());
        gpu.wait(consumer, &slot.ready)?;
        gpu.record(&slot.waited.as_ref().expect("every batch that was sent has one").end, consumer)
    }
}

impl<G: Gpu> Drop for Held<G> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let Shared { gpu, consumer, counters, deferred, .. } = &*self.shared;
        if self.shared.failure().is_none() {
            let used = if *self.exported.get_mut() { Used::Anywhere } else { Used::OnItsStream };
            match gpu.is_capturing(consumer) {
                Ok(capturing) if capturing || used == Used::Anywhere => {
                    deferred.lock().expect("nothing panics while holding it").push((slot, used));
                }
                capturing => match capturing.and_then(|_| gpu.record(&slot.released, consumer)) {
                    Ok(()) => self.shared.release(slot),
                    // Without the mark nobody knows when the slot may be written: it stays out of
                    // use.
                    Err(e) => self.shared.fail(&e),
                },
            }
        }
        counters.held.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Staging<G: Gpu> {
    offset: usize,
    converted: G::Event,
}

/// Host slots whose copies are under way, oldest first, events to spare, and the times of what is
/// under way.
struct Flight<G: Gpu, H> {
    in_flight: VecDeque<(H, G::Event)>,
    events: Vec<G::Event>,
    timing: Timing<G>,
}

impl<G: Gpu, H> Flight<G, H> {
    /// Gives back the host slots whose copies are done, and says how long to wait before looking
    /// again.
    fn land(&mut self, gpu: &G) -> Result<Duration> {
        self.timing.settle(gpu)?;
        while let Some((_, copied)) = self.in_flight.front() {
            if !gpu.is_done(copied)? {
                return Ok(POLL);
            }
            let (host, copied) = self.in_flight.pop_front().expect("there is a front");
            drop(host);
            self.events.push(copied);
        }
        Ok(TICK)
    }
}

/// The copy thread: the only one that calls the device, but for the consumer's wait and mark.
struct Thread<G: Gpu, F: Feed<Batch: FullSlot>> {
    shared: Arc<Shared<G>>,
    /// Leaves in drop only.
    feed: Option<F>,
    end: Option<Sender<()>>,
    started: Receiver<(u64, u64, u64)>,
    freed: Receiver<Box<Slot<G>>>,
    messages: Sender<Message<G>>,
    kernels: G::Kernels,
    copy: G::Stream,
    convert: G::Stream,
    staging: Vec<Staging<G>>,
    turn: usize,
    flight: Flight<G, F::Batch>,
}

/// How an epoch ended on the thread.
enum Ended {
    Last,
    Unwanted,
}

impl<G: Gpu, F: Feed<Batch: FullSlot>> Thread<G, F> {
    fn run(mut self) {
        // An error comes again with the first call.
        let _stay = self.shared.gpu.stay();
        while let Ok((run, epoch, first)) = self.started.recv() {
            if self.shared.wanted.load(Ordering::Relaxed) != run {
                continue;
            }
            self.feed().start(epoch, first);
            let message = match self.epoch(run) {
                Ok(Ended::Last) => None,
                Ok(Ended::Unwanted) => {
                    self.feed().stop();
                    continue;
                }
                Err(e) => Some(Err(e)),
            };
            let _ = self.messages.send((run, message));
            if self.shared.failure().is_some() {
                break;
            }
        }
    }

    fn feed(&mut self) -> &mut F {
        self.feed.as_mut().expect("the feed leaves in drop only")
    }

    fn epoch(&mut self, run: u64) -> Result<Ended> {
        loop {
            let Thread { shared, feed: Some(feed), flight, .. } = self else {
                unreachable!("the feed leaves in drop only")
            };
            let mut failed = None;
            let host = feed.next(&mut || {
                if shared.wanted.load(Ordering::Relaxed) != run {
                    return None;
                }
                shared.check().and_then(|()| flight.land(&shared.gpu)).map_err(|e| failed = Some(e)).ok()
            });
            if let Some(e) = failed {
                self.shared.fail(&e);
                return Err(e);
            }
            let host = match host {
                Some(host) => host?,
                None if self.shared.wanted.load(Ordering::Relaxed) != run => return Ok(Ended::Unwanted),
                None => return Ok(Ended::Last),
            };
            let Some(slot) = self.free_slot(run)? else { return Ok(Ended::Unwanted) };
            let slot = self.send(host, slot).inspect_err(|e| self.shared.fail(e))?;
            let counters = &self.shared.counters;
            let slots = counters.slots.fetch_add(1, Ordering::Relaxed) + 1;
            counters.peak.fetch_max(slots, Ordering::Relaxed);
            let _ = self.messages.send((run, Some(Ok(slot))));
        }
    }

    /// A device slot that the host is done with; the device may still read it. `None` if the run is
    /// no longer wanted.
    fn free_slot(&mut self, run: u64) -> Result<Option<Box<Slot<G>>>> {
        loop {
            if self.shared.wanted.load(Ordering::Relaxed) != run {
                return Ok(None);
            }
            self.shared.check()?;
            let wait = self.flight.land(&self.shared.gpu).inspect_err(|e| self.shared.fail(e))?;
            if let Ok(mut slot) = self.freed.recv_timeout(wait) {
                self.flight.timing.returned(&mut slot);
                return Ok(Some(slot));
            }
        }
    }

    /// Queues everything that brings `host` into `slot`. Nothing here waits.
    fn send(&mut self, host: F::Batch, mut slot: Box<Slot<G>>) -> Result<Box<Slot<G>>> {
        let Shared { gpu, memory, places, counters, .. } = &*self.shared;
        let copied = self.flight.events.pop().map_or_else(|| gpu.event(), Ok)?;
        if slot.waited.is_none() {
            slot.waited = Some(self.flight.timing.pair(gpu)?);
        }
        let copy_time = self.flight.timing.pair(gpu)?;
        (slot.epoch, slot.number) = (host.epoch(), host.number());
        slot.picks.clear();
        slot.picks.extend_from_slice(host.picks());
        let count = slot.picks.len();
        (slot.mixing, slot.labelled) = (host.mixing(), host.labelled());
        for (place, key) in slot.keys[..count].iter_mut().enumerate() {
            key.clear();
            key.push_str(host.key(place));
        }
        // The slot of a failed upload must not be freed before the copy stream has stopped, so it
        // goes into flight first.
        self.flight.in_flight.push_back((host, copied));
        let (host, copied) = self.flight.in_flight.back().expect("just pushed");

        let upload = |uploads: &[Upload], base: usize| {
            uploads.iter().try_for_each(|&Upload { span, to }| {
                counters.bytes.fetch_add(host.bytes(span).len() as u64, Ordering::Relaxed);
                // SAFETY: invariant 1: `host` stays in flight until `copied`, recorded below in the
                // same stream, is done.
                unsafe { gpu.upload(&self.copy, memory, base + to, host.bytes(span)) }
            })
        };
        if std::mem::take(&mut slot.taken_back) {
            gpu.wait(&self.copy, &slot.ready)?;
        }
        // The pictures are timed and the rest, which is small, is not: it may have to wait for the
        // consumer in between.
        let timed = |uploads: &[Upload], base: usize| {
            gpu.record(&copy_time.begin, &self.copy)?;
            upload(uploads, base)?;
            gpu.record(&copy_time.end, &self.copy)
        };
        let (large, rest) = places.copied.split_at(places.large);
        let staging = (!self.staging.is_empty()).then(|| &self.staging[self.turn % self.staging.len()]);
        let pictures = match staging {
            Some(staging) => {
                gpu.wait(&self.copy, &staging.converted)?;
                timed(&places.staged, staging.offset)?;
                gpu.wait(&self.copy, &slot.released)?;
                upload(&places.copied, slot.offset)?;
                &*places.staged
            }
            None => {
                gpu.wait(&self.copy, &slot.released)?;
                timed(large, slot.offset)?;
                upload(rest, slot.offset)?;
                large
            }
        };
        gpu.record(copied, &self.copy)?;
        let bytes = pictures.iter().map(|upload| host.bytes(upload.span).len()).sum();
        let bracketed = |what| Bracketed { what, epoch: slot.epoch, number: slot.number, bytes };
        let (copy, convert) = (bracketed(Bracket::Copy), bracketed(Bracket::Convert));
        self.flight.timing.recorded(copy, copy_time);
        if places.computed.is_empty() {
            gpu.record(&slot.ready, &self.copy)?;
        } else {
            gpu.wait(&self.convert, copied)?;
            let time = self.flight.timing.pair(gpu)?;
            gpu.record(&time.begin, &self.convert)?;
            for step in &places.computed {
                let from = match step.from {
                    At::Staging(at) => staging.map_or(0, |staging| staging.offset) + at,
                    At::Slot(at) => slot.offset + at,
                };
                let (to, records) = (slot.offset + step.to, step.records.map(|at| slot.offset + at));
                gpu.compute(&self.convert, memory, &self.kernels, Job { array: step.array, from, to, records, count })?;
            }
            gpu.record(&time.end, &self.convert)?;
            self.flight.timing.recorded(convert, time);
            if let Some(staging) = staging {
                gpu.record(&staging.converted, &self.convert)?;
            }
            gpu.record(&slot.ready, &self.convert)?;
        }
        self.turn += 1;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }
}

impl<G: Gpu, F: Feed<Batch: FullSlot>> Drop for Thread<G, F> {
    /// Invariants 1, 5 and 7, also when a panic ends the thread. After an error of the driver the
    /// waits fail at once, and nothing is copied any more.
    fn drop(&mut self) {
        drop(self.feed.take());
        drop(self.end.take());
        for stream in [&self.copy, &self.convert] {
            if let Err(e) = self.shared.gpu.synchronize(stream) {
                self.shared.fail(&e);
            }
        }
        // No copy is under way any more: what is left to read are times.
        while let Ok(mut slot) = self.freed.try_recv() {
            self.flight.timing.returned(&mut slot);
        }
        if self.shared.failure().is_none() {
            let _ = self.flight.timing.settle(&self.shared.gpu);
        }
    }
}

#[cfg(test)]
mod tests;
