//! Memory that is given back on a thread of its own.
//!
//! `cuMemFree` and `cuMemFreeHost` wait for all work that the device has been given (measured on driver
//! 580). The program's thread may be the one that this work waits for. So it never makes these calls.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a refused allocation waits for memory that is being freed.
pub(super) const FREED_WITHIN: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: Vec<Job>,
    /// Jobs that are not done, the one under way included.
    open: usize,
    running: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { jobs: Vec::new(), open: 0, running: false });
static DONE: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().expect("nothing panics while holding it")
}

/// Runs `job` on the thread that frees memory, after those given before. The thread ends when it has nothing to do.
pub(super) fn later(job: impl FnOnce() + Send + 'static) {
    let mut queue = queue();
    queue.jobs.insert(0, Box::new(job));
    queue.open += 1;
    if !queue.running {
        let thread = std::thread::Builder::new().name("warpfeed-free".into()).spawn(work);
        // Without a thread the jobs wait for the next one: memory is kept, and nobody is blocked.
        queue.running = thread.is_ok();
    }
}

fn work() {
    loop {
        let job = {
            let mut queue = queue();
            let Some(job) = queue.jobs.pop() else {
                queue.running = false;
                return;
            };
            job
        };
        job();
        queue().open -= 1;
        DONE.notify_all();
    }
}

/// Waits until everything given so far is freed, for `most` at most. Whether anything was.
pub(super) fn settle(most: Duration) -> bool {
    let queue = queue();
    if queue.open == 0 {
        return false;
    }
    let (queue, _) =
        DONE.wait_timeout_while(queue, most, |queue| queue.open > 0).expect("nothing panics while holding it");
    queue.open == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_in_order_and_their_giver_does_not_wait() {
        let (gate, open) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        let first = done.clone();
        later(move || {
            open.recv().unwrap();
            first.send(1).unwrap();
        });
        later(move || done.send(2).unwrap());
        assert!(!settle(Duration::from_millis(5)), "the first job is held up");
        gate.send(()).unwrap();
        assert_eq!(order.iter().take(2).collect::<Vec<_>>(), [1, 2]);
        settle(Duration::from_secs(10));
        assert!(!settle(Duration::from_secs(10)), "nothing is open any more");
    }
}
