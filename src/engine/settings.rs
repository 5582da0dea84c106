use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crossbeam::channel::Sender;

use super::MAX_GROUP;
use crate::batch::Free;
use crate::trace::Task;

/// The most workers that a loader may be given: sixteen times the threads of the largest processors
/// there are, for sources that wait. Each is a thread with a stack of its own, and systems allow
/// some ten thousands of them in all.
pub(crate) const MOST_WORKERS: usize = 4096;

/// What a number may be. Where the user has set it that is one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// What it begins with, and never falls below.
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Bounds {
    pub(crate) fn exactly(n: usize) -> Self {
        Bounds { least: n, most: n }
    }

    /// The same, but not less than `n`.
    pub(crate) fn or_more(self, n: usize) -> Self {
        Bounds { least: self.least.max(n), most: self.most.max(n) }
    }

    pub(crate) fn are_open(self) -> bool {
        self.least < self.most
    }
}

/// The numbers of workers and of batches ahead that are in use, which may change while batches are
/// made: no batch depends on them.
///
/// All threads and slots there can ever be are made when the loader is opened. A worker beyond the
/// number in use waits at the gate before it takes its next part, holding nothing; a slot beyond it
/// lies in the reserve.
pub(crate) struct Settings {
    pub(crate) processors: usize,
    pub(crate) workers: Bounds,
    pub(crate) prefetch: Bounds,
    active: AtomicUsize,
    /// Threads that there are.
    threads: AtomicUsize,
    ahead: AtomicUsize,
    /// What the scheduler says of the workers that were ever in use.
    tasks: Mutex<Vec<Task>>,
    gate: Mutex<Gate>,
    changed: Condvar,
    reserve: Mutex<Reserve>,
}

struct Gate {
    closed: bool,
    /// Since when what is not in `time` counts; none while no epoch is under way.
    since: Option<Instant>,
    time: Time,
}

/// Time in which epochs were under way: what a program does before, between and after them is not
/// the loader's time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Time {
    pub(crate) seconds: f64,
    /// That of the workers in use: those who waited at the gate had none.
    pub(crate) worker_seconds: f64,
}

impl Gate {
    /// The time up to `now`, with `workers` in use since the last change.
    fn time(&self, workers: usize, now: Instant) -> Time {
        let new = self.since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        let Time { seconds, worker_seconds } = self.time;
        Time { seconds: seconds + new, worker_seconds: worker_seconds + workers as f64 * new }
    }
}

#[derive(Default)]
struct Reserve {
    /// Last used first, so that memory that was never touched stays so.
    slots: Vec<Free>,
    /// The way back into use; none before the engine runs.
    free: Option<Sender<Free>>,
    in_use: usize,
    /// Slots in use beyond those for the batches ahead, for a consumer that holds as many.
    lent: usize,
}

impl Settings {
    pub(crate) fn new(processors: usize, workers: Bounds, prefetch: Bounds) -> Self {
        Settings {
            processors,
            workers,
            prefetch,
            active: AtomicUsize::new(workers.least),
            threads: AtomicUsize::new(workers.most),
            ahead: AtomicUsize::new(prefetch.least),
            tasks: Mutex::default(),
            gate: Mutex::new(Gate { closed: false, since: None, time: Time::default() }),
            changed: Condvar::new(),
            reserve: Mutex::default(),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().expect("nothing panics while holding it")
    }

    fn reserve(&self) -> MutexGuard<'_, Reserve> {
        self.reserve.lock().expect("nothing panics while holding it")
    }

    /// Workers in use.
    pub(crate) fn workers(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Batches ahead that are in use.
    pub(crate) fn prefetch(&self) -> usize {
        self.ahead.load(Relaxed)
    }

    /// Host slots for `prefetch` batches ahead: one more is in the consumer's hands or on its way
    /// to the device, and one more is being filled.
    pub(crate) fn slots_for(prefetch: usize) -> usize {
        prefetch.saturating_add(2)
    }

    /// Slots in use.
    pub(super) fn slots(&self) -> usize {
        Self::slots_for(self.prefetch())
    }

    /// Slots that are not in the reserve: more than [`slots`](Settings::slots) until those of a
    /// larger number have come back.
    pub(super) fn slots_in_use(&self) -> usize {
        self.reserve().in_use
    }

    /// Samples of a part, with `workers` in use: a quarter of a worker's share of the batch, so
    /// that the shares even out.
    pub(super) fn group(batch: usize, workers: usize) -> usize {
        batch.div_ceil(4 * workers).clamp(1, MAX_GROUP)
    }

    /// An epoch begins.
    pub(super) fn begin(&self) {
        self.end();
        self.gate().since = Some(Instant::now());
    }

    /// No epoch is under way any more.
    pub(super) fn end(&self) {
        let mut gate = self.gate();
        gate.time = gate.time(self.workers(), Instant::now());
        gate.since = None;
    }

    /// The time that epochs took so far.
    pub(crate) fn time(&self) -> Time {
        self.gate().time(self.workers(), Instant::now())
    }

    /// Waits until worker `index` is in use; false if there will be no more work.
    pub(super) fn admits(&self, index: usize) -> bool {
        if index < self.workers() {
            return true;
        }
        let mut gate = self.gate();
        while !gate.closed && index >= self.workers() {
            gate = self.changed.wait(gate).expect("nothing panics while holding it");
        }
        !gate.closed
    }

    /// The calling worker is in use for the first time.
    pub(super) fn enters(&self) {
        let task = Task::this();
        self.tasks.lock().expect("nothing panics while holding it").extend(task);
    }

    /// Seconds that workers were ready to run and had no processor, so far; 0 where the system does
    /// not say.
    pub(super) fn delayed(&self) -> f64 {
        let tasks = self.tasks.lock().expect("nothing panics while holding it");
        tasks.iter().filter_map(Task::delayed_seconds).sum()
    }

    /// Lets those who wait at the gate end.
    pub(super) fn close(&self) {
        self.gate().closed = true;
        self.changed.notify_all();
    }

    /// The most workers that can be put to use: as many as there are threads.
    pub(crate) fn most_workers(&self) -> usize {
        self.threads.load(Relaxed)
    }

    /// Says that there are no more than so many threads.
    pub(super) fn limit_workers(&self, threads: usize) {
        self.threads.store(threads, Relaxed);
    }

    pub(super) fn use_workers(&self, workers: usize) {
        let workers = workers.min(self.most_workers());
        let mut gate = self.gate();
        let now = Instant::now();
        gate.time = gate.time(self.workers(), now);
        gate.since = gate.since.map(|_| now);
        self.active.store(workers, Relaxed);
        self.changed.notify_all();
    }

    /// Puts the slots for the least number of batches ahead into use, by sending them to `free`,
    /// and the others into the reserve.
    pub(super) fn take_slots(&self, mut slots: Vec<Free>, free: Sender<Free>) {
        let in_use = self.slots().min(slots.len());
        let rest = slots.split_off(in_use);
        for slot in slots {
            free.send(slot).expect("the engine holds the receiver");
        }
        *self.reserve() = Reserve { slots: rest, free: Some(free), in_use, lent: 0 };
    }

    pub(super) fn use_prefetch(&self, prefetch: usize) {
        let mut reserve = self.reserve();
        self.ahead.store(prefetch, Relaxed);
        reserve.fill(self.slots());
    }

    /// The consumer holds `held` batches and asks for more: if that is all that are in use, one
    /// more is taken into use for good, as long as there are any.
    pub(super) fn lend(&self, held: usize) {
        if !self.prefetch.are_open() {
            return;
        }
        let mut reserve = self.reserve();
        if held >= reserve.in_use && !reserve.slots.is_empty() {
            reserve.lent += 1;
            reserve.fill(self.slots());
        }
    }

    /// A free slot, unless there are more than are to be in use: then it goes into the reserve.
    pub(super) fn keep(&self, slot: Free) -> Option<Free> {
        if !self.prefetch.are_open() {
            return Some(slot);
        }
        let mut reserve = self.reserve();
        if reserve.in_use <= self.slots() + reserve.lent {
            return Some(slot);
        }
        reserve.in_use -= 1;
        reserve.slots.push(slot);
        None
    }
}

impl Reserve {
    /// Takes slots into use until there are `slots` of them and those that are lent.
    fn fill(&mut self, slots: usize) {
        let Some(free) = &self.free else { return };
        while self.in_use < slots + self.lent
            && let Some(slot) = self.slots.pop()
        {
            // Where nobody fills slots any more it is freed here.
            let _ = free.send(slot);
            self.in_use += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam::channel::unbounded;

    use super::*;
    use crate::batch::{Dtype, Field, Memory, Role, Schema, Slots};

    fn slots(count: usize) -> Vec<Free> {
        let field = Field { name: "image".into(), dtype: Dtype::U8, shape: vec![3] };
        let plan = Arc::new(Schema::new(2, [(field, Role::Picture)]).unwrap());
        (0..count).map(|_| Slots::make(&plan, Memory::heap(plan.bytes).unwrap())).collect()
    }

    #[test]
    fn slots_go_into_use_and_out_of_it_again() {
        let settings = Settings::new(2, Bounds::exactly(2), Bounds { least: 1, most: 6 });
        let (free, freed) = unbounded();
        settings.take_slots(slots(8), free.clone());
        assert_eq!((freed.len(), settings.slots()), (3, 3));
        settings.use_prefetch(4);
        assert_eq!((freed.len(), settings.slots()), (6, 6), "at once, also while nobody gives one back");
        settings.use_prefetch(2);
        let kept: Vec<_> =
            std::iter::from_fn(|| freed.try_recv().ok()).filter_map(|slot| settings.keep(slot)).collect();
        assert_eq!(kept.len(), 4, "two of six were put aside");
        assert!(kept.into_iter().all(|slot| settings.keep(slot).is_some()), "and no more than those");
        settings.use_prefetch(6);
        assert_eq!(freed.len(), 4, "all that are left");
    }

    #[test]
    fn a_consumer_that_holds_all_in_use_is_lent_one_more_while_there_are_any() {
        let settings = Settings::new(2, Bounds::exactly(2), Bounds { least: 1, most: 4 });
        let (free, freed) = unbounded();
        settings.take_slots(slots(6), free);
        settings.lend(2);
        assert_eq!(freed.len(), 3, "one of three is not held");
        settings.lend(3);
        assert_eq!((freed.len(), settings.slots(), settings.slots_in_use()), (4, 3, 4));
        let back: Vec<_> = std::iter::from_fn(|| freed.try_recv().ok()).collect();
        assert!(back.into_iter().all(|slot| settings.keep(slot).is_some()), "it stays in use");
        settings.use_prefetch(2);
        assert_eq!(freed.len(), 1, "for the batches ahead there are as many as without it");
        settings.lend(5);
        settings.lend(6);
        settings.lend(6);
        assert_eq!((freed.len(), settings.slots_in_use()), (2, 6), "there are no more");
    }

    #[test]
    fn the_gate_admits_as_many_as_are_in_use_and_lets_all_go_in_the_end() {
        let settings = Arc::new(Settings::new(1, Bounds { least: 1, most: 3 }, Bounds::exactly(2)));
        let (came, comes) = unbounded();
        let waits: Vec<_> = (0..3)
            .map(|index| {
                let (settings, came) = (settings.clone(), came.clone());
                std::thread::spawn(move || {
                    came.send((index, settings.admits(index))).unwrap();
                })
            })
            .collect();
        assert_eq!(comes.recv().unwrap(), (0, true));
        settings.use_workers(2);
        assert_eq!(comes.recv().unwrap(), (1, true));
        assert!(comes.is_empty(), "the third waits");
        settings.close();
        assert_eq!(comes.recv().unwrap(), (2, false));
        waits.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn time_counts_within_epochs_and_for_workers_in_use() {
        let settings = Settings::new(1, Bounds { least: 1, most: 8 }, Bounds::exactly(2));
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        pause();
        assert_eq!(settings.time(), Time::default(), "no epoch was under way");
        settings.begin();
        pause();
        settings.use_workers(8);
        let one = settings.time();
        pause();
        settings.end();
        let all = settings.time();
        pause();
        assert_eq!(settings.time(), all, "nor is one any more");
        assert!(one.seconds >= 0.02 && (one.worker_seconds / one.seconds - 1.0).abs() < 0.5, "{one:?}");
        let new = all.seconds - one.seconds;
        assert!(new >= 0.02 && (all.worker_seconds - one.worker_seconds - 8.0 * new).abs() < 1e-6, "{one:?} {all:?}");
    }
}
