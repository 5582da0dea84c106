//! The threads that read samples ahead of the workers when storage is slow.
//!
//! ```text
//! coordinator ────────────── while storage is fast ────────────► workers
//!      └────────► readers, in the order of the parts ────────────────┘
//! ```
//!
//! A reader takes a part, reads its samples, and sends both to the workers. Readers are blocked on
//! I/O most of the time, so there are more readers than cores.
//!
//! A budget bounds the bytes that have been read but not decoded. A reader reserves bytes before it
//! starts a part. Readers are admitted in the order of the parts, and workers release bytes without
//! blocking, so deadlock is impossible. If a part turns out to exceed the budget, the reader passes
//! on the samples that it has read so far, and the worker reads the others. So a reader exceeds the
//! budget by at most one sample.
//!
//! Readers are started when they are needed. More are started as long as they make reading faster
//! (`reader_count.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::fetched::{ReadBuffers, ReadIndex};
use super::prefetch::Following;
use super::reader_count::{Depth, FIRST_READERS};
use super::storage_wait::{Waits, Watch};
use crate::batch::Part;
use crate::decode::MAX_GROUP;
use crate::engine::state::{Run, Shared};
use crate::error::{Result, guarded};
use crate::recipe::Recipe;
use crate::source::{self, Sample};
use crate::trace::{Args, Row, nanos};

/// Passes a part and its prefetched samples to the workers.
pub(crate) type SendPart = Arc<dyn Fn(Part, Fetched) + Send + Sync>;

/// Samples that a reader has read. Dropping this value returns their bytes to the budget.
pub(crate) struct Fetched {
    /// The samples, or `None` if nothing was read.
    buffers: Option<ReadBuffers>,
    /// Bytes that are reserved in the budget for the samples.
    reserved: usize,
    stage: Arc<ReadStage>,
}

impl Fetched {
    /// Returns the result of reading the sample for `index`, and the duration of the read in ns.
    /// Returns `None` if no reader has tried to read the sample.
    pub(crate) fn sample(&self, index: ReadIndex) -> Option<(Result<Sample<'_>>, u64)> {
        self.buffers.as_ref()?.sample(index)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            buffers.clear();
            self.stage.budget().take_back(buffers, self.reserved);
            self.stage.freed.notify_one();
        }
    }
}

/// State that the readers share with the workers and the coordinator.
pub(crate) struct ReadStage {
    pub(crate) waits: Waits,
    /// Notifies the source of the next samples if the source prefetches.
    pub(crate) follow: Following,
    recipe: Arc<Recipe>,
    run: Arc<Run>,
    parts: usize,
    budget: Mutex<Budget>,
    /// Notified when bytes of the budget are released, and when the stage is closed.
    freed: Condvar,
    /// A reader holds this lock while it waits for a part and for space in the budget, so that
    /// parts are admitted in order.
    admission: Mutex<()>,
    threads: Mutex<Threads>,
    depth: Mutex<Depth>,
    /// Number of readers that may run. A reader with an index at or above this limit ends after its
    /// current part.
    limit: AtomicUsize,
    opened: Instant,
}

enum Threads {
    /// No reader was needed so far.
    None {
        send_part: SendPart,
    },
    Started {
        parts: Sender<Part>,
        queue: Receiver<Part>,
        send_part: SendPart,
        readers: Vec<JoinHandle<()>>,
    },
    Closed,
}

/// The budget for bytes that have been read but not decoded.
struct Budget {
    bound: usize,
    reserved: usize,
    /// Number of parts for which bytes are reserved.
    parts: usize,
    idle: Vec<ReadBuffers>,
    idle_bytes: usize,
    /// Estimated size of a part in bytes. Rises immediately to the size of a larger part, and falls
    /// slowly.
    typical: usize,
    closed: bool,
}

impl Budget {
    /// Returns whether a part of typical size fits into the budget. A single part always fits.
    fn admits(&self) -> bool {
        self.closed || self.parts == 0 || self.reserved.saturating_add(self.typical) <= self.bound
    }

    /// Reserves more bytes. Frees idle buffers if necessary.
    fn reserve(&mut self, bytes: usize) {
        self.reserved += bytes;
        while self.reserved + self.idle_bytes > self.bound
            && let Some(buffers) = self.idle.pop()
        {
            self.idle_bytes -= buffers.capacity();
        }
    }

    /// Keeps the buffers of a part for reuse, and releases the `reserved` bytes.
    fn take_back(&mut self, mut buffers: ReadBuffers, reserved: usize) {
        (self.reserved, self.parts) = (self.reserved - reserved, self.parts - 1);
        if self.reserved + self.idle_bytes + buffers.capacity() > self.bound {
            buffers.release();
        }
        self.idle_bytes += buffers.capacity();
        self.idle.push(buffers);
    }
}

impl ReadStage {
    /// Creates a stage without threads. `parts` is the maximum number of parts in flight.
    pub(crate) fn new(shared: &Shared, parts: usize, follow: Following) -> Arc<Self> {
        let bound = shared.run.scratch.plan().ahead;
        let budget =
            Budget { bound, reserved: 0, parts: 0, idle: Vec::new(), idle_bytes: 0, typical: 0, closed: false };
        Arc::new(ReadStage {
            waits: Waits::new(),
            follow,
            recipe: shared.recipe.clone(),
            run: shared.run.clone(),
            parts,
            budget: Mutex::new(budget),
            freed: Condvar::new(),
            admission: Mutex::default(),
            threads: Mutex::new(Threads::Closed),
            depth: Mutex::new(Depth::new()),
            limit: AtomicUsize::new(FIRST_READERS),
            opened: Instant::now(),
        })
    }

    /// Allows readers to start, and to pass each part to `send_part`.
    pub(crate) fn open(&self, send_part: SendPart) {
        *self.threads() = Threads::None { send_part };
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().expect("no code panics while holding this lock")
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().expect("no code panics while holding this lock")
    }

    /// Passes `part` to the readers, or returns it if the worker has to read the samples itself.
    pub(crate) fn divert(self: &Arc<Self>, part: Part) -> Option<Part> {
        if !self.waits.readers_enabled() {
            return Some(part);
        }
        let mut threads = self.threads();
        let mut failed = None;
        if let Threads::None { send_part } = &*threads {
            let started;
            (started, failed) = self.start(send_part.clone());
            *threads = started;
        }
        let part = match &*threads {
            Threads::Started { parts, .. } => parts.send(part).map_err(|e| e.0).err(),
            _ => Some(part),
        };
        // Release the lock first, because the user's logger may panic.
        drop(threads);
        if let Some(failed) = failed {
            tracing::warn!("cannot start {FIRST_READERS} reader threads, continuing with fewer: {failed}");
        }
        part
    }

    /// Starts the first readers. If a thread cannot be started, uses only the readers that have
    /// started, and returns the error.
    fn start(self: &Arc<Self>, send_part: SendPart) -> (Threads, Option<std::io::Error>) {
        let (parts, queue) = bounded(self.parts);
        let mut readers = Vec::new();
        let failed = self.spawn(&mut readers, &queue, &send_part);
        if readers.is_empty() {
            self.waits.disable();
            return (Threads::Closed, failed);
        }
        (Threads::Started { parts, queue, send_part, readers }, failed)
    }

    /// Starts readers up to the limit, or up to the first error.
    fn spawn(
        self: &Arc<Self>,
        readers: &mut Vec<JoinHandle<()>>,
        queue: &Receiver<Part>,
        send_part: &SendPart,
    ) -> Option<std::io::Error> {
        for index in 0..self.limit.load(Ordering::Relaxed) {
            if readers.get(index).is_some_and(|reader| !reader.is_finished()) {
                continue;
            }
            let (stage, queue, send_part) = (self.clone(), queue.clone(), send_part.clone());
            let thread = std::thread::Builder::new().name(format!("warpfeed-read-{index}")).spawn(move || {
                source::reads_ahead();
                stage.run(index, &queue, &send_part);
            });
            match thread {
                Ok(thread) if index < readers.len() => readers[index] = thread,
                Ok(thread) => readers.push(thread),
                Err(e) => return Some(e),
            }
        }
        None
    }

    /// Counts a sample, and adjusts the number of readers.
    fn count(self: &Arc<Self>, queue: &Receiver<Part>) {
        let waiting = !queue.is_empty() && self.budget().admits();
        let now = nanos(Instant::now(), self.opened);
        let changed = self.depth.lock().expect("no code panics while holding this lock").read(now, waiting);
        let Some(limit) = changed else { return };
        self.limit.store(limit, Ordering::Relaxed);
        // Ignore an error: without more threads, reading does not become faster, so `Depth` reduces
        // the number again.
        if let Threads::Started { queue, send_part, readers, .. } = &mut *self.threads() {
            let _ = self.spawn(readers, queue, send_part);
        }
        tracing::debug!("up to {limit} threads read ahead");
    }

    /// Stops the readers. The workers must still accept the parts that readers hold.
    pub(crate) fn close(&self) {
        self.budget().closed = true;
        self.freed.notify_all();
        let threads = std::mem::replace(&mut *self.threads(), Threads::Closed);
        if let Threads::Started { parts, readers, .. } = threads {
            drop(parts);
            for reader in readers {
                // Panics are caught around each part.
                let _ = reader.join();
            }
        }
        self.budget().idle.clear();
    }

    /// Runs a reader until the limit drops to `index` or the stage is closed.
    fn run(self: &Arc<Self>, index: usize, queue: &Receiver<Part>, send_part: &SendPart) {
        while index < self.limit.load(Ordering::Relaxed)
            && let Some((part, mut fetched)) = self.next(queue)
        {
            // `Source::read` is guarded separately. If something else panics, such as the user's
            // `tracing` subscriber, the worker reads the remaining samples of the part.
            let _ = guarded(|| {
                let stop = self.run.stop(part.header().run);
                stop.during(|| self.read(index, queue, &part, &mut fetched));
                Ok(())
            });
            send_part(part, fetched);
        }
    }

    fn is_wanted(&self, part: &Part) -> bool {
        self.run.is_wanted(part.header().run)
    }

    /// Waits for the next part and for space in the budget. Returns `None` once the stage is closed
    /// and no parts remain.
    fn next(self: &Arc<Self>, queue: &Receiver<Part>) -> Option<(Part, Fetched)> {
        let _admission = self.admission.lock().expect("no code panics while holding this lock");
        let part = queue.recv().ok()?;
        let mut fetched = Fetched { buffers: None, reserved: 0, stage: self.clone() };
        let mut budget = self.budget();
        while !budget.admits() && self.is_wanted(&part) {
            budget = self.freed.wait(budget).expect("no code panics while holding this lock");
        }
        if !budget.closed && self.is_wanted(&part) {
            budget.parts += 1;
            let buffers = budget.idle.pop();
            budget.idle_bytes -= buffers.as_ref().map_or(0, |buffers| buffers.capacity());
            fetched.reserved = buffers.as_ref().map_or(0, |buffers| buffers.capacity()).max(budget.typical);
            budget.reserve(fetched.reserved);
            drop(budget);
            let recipe = &self.recipe;
            let new =
                || ReadBuffers::new(recipe.read_source.clone(), recipe.sample_bytes, recipe.max_tiles_of_all_epochs());
            fetched.buffers = Some(buffers.unwrap_or_else(new));
        }
        Some((part, fetched))
    }

    /// Reads as many samples of `part` as fit into the budget.
    fn read(self: &Arc<Self>, reader: usize, queue: &Receiver<Part>, part: &Part, fetched: &mut Fetched) {
        let Some(buffers) = &mut fetched.buffers else { return };
        let counters = &self.run.counters;
        let mut watch = Watch::new();
        let mut borrowed = 0;
        let (first, header) = (part.range().start, part.header());
        let reads = part.range().take(MAX_GROUP).flat_map(|row| {
            let entry = &header.entries[row];
            // Ignore an error, because the worker gets and reports the same error.
            let partners = self.recipe.partners(header.epoch, entry).ok().flatten();
            let all = std::iter::once(entry.sample).chain(partners.into_iter().flat_map(|partners| partners.samples));
            let draw = self.recipe.clip_draw(entry);
            all.enumerate().map(move |(number, id)| ((row - first, number), id, draw))
        });
        for (index, id, draw) in reads {
            if !self.is_wanted(part) {
                break;
            }
            counters.reads(reader, id);
            let (ns, bytes) = buffers.read(index, (id, draw), self.recipe.retries, || self.run.tries_again(header.run));
            counters.has_read(reader, ns, bytes);
            self.count(queue);
            if let Some(trace) = counters.tracing() {
                let end = trace.at(std::time::Instant::now());
                let key = buffers.sample(index).and_then(|(sample, _)| Some(sample.ok()?.key().to_owned()));
                let args = Args {
                    epoch: Some(header.epoch),
                    batch: Some(header.number),
                    sample: Some(id),
                    key: key.map(Into::into),
                    bytes: Some(bytes as u64),
                    ..Args::default()
                };
                trace.record_at(Row::Reader(reader), "read", end.saturating_sub(ns), end, args);
            }
            // Bytes borrowed from a memory map count as well, because they must stay in memory
            // until they are decoded.
            borrowed += bytes;
            let taken = buffers.capacity().max(borrowed);
            if taken > fetched.reserved {
                let mut budget = self.budget();
                budget.reserve(taken - fetched.reserved);
                fetched.reserved = taken;
                if budget.reserved > budget.bound && budget.parts > 1 {
                    break;
                }
            }
        }
        self.waits.record_reader(watch.waited(buffers.len()) > 0);
        let taken = buffers.capacity().max(borrowed);
        let mut budget = self.budget();
        budget.typical = taken.max(budget.typical - budget.typical / 16);
        budget.reserved -= fetched.reserved - taken;
        fetched.reserved = taken;
        drop(budget);
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Memory, OwnedSample, Source};

    fn budget(bound: usize) -> Budget {
        Budget { bound, reserved: 0, parts: 0, idle: Vec::new(), idle_bytes: 0, typical: 0, closed: false }
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
        budget.typical = 1000;
        assert!(budget.admits(), "a part larger than the budget");
        (budget.parts, budget.reserved, budget.typical) = (1, 60, 40);
        assert!(budget.admits());
        budget.typical = 41;
        assert!(!budget.admits());
        budget.closed = true;
        assert!(budget.admits());
    }

    #[test]
    fn idle_buffers_are_freed_to_make_room() {
        let mut budget = budget(100);
        for _ in 0..3 {
            budget.parts += 1;
            budget.reserve(30);
        }
        for _ in 0..3 {
            budget.take_back(buffers(30), 30);
        }
        assert_eq!((budget.reserved, budget.parts, budget.idle_bytes, budget.idle.len()), (0, 0, 90, 3));
        budget.reserve(50);
        assert_eq!((budget.reserved, budget.idle_bytes, budget.idle.len()), (50, 30, 1));
        budget.parts = 1;
        budget.take_back(buffers(80), 50);
        assert_eq!((budget.reserved, budget.idle_bytes), (0, 30), "a buffer that is too large to keep is freed");
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
