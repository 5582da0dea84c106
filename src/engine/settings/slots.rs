//! The number of workers and slots in use, and the reserve of slots.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crossbeam::channel::Sender;

use crate::batch::Free;
use crate::decode::MAX_GROUP;
use crate::trace::Task;

use super::priority;

/// Maximum number of workers: the core count of the largest machines. Starting and ending a pool of
/// this size takes a second, because its threads search each other's queues for work. Slow storage
/// needs more readers, not more workers.
pub(crate) const MOST_WORKERS: usize = 768;

/// Allowed range of a setting. If the user sets a value, both limits are that value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Initial value and lower limit.
    pub(crate) least: usize,
    /// Upper limit.
    pub(crate) most: usize,
}

impl Bounds {
    pub(crate) fn exactly(n: usize) -> Self {
        Bounds { least: n, most: n }
    }

    /// Raises both limits to at least `n`.
    pub(crate) fn or_more(self, n: usize) -> Self {
        Bounds { least: self.least.max(n), most: self.most.max(n) }
    }

    pub(crate) fn are_open(self) -> bool {
        self.least < self.most
    }
}

/// Number of workers and prefetch depth. The depth may change while batches are made, because it
/// does not affect the content of batches.
///
/// All slots are allocated when the loader opens. Slots that are not in use are kept in the
/// reserve.
pub(crate) struct Settings {
    /// Options of the loader, formatted as method calls.
    pub(crate) options: String,
    pub(crate) cores: usize,
    pub(crate) workers: usize,
    pub(crate) prefetch: Bounds,
    /// Whether workers run at a lower priority than the program's threads.
    yields: bool,
    ahead: AtomicUsize,
    /// Scheduling statistics of the workers.
    tasks: Mutex<Vec<Task>>,
    clock: Mutex<Clock>,
    reserve: Mutex<Reserve>,
}

/// Total duration of epochs. The time before, between and after epochs is not counted.
#[derive(Default)]
struct Clock {
    /// Start of the time span that `seconds` does not include yet. `None` between epochs.
    since: Option<Instant>,
    seconds: f64,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.seconds + self.since.map_or(0.0, |since| since.elapsed().as_secs_f64())
    }
}

#[derive(Default)]
struct Reserve {
    /// Slots in the reserve. The most recently used slot is taken first, so that memory that has
    /// never been touched stays untouched.
    slots: Vec<Free>,
    /// Channel that puts slots into use. `None` before the engine starts.
    free: Option<Sender<Free>>,
    in_use: usize,
    /// Slots in use beyond the prefetch depth, lent to a consumer that holds batches.
    lent: usize,
}

impl Settings {
    pub(crate) fn new(cores: usize, workers: usize, prefetch: Bounds) -> Self {
        Settings {
            options: String::new(),
            cores,
            workers,
            prefetch,
            yields: false,
            ahead: AtomicUsize::new(prefetch.least),
            tasks: Mutex::default(),
            clock: Mutex::default(),
            reserve: Mutex::default(),
        }
    }

    /// Lowers the priority of workers that feed a device, so that the threads that launch the
    /// kernels of a training step do not wait for a core. Does nothing on a single core, where a
    /// program that spins while it waits would starve the workers.
    pub(crate) fn for_device(self) -> Self {
        Settings { yields: self.cores > 1, ..self }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().expect("nothing panics while holding it")
    }

    fn reserve(&self) -> MutexGuard<'_, Reserve> {
        self.reserve.lock().expect("nothing panics while holding it")
    }

    /// Returns the current prefetch depth.
    pub(crate) fn prefetch(&self) -> usize {
        self.ahead.load(Relaxed)
    }

    /// Returns the number of host slots for a prefetch depth. In addition to the prefetched
    /// batches, one slot is held by the consumer or being copied to the device, and one slot is
    /// being filled.
    pub(crate) fn slots_for(prefetch: usize) -> usize {
        prefetch.saturating_add(2)
    }

    /// Returns the number of slots that the current prefetch depth needs.
    pub(crate) fn slots(&self) -> usize {
        Self::slots_for(self.prefetch())
    }

    /// Returns the number of slots outside the reserve. After the depth is reduced, this number
    /// exceeds [`slots`](Settings::slots) until the surplus slots have been returned.
    pub(crate) fn slots_in_use(&self) -> usize {
        self.reserve().in_use
    }

    /// Returns the number of samples per part: a quarter of a worker's share of the batch, so that
    /// the load of the workers evens out.
    pub(crate) fn group(batch: usize, workers: usize) -> usize {
        batch.div_ceil(4 * workers).clamp(1, MAX_GROUP)
    }

    /// Records that an epoch begins.
    pub(crate) fn begin(&self) {
        self.end();
        self.clock().since = Some(Instant::now());
    }

    /// Records that no epoch is in progress.
    pub(crate) fn end(&self) {
        let mut clock = self.clock();
        *clock = Clock { since: None, seconds: clock.seconds() };
    }

    /// Returns the total duration of epochs so far, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock().seconds()
    }

    /// Registers the calling thread as a worker.
    pub(crate) fn enters(&self) {
        if self.yields {
            priority::lower();
        }
        let task = Task::this();
        self.tasks.lock().expect("nothing panics while holding it").extend(task);
    }

    /// Returns the total time in which workers were runnable but not scheduled, in seconds, or 0 if
    /// the system does not report it.
    pub(crate) fn delayed(&self) -> f64 {
        let tasks = self.tasks.lock().expect("nothing panics while holding it");
        tasks.iter().filter_map(Task::delayed_seconds).sum()
    }

    /// Puts the slots for the smallest depth into use by sending them to `free`, and moves the
    /// others into the reserve.
    pub(crate) fn take_slots(&self, mut slots: Vec<Free>, free: Sender<Free>) {
        let in_use = self.slots().min(slots.len());
        let rest = slots.split_off(in_use);
        for slot in slots {
            free.send(slot).expect("the engine holds the receiver");
        }
        *self.reserve() = Reserve { slots: rest, free: Some(free), in_use, lent: 0 };
    }

    /// Frees the slots of the reserve. Called when the engine ends.
    pub(crate) fn free_slots(&self) {
        *self.reserve() = Reserve::default();
    }

    pub(crate) fn use_prefetch(&self, prefetch: usize) {
        let mut reserve = self.reserve();
        self.ahead.store(prefetch, Relaxed);
        reserve.fill(self.slots());
    }

    /// Permanently puts one more slot into use if the consumer requests a batch while it holds all
    /// slots in use. `held` is the number of batches that the consumer holds.
    pub(crate) fn lend(&self, held: usize) {
        if !self.prefetch.are_open() {
            return;
        }
        let mut reserve = self.reserve();
        if held >= reserve.in_use && !reserve.slots.is_empty() {
            reserve.lent += 1;
            reserve.fill(self.slots());
        }
    }

    /// Returns `slot` if it is still needed; otherwise moves it into the reserve.
    pub(crate) fn keep(&self, slot: Free) -> Option<Free> {
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
    /// Puts slots into use until `slots` of them are in use, not counting lent slots.
    fn fill(&mut self, slots: usize) {
        let Some(free) = &self.free else { return };
        while self.in_use < slots + self.lent
            && let Some(slot) = self.slots.pop()
        {
            // If the engine has ended, sending fails and the slot is freed here.
            let _ = free.send(slot);
            self.in_use += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam::channel::unbounded;

    use super::*;
    use crate::batch::{Dtype, Field, Role, Schema, Schemas, SlotMemory, Slots};

    fn slots(count: usize) -> Vec<Free> {
        let field = Field { name: "image".into(), dtype: Dtype::U8, shape: vec![3] };
        let schemas = Schemas::one(Schema::new(2, [(field, Role::Image)]).unwrap());
        (0..count).map(|_| Slots::make(&schemas, SlotMemory::heap(schemas.bytes()).unwrap())).collect()
    }

    #[test]
    fn slots_enter_and_leave_use() {
        let settings = Settings::new(2, 2, Bounds { least: 1, most: 6 });
        let (free, freed) = unbounded();
        settings.take_slots(slots(8), free.clone());
        assert_eq!((freed.len(), settings.slots()), (3, 3));
        settings.use_prefetch(4);
        assert_eq!((freed.len(), settings.slots()), (6, 6), "immediately, without a returned slot");
        settings.use_prefetch(2);
        let kept: Vec<_> =
            std::iter::from_fn(|| freed.try_recv().ok()).filter_map(|slot| settings.keep(slot)).collect();
        assert_eq!(kept.len(), 4, "two of six went into the reserve");
        assert!(
            kept.into_iter().all(|slot| settings.keep(slot).is_some()),
            "no further slot is returned to the reserve"
        );
        settings.use_prefetch(6);
        assert_eq!(freed.len(), 4, "all remaining slots are put into use");
    }

    #[test]
    fn a_consumer_that_holds_all_slots_is_lent_one_more_if_possible() {
        let settings = Settings::new(2, 2, Bounds { least: 1, most: 4 });
        let (free, freed) = unbounded();
        settings.take_slots(slots(6), free);
        settings.lend(2);
        assert_eq!(freed.len(), 3, "the consumer holds two of three slots");
        settings.lend(3);
        assert_eq!((freed.len(), settings.slots(), settings.slots_in_use()), (4, 3, 4));
        let back: Vec<_> = std::iter::from_fn(|| freed.try_recv().ok()).collect();
        assert!(back.into_iter().all(|slot| settings.keep(slot).is_some()), "the lent slot stays in use");
        settings.use_prefetch(2);
        assert_eq!(freed.len(), 1, "the loan does not reduce prefetching");
        settings.lend(5);
        settings.lend(6);
        settings.lend(6);
        assert_eq!((freed.len(), settings.slots_in_use()), (2, 6), "no slots remain");
    }

    #[test]
    fn time_counts_within_epochs() {
        let settings = Settings::new(1, 1, Bounds::exactly(2));
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        pause();
        assert_eq!(settings.seconds(), 0.0, "no epoch has begun");
        settings.begin();
        pause();
        settings.end();
        let all = settings.seconds();
        pause();
        assert_eq!(settings.seconds(), all, "the epoch has ended");
        assert!(all >= 0.02, "{all}");
    }
}
