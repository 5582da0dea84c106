use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::error::{Error, ErrorKind, Result};

/// The crate's own rayon pool, never the global one, with threads that are joined when it is dropped.
///
/// rayon ends its threads some time after a pool is dropped; a loader that frees page-locked memory must know that they have ended.
pub(crate) struct Pool {
    pool: Option<rayon::ThreadPool>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Pool {
    pub(crate) fn new(workers: usize) -> Result<Self> {
        let threads = Arc::new(Mutex::new(Vec::with_capacity(workers)));
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
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start {workers} worker threads: {e}")))?;
        Ok(Pool { pool: Some(pool), threads })
    }

    /// Starts `body` once on every thread, with the thread's index.
    pub(crate) fn start(&self, body: impl Fn(usize) + Send + Sync + 'static) {
        let pool = self.pool.as_ref().expect("the pool leaves in drop only");
        pool.spawn_broadcast(move |context| body(context.index()));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.pool.take());
        let threads = std::mem::take(&mut *self.threads.lock().expect("nothing panics while holding it"));
        for thread in threads {
            // A worker's panics are caught sample by sample; what is left to report has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}
