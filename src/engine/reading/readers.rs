//! The read stage: threads that read for the workers where reading waits.
//!
//! ```text
//! coordinator ──────────── while reads do not wait ────────────► workers
//!      └────────► readers, in the order of the parts ────────────────┘
//! ```
//!
//! A reader takes a part, reads its samples and hands both to the workers. Waiting costs a reader
//! nothing: there are more of them than processors, and they sleep.
//!
//! What was read and is not decoded yet is bounded in bytes. A reader waits for room before it
//! begins with a part, one after the other in the order of the parts. Workers give room back and
//! wait for nothing, so that nothing deadlocks. Should a part turn out larger than the room, the
//! reader hands on what it has read of it, and the worker reads the rest. So what is held is
//! beyond the bound by one sample a reader at most.
//!
//! Readers are started when they are first needed, and more of them while that makes reading faster
//! (`depth.rs`). A reader without a part waits for one, as a worker does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::depth::{Depth, FIRST_READERS};
use super::fetched::Shelf;
use super::follow::Following;
use super::waits::{Waits, Watch};
use crate::batch::Part;
use crate::decode::MAX_GROUP;
use crate::engine::state::Run;
use crate::error::Result;
use crate::recipe::{Recipe, guarded};
use crate::source::{self, Sample};
use crate::trace::{Args, Row, nanos};

/// Hands a part to the workers, with what was read of it.
pub(crate) type Give = Arc<dyn Fn(Part, Fetched) + Send + Sync>;

/// Samples that a reader has read. Dropped, they give their room back.
pub(crate) struct Fetched {
    /// None if nothing was read.
    shelf: Option<Box<Shelf>>,
    /// Bytes of room that it has.
    held: usize,
    stage: Arc<ReadStage>,
}

impl Fetched {
    /// The sample `place` places after the first of the part, or why it could not be read, and the
    /// time that took in ns; none if it was not read.
    pub(crate) fn sample(&self, place: usize) -> Option<(Result<Sample<'_>>, u64)> {
        self.shelf.as_ref()?.sample(place)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if let Some(mut shelf) = self.shelf.take() {
            shelf.clear();
            self.stage.room().back(shelf, self.held);
            self.stage.freed.notify_one();
        }
    }
}

/// What readers, workers and coordinator share.
pub(crate) struct ReadStage {
    pub(crate) waits: Waits,
    /// The source, if it fetches ahead.
    pub(crate) follow: Following,
    recipe: Arc<Recipe>,
    run: Arc<Run>,
    /// Parts that there can be.
    parts: usize,
    room: Mutex<Room>,
    /// Room was given back, or none is needed any more.
    freed: Condvar,
    /// Held by the reader that waits for a part and for room.
    turn: Mutex<()>,
    threads: Mutex<Threads>,
    depth: Mutex<Depth>,
    /// Readers that may read. Those beyond end after their part.
    limit: AtomicUsize,
    opened: Instant,
}

/// The threads, and what they need as long as they are to live.
enum Threads {
    /// Not needed so far.
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

/// The bytes that readers may hold.
struct Room {
    bound: usize,
    /// Bytes that shelves in use have, and how many there are.
    held: usize,
    out: usize,
    /// Shelves that nobody uses, and the bytes of their buffers.
    idle: Vec<Box<Shelf>>,
    kept: usize,
    /// Bytes that a part took of late: rises at once and falls slowly.
    usual: usize,
    closed: bool,
}

impl Room {
    /// Whether a part may be begun.
    fn admits(&self) -> bool {
        self.closed || self.out == 0 || self.held.saturating_add(self.usual) <= self.bound
    }

    /// Takes `bytes` more, at the cost of buffers that nobody uses.
    fn hold(&mut self, bytes: usize) {
        self.held += bytes;
        while self.held + self.kept > self.bound
            && let Some(shelf) = self.idle.pop()
        {
            self.kept -= shelf.capacity();
        }
    }

    /// Takes a shelf back that had `held` bytes.
    fn back(&mut self, mut shelf: Box<Shelf>, held: usize) {
        (self.held, self.out) = (self.held - held, self.out - 1);
        if self.held + self.kept + shelf.capacity() > self.bound {
            shelf.release();
        }
        self.kept += shelf.capacity();
        self.idle.push(shelf);
    }
}

impl ReadStage {
    /// A stage without threads so far, with room for `parts` parts: as many as there can be.
    pub(crate) fn new(recipe: &Arc<Recipe>, run: &Arc<Run>, parts: usize, follow: Following) -> Arc<Self> {
        let bound = run.scratch.plan().ahead;
        let room = Room { bound, held: 0, out: 0, idle: Vec::new(), kept: 0, usual: 0, closed: false };
        Arc::new(ReadStage {
            waits: Waits::new(),
            follow,
            recipe: recipe.clone(),
            run: run.clone(),
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

    /// Reads from now on, and hands what it read to `give`.
    pub(crate) fn open(&self, give: Give) {
        *self.threads() = Threads::None { give };
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().expect("nothing panics while holding it")
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().expect("nothing panics while holding it")
    }

    /// Gives `part` to the readers if they are to read, and back if not.
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
        // A logger of the user's may panic.
        drop(threads);
        if let Some(failed) = failed {
            tracing::warn!(
                "cannot start {FIRST_READERS} threads that read ahead, continuing with those there are: {failed}"
            );
        }
        part
    }

    /// Starts as many readers as possible. Returns the error of the first that cannot be started.
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

    /// Starts the readers up to the limit that are not running.
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

    /// A sample was read. Changes the number of readers if that helps.
    fn count(self: &Arc<Self>, given: &Receiver<Part>) {
        let waiting = !given.is_empty() && self.room().admits();
        let now = nanos(Instant::now(), self.opened);
        let changed = self.depth.lock().expect("nothing panics while holding it").read(now, waiting);
        let Some(limit) = changed else { return };
        self.limit.store(limit, Ordering::Relaxed);
        // Without more threads nothing is gained, and the number goes back.
        if let Threads::Started { given, give, readers, .. } = &mut *self.threads() {
            let _ = self.spawn(readers, given, give);
        }
        tracing::debug!("up to {limit} threads read ahead");
    }

    /// Ends the readers. Workers must still take what these have.
    pub(crate) fn close(&self) {
        self.room().closed = true;
        self.freed.notify_all();
        let threads = std::mem::replace(&mut *self.threads(), Threads::Closed);
        if let Threads::Started { parts, readers, .. } = threads {
            drop(parts);
            for reader in readers {
                // What can panic is caught around a part.
                let _ = reader.join();
            }
        }
        self.room().idle.clear();
    }

    /// A reader's life.
    fn run(self: &Arc<Self>, index: usize, given: &Receiver<Part>, give: &Give) {
        while index < self.limit.load(Ordering::Relaxed)
            && let Some((part, mut fetched)) = self.next(given)
        {
            // The user's code is guarded where it is called. Should anything else panic, a logger
            // of the user's, the part still goes on its way, and the worker reads the rest.
            let _ = guarded(|| {
                self.read(index, given, &part, &mut fetched);
                Ok(())
            });
            give(part, fetched);
        }
    }

    fn is_wanted(&self, part: &Part) -> bool {
        self.run.is_wanted(part.header().run)
    }

    /// The next part, and room for it; none when there will be no more.
    fn next(self: &Arc<Self>, given: &Receiver<Part>) -> Option<(Part, Fetched)> {
        let _turn = self.turn.lock().expect("nothing panics while holding it");
        let part = given.recv().ok()?;
        let mut fetched = Fetched { shelf: None, held: 0, stage: self.clone() };
        let mut room = self.room();
        while !room.admits() && self.is_wanted(&part) {
            room = self.freed.wait(room).expect("nothing panics while holding it");
        }
        if !room.closed && self.is_wanted(&part) {
            room.out += 1;
            let shelf = room.idle.pop();
            room.kept -= shelf.as_ref().map_or(0, |shelf| shelf.capacity());
            fetched.held = shelf.as_ref().map_or(0, |shelf| shelf.capacity()).max(room.usual);
            room.hold(fetched.held);
            drop(room);
            fetched.shelf = Some(shelf.unwrap_or_else(|| Shelf::new(self.recipe.source.clone())));
        }
        Some((part, fetched))
    }

    /// Reads the samples of `part` as far as there is room.
    fn read(self: &Arc<Self>, index: usize, given: &Receiver<Part>, part: &Part, fetched: &mut Fetched) {
        let Some(shelf) = &mut fetched.shelf else { return };
        let counters = &self.run.counters;
        let mut watch = Watch::new();
        let mut borrowed = 0;
        for place in part.range().take(MAX_GROUP) {
            if !self.is_wanted(part) {
                break;
            }
            let id = part.header().picks[place].sample;
            counters.reads(index, id);
            let (ns, bytes) = shelf.read(id, self.recipe.retries, || self.run.tries_again(part.header().run));
            counters.has_read(index, ns, bytes);
            self.count(given);
            if let Some(trace) = counters.tracing() {
                let end = trace.at(std::time::Instant::now());
                let key = shelf.sample(shelf.len() - 1).and_then(|(sample, _)| Some(sample.ok()?.key().to_owned()));
                let header = part.header();
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
            // Bytes of a memory map are the system's, but they are to be there when they are
            // decoded: they count like those that were copied.
            borrowed += bytes;
            let taken = shelf.capacity().max(borrowed);
            if taken > fetched.held {
                let mut room = self.room();
                room.hold(taken - fetched.held);
                fetched.held = taken;
                if room.held > room.bound && room.out > 1 {
                    break;
                }
            }
        }
        self.waits.reader_saw(watch.waited(shelf.len()) > 0);
        let taken = shelf.capacity().max(borrowed);
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

    /// A shelf whose buffers have `bytes`.
    fn shelf(bytes: usize) -> Box<Shelf> {
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
        let mut shelf = Shelf::new(Arc::new(Copies(bytes)));
        shelf.read(0, 0, || false);
        shelf.clear();
        shelf
    }

    #[test]
    fn parts_are_admitted_within_the_bound_and_one_that_is_alone_always() {
        let mut room = room(100);
        room.usual = 1000;
        assert!(room.admits(), "a part that is larger than all of it");
        (room.out, room.held, room.usual) = (1, 60, 40);
        assert!(room.admits());
        room.usual = 41;
        assert!(!room.admits());
        room.closed = true;
        assert!(room.admits());
    }

    #[test]
    fn buffers_that_nobody_uses_make_room_for_those_in_use() {
        let mut room = room(100);
        for _ in 0..3 {
            room.out += 1;
            room.hold(30);
        }
        for _ in 0..3 {
            room.back(shelf(30), 30);
        }
        assert_eq!((room.held, room.out, room.kept, room.idle.len()), (0, 0, 90, 3));
        room.hold(50);
        assert_eq!((room.held, room.kept, room.idle.len()), (50, 30, 1));
        room.out = 1;
        room.back(shelf(80), 50);
        assert_eq!((room.held, room.kept), (0, 30), "what is too large to be kept is given back");
    }

    #[test]
    fn a_sample_of_memory_takes_no_buffer() {
        let mut shelf = Shelf::new(Arc::new(Memory::new(vec![OwnedSample::new("a").field("img", vec![7; 9])])));
        let (_, bytes) = shelf.read(0, 0, || false);
        assert_eq!((bytes, shelf.capacity()), (9, 0));
        assert_eq!(shelf.sample(0).unwrap().0.unwrap().field("img").as_deref(), Some(&[7; 9][..]));
    }
}
