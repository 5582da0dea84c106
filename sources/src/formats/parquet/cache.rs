//! A cache of decoded pages with bounded memory.
//!
//! A page contains many values, so neighboring rows need the same page. The first thread that needs
//! a page decodes it, and other threads wait for the result. Each loader of the dataset grants the
//! cache part of its memory budget. When the cache outgrows the sum of these grants, it evicts the
//! least recently used pages. It evicts pages before it decodes a new one, and decodes large pages
//! one at a time.
//!
//! Pages may borrow values from a dictionary and keep the dictionary alive. A dictionary is
//! therefore evicted only after its pages, because evicting it earlier would free nothing. If a
//! dictionary does not fit in the cache, each of its pages counts as if it contained the
//! dictionary. An evicted page stays alive while a worker uses it, so memory may exceed the budget
//! by up to one page per worker.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::Block;
use crate::error::Result;
use crate::values::grants::{GrantedCache, Grants};
use crate::values::lru_cache::LruCache;

const LOCK_COUNT: usize = 64;
/// Size of the cache in bytes if no loader reads the dataset.
const DEFAULT_BUDGET_BYTES: usize = 32 << 20;
/// Value of [`PageLimit::limit`] in bytes if no loader reads the dataset.
const DEFAULT_PAGE_LIMIT_BYTES: usize = 512 << 20;
/// Minimum page limit in bytes, even if a loader grants less memory.
const MIN_PAGE_LIMIT_BYTES: usize = 64 << 20;
/// A page, dictionary or column chunk with more bytes than this is large. At most one large page,
/// one large dictionary and one large column chunk are loaded at a time.
const LARGE_BYTES: usize = 16 << 20;

/// Flag in the column index of a key that marks the chunk's dictionary.
const DICTIONARY_FLAG: u32 = 1 << 30;

/// Indices of a file, of a row group within the file, and of a leaf column. The index of the column
/// may contain a flag that marks the content of the entry.
pub(super) type ColumnKey = (u32, u32, u32);

fn dictionary_key((file, group, column): ColumnKey) -> ColumnKey {
    (file, group, column | DICTIONARY_FLAG)
}

pub(super) struct Cache {
    grants: Grants,
    blocks: Mutex<Blocks>,
    /// Locked while a page is decoded, so that concurrent readers of a page decode it only once.
    /// Lock order: `decode_locks`, then `large_page`, `large_dictionary` and `fetch_locks`, because
    /// decoding a page may fetch its dictionary.
    decode_locks: [Mutex<()>; LOCK_COUNT],
    large_page: Mutex<()>,
    /// Locked while a large column chunk is fetched and used. Locked before all other locks.
    large_column: Mutex<()>,
    large_dictionary: Mutex<()>,
    /// Locked while a dictionary or an encoded column chunk is fetched.
    fetch_locks: [Mutex<()>; LOCK_COUNT],
    decoded_pages: AtomicUsize,
}

/// The limit on the memory for decoding a page. Each selection of columns has its own limit,
/// because a page must fit in the memory of the loader that reads it, although all selections share
/// the cache. The limit is the smallest memory grant of the selection's loaders, but at least
/// [`MIN_PAGE_LIMIT_BYTES`]. If the selection has no loader, the limit is
/// [`DEFAULT_PAGE_LIMIT_BYTES`].
#[derive(Default)]
pub(super) struct PageLimit {
    grants: Grants,
    /// The memory in bytes that a loader grants if its memory limit allows.
    max_grant: AtomicUsize,
}

impl GrantedCache for PageLimit {
    fn grants(&self) -> &Grants {
        &self.grants
    }

    fn shrink(&self) {}
}

impl PageLimit {
    pub(super) fn new(max_grant: usize) -> Self {
        PageLimit { grants: Grants::default(), max_grant: AtomicUsize::new(max_grant) }
    }

    pub(super) fn limit(&self) -> usize {
        self.grants.smallest().map_or(DEFAULT_PAGE_LIMIT_BYTES, |grant| grant.max(MIN_PAGE_LIMIT_BYTES))
    }

    pub(super) fn max_grant(&self) -> usize {
        self.max_grant.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn set_max_grant(&self, bytes: usize) {
        self.max_grant.store(bytes, Ordering::Relaxed);
    }
}

/// The cached blocks, keyed by column chunk and first row.
#[derive(Default)]
struct Blocks(LruCache<(ColumnKey, usize), Arc<Block>>);

impl GrantedCache for Cache {
    fn grants(&self) -> &Grants {
        &self.grants
    }

    fn shrink(&self) {
        let budget = self.budget();
        self.blocks().shrink(budget);
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        Cache {
            grants: Grants::default(),
            blocks: Mutex::default(),
            decode_locks: std::array::from_fn(|_| Mutex::default()),
            large_page: Mutex::default(),
            large_column: Mutex::default(),
            large_dictionary: Mutex::default(),
            fetch_locks: std::array::from_fn(|_| Mutex::default()),
            decoded_pages: AtomicUsize::new(0),
        }
    }

    pub(super) fn budget(&self) -> usize {
        self.grants.sum().unwrap_or(DEFAULT_BUDGET_BYTES)
    }

    /// Returns the page of `column` that contains `row` and starts at row `first_row`. If the page
    /// is not cached, `fetch` returns its bytes and its decoded size, and `decode` decodes the
    /// bytes. Errors are not cached.
    pub(super) fn get_or_decode<B>(
        &self,
        column: ColumnKey,
        (row, first_row): (usize, usize),
        fetch: impl FnOnce() -> Result<(B, usize)>,
        decode: impl FnOnce(B) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let _decoding = lock(&self.decode_locks[lock_index(column, first_row)]);
        if let Some(block) = self.find(column, row) {
            return Ok(block);
        }
        let (bytes, size) = fetch()?;
        let _large_guard = (size > LARGE_BYTES).then(|| lock(&self.large_page));
        let remaining_budget = self.budget().saturating_sub(size);
        self.blocks().shrink(remaining_budget);
        let block = Arc::new(decode(bytes)?);
        self.decoded_pages.fetch_add(1, Ordering::Relaxed);
        let budget = self.budget();
        self.blocks().insert(column, block.clone(), budget);
        Ok(block)
    }

    pub(super) fn find(&self, column: ColumnKey, row: usize) -> Option<Arc<Block>> {
        self.blocks().get(column, row)
    }

    /// Returns the encoded bytes of the whole `column`, which has `size` bytes. If they are not
    /// cached, `fetch` reads them. If a large column was not cached, also returns a guard that
    /// prevents other threads from fetching large columns. Drop it only after using the bytes. Must
    /// not be called within [`get_or_decode`](Cache::get_or_decode).
    pub(super) fn get_or_fetch_column(
        &self,
        column: ColumnKey,
        size: usize,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<(Arc<Block>, Option<MutexGuard<'_, ()>>)> {
        if let Some(block) = self.find(column, 0) {
            return Ok((block, None));
        }
        let large_guard = (size > LARGE_BYTES).then(|| lock(&self.large_column));
        Ok((self.get_or_fetch(column, size, fetch)?, large_guard))
    }

    /// Returns the dictionary of `column`, which has about `size` bytes. If it is not cached,
    /// `fetch` creates it. May be called within [`get_or_decode`](Cache::get_or_decode).
    pub(super) fn get_or_fetch_dictionary(
        &self,
        column: ColumnKey,
        size: usize,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let column = dictionary_key(column);
        if let Some(block) = self.find(column, 0) {
            return Ok(block);
        }
        let _large_guard = (size > LARGE_BYTES).then(|| lock(&self.large_dictionary));
        self.get_or_fetch(column, size, fetch)
    }

    fn get_or_fetch(
        &self,
        column: ColumnKey,
        size: usize,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let _fetching = lock(&self.fetch_locks[lock_index(column, 0)]);
        if let Some(block) = self.find(column, 0) {
            return Ok(block);
        }
        // Free space first, so that old and new blocks together stay within the budget.
        let remaining_budget = self.budget().saturating_sub(size);
        self.blocks().shrink(remaining_budget);
        let block = Arc::new(fetch()?);
        let budget = self.budget();
        self.blocks().insert(column, block.clone(), budget);
        Ok(block)
    }

    #[cfg(test)]
    pub(super) fn decoded_pages(&self) -> usize {
        self.decoded_pages.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.blocks().0.bytes()
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        lock(&self.blocks)
    }
}

fn lock_index((file, group, column): ColumnKey, first_row: usize) -> usize {
    [file, group, column, first_row as u32].iter().fold(0_u32, |hash, &index| hash.wrapping_mul(31).wrapping_add(index))
        as usize
        % LOCK_COUNT
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Blocks {
    fn get(&mut self, column: ColumnKey, row: usize) -> Option<Arc<Block>> {
        let (key, block) = self.0.last_in_range((column, 0), (column, row))?;
        if !block.rows().contains(&row) {
            return None;
        }
        let block = self.0.get(key)?.clone();
        // Make the dictionary more recently used than its page, so that it is evicted later.
        if block.dictionary_bytes() > 0 {
            self.0.get((dictionary_key(column), 0));
        }
        Some(block)
    }

    fn insert(&mut self, column: ColumnKey, block: Arc<Block>, budget: usize) {
        let (first_row, dictionary_bytes) = (block.rows().start, block.dictionary_bytes());
        let dictionary = (dictionary_key(column), 0);
        let is_uncached = dictionary_bytes > 0 && self.0.last_in_range(dictionary, dictionary).is_none();
        let bytes = block.bytes() + if is_uncached { dictionary_bytes } else { 0 };
        if bytes > budget {
            return;
        }
        self.0.insert((column, first_row), block, bytes);
        if dictionary_bytes > 0 {
            self.0.get(dictionary);
        }
        self.shrink(budget);
    }

    fn shrink(&mut self, budget: usize) {
        self.0.shrink(budget, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::values::grants::Grant;

    fn block(first: usize) -> Result<Block> {
        Ok(Block::new_bytes(first, 10, 1000))
    }

    /// Gets the page that contains `row`, in a column with ten rows per page.
    fn get(cache: &Cache, column: ColumnKey, row: usize, decode: impl FnOnce() -> Result<Block>) -> Result<Arc<Block>> {
        cache.get_or_decode(column, (row, row / 10 * 10), || Ok(((), 0)), |()| decode())
    }

    #[test]
    fn cache_decodes_a_page_once_and_evicts_the_least_recent() {
        let cache = Arc::new(Cache::new());
        let column = (0, 0, 0);
        let grant = Grant::new(cache.clone(), 2 * block(0).unwrap().bytes());
        for row in [3, 0, 9, 12, 5, 19] {
            assert!(get(&cache, column, row, || block(row / 10 * 10)).unwrap().rows().contains(&row));
        }
        assert_eq!(cache.decoded_pages(), 2);
        get(&cache, column, 25, || block(20)).unwrap(); // evicts the page of row 5
        get(&cache, column, 11, || panic!("the page is cached")).unwrap();
        get(&cache, column, 5, || block(0)).unwrap();
        assert_eq!((cache.decoded_pages(), cache.bytes()), (4, 2 * block(0).unwrap().bytes()));
        assert!(get(&cache, (0, 0, 1), 5, || Err(Error::in_source("x"))).is_err());
        get(&cache, (0, 0, 1), 5, || block(0)).unwrap();
        drop(grant);
        let _grant = Grant::new(cache.clone(), 0);
        get(&cache, column, 5, || block(0)).unwrap();
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn cache_budget_is_the_sum_of_grants() {
        let cache = Arc::new(Cache::new());
        let budget = || cache.budget();
        assert_eq!(budget(), DEFAULT_BUDGET_BYTES);
        let large = Grant::new(cache.clone(), 3 * MIN_PAGE_LIMIT_BYTES);
        let small = Grant::new(cache.clone(), 2 * MIN_PAGE_LIMIT_BYTES);
        assert_eq!(budget(), 5 * MIN_PAGE_LIMIT_BYTES);
        get(&cache, (0, 0, 0), 5, || Ok(Block::new_bytes(0, 10, 4 * MIN_PAGE_LIMIT_BYTES))).unwrap();
        assert_eq!(cache.bytes(), 4 * MIN_PAGE_LIMIT_BYTES);
        drop(small);
        assert_eq!((budget(), cache.bytes()), (3 * MIN_PAGE_LIMIT_BYTES, 0));
        let none = Grant::new(cache.clone(), 0);
        assert_eq!(budget(), 3 * MIN_PAGE_LIMIT_BYTES);
        drop((large, none));
        assert_eq!(budget(), DEFAULT_BUDGET_BYTES);
    }

    #[test]
    fn page_limit_is_the_smallest_loader_grant() {
        let limit = Arc::new(PageLimit::new(5 * MIN_PAGE_LIMIT_BYTES));
        assert_eq!(limit.limit(), DEFAULT_PAGE_LIMIT_BYTES);
        let large = Grant::new(limit.clone(), 3 * MIN_PAGE_LIMIT_BYTES);
        let small = Grant::new(limit.clone(), 2 * MIN_PAGE_LIMIT_BYTES);
        assert_eq!(limit.limit(), 2 * MIN_PAGE_LIMIT_BYTES);
        drop(small);
        let none = Grant::new(limit.clone(), 0);
        assert_eq!(limit.limit(), MIN_PAGE_LIMIT_BYTES);
        drop((large, none));
        assert_eq!((limit.limit(), limit.max_grant()), (DEFAULT_PAGE_LIMIT_BYTES, 5 * MIN_PAGE_LIMIT_BYTES));
    }

    #[test]
    fn cache_frees_space_first_and_serializes_large_columns() {
        let cache = Arc::new(Cache::new());
        let _grant = Grant::new(cache.clone(), 3000);
        for first in [0, 10, 20] {
            get(&cache, (0, 0, 0), first, || block(first)).unwrap();
        }
        let load = || {
            assert_eq!(cache.bytes(), 1000);
            Ok(Block::from_encoded(vec![0; 1500]))
        };
        assert!(cache.get_or_fetch_column((0, 0, 1), 1500, load).unwrap().1.is_none());
        assert_eq!(cache.bytes(), 2500);
        let load = || {
            assert_eq!(cache.bytes(), 1500);
            Ok(Block::from_encoded(vec![0; 1000]))
        };
        cache.get_or_fetch_dictionary((0, 0, 2), 1000, load).unwrap();
        let (now, max_running) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for group in 1..5 {
                let (cache, now, max_running) = (&cache, &now, &max_running);
                scope.spawn(move || {
                    let fetch = || {
                        max_running.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        Ok(Block::from_encoded(vec![0; 5000]))
                    };
                    let (_, large_guard) = cache.get_or_fetch_column((0, group, 1), LARGE_BYTES + 1, fetch).unwrap();
                    // Using the column may require a large dictionary.
                    cache.get_or_fetch_dictionary((0, group, 2), LARGE_BYTES + 1, || block(0)).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    now.fetch_sub(1, Ordering::Relaxed);
                    drop(large_guard);
                });
            }
        });
        assert_eq!(max_running.into_inner(), 1);
    }

    #[test]
    fn shared_dictionary_counts_toward_the_cache() {
        let cache = Arc::new(Cache::new());
        let page = |first| block(first).map(|block| block.with_dictionary_bytes(600));
        let dictionary = || Ok(Block::new_bytes(0, 1, 600));
        let grant = Grant::new(cache.clone(), 3000);
        for row in [0, 10] {
            cache.get_or_fetch_dictionary((0, 0, 0), 600, dictionary).unwrap();
            get(&cache, (0, 0, 0), row, || page(row)).unwrap();
        }
        assert_eq!(cache.bytes(), 2600);
        // A new page evicts a page that borrows from the dictionary, but not the dictionary.
        get(&cache, (0, 0, 1), 0, || block(0)).unwrap();
        assert_eq!(cache.bytes(), 2600);
        assert!(cache.find((0, 0, 0), 0).is_none() && cache.find((0, 0, 0), 10).is_some());
        get(&cache, (0, 0, 1), 10, || block(10)).unwrap();
        assert!(cache.find((0, 0, 0), 10).is_some(), "used recently");
        assert_eq!(cache.bytes(), 2600);
        drop(grant);
        // The size of a dictionary that is not cached is added to the size of each page.
        let cache = Arc::new(Cache::new());
        let _grant = Grant::new(cache.clone(), 3000);
        get(&cache, (0, 0, 0), 0, || page(0)).unwrap();
        assert_eq!(cache.bytes(), 1600);
        get(&cache, (0, 0, 0), 10, || page(10)).unwrap();
        assert_eq!(cache.bytes(), 1600);
    }

    #[test]
    fn concurrent_reads_of_a_page_decode_it_once() {
        let cache = Cache::new();
        std::thread::scope(|scope| {
            for row in 0..8 {
                let cache = &cache;
                scope.spawn(move || get(cache, (1, 2, 3), row, || block(0)).unwrap());
            }
        });
        assert_eq!(cache.decoded_pages(), 1);
    }
}
