//! A cache of decoded pages that uses bounded memory.
//!
//! A page contains many values, so neighboring rows need the same page. The cache decodes each page
//! once, while other threads that need the page wait, and evicts the least recently used page. The
//! size of the cache is the sum of what all loaders of the dataset grant from their memory plans.
//! To bound memory, large pages are decoded one at a time, and space is freed before a page is
//! decoded.
//!
//! Values may borrow from a dictionary, so evicting the dictionary before its pages would not free
//! its memory. Therefore, a dictionary is evicted after its pages. If it does not fit in the cache,
//! its size is added to that of each of its pages. An evicted page stays alive while a worker is
//! using it, which adds at most one page per worker.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::Block;
use crate::error::Result;
use crate::values::grants::{Grants, Keeps};
use crate::values::lru_cache::Recent;

/// Number of locks that pages are hashed to. If several threads need the same page, one of them
/// decodes it while the others wait for the lock.
const LOCKS: usize = 64;
/// Size of the cache in bytes if no loader reads the dataset.
const UNUSED: usize = 32 << 20;
/// Maximum decoded size of a page if no loader reads the dataset.
const MOST: usize = 512 << 20;
/// The limit on the decoded size of a page is never less than this, even if the memory plan is
/// smaller.
const LEAST: usize = 64 << 20;
/// Pages whose decoded size exceeds this are decoded one at a time.
const LARGE: usize = 16 << 20;

/// Bit in the column number of a cache key that marks the dictionary of the column.
const DICTIONARY: u32 = 1 << 30;

/// Cache key: the numbers of the file, the row group and the column.
pub(super) type Place = (u32, u32, u32);

/// Returns the cache key for the dictionary of a column.
fn dictionary_of((file, group, column): Place) -> Place {
    (file, group, column | DICTIONARY)
}

/// A cache of decoded pages. See the module documentation.
pub(super) struct Cache {
    grants: Grants,
    kept: Mutex<Kept>,
    /// Locks for decoding pages. A thread takes one of them before `large`, `dictionary` and
    /// `fetching`, in this order, because decoding a page may fetch its dictionary.
    decoding: [Mutex<()>; LOCKS],
    large: Mutex<()>,
    /// Lock for fetching and using a large column. It is taken before all other locks.
    column: Mutex<()>,
    dictionary: Mutex<()>,
    fetching: [Mutex<()>; LOCKS],
    /// Number of pages decoded so far, for tests.
    decoded: AtomicUsize,
}

/// The memory that is granted by the loaders of one selection of columns. It limits the size of
/// their pages: all loaders share the cache, but a page must fit in the memory plan of the loader
/// that reads it.
#[derive(Default)]
pub(super) struct Room {
    grants: Grants,
    /// Number of bytes that a loader grants if its limit allows.
    most: AtomicUsize,
}

impl Keeps for Room {
    fn grants(&self) -> &Grants {
        &self.grants
    }

    fn shrink(&self) {}
}

impl Room {
    pub(super) fn new(most: usize) -> Self {
        Room { grants: Grants::default(), most: AtomicUsize::new(most) }
    }

    /// Returns the maximum decoded size of a page.
    pub(super) fn limit(&self) -> usize {
        self.grants.least().map_or(MOST, |least| least.max(LEAST))
    }

    /// Number of bytes that a loader grants if its limit allows.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn set_most(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }
}

/// The cached blocks, by cache key and first row.
#[derive(Default)]
struct Kept(Recent<(Place, usize), Arc<Block>>);

impl Keeps for Cache {
    fn grants(&self) -> &Grants {
        &self.grants
    }

    fn shrink(&self) {
        let budget = self.budget();
        self.kept().shrink(budget);
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        Cache {
            grants: Grants::default(),
            kept: Mutex::default(),
            decoding: std::array::from_fn(|_| Mutex::default()),
            large: Mutex::default(),
            column: Mutex::default(),
            dictionary: Mutex::default(),
            fetching: std::array::from_fn(|_| Mutex::default()),
            decoded: AtomicUsize::new(0),
        }
    }

    /// Returns the size of the cache: the sum of all grants, or a default if no loader reads the
    /// dataset.
    pub(super) fn budget(&self) -> usize {
        self.grants.sum().unwrap_or(UNUSED)
    }

    /// Returns the page of the column `place` that contains `row`. The page starts at row `first`.
    /// If it is not cached, `fetch` returns its bytes and its decoded size, and `decode` decodes
    /// the bytes.
    ///
    /// # Errors
    /// The errors of `fetch` and `decode`. Errors are not cached.
    pub(super) fn get<B>(
        &self,
        place: Place,
        (row, first): (usize, usize),
        fetch: impl FnOnce() -> Result<(B, usize)>,
        decode: impl FnOnce(B) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let _decoding = lock(&self.decoding[number(place, first)]);
        if let Some(block) = self.find(place, row) {
            return Ok(block);
        }
        let (bytes, size) = fetch()?;
        let _alone = (size > LARGE).then(|| lock(&self.large));
        let room = self.budget().saturating_sub(size);
        self.kept().shrink(room);
        let block = Arc::new(decode(bytes)?);
        self.decoded.fetch_add(1, Ordering::Relaxed);
        let budget = self.budget();
        self.kept().insert(place, block.clone(), budget);
        Ok(block)
    }

    /// Returns the page of the column `place` that contains `row`, if it is cached.
    pub(super) fn find(&self, place: Place, row: usize) -> Option<Arc<Block>> {
        self.kept().get(place, row)
    }

    /// Returns the encoded bytes of the whole column `place`, which takes `size` bytes. If they are
    /// not cached, `fetch` reads them. Only one large column at a time is fetched and used for the
    /// first time, so hold the returned guard until the bytes have been used. Do not call this
    /// within [`get`](Cache::get).
    ///
    /// # Errors
    /// The errors of `fetch`. Errors are not cached.
    pub(super) fn column(
        &self,
        place: Place,
        size: usize,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<(Arc<Block>, Option<MutexGuard<'_, ()>>)> {
        if let Some(block) = self.find(place, 0) {
            return Ok((block, None));
        }
        let alone = (size > LARGE).then(|| lock(&self.column));
        Ok((self.whole(place, size, fetch)?, alone))
    }

    /// Returns the dictionary of the column `place`, which takes about `size` bytes. If it is not
    /// cached, `fetch` creates it. This may be called within [`get`](Cache::get).
    ///
    /// # Errors
    /// The errors of `fetch`. Errors are not cached.
    pub(super) fn dictionary(
        &self,
        place: Place,
        size: usize,
        fetch: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let place = dictionary_of(place);
        if let Some(block) = self.find(place, 0) {
            return Ok(block);
        }
        let _alone = (size > LARGE).then(|| lock(&self.dictionary));
        self.whole(place, size, fetch)
    }

    /// Returns the only block with the key `place`, such as a dictionary. If it is not cached,
    /// `fetch` creates it.
    fn whole(&self, place: Place, size: usize, fetch: impl FnOnce() -> Result<Block>) -> Result<Arc<Block>> {
        let _fetching = lock(&self.fetching[number(place, 0)]);
        if let Some(block) = self.find(place, 0) {
            return Ok(block);
        }
        // Free space before the fetch, so that the block never makes the cache exceed its budget.
        let room = self.budget().saturating_sub(size);
        self.kept().shrink(room);
        let block = Arc::new(fetch()?);
        let budget = self.budget();
        self.kept().insert(place, block.clone(), budget);
        Ok(block)
    }

    #[cfg(test)]
    pub(super) fn decoded(&self) -> usize {
        self.decoded.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.kept().0.bytes()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

/// Returns the index of the lock for a page.
fn number((file, group, column): Place, first: usize) -> usize {
    [file, group, column, first as u32].iter().fold(0_u32, |all, &one| all.wrapping_mul(31).wrapping_add(one)) as usize
        % LOCKS
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn get(&mut self, place: Place, row: usize) -> Option<Arc<Block>> {
        let (key, block) = self.0.last((place, 0), (place, row))?;
        if !block.rows().contains(&row) {
            return None;
        }
        let block = self.0.get(key)?.clone();
        // Mark the dictionary as used after its page, so that it is evicted later than the page.
        if block.shares() > 0 {
            self.0.get((dictionary_of(place), 0));
        }
        Some(block)
    }

    fn insert(&mut self, place: Place, block: Arc<Block>, budget: usize) {
        let (first, shares) = (block.rows().start, block.shares());
        let dictionary = (dictionary_of(place), 0);
        let apart = shares > 0 && self.0.last(dictionary, dictionary).is_none();
        let bytes = block.bytes() + if apart { shares } else { 0 };
        if bytes > budget {
            return;
        }
        self.0.insert((place, first), block, bytes);
        if shares > 0 {
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
        Ok(Block::of_bytes(first, 10, 1000))
    }

    /// Gets the page that contains `row`. Pages have ten rows.
    fn get(cache: &Cache, place: Place, row: usize, decode: impl FnOnce() -> Result<Block>) -> Result<Arc<Block>> {
        cache.get(place, (row, row / 10 * 10), || Ok(((), 0)), |()| decode())
    }

    #[test]
    fn cache_decodes_a_page_once_and_evicts_the_oldest() {
        let cache = Arc::new(Cache::new());
        let place = (0, 0, 0);
        let grant = Grant::new(cache.clone(), 2 * block(0).unwrap().bytes());
        for row in [3, 0, 9, 12, 5, 19] {
            assert!(get(&cache, place, row, || block(row / 10 * 10)).unwrap().rows().contains(&row));
        }
        assert_eq!(cache.decoded(), 2);
        get(&cache, place, 25, || block(20)).unwrap(); // evicts the page of row 5
        get(&cache, place, 11, || panic!("kept")).unwrap();
        get(&cache, place, 5, || block(0)).unwrap();
        assert_eq!((cache.decoded(), cache.bytes()), (4, 2 * block(0).unwrap().bytes()));
        assert!(get(&cache, (0, 0, 1), 5, || Err(Error::in_source("x"))).is_err());
        get(&cache, (0, 0, 1), 5, || block(0)).unwrap();
        drop(grant);
        let _grant = Grant::new(cache.clone(), 0);
        get(&cache, place, 5, || block(0)).unwrap();
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn cache_budget_is_the_sum_of_grants() {
        let cache = Arc::new(Cache::new());
        let known = || cache.budget();
        assert_eq!(known(), UNUSED);
        let large = Grant::new(cache.clone(), 3 * LEAST);
        let small = Grant::new(cache.clone(), 2 * LEAST);
        assert_eq!(known(), 5 * LEAST);
        get(&cache, (0, 0, 0), 5, || Ok(Block::of_bytes(0, 10, 4 * LEAST))).unwrap();
        assert_eq!(cache.bytes(), 4 * LEAST);
        drop(small);
        assert_eq!((known(), cache.bytes()), (3 * LEAST, 0));
        let none = Grant::new(cache.clone(), 0);
        assert_eq!(known(), 3 * LEAST);
        drop((large, none));
        assert_eq!(known(), UNUSED);
    }

    #[test]
    fn page_limit_is_the_smallest_loader_grant() {
        let room = Arc::new(Room::new(5 * LEAST));
        assert_eq!(room.limit(), MOST);
        let large = Grant::new(room.clone(), 3 * LEAST);
        let small = Grant::new(room.clone(), 2 * LEAST);
        assert_eq!(room.limit(), 2 * LEAST);
        drop(small);
        let none = Grant::new(room.clone(), 0);
        assert_eq!(room.limit(), LEAST);
        drop((large, none));
        assert_eq!((room.limit(), room.most()), (MOST, 5 * LEAST));
    }

    #[test]
    fn cache_frees_space_first_and_serializes_large_columns() {
        let cache = Arc::new(Cache::new());
        let _grant = Grant::new(cache.clone(), 3000);
        for first in [0, 10, 20] {
            get(&cache, (0, 0, 0), first, || block(first)).unwrap();
        }
        let made = || {
            assert_eq!(cache.bytes(), 1000);
            Ok(Block::raw(vec![0; 1500]))
        };
        assert!(cache.column((0, 0, 1), 1500, made).unwrap().1.is_none());
        assert_eq!(cache.bytes(), 2500);
        let made = || {
            assert_eq!(cache.bytes(), 1500);
            Ok(Block::raw(vec![0; 1000]))
        };
        cache.dictionary((0, 0, 2), 1000, made).unwrap();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for group in 1..5 {
                let (cache, now, most) = (&cache, &now, &most);
                scope.spawn(move || {
                    let fetch = || {
                        most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        Ok(Block::raw(vec![0; 5000]))
                    };
                    let (_, alone) = cache.column((0, group, 1), LARGE + 1, fetch).unwrap();
                    // While the guard is held, using the column may require a large dictionary.
                    cache.dictionary((0, group, 2), LARGE + 1, || block(0)).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    now.fetch_sub(1, Ordering::Relaxed);
                    drop(alone);
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }

    #[test]
    fn shared_dictionary_counts_toward_the_cache() {
        let cache = Arc::new(Cache::new());
        let page = |first| block(first).map(|block| block.sharing(600));
        let dictionary = || Ok(Block::of_bytes(0, 1, 600));
        let grant = Grant::new(cache.clone(), 3000);
        for row in [0, 10] {
            cache.dictionary((0, 0, 0), 600, dictionary).unwrap();
            get(&cache, (0, 0, 0), row, || page(row)).unwrap();
        }
        assert_eq!(cache.bytes(), 2600);
        // A new page evicts a page that shares the dictionary, rather than the dictionary itself.
        get(&cache, (0, 0, 1), 0, || block(0)).unwrap();
        assert_eq!(cache.bytes(), 2600);
        assert!(cache.find((0, 0, 0), 0).is_none() && cache.find((0, 0, 0), 10).is_some());
        get(&cache, (0, 0, 1), 10, || block(10)).unwrap();
        assert!(cache.find((0, 0, 0), 10).is_some(), "used recently");
        assert_eq!(cache.bytes(), 2600);
        drop(grant);
        // If the dictionary is not cached, its size is added to that of each page.
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
        assert_eq!(cache.decoded(), 1);
    }
}
