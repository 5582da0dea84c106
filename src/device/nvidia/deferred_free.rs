//! Frees memory on a separate thread, once the device has finished its work.
//!
//! `cuMemFree` and `cuMemFreeHost` wait for all work that was submitted to the device. While they
//! wait, they block driver calls of other threads (observed on driver 580). The program deadlocks
//! if the work depends on something that a blocked thread has yet to do. So a separate thread waits
//! until the work is done before it makes these calls. With drivers before CUDA 12.5, which cannot
//! report this, the thread makes the calls immediately.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::driver::Context;
use super::event::Event;
use crate::device::gpu::Recorded;

/// Maximum time that a failed allocation waits for memory that is being freed.
pub(super) const FREE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

struct Job {
    /// The work to wait for. `None` in tests.
    after: Option<IdleWait>,
    free: Box<dyn FnOnce() + Send>,
}

/// All work that was submitted to a device up to some point in time.
struct IdleWait {
    context: Context,
    /// Event after this work, or `None` if no such event could be created or recorded.
    mark: Option<Event>,
    is_marked: bool,
}

struct Queue {
    jobs: Vec<Job>,
    open_jobs: usize,
    is_running: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { jobs: Vec::new(), open_jobs: 0, is_running: false });
static DONE: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().expect("no code panics while holding this lock")
}

/// Runs `free` in `context` once all work that has been submitted to the device is done. If the
/// driver cannot record an event for this work, runs `free` without waiting. `free` must then wait
/// itself, as `cuMemFree` does.
pub(super) fn free_when_idle(context: Context, free: impl FnOnce() + Send + 'static) {
    let mut after = IdleWait { mark: Event::new(&context).ok(), context, is_marked: false };
    // Record the event immediately, because a capture may start while the device is busy.
    after.try_mark();
    add(Job { after: Some(after), free: Box::new(free) });
}

fn add(job: Job) {
    let mut queue = queue();
    queue.jobs.insert(0, job);
    queue.open_jobs += 1;
    if !queue.is_running {
        let thread = std::thread::Builder::new().name("warpfeed-free".into()).spawn(run_jobs);
        queue.is_running = thread.is_ok();
    }
}

fn run_jobs() {
    loop {
        let job = {
            let mut queue = queue();
            let Some(job) = queue.jobs.pop() else {
                queue.is_running = false;
                return;
            };
            job
        };
        let entered = job.after.map(|mut after| {
            after.wait();
            let entered = after.context.enter();
            (entered, after)
        });
        // If the context cannot be entered, it has failed, and its memory is lost anyway.
        if entered.as_ref().is_none_or(|(entered, _)| entered.is_ok()) {
            (job.free)();
        }
        drop(entered);
        queue().open_jobs -= 1;
        DONE.notify_all();
    }
}

impl IdleWait {
    /// Records the event, unless a stream is being captured. If recording fails for a different
    /// reason, removes the event, so that `wait` returns immediately.
    fn try_mark(&mut self) {
        match self.mark.as_ref().map(Event::record_all) {
            Some(Ok(Recorded::Yes)) => self.is_marked = true,
            Some(Ok(Recorded::NotNow)) => {}
            Some(Ok(Recorded::Never) | Err(_)) | None => self.mark = None,
        }
    }

    fn wait(&mut self) {
        loop {
            if !self.is_marked {
                self.try_mark();
            }
            let Some(mark) = &self.mark else { return };
            if self.is_marked && !matches!(mark.is_done(), Ok(false)) {
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Waits at most `timeout` until all queued memory is freed. Returns whether memory was queued and
/// has been freed.
pub(super) fn wait_until_freed(timeout: Duration) -> bool {
    let queue = queue();
    if queue.open_jobs == 0 {
        return false;
    }
    let result = DONE.wait_timeout_while(queue, timeout, |queue| queue.open_jobs > 0);
    result.expect("no code panics while holding this lock").0.open_jobs == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_in_order_and_their_sender_does_not_wait() {
        let (gate, open) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        let first = done.clone();
        let later = |free: Box<dyn FnOnce() + Send>| add(Job { after: None, free });
        later(Box::new(move || {
            open.recv().unwrap();
            first.send(1).unwrap();
        }));
        later(Box::new(move || done.send(2).unwrap()));
        assert!(!wait_until_freed(Duration::from_millis(5)), "the first job is blocked");
        gate.send(()).unwrap();
        assert_eq!(order.iter().take(2).collect::<Vec<_>>(), [1, 2]);
        wait_until_freed(Duration::from_secs(10));
        assert!(!wait_until_freed(Duration::from_secs(10)), "no job is queued");
    }
}
