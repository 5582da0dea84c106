use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::Settings;
use super::settings::Bounds;
use crate::error::{Error, ErrorKind, Result};

/// The crate's own rayon pool, never the global one, with threads that are joined when it is dropped.
///
/// rayon ends its threads some time after a pool is dropped; a loader that frees page-locked memory must know that they have ended.
pub(crate) struct Pool {
    pool: Option<rayon::ThreadPool>,
    threads: Threads,
    settings: Arc<Settings>,
}

impl Pool {
    /// As many threads as `settings` may put to use; where that number is automatic and they cannot all be started, as many as it begins with.
    pub(crate) fn new(settings: Arc<Settings>) -> Result<Self> {
        let Bounds { least, most } = settings.workers;
        let (pool, threads) = build(most).or_else(|e| {
            if least == most {
                return Err(e);
            }
            tracing::warn!("{e}; {least} have to do");
            settings.limit_workers(least);
            build(least)
        })?;
        Ok(Pool { pool: Some(pool), threads, settings })
    }

    /// Starts `body` once on every thread, with the thread's index.
    pub(crate) fn start(&self, body: impl Fn(usize) + Send + Sync + 'static) {
        let pool = self.pool.as_ref().expect("the pool leaves in drop only");
        pool.spawn_broadcast(move |context| body(context.index()));
    }
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

fn build(workers: usize) -> Result<(rayon::ThreadPool, Threads)> {
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
        .build();
    match pool {
        Ok(pool) => Ok((pool, threads)),
        Err(e) => {
            // rayon lets those go that it has started. Until they have ended they count, and fewer could not be started either.
            join(&threads);
            Err(Error::new(ErrorKind::Io, format!("cannot start {workers} worker threads: {e}")))
        }
    }
}

fn join(threads: &Threads) {
    let threads = std::mem::take(&mut *threads.lock().expect("nothing panics while holding it"));
    for thread in threads {
        // A worker's panics are caught sample by sample; what is left to report has been printed by the panic hook.
        let _ = thread.join();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.settings.close();
        drop(self.pool.take());
        join(&self.threads);
    }
}
