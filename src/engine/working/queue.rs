//! The queue of parts, and the pool tasks that process it.
//!
//! In this file, a *part* is a group of rows of a batch, and is queued in a [`Task`] message. A
//! *pool task* is a task of the rayon pool that takes parts in order until the queue stays empty
//! for about 26 ms. There are never more pool tasks than threads. Pool tasks keep running while
//! parts arrive, so few are spawned in the middle of an epoch. Between two parts, a pool task
//! offers its thread to other tasks of the pool, such as the tasks of a transform that uses rayon.
//!
//! While a transform waits for its own tasks, rayon may start a pool task of this queue on the same
//! thread. That task ends immediately, so that no part begins in the middle of a different part.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::fill_result::{EndReason, FillResult};
use super::filler::DeviceImages;
use super::pool::{Pool, Spawner};
use super::task::Task;
use super::worker::Worker;
use crate::batch::FreeSlot;
use crate::engine::reading::ReadStage;
use crate::engine::state::Shared;
use crate::error::{guarded, panicked};
use crate::source::BatchIndex;

/// Duration of a pool task's first wait for a part. Each later wait is twice as long as the
/// previous one. Before each wait, the task offers its thread to the pool.
const SHORTEST_WAIT: Duration = Duration::from_micros(50);
/// A pool task ends after the first wait that is at least this long.
const MIN_LAST_WAIT: Duration = Duration::from_millis(8);

struct WorkQueue {
    shared: Arc<Shared>,
    task_receiver: Receiver<Task>,
    read_stage: Arc<ReadStage>,
    /// Number of pool tasks that are running or waiting for a thread.
    pool_task_count: AtomicUsize,
    /// The worker of each thread, created when the thread first fills a part.
    workers: Box<[Mutex<Option<Worker>>]>,
    fill_result_sender: Sender<FillResult>,
    slot_sender: Sender<FreeSlot>,
}

#[derive(Clone)]
pub(crate) struct WorkSender {
    queue: Arc<WorkQueue>,
    task_sender: Sender<Task>,
    pool: Spawner,
}

impl WorkSender {
    /// Creates a queue for `max_parts` parts, which the threads of `pool` process. The pool tasks
    /// end once this sender and all its clones have been dropped and the queue is empty.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        read_stage: &Arc<ReadStage>,
        pool: &Pool,
        max_parts: usize,
        fill_result_sender: &Sender<FillResult>,
        slot_sender: &Sender<FreeSlot>,
    ) -> Self {
        let (task_sender, task_receiver) = bounded(max_parts);
        let queue = WorkQueue {
            shared: shared.clone(),
            task_receiver,
            read_stage: read_stage.clone(),
            pool_task_count: AtomicUsize::new(0),
            workers: (0..pool.thread_count()).map(|_| Mutex::default()).collect(),
            fill_result_sender: fill_result_sender.clone(),
            slot_sender: slot_sender.clone(),
        };
        WorkSender { queue: Arc::new(queue), task_sender, pool: pool.spawner() }
    }

    pub(crate) fn send(&self, task: Task) {
        self.task_sender.send(task).expect("the queue holds the receiver");
        if self.queue.reserve_pool_task() {
            let queue = self.queue.clone();
            self.pool.spawn_fifo(move || queue.run_pool_task());
        }
    }
}

thread_local! {
    static IN_POOL_TASK: Cell<bool> = const { Cell::new(false) };
}

impl WorkQueue {
    /// Counts a new pool task and returns true. The caller must then start this task. Returns false
    /// if there are already as many pool tasks as threads.
    fn reserve_pool_task(&self) -> bool {
        let increment = |pool_task_count: usize| (pool_task_count < self.workers.len()).then_some(pool_task_count + 1);
        self.pool_task_count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment).is_ok()
    }

    fn run_pool_task(self: Arc<Self>) {
        let index = rayon::current_thread_index().expect("tasks run in the pool");
        if IN_POOL_TASK.get() {
            self.pool_task_count.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        IN_POOL_TASK.set(true);
        loop {
            while let Some(task) = self.next_task() {
                // Rayon may have run a pool task that was meant for an idle thread on this thread
                // instead, during `next_task` or the previous part. Such a task ends immediately,
                // so start a replacement for the idle thread.
                if !self.task_receiver.is_empty() && self.reserve_pool_task() {
                    let queue = self.clone();
                    rayon::spawn_fifo(move || queue.run_pool_task());
                }
                self.process(index, task);
            }
            self.pool_task_count.fetch_sub(1, Ordering::SeqCst);
            // A sender that counted this task may have added a part without starting a new task.
            if self.task_receiver.is_empty() || !self.reserve_pool_task() {
                break;
            }
        }
        IN_POOL_TASK.set(false);
    }

    /// Returns the next part. Returns `None` if the queue stays empty for about 26 ms, or if it is
    /// empty and all senders have been dropped. The wait is usually short, and waiting is cheaper
    /// than starting a new pool task.
    fn next_task(&self) -> Option<Task> {
        let mut wait = SHORTEST_WAIT;
        loop {
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
            match self.task_receiver.recv_timeout(wait) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) if wait < MIN_LAST_WAIT => wait *= 2,
                Err(_) => return None,
            }
        }
    }

    fn process(&self, index: usize, mut task: Task) {
        let result = guarded(|| {
            if task.prefetched_samples.is_none() && task.redecode.is_none() {
                // The part may have been queued before the storage was found to be slow. Without
                // this check, the workers would read all queued parts.
                let Some(part) = self.read_stage.divert(task.part) else { return Ok(()) };
                task.part = part;
            }
            let (shared, runtime) = (&self.shared, &self.shared.runtime);
            let mut worker = self.workers[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let worker =
                worker.get_or_insert_with(|| Worker::new(shared.recipe.clone(), shared.runtime.clone(), index));
            if let Some(redecode) = task.redecode {
                if let Some(full) = worker.redecode(task.part, &redecode) {
                    (redecode.on_done)(full);
                }
                return Ok(());
            }
            let (run_number, seq) = (task.part.header().run, task.part.header().seq);
            let (balance, device_ns) = (&runtime.balance, runtime.counters.device_decode.ns());
            let start = balance.clock();
            // The parts of a canceled run are not processed, so do not record their time.
            let device_images = match runtime.is_current(run_number) {
                false => DeviceImages::None,
                true if balance.should_device_decode(seq, device_ns) => DeviceImages::All,
                true if balance.may_device_decode_large(device_ns) => DeviceImages::Large,
                true => DeviceImages::None,
            };
            let full = worker.fill_part(task, &self.read_stage.reader_switch, device_images);
            if runtime.is_current(run_number) {
                balance.record_part(device_images == DeviceImages::All, start);
            }
            let Some(full) = full else { return Ok(()) };
            let header = full.header();
            if runtime.is_current(run_number) {
                let batch = BatchIndex { epoch: header.epoch, batch: header.batch_index };
                self.read_stage.notifier.finish_batch(run_number, seq, batch);
                let _ = self.fill_result_sender.send(Ok(full));
            } else {
                let _ = self.slot_sender.send(full.release());
            }
            Ok(())
        });
        if let Err(e) = result {
            // A full channel already contains an earlier panic.
            let panic = panicked(e, || format!("worker {index} panicked"));
            let _ = self.fill_result_sender.try_send(Err(EndReason::Thread(panic)));
        }
    }
}
