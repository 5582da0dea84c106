//! The prefetcher of a loader that reads Parquet files, and the loader's memory grants.

use std::sync::Arc;

use super::files::SampleRows;
use super::source::Parquet;
use crate::model::{BatchIndex, Lookahead, Prefetcher};
use crate::values::grants::Grant;

/// The memory grants of a loader that reads this source and, for files in an object store, its
/// prefetcher. Dropping this value releases the grants.
struct LoaderGrants {
    prefetcher: Option<Box<dyn Prefetcher>>,
    _grants: [Grant; 2],
}

impl Prefetcher for LoaderGrants {
    fn start(&self, batch: BatchIndex) {
        self.prefetcher.iter().for_each(|prefetcher| prefetcher.start(batch));
    }

    fn done(&self, batch: BatchIndex) {
        self.prefetcher.iter().for_each(|prefetcher| prefetcher.done(batch));
    }

    fn stop(&self) {
        self.prefetcher.iter().for_each(|prefetcher| prefetcher.stop());
    }
}

impl Parquet {
    /// Returns the prefetcher of a loader that reads samples in `order`. `rows` maps each sample to
    /// the rows that it needs.
    pub(super) fn row_prefetcher(&self, order: &Lookahead, rows: &Arc<dyn SampleRows>) -> Box<dyn Prefetcher> {
        let cache_bytes = self.cache_share(order.budget_bytes());
        let grants = [Grant::new(self.cache.clone(), cache_bytes), Grant::new(self.page_limit.clone(), cache_bytes)];
        let Some(remote) = &self.remote else { return Box::new(LoaderGrants { prefetcher: None, _grants: grants }) };
        let prefetch_bytes = order.budget_bytes() - cache_bytes;
        // Plan for less cache than is available, because pages are not used in exactly the planned
        // order.
        let units = self.files.unit_order(order, (rows, self.needed_leaves()), prefetch_bytes, cache_bytes / 4 * 3);
        let prefetcher = remote.prefetcher(units, self.files.units());
        Box::new(LoaderGrants { prefetcher, _grants: grants })
    }
}
