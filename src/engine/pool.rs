use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded};

use crate::error::{Error, ErrorKind, Result};

/// The crate's own rayon pool, never the global one, with threads that are joined when it is
/// dropped.
///
/// rayon ends its threads some time after a pool is dropped; a loader that frees page-locked memory
/// must know that they have ended.
///
/// The threads run their body before rayon's own loop, which looks for tasks at every other thread
/// before it sleeps: for n threads that start or end at once these are n * n looks. Here a thread
/// enters rayon's loop when the pool is about to end, and leaves it at once.
pub(crate) struct Pool {
    pool: Option<rayon::ThreadPool>,
    threads: Threads,
    /// One body for each thread; closed, the threads end.
    bodies: Sender<Arc<Body>>,
}

type Body = dyn Fn(usize) + Send + Sync;

impl Pool {
    /// `workers` threads, which wait for a body.
    pub(crate) fn new(workers: usize) -> Result<Self> {
        let (pool, threads, bodies) = build(workers)?;
        Ok(Pool { pool: Some(pool), threads, bodies })
    }

    /// Starts `body` once on every thread, with the thread's index.
    pub(crate) fn start(&self, body: impl Fn(usize) + Send + Sync + 'static) {
        let pool = self.pool.as_ref().expect("the pool leaves in drop only");
        let body: Arc<Body> = Arc::new(body);
        for _ in 0..pool.current_num_threads() {
            self.bodies.send(body.clone()).expect("the pool's start handler holds the receiver");
        }
    }
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

fn build(workers: usize) -> Result<(rayon::ThreadPool, Threads, Sender<Arc<Body>>)> {
    let threads = Threads::default();
    let started = threads.clone();
    let (bodies, given): (_, Receiver<Arc<Body>>) = bounded(workers);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .thread_name(|i| format!("warpfeed-{i}"))
        .spawn_handler(move |thread| {
            let builder = std::thread::Builder::new().name(thread.name().unwrap_or("warpfeed").to_owned());
            let handle = builder.spawn(|| thread.run())?;
            started.lock().expect("nothing panics while holding it").push(handle);
            Ok(())
        })
        .start_handler(move |index| {
            if let Ok(body) = given.recv() {
                body(index);
            }
        })
        // Without it rayon ends the process. The panic hook has printed what is to be said.
        .panic_handler(|_| ())
        .build();
    match pool {
        Ok(pool) => Ok((pool, threads, bodies)),
        Err(e) => {
            // Those that were started wait for a body.
            drop(bodies);
            join(&threads);
            let text = format!("cannot start {workers} worker threads: {e}");
            Err(Error::new(ErrorKind::Io, text).with_source(e))
        }
    }
}

fn join(threads: &Threads) {
    let threads = std::mem::take(&mut *threads.lock().expect("nothing panics while holding it"));
    for thread in threads {
        // A panic of a thread was passed on by its body.
        let _ = thread.join();
    }
}

impl Pool {
    /// Lets threads end as soon as they leave their body. Called before the bodies are made to end,
    /// so that none enters rayon's loop.
    pub(crate) fn close(&mut self) {
        drop(self.pool.take());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
        // Threads that were never given a body end too.
        let (closed, _) = bounded(0);
        self.bodies = closed;
        join(&self.threads);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn pool(workers: usize) -> Pool {
        Pool::new(workers).unwrap()
    }

    #[test]
    fn every_thread_runs_the_body_once_as_a_thread_of_the_pool() {
        let (ran, of_pool) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let workers = pool(9);
        let counts = (ran.clone(), of_pool.clone());
        workers.start(move |index| {
            counts.0.fetch_add(1 << index, Ordering::SeqCst);
            let own = rayon::current_thread_index() == Some(index) && rayon::current_num_threads() == 9;
            // What a transform of the user's gives to rayon is done by the same thread.
            let (a, b) = rayon::join(rayon::current_thread_index, rayon::current_thread_index);
            counts.1.fetch_add(usize::from(own && a == b && a == Some(index)), Ordering::SeqCst);
        });
        drop(workers);
        assert_eq!((ran.load(Ordering::SeqCst), of_pool.load(Ordering::SeqCst)), ((1 << 9) - 1, 9));
    }

    #[test]
    fn a_panic_of_a_body_does_not_end_the_process_and_the_others_go_on() {
        let ran = Arc::new(AtomicUsize::new(0));
        let workers = pool(3);
        let count = ran.clone();
        workers.start(move |index| {
            assert!(index != 1, "body 1 panics");
            count.fetch_add(1, Ordering::SeqCst);
        });
        drop(workers);
        assert_eq!(ran.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_pool_that_was_never_started_ends() {
        drop(pool(4));
    }
}
