//! The number of workers and slots in use, and the reserve of slots.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crossbeam::channel::Sender;

use crate::batch::FreeSlot;
use crate::decode::MAX_GROUP;
use crate::trace::SchedulerStats;

use super::priority;

/// Maximum number of workers: about the core count of the largest machines. It takes a second to
/// start and stop this many workers, because idle threads search each other's queues for work. Slow
/// storage does not need more workers, because separate reader threads wait for it.
pub(crate) const MAX_WORKERS: usize = 768;

/// The range of a setting. Both limits are equal if the user sets a value, or if memory permits
/// only one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl Bounds {
    pub(crate) fn exactly(n: usize) -> Self {
        Bounds { min: n, max: n }
    }

    pub(crate) fn at_least(self, n: usize) -> Self {
        Bounds { min: self.min.max(n), max: self.max.max(n) }
    }

    pub(crate) fn is_range(self) -> bool {
        self.min < self.max
    }
}

/// The number of workers, and the prefetch depth. The depth may change during a run, because it
/// does not affect the content of batches.
///
/// All slots are allocated when the loader opens. Unused slots are in the reserve.
pub(crate) struct Settings {
    /// The loader's options, formatted as method calls.
    pub(crate) options: String,
    pub(crate) cores: usize,
    pub(crate) workers: usize,
    pub(crate) prefetch: Bounds,
    low_priority: bool,
    prefetch_depth: AtomicUsize,
    /// One per worker thread on Linux. Empty on other systems.
    scheduler_stats: Mutex<Vec<SchedulerStats>>,
    clock: Mutex<Clock>,
    reserve: Mutex<Reserve>,
}

/// A clock that runs only while an epoch is in progress.
#[derive(Default)]
struct Clock {
    /// `None` between epochs.
    start: Option<Instant>,
    seconds: f64,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.seconds + self.start.map_or(0.0, |start| start.elapsed().as_secs_f64())
    }
}

#[derive(Default)]
struct Reserve {
    /// Unused slots. The slot that was returned last is taken first, so that slots which are never
    /// needed are never touched. In pageable memory, such slots cost nothing.
    slots: Vec<FreeSlot>,
    /// Channel for putting slots into use. `None` before the engine starts.
    slot_sender: Option<Sender<FreeSlot>>,
    slots_in_use: usize,
    /// Number of slots in use beyond the prefetch depth, for a consumer that held every batch when
    /// it requested the next one.
    extra_slots: usize,
}

impl Settings {
    pub(crate) fn new(cores: usize, workers: usize, prefetch: Bounds) -> Self {
        Settings {
            options: String::new(),
            cores,
            workers,
            prefetch,
            low_priority: false,
            prefetch_depth: AtomicUsize::new(prefetch.min),
            scheduler_stats: Mutex::default(),
            clock: Mutex::default(),
            reserve: Mutex::default(),
        }
    }

    /// Raises the initial prefetch depth, up to its maximum, until the prefetched batches of
    /// `batch_size` samples contain at least one sample per worker. A smaller depth would leave
    /// workers idle until the depth has been tuned.
    pub(crate) fn raise_initial_prefetch(&mut self, batch_size: usize) {
        let depth = self.workers.div_ceil(batch_size.max(1));
        *self.prefetch_depth.get_mut() = depth.clamp(self.prefetch.min, self.prefetch.max);
    }

    /// Gives workers a low priority, so that the threads that launch the kernels of a training step
    /// do not wait for a core. Does nothing on a single core, where a program that spins while it
    /// waits would starve the workers.
    pub(crate) fn for_device(self) -> Self {
        Settings { low_priority: self.cores > 1, ..self }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().expect("no code panics while holding this lock")
    }

    fn reserve(&self) -> MutexGuard<'_, Reserve> {
        self.reserve.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn prefetch(&self) -> usize {
        self.prefetch_depth.load(Relaxed)
    }

    /// Returns the number of slots for a prefetch depth. In addition to the prefetched batches, one
    /// slot is held by the consumer or copied to the device, and one slot is being filled.
    pub(crate) fn slots_for(prefetch: usize) -> usize {
        prefetch.saturating_add(2)
    }

    pub(crate) fn slots(&self) -> usize {
        Self::slots_for(self.prefetch())
    }

    /// Returns the number of slots outside the reserve. This number exceeds
    /// [`slots`](Settings::slots) by the extra slots and, after a reduction of the depth, by the
    /// surplus slots that have not returned yet.
    pub(crate) fn slots_in_use(&self) -> usize {
        self.reserve().slots_in_use
    }

    /// Returns the number of samples in a part: a quarter of a worker's share of the batch, so that
    /// all workers finish at about the same time, but at least 1 and at most `MAX_GROUP`.
    pub(crate) fn samples_per_part(batch: usize, workers: usize) -> usize {
        batch.div_ceil(4 * workers).clamp(1, MAX_GROUP)
    }

    pub(crate) fn begin(&self) {
        self.end();
        self.clock().start = Some(Instant::now());
    }

    pub(crate) fn end(&self) {
        let mut clock = self.clock();
        *clock = Clock { start: None, seconds: clock.seconds() };
    }

    /// Returns the total duration of epochs so far, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock().seconds()
    }

    /// Sets the priority of the calling thread, and includes the thread in `delayed_seconds`. Each
    /// worker thread must call this when it starts.
    pub(crate) fn register_worker(&self) {
        if self.low_priority {
            priority::lower();
        }
        let stats = SchedulerStats::of_this_thread();
        self.scheduler_stats.lock().expect("no code panics while holding this lock").extend(stats);
    }

    /// Returns how long workers were runnable but not running, in seconds, or 0 if unknown.
    pub(crate) fn delayed_seconds(&self) -> f64 {
        let scheduler_stats = self.scheduler_stats.lock().expect("no code panics while holding this lock");
        scheduler_stats.iter().filter_map(SchedulerStats::delayed_seconds).sum()
    }

    pub(crate) fn distribute_slots(&self, mut slots: Vec<FreeSlot>, slot_sender: Sender<FreeSlot>) {
        let slots_in_use = self.slots().min(slots.len());
        let reserve_slots = slots.split_off(slots_in_use);
        for slot in slots {
            slot_sender.send(slot).expect("the engine holds the receiver");
        }
        *self.reserve() =
            Reserve { slots: reserve_slots, slot_sender: Some(slot_sender), slots_in_use, extra_slots: 0 };
    }

    pub(crate) fn clear_reserve(&self) {
        // The number of slots in use remains for the loader's final statistics.
        let mut reserve = self.reserve();
        (reserve.slots, reserve.slot_sender) = (Vec::new(), None);
    }

    pub(crate) fn set_prefetch(&self, prefetch: usize) {
        let mut reserve = self.reserve();
        self.prefetch_depth.store(prefetch, Relaxed);
        reserve.fill(self.slots());
    }

    /// Puts one more slot into use permanently if the consumer holds every slot in use. Does
    /// nothing if the prefetch depth is fixed or the reserve is empty.
    pub(crate) fn add_slot_if_all_held(&self, held_count: usize) {
        if !self.prefetch.is_range() {
            return;
        }
        let mut reserve = self.reserve();
        if held_count >= reserve.slots_in_use && !reserve.slots.is_empty() {
            reserve.extra_slots += 1;
            reserve.fill(self.slots());
        }
    }

    pub(crate) fn keep_or_reserve(&self, slot: FreeSlot) -> Option<FreeSlot> {
        if !self.prefetch.is_range() {
            return Some(slot);
        }
        let mut reserve = self.reserve();
        if reserve.slots_in_use <= self.slots() + reserve.extra_slots {
            return Some(slot);
        }
        reserve.slots_in_use -= 1;
        reserve.slots.push(slot);
        None
    }
}

impl Reserve {
    /// Puts slots into use until `slot_count` slots are in use, not counting extra slots.
    fn fill(&mut self, slot_count: usize) {
        let Some(slot_sender) = &self.slot_sender else { return };
        while self.slots_in_use < slot_count + self.extra_slots
            && let Some(slot) = self.slots.pop()
        {
            let _ = slot_sender.send(slot);
            self.slots_in_use += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam::channel::unbounded;

    use super::*;
    use crate::batch::{Dtype, Field, FreeSlot, Role, Schema, Schemas, SlotMemory};

    fn slots(count: usize) -> Vec<FreeSlot> {
        let field = Field { name: "image".into(), dtype: Dtype::U8, shape: vec![3] };
        let schemas = Schemas::one(Schema::new(2, [(field, Role::Image)]).unwrap());
        (0..count).map(|_| FreeSlot::new(&schemas, SlotMemory::heap(schemas.bytes()).unwrap())).collect()
    }

    #[test]
    fn small_batches_are_prefetched_until_every_worker_has_a_sample() {
        let depth = |workers: usize, batch_size: usize, bounds: Bounds| {
            let mut settings = Settings::new(16, workers, bounds);
            settings.raise_initial_prefetch(batch_size);
            settings.prefetch()
        };
        let bounds = Bounds { min: 2, max: 8 };
        assert_eq!([64, 16, 8, 4, 1].map(|batch_size| depth(16, batch_size, bounds)), [2, 2, 2, 4, 8]);
        assert_eq!(depth(24, 4, Bounds::exactly(3)), 3, "the number that the program has set does not change");
    }

    #[test]
    fn slots_move_between_use_and_the_reserve() {
        let settings = Settings::new(2, 2, Bounds { min: 1, max: 6 });
        let (slot_sender, slot_receiver) = unbounded();
        settings.distribute_slots(slots(8), slot_sender.clone());
        assert_eq!((slot_receiver.len(), settings.slots()), (3, 3));
        settings.set_prefetch(4);
        assert_eq!(
            (slot_receiver.len(), settings.slots()),
            (6, 6),
            "more slots are put into use immediately, before a slot returns"
        );
        settings.set_prefetch(2);
        let slots: Vec<_> = std::iter::from_fn(|| slot_receiver.try_recv().ok())
            .filter_map(|slot| settings.keep_or_reserve(slot))
            .collect();
        assert_eq!(slots.len(), 4, "two of six slots moved to the reserve");
        assert!(
            slots.into_iter().all(|slot| settings.keep_or_reserve(slot).is_some()),
            "no further slot moves to the reserve"
        );
        settings.set_prefetch(6);
        assert_eq!(slot_receiver.len(), 4, "all remaining slots are put into use");
    }

    #[test]
    fn a_consumer_that_holds_all_slots_gets_one_more() {
        let settings = Settings::new(2, 2, Bounds { min: 1, max: 4 });
        let (slot_sender, slot_receiver) = unbounded();
        settings.distribute_slots(slots(6), slot_sender);
        settings.add_slot_if_all_held(2);
        assert_eq!(slot_receiver.len(), 3, "the consumer holds two of three slots");
        settings.add_slot_if_all_held(3);
        assert_eq!((slot_receiver.len(), settings.slots(), settings.slots_in_use()), (4, 3, 4));
        let returned_slots: Vec<_> = std::iter::from_fn(|| slot_receiver.try_recv().ok()).collect();
        assert!(
            returned_slots.into_iter().all(|slot| settings.keep_or_reserve(slot).is_some()),
            "the extra slot stays in use"
        );
        settings.set_prefetch(2);
        assert_eq!(slot_receiver.len(), 1, "the extra slot does not count against the prefetch depth");
        settings.add_slot_if_all_held(5);
        settings.add_slot_if_all_held(6);
        settings.add_slot_if_all_held(6);
        assert_eq!((slot_receiver.len(), settings.slots_in_use()), (2, 6), "no slots remain");
    }

    #[test]
    fn the_clock_runs_only_during_epochs() {
        let settings = Settings::new(1, 1, Bounds::exactly(2));
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        pause();
        assert_eq!(settings.seconds(), 0.0, "no epoch has begun");
        settings.begin();
        pause();
        settings.end();
        let seconds = settings.seconds();
        pause();
        assert_eq!(settings.seconds(), seconds, "the epoch has ended");
        assert!(seconds >= 0.02, "{seconds}");
    }
}
