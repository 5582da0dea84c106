use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::engine::settings::Settings;
use crate::error::{Error, ErrorKind, Result};

/// The loader's own rayon pool. Dropping it joins its threads.
///
/// rayon does not join its threads when a pool is dropped. A loader must know that they have ended
/// before it frees page-locked memory.
pub(crate) struct Pool {
    /// `None` in drop only.
    pool: Option<Arc<rayon::ThreadPool>>,
    threads: Threads,
}

/// Starts tasks in a pool. The pool's threads end after the pool and all spawners are dropped.
pub(crate) type Spawner = Arc<rayon::ThreadPool>;

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

impl Pool {
    /// Creates a pool of `workers` threads. Each thread registers with `settings` when it starts.
    pub(crate) fn new(workers: usize, settings: Arc<Settings>) -> Result<Self> {
        let threads = Threads::default();
        let started = threads.clone();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .thread_name(|i| format!("warpfeed-{i}"))
            .spawn_handler(move |thread| {
                let builder = std::thread::Builder::new().name(thread.name().unwrap_or("warpfeed").to_owned());
                let handle = builder.spawn(|| thread.run())?;
                started.lock().expect("nothing panics while holding it").push(handle);
                Ok(())
            })
            .start_handler(move |_| settings.enters())
            // Without a handler rayon aborts the process. The panic hook has reported the panic.
            .panic_handler(|_| ())
            .build();
        match pool {
            Ok(pool) => Ok(Pool { pool: Some(Arc::new(pool)), threads }),
            Err(e) => {
                // Threads that did start end by themselves.
                join(&threads);
                let text = format!("cannot start {workers} worker threads: {e}");
                Err(Error::new(ErrorKind::Io, text).with_source(e))
            }
        }
    }

    pub(crate) fn spawner(&self) -> Spawner {
        self.pool.clone().expect("the pool leaves in drop only")
    }

    pub(crate) fn threads(&self) -> usize {
        self.spawner().current_num_threads()
    }
}

fn join(threads: &Threads) {
    let threads = std::mem::take(&mut *threads.lock().expect("nothing panics while holding it"));
    for thread in threads {
        // The task has reported a panic of its thread.
        let _ = thread.join();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.pool.take());
        join(&self.threads);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::engine::settings::Bounds;

    fn pool(workers: usize) -> Pool {
        let settings = Arc::new(Settings::new(2, workers, Bounds::exactly(1)));
        Pool::new(workers, settings).unwrap()
    }

    #[test]
    fn dropping_the_pool_runs_every_task_and_a_panic_ends_no_other() {
        let ran = Arc::new(AtomicUsize::new(0));
        let workers = pool(3);
        for index in 0..50 {
            let count = ran.clone();
            workers.spawner().spawn_fifo(move || {
                assert!(index != 7, "task 7 panics");
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
        drop(workers);
        assert_eq!(ran.load(Ordering::SeqCst), 49);
    }

    #[test]
    fn a_pool_that_was_never_used_ends() {
        drop(pool(4));
    }
}
