//! [`Pool`] is a thread pool that joins its threads.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::error::{Error, ErrorKind, Result};

/// A rayon pool that joins its threads when it is dropped.
///
/// rayon does not join its threads, so a thread could destroy its thread-local values while the
/// program exits. In Python, such a value might refer to an interpreter that no longer exists.
pub struct Pool {
    /// The pool, which is `None` only during `drop`.
    pool: Option<Arc<rayon::ThreadPool>>,
    threads: Threads,
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

impl Pool {
    /// Starts a pool of `threads` threads.
    ///
    /// # Errors
    /// If a thread cannot be spawned.
    pub fn start(builder: rayon::ThreadPoolBuilder, threads: usize) -> Result<Self> {
        let handles = Threads::default();
        let started = handles.clone();
        let spawn = move |thread: rayon::ThreadBuilder| {
            let builder = std::thread::Builder::new().name(thread.name().unwrap_or("warpfeed").to_owned());
            let handle = builder.spawn(|| thread.run())?;
            started.lock().expect("no thread panics while holding the lock").push(handle);
            Ok(())
        };
        match builder.num_threads(threads).spawn_handler(spawn).build() {
            Ok(pool) => Ok(Pool { pool: Some(Arc::new(pool)), threads: handles }),
            Err(e) => {
                // rayon has already requested the spawned threads to exit.
                join(&handles);
                let text = format!("cannot start {threads} worker threads: {e}");
                Err(Error::new(ErrorKind::Io, text).with_source(e))
            }
        }
    }

    /// Returns a shared handle, for tasks that spawn more tasks onto the pool. The threads exit
    /// once the pool and all clones of the handle are dropped.
    pub fn shared(&self) -> &Arc<rayon::ThreadPool> {
        self.pool.as_ref().expect("the pool is taken only in drop")
    }
}

impl Deref for Pool {
    type Target = rayon::ThreadPool;

    fn deref(&self) -> &rayon::ThreadPool {
        self.shared()
    }
}

fn join(threads: &Threads) {
    let threads = std::mem::take(&mut *threads.lock().expect("no thread panics while holding the lock"));
    for thread in threads {
        // The task that panicked has already reported it.
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
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    static LIVE: AtomicUsize = AtomicUsize::new(0);

    struct Slow;

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(20));
            LIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn dropping_the_pool_destroys_thread_locals() {
        thread_local!(static VALUE: Cell<Option<Slow>> = const { Cell::new(None) });
        let pool = Pool::start(rayon::ThreadPoolBuilder::new(), 3).unwrap();
        pool.broadcast(|_| {
            LIVE.fetch_add(1, Ordering::SeqCst);
            VALUE.set(Some(Slow));
        });
        assert_eq!(LIVE.load(Ordering::SeqCst), 3);
        drop(pool);
        assert_eq!(LIVE.load(Ordering::SeqCst), 0);
    }
}
