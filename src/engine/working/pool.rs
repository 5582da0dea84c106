use std::sync::Arc;

use crate::engine::settings::Settings;
use crate::error::Result;
use crate::source;

/// The loader's own rayon pool. Dropping it joins its threads, because page-locked memory must not
/// be freed before they have ended.
pub(crate) struct Pool(source::Pool);

/// Handle that starts tasks in a pool. The pool's threads end once the pool and all spawners have
/// been dropped.
pub(crate) type Spawner = Arc<rayon::ThreadPool>;

impl Pool {
    /// Creates a pool of `workers` threads. Each thread registers with `settings` when it starts.
    pub(crate) fn new(workers: usize, settings: Arc<Settings>) -> Result<Self> {
        let builder = rayon::ThreadPoolBuilder::new()
            .thread_name(|i| format!("warpfeed-{i}"))
            .start_handler(move |_| settings.enters())
            // Without a panic handler, rayon aborts the process. The panic hook has already
            // reported the panic.
            .panic_handler(|_| ());
        source::Pool::start(builder, workers).map(Pool)
    }

    pub(crate) fn spawner(&self) -> Spawner {
        self.0.shared().clone()
    }

    pub(crate) fn threads(&self) -> usize {
        self.0.current_num_threads()
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
