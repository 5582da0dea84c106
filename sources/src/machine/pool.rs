use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::error::{Error, ErrorKind, Result};

/// A rayon pool that joins its threads when it is dropped.
///
/// rayon does not join them. A thread that still ends after the call that used it may destroy its
/// thread-local values while the program shuts down: in Python, its state of an interpreter that is
/// gone.
pub struct Pool {
    /// `None` in drop only.
    pool: Option<Arc<rayon::ThreadPool>>,
    threads: Threads,
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(builder: rayon::ThreadPoolBuilder, threads: usize) -> Result<Self> {
        let handles = Threads::default();
        let started = handles.clone();
        let spawn = move |thread: rayon::ThreadBuilder| {
            let builder = std::thread::Builder::new().name(thread.name().unwrap_or("warpfeed").to_owned());
            let handle = builder.spawn(|| thread.run())?;
            started.lock().expect("nothing panics while holding it").push(handle);
            Ok(())
        };
        match builder.num_threads(threads).spawn_handler(spawn).build() {
            Ok(pool) => Ok(Pool { pool: Some(Arc::new(pool)), threads: handles }),
            Err(e) => {
                // Threads that did start end by themselves.
                join(&handles);
                let text = format!("cannot start {threads} worker threads: {e}");
                Err(Error::new(ErrorKind::Io, text).with_source(e))
            }
        }
    }

    /// The pool, for tasks that start others. Its threads end after all of these are dropped, too.
    pub fn shared(&self) -> &Arc<rayon::ThreadPool> {
        self.pool.as_ref().expect("the pool leaves in drop only")
    }
}

impl Deref for Pool {
    type Target = rayon::ThreadPool;

    fn deref(&self) -> &rayon::ThreadPool {
        self.shared()
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
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    static LIVE: AtomicUsize = AtomicUsize::new(0);

    /// A value of a thread that takes a while to be destroyed.
    struct Slow;

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(20));
            LIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn thread_local_values_are_gone_when_the_pool_is_dropped() {
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
