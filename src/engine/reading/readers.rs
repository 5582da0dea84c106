//! The threads that read samples ahead of the workers when storage is slow.
//!
//! ```text
//! coordinator ────────────── while storage is fast ────────────► workers
//!      └────────► readers, in the order of the parts ────────────────┘
//! ```
//!
//! A reader receives a part (a group of rows of a batch), reads its samples, and sends the part and
//! the samples to the workers. Readers are blocked on I/O most of the time, so there may be many
//! more readers than cores.
//!
//! A budget bounds the bytes that have been read but not decoded. A reader reserves bytes before it
//! starts a part. Readers are admitted in the order of the parts, and workers release bytes without
//! waiting for readers, so the readers and the workers cannot deadlock. If a part turns out to
//! exceed the budget while other parts have reserved bytes, the reader sends the part with the
//! samples that it has read so far, and the worker reads the others. So a reader exceeds the budget
//! by at most one sample, unless its part is the only one.
//!
//! While parts wait for a reader, the number of readers is doubled, as long as each doubling makes
//! reading faster (`reader_count.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::prefetch::PrefetchNotifier;
use super::read_buffers::{ReadBuffers, ReadIndex};
use super::reader_count::{INITIAL_READERS, ReaderCount};
use super::storage_wait::{BlockTimer, ReaderSwitch};
use crate::batch::SlotPart;
use crate::decode::MAX_GROUP;
use crate::engine::state::{Runtime, Shared};
use crate::error::{Result, guarded};
use crate::recipe::Recipe;
use crate::source::{self, Sample};
use crate::trace::{Args, TraceRow, nanos};

pub(crate) type SendPart = Arc<dyn Fn(SlotPart, PrefetchedSamples) + Send + Sync>;

/// The samples of a part that a reader has read. Dropping this value returns their bytes to the
/// budget.
pub(crate) struct PrefetchedSamples {
    /// `None` if the reader skipped the part, because its run was canceled or the stage was closed.
    buffers: Option<ReadBuffers>,
    reserved_bytes: usize,
    stage: Arc<ReadStage>,
}

impl PrefetchedSamples {
    /// Returns the result of reading the sample for `index`, and the duration of the read in ns.
    /// Returns `None` if no reader has tried to read the sample.
    pub(crate) fn sample(&self, index: ReadIndex) -> Option<(Result<Sample<'_>>, u64)> {
        self.buffers.as_ref()?.sample(index)
    }
}

impl Drop for PrefetchedSamples {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            buffers.clear();
            self.stage.budget().take_back(buffers, self.reserved_bytes);
            self.stage.space_freed.notify_one();
        }
    }
}

/// State that the readers share with the workers and the coordinator.
pub(crate) struct ReadStage {
    pub(crate) reader_switch: ReaderSwitch,
    pub(crate) notifier: PrefetchNotifier,
    recipe: Arc<Recipe>,
    runtime: Arc<Runtime>,
    max_parts: usize,
    budget: Mutex<Budget>,
    /// Notified when bytes of the budget are released, and when the stage is closed.
    space_freed: Condvar,
    /// A reader holds this lock while it waits for a part and for space in the budget, so that
    /// parts are admitted in order.
    admission: Mutex<()>,
    threads: Mutex<Threads>,
    reader_count: Mutex<ReaderCount>,
    /// Number of readers that may run. A reader with a greater or equal index ends after the part
    /// that it is reading or waiting for.
    max_readers: AtomicUsize,
    open_time: Instant,
}

enum Threads {
    /// No reader has been needed so far.
    None {
        send_part: SendPart,
    },
    Started {
        part_sender: Sender<SlotPart>,
        part_receiver: Receiver<SlotPart>,
        send_part: SendPart,
        readers: Vec<JoinHandle<()>>,
    },
    Closed,
}

/// Bounds the bytes that have been read but not decoded.
struct Budget {
    max_bytes: usize,
    reserved_bytes: usize,
    /// Number of parts for which bytes are reserved.
    part_count: usize,
    idle_buffers: Vec<ReadBuffers>,
    idle_bytes: usize,
    /// Estimated bytes of a part. Rises at once to the size of a larger part, and falls slowly.
    typical_bytes: usize,
    is_closed: bool,
}

impl Budget {
    /// Returns whether a part of typical size fits into the budget. A single part always fits, and
    /// so does every part once the stage is closed.
    fn has_space(&self) -> bool {
        self.is_closed
            || self.part_count == 0
            || self.reserved_bytes.saturating_add(self.typical_bytes) <= self.max_bytes
    }

    fn reserve(&mut self, bytes: usize) {
        self.reserved_bytes += bytes;
        while self.reserved_bytes + self.idle_bytes > self.max_bytes
            && let Some(buffers) = self.idle_buffers.pop()
        {
            self.idle_bytes -= buffers.capacity();
        }
    }

    /// Stores the buffers of a part for reuse, and releases the `reserved_bytes` bytes. Frees the
    /// memory of the buffers if they would exceed the budget.
    fn take_back(&mut self, mut buffers: ReadBuffers, reserved_bytes: usize) {
        (self.reserved_bytes, self.part_count) = (self.reserved_bytes - reserved_bytes, self.part_count - 1);
        if self.reserved_bytes + self.idle_bytes + buffers.capacity() > self.max_bytes {
            buffers.release();
        }
        self.idle_bytes += buffers.capacity();
        self.idle_buffers.push(buffers);
    }
}

impl ReadStage {
    pub(crate) fn new(shared: &Shared, max_parts: usize, notifier: PrefetchNotifier) -> Arc<Self> {
        let max_bytes = shared.runtime.scratch.plan().readahead_bytes;
        let budget = Budget {
            max_bytes,
            reserved_bytes: 0,
            part_count: 0,
            idle_buffers: Vec::new(),
            idle_bytes: 0,
            typical_bytes: 0,
            is_closed: false,
        };
        Arc::new(ReadStage {
            reader_switch: ReaderSwitch::new(),
            notifier,
            recipe: shared.recipe.clone(),
            runtime: shared.runtime.clone(),
            max_parts,
            budget: Mutex::new(budget),
            space_freed: Condvar::new(),
            admission: Mutex::default(),
            threads: Mutex::new(Threads::Closed),
            reader_count: Mutex::new(ReaderCount::new()),
            max_readers: AtomicUsize::new(INITIAL_READERS),
            open_time: Instant::now(),
        })
    }

    /// Allows readers to start.
    pub(crate) fn open(&self, send_part: SendPart) {
        *self.threads() = Threads::None { send_part };
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().expect("no code panics while holding this lock")
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().expect("no code panics while holding this lock")
    }

    /// Passes `part` to the readers. Returns `part` if readers are disabled or closed, so that a
    /// worker reads the samples.
    pub(crate) fn divert(self: &Arc<Self>, part: SlotPart) -> Option<SlotPart> {
        if !self.reader_switch.readers_enabled() {
            return Some(part);
        }
        let mut threads = self.threads();
        let mut spawn_error = None;
        if let Threads::None { send_part } = &*threads {
            let started_threads;
            (started_threads, spawn_error) = self.start_readers(send_part.clone());
            *threads = started_threads;
        }
        let part = match &*threads {
            Threads::Started { part_sender, .. } => part_sender.send(part).map_err(|e| e.0).err(),
            _ => Some(part),
        };
        // Release the lock first, because the user's logger may panic.
        drop(threads);
        if let Some(spawn_error) = spawn_error {
            tracing::warn!("cannot start {INITIAL_READERS} reader threads, continuing with fewer: {spawn_error}");
        }
        part
    }

    fn start_readers(self: &Arc<Self>, send_part: SendPart) -> (Threads, Option<std::io::Error>) {
        let (part_sender, part_receiver) = bounded(self.max_parts);
        let mut readers = Vec::new();
        let spawn_error = self.spawn_readers(&mut readers, &part_receiver, &send_part);
        if readers.is_empty() {
            self.reader_switch.disable();
            return (Threads::Closed, spawn_error);
        }
        (Threads::Started { part_sender, part_receiver, send_part, readers }, spawn_error)
    }

    /// Starts readers up to the limit, or up to the first error.
    fn spawn_readers(
        self: &Arc<Self>,
        readers: &mut Vec<JoinHandle<()>>,
        part_receiver: &Receiver<SlotPart>,
        send_part: &SendPart,
    ) -> Option<std::io::Error> {
        for index in 0..self.max_readers.load(Ordering::Relaxed) {
            if readers.get(index).is_some_and(|reader| !reader.is_finished()) {
                continue;
            }
            let (stage, part_receiver, send_part) = (self.clone(), part_receiver.clone(), send_part.clone());
            let thread = std::thread::Builder::new().name(format!("warpfeed-read-{index}")).spawn(move || {
                source::mark_reader_thread();
                stage.run_reader(index, &part_receiver, &send_part);
            });
            match thread {
                Ok(thread) if index < readers.len() => readers[index] = thread,
                Ok(thread) => readers.push(thread),
                Err(e) => return Some(e),
            }
        }
        None
    }

    fn count_sample(self: &Arc<Self>, part_receiver: &Receiver<SlotPart>) {
        let is_part_waiting = !part_receiver.is_empty() && self.budget().has_space();
        let now = nanos(Instant::now(), self.open_time);
        let new_max =
            self.reader_count.lock().expect("no code panics while holding this lock").record_read(now, is_part_waiting);
        let Some(max_readers) = new_max else { return };
        self.max_readers.store(max_readers, Ordering::Relaxed);
        // Ignore an error. If no more threads can start, reading does not become faster, and
        // `ReaderCount` reduces the number of readers again while parts still wait.
        if let Threads::Started { part_receiver, send_part, readers, .. } = &mut *self.threads() {
            let _ = self.spawn_readers(readers, part_receiver, send_part);
        }
        tracing::debug!("up to {max_readers} threads read ahead");
    }

    /// Stops the readers, and waits until they have sent their remaining parts to the workers.
    pub(crate) fn close(&self) {
        self.budget().is_closed = true;
        self.space_freed.notify_all();
        let threads = std::mem::replace(&mut *self.threads(), Threads::Closed);
        if let Threads::Started { part_sender, readers, .. } = threads {
            drop(part_sender);
            for reader in readers {
                // `run_reader` catches panics while it reads a part. If a reader panics elsewhere,
                // the other readers must still be joined.
                let _ = reader.join();
            }
        }
        self.budget().idle_buffers.clear();
    }

    /// Runs reader number `index` until the limit drops to `index` or less, or until the stage is
    /// closed and no part remains.
    fn run_reader(self: &Arc<Self>, index: usize, part_receiver: &Receiver<SlotPart>, send_part: &SendPart) {
        while index < self.max_readers.load(Ordering::Relaxed)
            && let Some((part, mut prefetched_samples)) = self.next_part(part_receiver)
        {
            // `Source::read` is guarded separately. If something else panics, such as the user's
            // `tracing` subscriber, the worker reads the remaining samples of the part.
            let _ = guarded(|| {
                let cancel_token = self.runtime.cancel_token(part.header().run);
                cancel_token.run(|| self.read_part(index, part_receiver, &part, &mut prefetched_samples));
                Ok(())
            });
            send_part(part, prefetched_samples);
        }
    }

    fn is_current(&self, part: &SlotPart) -> bool {
        self.runtime.is_current(part.header().run)
    }

    /// Waits for the next part, and for space in the budget. Returns `None` once the stage is
    /// closed and no part remains. Returns the part without buffers if its run was canceled or the
    /// stage was closed.
    fn next_part(self: &Arc<Self>, part_receiver: &Receiver<SlotPart>) -> Option<(SlotPart, PrefetchedSamples)> {
        let _admission = self.admission.lock().expect("no code panics while holding this lock");
        let part = part_receiver.recv().ok()?;
        let mut prefetched_samples = PrefetchedSamples { buffers: None, reserved_bytes: 0, stage: self.clone() };
        let mut budget = self.budget();
        while !budget.has_space() && self.is_current(&part) {
            budget = self.space_freed.wait(budget).expect("no code panics while holding this lock");
        }
        if !budget.is_closed && self.is_current(&part) {
            budget.part_count += 1;
            let buffers = budget.idle_buffers.pop();
            budget.idle_bytes -= buffers.as_ref().map_or(0, |buffers| buffers.capacity());
            prefetched_samples.reserved_bytes =
                buffers.as_ref().map_or(0, |buffers| buffers.capacity()).max(budget.typical_bytes);
            budget.reserve(prefetched_samples.reserved_bytes);
            drop(budget);
            let recipe = &self.recipe;
            let create_buffers = || {
                ReadBuffers::new(recipe.read_source.clone(), recipe.max_sample_bytes, recipe.max_tiles_of_all_epochs())
            };
            prefetched_samples.buffers = Some(buffers.unwrap_or_else(create_buffers));
        }
        Some((part, prefetched_samples))
    }

    /// Reads the samples of `part`, at most [`MAX_GROUP`] entries. Stops early if the run is
    /// canceled, or if the budget is exceeded and other parts have reserved bytes.
    fn read_part(
        self: &Arc<Self>,
        reader: usize,
        part_receiver: &Receiver<SlotPart>,
        part: &SlotPart,
        prefetched_samples: &mut PrefetchedSamples,
    ) {
        let Some(buffers) = &mut prefetched_samples.buffers else { return };
        let counters = &self.runtime.counters;
        let mut block_timer = BlockTimer::new();
        let mut sample_bytes = 0;
        let (first_row, header) = (part.range().start, part.header());
        let requests = part.range().take(MAX_GROUP).flat_map(|row| {
            let entry = &header.entries[row];
            // The partners are the other samples of a combined image. Ignore an error, because the
            // worker selects the partners again and reports the error.
            let partners = self.recipe.partners(header.epoch, entry).ok().flatten();
            let ids = std::iter::once(entry.sample).chain(partners.into_iter().flat_map(|partners| partners.samples));
            let draw = self.recipe.clip_draw(entry);
            ids.enumerate().map(move |(number, id)| ((row - first_row, number), id, draw))
        });
        for (index, id, draw) in requests {
            if !self.is_current(part) {
                break;
            }
            counters.begin_read(reader, id);
            let (ns, bytes) =
                buffers.read(index, (id, draw), self.recipe.retries, || self.runtime.may_retry(header.run));
            counters.end_read(reader, ns, bytes);
            self.count_sample(part_receiver);
            if let Some(trace) = counters.open_trace() {
                let end = trace.timestamp(std::time::Instant::now());
                let key = buffers.sample(index).and_then(|(sample, _)| Some(sample.ok()?.key().to_owned()));
                let args = Args {
                    epoch: Some(header.epoch),
                    batch: Some(header.batch_index),
                    sample: Some(id),
                    key: key.map(Into::into),
                    bytes: Some(bytes as u64),
                    ..Args::default()
                };
                trace.record_at(TraceRow::Reader(reader), "read", end.saturating_sub(ns), end, args);
            }
            // Bytes borrowed from a memory map count as well, because they should stay in memory
            // until they are decoded.
            sample_bytes += bytes;
            let used_bytes = buffers.capacity().max(sample_bytes);
            if used_bytes > prefetched_samples.reserved_bytes {
                let mut budget = self.budget();
                budget.reserve(used_bytes - prefetched_samples.reserved_bytes);
                prefetched_samples.reserved_bytes = used_bytes;
                if budget.reserved_bytes > budget.max_bytes && budget.part_count > 1 {
                    break;
                }
            }
        }
        self.reader_switch.record_reader_part(block_timer.take_blocked_ns(buffers.len()) > 0);
        let used_bytes = buffers.capacity().max(sample_bytes);
        let mut budget = self.budget();
        budget.typical_bytes = used_bytes.max(budget.typical_bytes - budget.typical_bytes / 16);
        budget.reserved_bytes -= prefetched_samples.reserved_bytes - used_bytes;
        prefetched_samples.reserved_bytes = used_bytes;
        drop(budget);
        self.space_freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Memory, OwnedSample, Source};

    fn budget(max_bytes: usize) -> Budget {
        Budget {
            max_bytes,
            reserved_bytes: 0,
            part_count: 0,
            idle_buffers: Vec::new(),
            idle_bytes: 0,
            typical_bytes: 0,
            is_closed: false,
        }
    }

    fn buffers(bytes: usize) -> ReadBuffers {
        struct Copies(usize);
        impl Source for Copies {
            fn len(&self) -> usize {
                1
            }

            fn read<'a>(&'a self, _: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
                *scratch = Vec::with_capacity(self.0);
                Ok(Sample::new("copy"))
            }
        }
        let mut buffers = ReadBuffers::new(Arc::new(Copies(bytes)), u64::MAX, 1);
        buffers.read((0, 0), (0, 0), 0, || false);
        buffers.clear();
        buffers
    }

    #[test]
    fn only_a_single_part_may_exceed_the_budget() {
        let mut budget = budget(100);
        budget.typical_bytes = 1000;
        assert!(budget.has_space(), "a single part fits even if it is larger than the budget");
        (budget.part_count, budget.reserved_bytes, budget.typical_bytes) = (1, 60, 40);
        assert!(budget.has_space());
        budget.typical_bytes = 41;
        assert!(!budget.has_space());
        budget.is_closed = true;
        assert!(budget.has_space());
    }

    #[test]
    fn idle_buffers_are_freed_to_make_room() {
        let mut budget = budget(100);
        for _ in 0..3 {
            budget.part_count += 1;
            budget.reserve(30);
        }
        for _ in 0..3 {
            budget.take_back(buffers(30), 30);
        }
        assert_eq!(
            (budget.reserved_bytes, budget.part_count, budget.idle_bytes, budget.idle_buffers.len()),
            (0, 0, 90, 3)
        );
        budget.reserve(50);
        assert_eq!((budget.reserved_bytes, budget.idle_bytes, budget.idle_buffers.len()), (50, 30, 1));
        budget.part_count = 1;
        budget.take_back(buffers(80), 50);
        assert_eq!((budget.reserved_bytes, budget.idle_bytes), (0, 30), "a buffer that is too large to keep is freed");
    }

    #[test]
    fn a_sample_in_memory_needs_no_buffer() {
        let source = Memory::new(vec![OwnedSample::new("a").field("img", vec![7; 9])]);
        let mut buffers = ReadBuffers::new(Arc::new(source), u64::MAX, 1);
        let (_, bytes) = buffers.read((0, 0), (0, 0), 0, || false);
        assert_eq!((bytes, buffers.capacity()), (9, 0));
        assert_eq!(buffers.sample((0, 0)).unwrap().0.unwrap().field("img").as_deref(), Some(&[7; 9][..]));
    }
}
