//! The queue of parts, and the pool tasks that take parts from it.
//!
//! A task takes parts in order until the queue stays empty. There are never more tasks than
//! threads, so nothing is spawned or allocated in the middle of an epoch. Between two parts, a task
//! offers its thread to other tasks of the pool, such as the tasks of a transform that uses rayon.
//! A transform that waits for its own tasks may cause rayon to start a queue task on its thread, in
//! the middle of a part. Such a task ends immediately, so a part never begins inside another part.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::outcome::{Ended, Outcome};
use super::pool::{Pool, Spawner};
use super::task::Task;
use super::worker::Worker;
use crate::batch::Free;
use crate::engine::reading::ReadStage;
use crate::engine::state::Shared;
use crate::error::{guarded, panicked};

/// Duration of a task's first wait for a part. Each further wait is twice as long, and the task
/// offers its thread to the pool between waits.
const SHORTEST_WAIT: Duration = Duration::from_micros(50);
/// Duration of a task's last wait for a part. If no part arrives, the task ends.
const LONGEST_WAIT: Duration = Duration::from_millis(8);

/// The queue of parts, and the workers that process them.
struct WorkQueue {
    shared: Arc<Shared>,
    parts: Receiver<Task>,
    stage: Arc<ReadStage>,
    /// Number of tasks that are processing parts or waiting for a thread.
    tasks: AtomicUsize,
    /// One worker per thread, created for the first part that the thread takes.
    workers: Box<[Mutex<Option<Worker>>]>,
    outcomes: Sender<Outcome>,
    free: Sender<Free>,
}

/// Sends parts to a queue, and starts tasks for them. The pool ends once the last sender is
/// dropped.
#[derive(Clone)]
pub(crate) struct WorkSender {
    queue: Arc<WorkQueue>,
    parts: Sender<Task>,
    pool: Spawner,
}

impl WorkSender {
    /// Creates a queue for the threads of `pool`, with capacity for `parts` parts. Its tasks end
    /// once this sender and all its clones are dropped.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        stage: &Arc<ReadStage>,
        pool: &Pool,
        parts: usize,
        outcomes: &Sender<Outcome>,
        free: &Sender<Free>,
    ) -> Self {
        let (sender, parts) = bounded(parts);
        let queue = WorkQueue {
            shared: shared.clone(),
            parts,
            stage: stage.clone(),
            tasks: AtomicUsize::new(0),
            workers: (0..pool.threads()).map(|_| Mutex::default()).collect(),
            outcomes: outcomes.clone(),
            free: free.clone(),
        };
        WorkSender { queue: Arc::new(queue), parts: sender, pool: pool.spawner() }
    }

    pub(crate) fn send(&self, task: Task) {
        self.parts.send(task).expect("the queue holds the receiver");
        if self.queue.enters() {
            let queue = self.queue.clone();
            self.pool.spawn_fifo(move || queue.work());
        }
    }
}

thread_local! {
    /// Whether this thread is running a task of a queue.
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

impl WorkQueue {
    /// Registers one more task. Returns false if there is already one task per thread.
    fn enters(&self) -> bool {
        let more = |tasks: usize| (tasks < self.workers.len()).then_some(tasks + 1);
        self.tasks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Runs one task.
    fn work(self: Arc<Self>) {
        let index = rayon::current_thread_index().expect("tasks run in the pool");
        if WORKS.get() {
            self.tasks.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        WORKS.set(true);
        loop {
            while let Some(task) = self.next() {
                self.serve(index, task);
                // Meanwhile a nested task may have started on this thread and ended immediately.
                if !self.parts.is_empty() && self.enters() {
                    let queue = self.clone();
                    rayon::spawn_fifo(move || queue.work());
                }
            }
            self.tasks.fetch_sub(1, Ordering::SeqCst);
            // A part may have been sent after the last check, while this task still counted and its
            // sender could not start another.
            if self.parts.is_empty() || !self.enters() {
                break;
            }
        }
        WORKS.set(false);
    }

    /// Returns the next part, or `None` if the queue stays empty for some milliseconds. The next
    /// part usually arrives within that time, and keeping a task running is cheaper than starting a
    /// new one. Offers the thread to the pool's other tasks before each wait.
    fn next(&self) -> Option<Task> {
        let mut wait = SHORTEST_WAIT;
        loop {
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
            match self.parts.recv_timeout(wait) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) if wait < LONGEST_WAIT => wait *= 2,
                Err(_) => return None,
            }
        }
    }

    fn serve(&self, index: usize, mut task: Task) {
        let served = guarded(|| {
            if task.fetched.is_none() && task.again.is_none() {
                // The part may have been queued before reads began to wait for the storage. Without
                // this check, workers would read all queued parts themselves.
                let Some(part) = self.stage.divert(task.part) else { return Ok(()) };
                task.part = part;
            }
            let (shared, run) = (&self.shared, &self.shared.run);
            let mut worker = self.workers[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let worker = worker.get_or_insert_with(|| Worker::new(shared.recipe.clone(), shared.run.clone(), index));
            if let Some(again) = task.again {
                if let Some(full) = worker.run_again(task.part, &again) {
                    (again.done)(full);
                }
                return Ok(());
            }
            let (number, turn) = (task.part.header().run, task.part.header().turn);
            let (balance, decoded) = (&run.balance, run.counters.device_decode.ns());
            let since = balance.clock();
            // A cancelled part is passed on without being processed, so its time must not be
            // recorded.
            let leave = run.is_wanted(number) && balance.device_now(turn, decoded);
            let full = worker.run(task, &self.stage.waits, leave);
            if run.is_wanted(number) {
                balance.worked(leave, since);
            }
            let Some(full) = full else { return Ok(()) };
            let header = full.header();
            if run.is_wanted(number) {
                self.stage.follow.done(number, header.epoch, header.number);
                let _ = self.outcomes.send(Ok(full));
            } else {
                let _ = self.free.send(full.release());
            }
            Ok(())
        });
        if let Err(e) = served {
            let _ = self.outcomes.send(Err(Ended::Thread(panicked(e, || format!("worker {index} panicked")))));
        }
    }
}
