//! Reads samples ahead of the workers when storage is slow.
//!
//! ```text
//! coordinator ──────────── while reads do not wait ────────────► workers
//!      └────────► readers, in the order of the parts ────────────────┘
//! ```
//!
//! A reader takes a part, reads its samples and passes both to the workers. Readers are blocked on
//! I/O most of the time, so there are more of them than cores.
//!
//! The bytes that have been read but not decoded are bounded by a budget. A reader reserves bytes
//! before it starts a part. Parts are admitted in order, and workers release bytes without
//! blocking, so deadlock is impossible. If a part does not fit into the budget, the reader passes
//! on the samples that it has read so far, and the worker reads the remaining ones. Therefore, the
//! budget is exceeded by at most one sample per reader.
//!
//! Readers are started when they are first needed. Their number is increased as long as that makes
//! reading faster (`depth.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::depth::{Depth, FIRST_READERS};
use super::fetched::{At, ReadBuffers};
use super::follow::Following;
use super::storage_wait::{Waits, Watch};
use crate::batch::Part;
use crate::decode::MAX_GROUP;
use crate::engine::state::{Run, Shared};
use crate::error::{Result, guarded};
use crate::recipe::Recipe;
use crate::source::{self, Sample};
use crate::trace::{Args, Row, nanos};

/// Passes a part to the workers, with the samples that were read in advance.
pub(crate) type Give = Arc<dyn Fn(Part, Fetched) + Send + Sync>;

/// Samples that a reader has read. Dropping this value returns the samples' bytes to the budget.
pub(crate) struct Fetched {
    /// Buffers with the samples; `None` if nothing was read.
    buffers: Option<ReadBuffers>,
    /// Number of bytes of the budget that the samples occupy.
    held: usize,
    stage: Arc<ReadStage>,
}

impl Fetched {
    /// Returns the sample or error of `at`, with the duration of the read in ns. Returns `None` if
    /// no reader has read it.
    pub(crate) fn sample(&self, at: At) -> Option<(Result<Sample<'_>>, u64)> {
        self.buffers.as_ref()?.sample(at)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            buffers.clear();
            self.stage.room().back(buffers, self.held);
            self.stage.freed.notify_one();
        }
    }
}

/// State shared by readers, workers and the coordinator.
pub(crate) struct ReadStage {
    pub(crate) waits: Waits,
    /// Link to the source, if the source prefetches.
    pub(crate) follow: Following,
    recipe: Arc<Recipe>,
    run: Arc<Run>,
    /// Maximum number of parts in flight.
    parts: usize,
    room: Mutex<Room>,
    /// Notified when bytes are returned to the budget or when the stage is closed.
    freed: Condvar,
    /// Held by the reader that is waiting for a part and for space in the budget. Only one reader
    /// waits at a time.
    turn: Mutex<()>,
    threads: Mutex<Threads>,
    depth: Mutex<Depth>,
    /// Number of readers that may run. A reader whose index is not below this limit ends after its
    /// current part.
    limit: AtomicUsize,
    opened: Instant,
}

/// The threads and their channel.
enum Threads {
    /// No reader has been needed so far.
    None {
        give: Give,
    },
    Started {
        parts: Sender<Part>,
        given: Receiver<Part>,
        give: Give,
        readers: Vec<JoinHandle<()>>,
    },
    Closed,
}

/// The budget for bytes that readers have read but workers have not decoded yet.
struct Room {
    bound: usize,
    /// Number of bytes reserved for parts.
    held: usize,
    /// Number of parts that hold reserved bytes.
    out: usize,
    /// Unused buffers.
    idle: Vec<ReadBuffers>,
    /// Total capacity of the unused buffers, in bytes.
    kept: usize,
    /// Size of a typical recent part in bytes. The estimate rises immediately and falls slowly.
    usual: usize,
    closed: bool,
}

impl Room {
    /// Returns whether the budget admits one more part.
    fn admits(&self) -> bool {
        self.closed || self.out == 0 || self.held.saturating_add(self.usual) <= self.bound
    }

    /// Reserves `bytes` additional bytes, and frees unused buffers to make room for them.
    fn hold(&mut self, bytes: usize) {
        self.held += bytes;
        while self.held + self.kept > self.bound
            && let Some(buffers) = self.idle.pop()
        {
            self.kept -= buffers.capacity();
        }
    }

    /// Takes back buffers, and releases the `held` bytes that were reserved for them.
    fn back(&mut self, mut buffers: ReadBuffers, held: usize) {
        (self.held, self.out) = (self.held - held, self.out - 1);
        if self.held + self.kept + buffers.capacity() > self.bound {
            buffers.release();
        }
        self.kept += buffers.capacity();
        self.idle.push(buffers);
    }
}

impl ReadStage {
    /// Creates a stage without threads. `parts` is the maximum number of parts in flight.
    pub(crate) fn new(shared: &Shared, parts: usize, follow: Following) -> Arc<Self> {
        let bound = shared.run.scratch.plan().ahead;
        let room = Room { bound, held: 0, out: 0, idle: Vec::new(), kept: 0, usual: 0, closed: false };
        Arc::new(ReadStage {
            waits: Waits::new(),
            follow,
            recipe: shared.recipe.clone(),
            run: shared.run.clone(),
            parts,
            room: Mutex::new(room),
            freed: Condvar::new(),
            turn: Mutex::default(),
            threads: Mutex::new(Threads::Closed),
            depth: Mutex::new(Depth::new()),
            limit: AtomicUsize::new(FIRST_READERS),
            opened: Instant::now(),
        })
    }

    /// Allows readers to start. They pass each part to `give`.
    pub(crate) fn open(&self, give: Give) {
        *self.threads() = Threads::None { give };
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().expect("nothing panics while holding it")
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().expect("nothing panics while holding it")
    }

    /// Passes `part` to the readers, or returns the part if a worker has to read it.
    pub(crate) fn divert(self: &Arc<Self>, part: Part) -> Option<Part> {
        if !self.waits.are_on() {
            return Some(part);
        }
        let mut threads = self.threads();
        let mut failed = None;
        if let Threads::None { give } = &*threads {
            let started;
            (started, failed) = self.start(give.clone());
            *threads = started;
        }
        let part = match &*threads {
            Threads::Started { parts, .. } => parts.send(part).map_err(|e| e.0).err(),
            _ => Some(part),
        };
        // The user's logger may panic, so the lock is released first.
        drop(threads);
        if let Some(failed) = failed {
            tracing::warn!("cannot start {FIRST_READERS} reader threads, continuing with fewer: {failed}");
        }
        part
    }

    /// Starts as many readers as the system allows. Returns the error of the first one that fails
    /// to start.
    fn start(self: &Arc<Self>, give: Give) -> (Threads, Option<std::io::Error>) {
        let (parts, given) = bounded(self.parts);
        let mut readers = Vec::new();
        let failed = self.spawn(&mut readers, &given, &give);
        if readers.is_empty() {
            self.waits.never();
            return (Threads::Closed, failed);
        }
        (Threads::Started { parts, given, give, readers }, failed)
    }

    /// Starts all readers below the limit that are not running.
    fn spawn(
        self: &Arc<Self>,
        readers: &mut Vec<JoinHandle<()>>,
        given: &Receiver<Part>,
        give: &Give,
    ) -> Option<std::io::Error> {
        for index in 0..self.limit.load(Ordering::Relaxed) {
            if readers.get(index).is_some_and(|reader| !reader.is_finished()) {
                continue;
            }
            let (stage, given, give) = (self.clone(), given.clone(), give.clone());
            let thread = std::thread::Builder::new().name(format!("warpfeed-read-{index}")).spawn(move || {
                source::reads_ahead();
                stage.run(index, &given, &give);
            });
            match thread {
                Ok(thread) if index < readers.len() => readers[index] = thread,
                Ok(thread) => readers.push(thread),
                Err(e) => return Some(e),
            }
        }
        None
    }

    /// Records that a sample was read. Adjusts the number of readers if necessary.
    fn count(self: &Arc<Self>, given: &Receiver<Part>) {
        let waiting = !given.is_empty() && self.room().admits();
        let now = nanos(Instant::now(), self.opened);
        let changed = self.depth.lock().expect("nothing panics while holding it").read(now, waiting);
        let Some(limit) = changed else { return };
        self.limit.store(limit, Ordering::Relaxed);
        // If no additional thread can be started, reading does not become faster, and `Depth`
        // reduces the number again.
        if let Threads::Started { given, give, readers, .. } = &mut *self.threads() {
            let _ = self.spawn(readers, given, give);
        }
        tracing::debug!("up to {limit} threads read ahead");
    }

    /// Ends the readers. Workers must continue to accept the parts that readers are still holding.
    pub(crate) fn close(&self) {
        self.room().closed = true;
        self.freed.notify_all();
        let threads = std::mem::replace(&mut *self.threads(), Threads::Closed);
        if let Threads::Started { parts, readers, .. } = threads {
            drop(parts);
            for reader in readers {
                // Joining cannot fail, because panics are caught around each part.
                let _ = reader.join();
            }
        }
        self.room().idle.clear();
    }

    /// Runs a reader until its index exceeds the limit or the channel of parts closes.
    fn run(self: &Arc<Self>, index: usize, given: &Receiver<Part>, give: &Give) {
        while index < self.limit.load(Ordering::Relaxed)
            && let Some((part, mut fetched)) = self.next(given)
        {
            // Calls to user code are guarded separately. After any other panic, for example in the
            // user's logger, the worker reads the remaining samples of the part.
            let _ = guarded(|| {
                let stop = self.run.stop(part.header().run);
                stop.during(|| self.read(index, given, &part, &mut fetched));
                Ok(())
            });
            give(part, fetched);
        }
    }

    fn is_wanted(&self, part: &Part) -> bool {
        self.run.is_wanted(part.header().run)
    }

    /// Waits for the next part and for space in the budget. Returns `None` after the last part.
    fn next(self: &Arc<Self>, given: &Receiver<Part>) -> Option<(Part, Fetched)> {
        let _turn = self.turn.lock().expect("nothing panics while holding it");
        let part = given.recv().ok()?;
        let mut fetched = Fetched { buffers: None, held: 0, stage: self.clone() };
        let mut room = self.room();
        while !room.admits() && self.is_wanted(&part) {
            room = self.freed.wait(room).expect("nothing panics while holding it");
        }
        if !room.closed && self.is_wanted(&part) {
            room.out += 1;
            let buffers = room.idle.pop();
            room.kept -= buffers.as_ref().map_or(0, |buffers| buffers.capacity());
            fetched.held = buffers.as_ref().map_or(0, |buffers| buffers.capacity()).max(room.usual);
            room.hold(fetched.held);
            drop(room);
            let recipe = &self.recipe;
            let new = || ReadBuffers::new(recipe.reads.clone(), recipe.sample_bytes, recipe.ever_most_tiles());
            fetched.buffers = Some(buffers.unwrap_or_else(new));
        }
        Some((part, fetched))
    }

    /// Reads the samples of `part` that fit into the budget.
    fn read(self: &Arc<Self>, index: usize, given: &Receiver<Part>, part: &Part, fetched: &mut Fetched) {
        let Some(buffers) = &mut fetched.buffers else { return };
        let counters = &self.run.counters;
        let mut watch = Watch::new();
        let mut borrowed = 0;
        let (first, header) = (part.range().start, part.header());
        let each = part.range().take(MAX_GROUP).flat_map(|place| {
            let entry = &header.entries[place];
            // If this call fails, it also fails in the worker, which reports the error.
            let partners = self.recipe.partners(header.epoch, entry).ok().flatten();
            let all = std::iter::once(entry.sample).chain(partners.into_iter().flat_map(|partners| partners.samples));
            all.enumerate().map(move |(number, id)| ((place - first, number), id))
        });
        for (at, id) in each {
            if !self.is_wanted(part) {
                break;
            }
            counters.reads(index, id);
            let (ns, bytes) = buffers.read(at, id, self.recipe.retries, || self.run.tries_again(header.run));
            counters.has_read(index, ns, bytes);
            self.count(given);
            if let Some(trace) = counters.tracing() {
                let end = trace.at(std::time::Instant::now());
                let key = buffers.sample(at).and_then(|(sample, _)| Some(sample.ok()?.key().to_owned()));
                let args = Args {
                    epoch: Some(header.epoch),
                    batch: Some(header.number),
                    sample: Some(id),
                    key: key.map(Into::into),
                    bytes: Some(bytes as u64),
                    ..Args::default()
                };
                trace.record_at(Row::Reader(index), "read", end.saturating_sub(ns), end, args);
            }
            // Bytes of a memory map must stay in memory until they are decoded, so the budget
            // includes them.
            borrowed += bytes;
            let taken = buffers.capacity().max(borrowed);
            if taken > fetched.held {
                let mut room = self.room();
                room.hold(taken - fetched.held);
                fetched.held = taken;
                if room.held > room.bound && room.out > 1 {
                    break;
                }
            }
        }
        self.waits.reader_saw(watch.waited(buffers.len()) > 0);
        let taken = buffers.capacity().max(borrowed);
        let mut room = self.room();
        room.usual = taken.max(room.usual - room.usual / 16);
        room.held -= fetched.held - taken;
        fetched.held = taken;
        drop(room);
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Memory, OwnedSample, Source};

    fn room(bound: usize) -> Room {
        Room { bound, held: 0, out: 0, idle: Vec::new(), kept: 0, usual: 0, closed: false }
    }

    /// Creates buffers with a capacity of `bytes`.
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
        buffers.read((0, 0), 0, 0, || false);
        buffers.clear();
        buffers
    }

    #[test]
    fn parts_are_admitted_within_the_bound_and_a_single_one_always() {
        let mut room = room(100);
        room.usual = 1000;
        assert!(room.admits(), "a part larger than the budget");
        (room.out, room.held, room.usual) = (1, 60, 40);
        assert!(room.admits());
        room.usual = 41;
        assert!(!room.admits());
        room.closed = true;
        assert!(room.admits());
    }

    #[test]
    fn idle_buffers_make_room_for_used_ones() {
        let mut room = room(100);
        for _ in 0..3 {
            room.out += 1;
            room.hold(30);
        }
        for _ in 0..3 {
            room.back(buffers(30), 30);
        }
        assert_eq!((room.held, room.out, room.kept, room.idle.len()), (0, 0, 90, 3));
        room.hold(50);
        assert_eq!((room.held, room.kept, room.idle.len()), (50, 30, 1));
        room.out = 1;
        room.back(buffers(80), 50);
        assert_eq!((room.held, room.kept), (0, 30), "a buffer that is too large to keep is freed");
    }

    #[test]
    fn a_sample_of_memory_takes_no_buffer() {
        let source = Memory::new(vec![OwnedSample::new("a").field("img", vec![7; 9])]);
        let mut buffers = ReadBuffers::new(Arc::new(source), u64::MAX, 1);
        let (_, bytes) = buffers.read((0, 0), 0, 0, || false);
        assert_eq!((bytes, buffers.capacity()), (9, 0));
        assert_eq!(buffers.sample((0, 0)).unwrap().0.unwrap().field("img").as_deref(), Some(&[7; 9][..]));
    }
}
