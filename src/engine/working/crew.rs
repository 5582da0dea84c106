//! Parts of batches as tasks of the pool.
//!
//! A task takes parts from a queue, in order, until none comes any more. There are at most as many
//! tasks as threads, so that in the middle of an epoch nothing is spawned, and nothing allocated.
//! Between two parts a task offers its thread to other tasks of the pool: those of a transform that
//! calls rayon. A task that is given a thread which already works on a part, since a transform
//! waits there for its own tasks, leaves at once: a part is never begun inside another one.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::filled::{Broken, Filled};
use super::pool::Spawner;
use super::task::Task;
use super::worker::Worker;
use crate::batch::Free;
use crate::engine::reading::ReadStage;
use crate::engine::state::Run;
use crate::recipe::{Recipe, guarded, panicked};

/// How long a task waits for a part before it offers its thread to others, and the longest wait, at
/// whose end it ends.
const SHORTEST_WAIT: Duration = Duration::from_micros(50);
const LONGEST_WAIT: Duration = Duration::from_millis(8);

/// The queue of parts, and who works on them.
pub(crate) struct Crew {
    recipe: Arc<Recipe>,
    run: Arc<Run>,
    queue: Receiver<Task>,
    stage: Arc<ReadStage>,
    /// Tasks that take parts now, or that wait for a thread.
    tasks: AtomicUsize,
    /// The memory of each thread, made with its first part: one that is never in use takes none.
    workers: Box<[Mutex<Option<Worker>>]>,
    filled: Sender<Filled>,
    free: Sender<Free>,
}

/// Gives parts to a crew, as tasks of its pool. The pool ends when the last of these is dropped.
#[derive(Clone)]
pub(crate) struct Giver {
    pub(crate) crew: Arc<Crew>,
    pub(crate) given: Sender<Task>,
    pub(crate) pool: Spawner,
}

impl Giver {
    pub(crate) fn give(&self, task: Task) {
        self.given.send(task).expect("the crew holds the receiver");
        if self.crew.enters() {
            let crew = self.crew.clone();
            self.pool.spawn_fifo(move || crew.work());
        }
    }
}

thread_local! {
    /// Whether the thread is in a task of a crew.
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

impl Crew {
    /// For a pool of `threads` threads; at most `parts` parts wait at a time. They come through the
    /// channel that is given beside it. When nobody holds that any more the tasks end.
    pub(crate) fn new(
        recipe: &Arc<Recipe>,
        run: &Arc<Run>,
        stage: &Arc<ReadStage>,
        threads: usize,
        parts: usize,
        filled: &Sender<Filled>,
        free: &Sender<Free>,
    ) -> (Arc<Self>, Sender<Task>) {
        let (given, queue) = bounded(parts);
        let crew = Crew {
            recipe: recipe.clone(),
            run: run.clone(),
            queue,
            stage: stage.clone(),
            tasks: AtomicUsize::new(0),
            workers: (0..threads).map(|_| Mutex::default()).collect(),
            filled: filled.clone(),
            free: free.clone(),
        };
        (Arc::new(crew), given)
    }

    /// Counts one more task, if there is room for one.
    fn enters(&self) -> bool {
        let more = |tasks: usize| (tasks < self.workers.len()).then_some(tasks + 1);
        self.tasks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// A task.
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
                // A task may have come to this thread meanwhile, and have left.
                if !self.queue.is_empty() && self.enters() {
                    let crew = self.clone();
                    rayon::spawn_fifo(move || crew.work());
                }
            }
            self.tasks.fetch_sub(1, Ordering::SeqCst);
            // A part may have come in between, and its giver found as many tasks as there may be.
            if self.queue.is_empty() || !self.enters() {
                break;
            }
        }
        WORKS.set(false);
    }

    /// The next part, unless none comes for some milliseconds. Parts mostly follow each other within
    /// that time, and a task that goes on costs less than a new one. Meanwhile the thread is offered
    /// to the pool's other tasks, ever more rarely.
    fn next(&self) -> Option<Task> {
        let mut wait = SHORTEST_WAIT;
        loop {
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
            match self.queue.recv_timeout(wait) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) if wait < LONGEST_WAIT => wait *= 2,
                Err(_) => return None,
            }
        }
    }

    fn serve(&self, index: usize, mut task: Task) {
        let served = guarded(|| {
            if task.fetched.is_none() && task.again.is_none() {
                // It was given before reads were seen to wait.
                let Some(part) = self.stage.divert(task.part) else { return Ok(()) };
                task.part = part;
            }
            let mut worker = self.workers[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let worker = worker.get_or_insert_with(|| Worker::new(self.recipe.clone(), self.run.clone(), index));
            if let Some(again) = task.again {
                if let Some(full) = worker.run_again(task.part, &again) {
                    (again.done)(full);
                }
                return Ok(());
            }
            let leave = self.run.balance.device_now(self.run.counters.device_decode.ns());
            let Some(full) = worker.run(task, &self.stage.waits, leave) else { return Ok(()) };
            let header = full.header();
            if self.run.is_wanted(header.run) {
                self.stage.follow.done(header.epoch, header.number);
                let _ = self.filled.send(Ok(full));
            } else {
                let _ = self.free.send(full.release());
            }
            Ok(())
        });
        if let Err(e) = served {
            let _ = self.filled.send(Err(Broken::thread(panicked(e, || format!("worker {index} panicked")))));
        }
    }
}
