//! Simulates streams and events of a device.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, unbounded};

use super::State;
use crate::sampler::Rng;

/// A piece of work for a stream, or `None` to end the stream.
pub(super) type Work = Option<Box<dyn FnOnce(&mut Pace) + Send>>;

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

pub(crate) struct SimStream {
    pub(super) id: usize,
    queue: Sender<Work>,
    thread: Option<JoinHandle<()>>,
    /// Whether calls with this handle see the stream as being captured into a graph.
    pub(crate) capturing: AtomicBool,
}

impl PartialEq for SimStream {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl SimStream {
    pub(super) fn start(id: usize, state: Arc<State>) -> (Self, Sender<Work>) {
        let (queue, work) = unbounded::<Work>();
        let mut pace = Pace { rng: Rng::new(id as u64, 0, 0), state };
        let thread =
            std::thread::spawn(move || work.into_iter().map_while(|work| work).for_each(|work| work(&mut pace)));
        (SimStream { id, queue: queue.clone(), thread: Some(thread), capturing: AtomicBool::new(false) }, queue)
    }

    /// Returns a handle that does not end the stream when it is dropped.
    pub(super) fn of(id: usize, queue: Sender<Work>) -> Self {
        SimStream { id, queue, thread: None, capturing: AtomicBool::new(false) }
    }

    pub(crate) fn run(&self, work: impl FnOnce(&mut Pace) + Send + 'static) {
        self.queue.send(Some(Box::new(work))).unwrap();
    }

    /// Waits for all work in the stream, without a simulated driver call.
    pub(crate) fn finish(&self) {
        let (done, wait) = crossbeam::channel::bounded(1);
        self.run(move |_| done.send(()).unwrap());
        wait.recv().unwrap();
    }

    /// Returns the handle that other libraries would use for the stream.
    pub(crate) fn raw(&self) -> usize {
        self.id
    }

    /// Returns a second handle, which does not end the stream when it is dropped.
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

/// Sequence numbers of the last recorded and the last completed recording of an event.
pub(super) type Marks = Arc<(Mutex<(u64, u64)>, Condvar)>;

pub(crate) struct SimEvent {
    pub(super) id: usize,
    pub(super) marks: Marks,
    /// For a timed event, the time at which it last completed.
    pub(super) passed: Option<Arc<Mutex<Instant>>>,
}

/// Completes a recording of an event when dropped.
pub(super) struct Reached(pub(super) Marks, pub(super) u64);

impl Drop for Reached {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().unwrap();
        counts.1 = counts.1.max(self.1);
        self.0.1.notify_all();
    }
}

impl SimEvent {
    /// Returns a function that waits for the last recording to complete.
    pub(crate) fn passed(&self) -> impl FnOnce() + Send + 'static {
        let (marks, mark) = (self.marks.clone(), self.marks.0.lock().unwrap().0);
        move || drop(marks.1.wait_while(marks.0.lock().unwrap(), |counts| counts.1 < mark).unwrap())
    }
}
