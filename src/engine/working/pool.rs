//! The thread pool of the workers.

use std::sync::Arc;

use crate::engine::settings::Settings;
use crate::error::Result;
use crate::source;

/// The loader's own rayon pool. Dropping the pool joins its threads, which must end before
/// page-locked memory is freed.
pub(crate) struct Pool(source::Pool);

/// The threads end once the pool and all its spawners have been dropped.
pub(crate) type Spawner = Arc<rayon::ThreadPool>;

impl Pool {
    pub(crate) fn new(workers: usize, settings: Arc<Settings>) -> Result<Self> {
        let builder = rayon::ThreadPoolBuilder::new()
            .thread_name(|i| format!("warpfeed-{i}"))
            .start_handler(move |_| settings.register_worker())
            // By default, rayon aborts the process. The panic hook has already reported the panic.
            .panic_handler(|_| ());
        source::Pool::start(builder, workers).map(Pool)
    }

    pub(crate) fn spawner(&self) -> Spawner {
        self.0.shared().clone()
    }

    pub(crate) fn thread_count(&self) -> usize {
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
    fn dropping_the_pool_finishes_its_tasks_despite_a_panic() {
        let finished_count = Arc::new(AtomicUsize::new(0));
        let workers = pool(3);
        for index in 0..50 {
            let count = finished_count.clone();
            workers.spawner().spawn_fifo(move || {
                assert!(index != 7, "task 7 panics");
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
        drop(workers);
        assert_eq!(finished_count.load(Ordering::SeqCst), 49);
    }

    #[test]
    fn an_unused_pool_can_be_dropped() {
        drop(pool(4));
    }
}
