//! The prefetcher of a loader that reads Parquet files, and the loader's memory grants.

use std::sync::Arc;

use super::files::SampleRows;
use super::source::Parquet;
use crate::model::{BatchIndex, Lookahead, Prefetcher};
use crate::values::grants::Grant;

/// The memory grants of a loader that reads this source and, for files in an object store, its
/// prefetcher. Dropping this value releases the grants.
struct LoaderGrants {
    ahead: Option<Box<dyn Prefetcher>>,
    _grants: [Grant; 2],
}

impl Prefetcher for LoaderGrants {
    fn start(&self, batch: BatchIndex) {
        self.ahead.iter().for_each(|ahead| ahead.start(batch));
    }

    fn done(&self, batch: BatchIndex) {
        self.ahead.iter().for_each(|ahead| ahead.done(batch));
    }

    fn stop(&self) {
        self.ahead.iter().for_each(|ahead| ahead.stop());
    }
}

impl Parquet {
    /// Grants memory to the cache, and starts prefetching for `order`. `rows` maps each sample to
    /// the rows that it needs.
    pub(super) fn follow_rows(&self, order: &Lookahead, rows: &Arc<dyn SampleRows>) -> Box<dyn Prefetcher> {
        let share = self.cache_share(order.bytes());
        let grants = [Grant::new(self.cache.clone(), share), Grant::new(self.page_limit.clone(), share)];
        let Some(remote) = &self.remote else { return Box::new(LoaderGrants { ahead: None, _grants: grants }) };
        let ahead = order.bytes() - share;
        // Plan for less cache than is available, because pages are not used in exactly the planned
        // order.
        let units = self.files.order(order, (rows, self.needed()), ahead, share / 4 * 3);
        let ahead = remote.prefetcher(units, self.files.units());
        Box::new(LoaderGrants { ahead, _grants: grants })
    }
}
