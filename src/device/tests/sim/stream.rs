//! Streams and events of the simulated device.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, unbounded};

use super::State;
use crate::sampler::Rng;

/// Work of a stream; `None` ends the stream.
pub(super) type Work = Option<Box<dyn FnOnce(&mut Pace) + Send>>;

/// Random pauses of one stream.
pub(crate) struct Pace {
    rng: Rng,
    state: Arc<State>,
}

impl Pace {
    pub(crate) fn pause(&mut self) {
        let delay = self.state.delay.load(Relaxed) as u64;
        if delay > 0 && self.rng.chance(0.25) {
            std::thread::sleep(Duration::from_micros(self.rng.below(delay)));
        }
    }
}

/// A stream: a queue, and the thread that works through it.
pub(crate) struct SimStream {
    pub(super) id: usize,
    queue: Sender<Work>,
    thread: Option<JoinHandle<()>>,
    /// Whether a test declares the stream as being captured.
    pub(crate) capturing: AtomicBool,
}

impl PartialEq for SimStream {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl SimStream {
    /// Starts the thread of stream `id`, and returns its queue too.
    pub(super) fn start(id: usize, state: Arc<State>) -> (Self, Sender<Work>) {
        let (queue, work) = unbounded::<Work>();
        let mut pace = Pace { rng: Rng::new(id as u64, 0, 0), state };
        let thread =
            std::thread::spawn(move || work.into_iter().map_while(|work| work).for_each(|work| work(&mut pace)));
        (SimStream { id, queue: queue.clone(), thread: Some(thread), capturing: AtomicBool::new(false) }, queue)
    }

    /// A handle of stream `id`, which does not end it.
    pub(super) fn of(id: usize, queue: Sender<Work>) -> Self {
        SimStream { id, queue, thread: None, capturing: AtomicBool::new(false) }
    }

    /// Queues any work, such as the consumer's kernels.
    pub(crate) fn run(&self, work: impl FnOnce(&mut Pace) + Send + 'static) {
        self.queue.send(Some(Box::new(work))).unwrap();
    }

    /// Waits for the work of the stream, without a call of the driver.
    pub(crate) fn finish(&self) {
        let (done, wait) = crossbeam::channel::bounded(1);
        self.run(move |_| done.send(()).unwrap());
        wait.recv().unwrap();
    }

    /// The number by which others name the stream.
    pub(crate) fn raw(&self) -> usize {
        self.id
    }

    /// Another handle of the same stream, which does not end it.
    pub(crate) fn twin(&self) -> SimStream {
        Self::of(self.id, self.queue.clone())
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.queue.send(None).unwrap();
            thread.join().unwrap();
        }
    }
}

/// (mark last recorded, mark last reached)
pub(super) type Marks = Arc<(Mutex<(u64, u64)>, Condvar)>;

pub(crate) struct SimEvent {
    pub(super) id: usize,
    pub(super) marks: Marks,
    /// Time at which it was last passed, if it has timing.
    pub(super) passed: Option<Arc<Mutex<Instant>>>,
}

/// Reaches a mark when the last clone is dropped.
pub(super) struct Reached(pub(super) Marks, pub(super) u64);

impl Drop for Reached {
    fn drop(&mut self) {
        let mut at = self.0.0.lock().unwrap();
        at.1 = at.1.max(self.1);
        self.0.1.notify_all();
    }
}

impl SimEvent {
    /// Waits for the mark that is current at the time of the call.
    pub(crate) fn passed(&self) -> impl FnOnce() + Send + 'static {
        let (marks, mark) = (self.marks.clone(), self.marks.0.lock().unwrap().0);
        move || drop(marks.1.wait_while(marks.0.lock().unwrap(), |at| at.1 < mark).unwrap())
    }
}
