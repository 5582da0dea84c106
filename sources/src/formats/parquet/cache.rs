use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::Block;
use crate::error::Result;
use crate::values::grants::{Grants, Keeps};
use crate::values::lru_cache::Recent;

/// Locks by page. Threads that need one page wait for the first of them, so no page is decoded
/// twice at the same time.
const LOCKS: usize = 64;
/// Bytes that are kept when no loader reads the dataset.
const UNUSED: usize = 32 << 20;
/// Maximum memory of a decoded page when no loader reads the dataset.
const MOST: usize = 512 << 20;
/// A page may take this much, whatever the memory plan has.
const LEAST: usize = 64 << 20;
/// Pages that take more are decoded one at a time.
const LARGE: usize = 16 << 20;

/// Marks the place of the dictionary of a column.
const DICTIONARY: u32 = 1 << 30;

/// Number of a file, of a row group in it, and of a column.
pub(super) type Place = (u32, u32, u32);

/// The place of the dictionary of a column.
fn dictionary_of((file, group, column): Place) -> Place {
    (file, group, column | DICTIONARY)
}

/// Decoded pages in bounded memory. The page whose last use is the longest ago makes room.
///
/// Pages that a thread uses are not counted twice, but they stay until it is done: each worker adds
/// at most one. Values may share the bytes of a dictionary, so it stays as long as its pages, or
/// counts as a part of each of them.
pub(super) struct Cache {
    grants: Grants,
    kept: Mutex<Kept>,
    /// Taken in this order: a page that is decoded may fetch the dictionary or the bytes of its
    /// column.
    decoding: [Mutex<()>; LOCKS],
    large: Mutex<()>,
    /// Taken before all others.
    column: Mutex<()>,
    dictionary: Mutex<()>,
    fetching: [Mutex<()>; LOCKS],
    /// Number of pages that were decoded, for tests.
    decoded: AtomicUsize,
}

/// Memory of the loader that reads some columns. What it reads must fit into its own plan, although
/// loaders share the cache.
#[derive(Default)]
pub(super) struct Room {
    grants: Grants,
    /// Bytes that a loader grants if its limit has room.
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

    /// Maximum memory of one decoded page.
    pub(super) fn limit(&self) -> usize {
        self.grants.least().map_or(MOST, |least| least.max(LEAST))
    }

    /// Bytes that a loader grants if its limit has room.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn set_most(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }
}

/// Pages by their first row.
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

    /// Bytes that are kept: those that all loaders grant, or a number for a set that none reads.
    pub(super) fn budget(&self) -> usize {
        self.grants.sum().unwrap_or(UNUSED)
    }

    /// The page of `place` that has `row` and begins at row `first`. If it is not kept, `fetch`
    /// returns its bytes with the memory that it takes, and `decode` decodes them.
    ///
    /// # Errors
    /// Those of `fetch` and `decode`, which the next call repeats.
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

    /// The page of `place` that has `row`, if it is kept.
    pub(super) fn find(&self, place: Place, row: usize) -> Option<Arc<Block>> {
        self.kept().get(place, row)
    }

    /// The bytes of a whole column at `place`, `size` of them. `fetch` makes them if they are not
    /// kept. Large ones are fetched, and used for the first time, one at a time: keep the guard
    /// meanwhile. Must not be called within [`get`](Cache::get).
    ///
    /// # Errors
    /// Those of `fetch`, which the next call repeats.
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

    /// The dictionary of the column at `place`, which takes about `size` bytes. `fetch` makes it if
    /// it is not kept. May be called within [`get`](Cache::get).
    ///
    /// # Errors
    /// Those of `fetch`, which the next call repeats.
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

    /// The only block of `place`.
    fn whole(&self, place: Place, size: usize, fetch: impl FnOnce() -> Result<Block>) -> Result<Arc<Block>> {
        let _fetching = lock(&self.fetching[number(place, 0)]);
        if let Some(block) = self.find(place, 0) {
            return Ok(block);
        }
        // Room is made first, so that the block does not come on top of all that is kept.
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

/// Number of the lock of a page.
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
        // A dictionary is used after its pages, so it is dropped after them.
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

    /// The page of ten rows that has `row`.
    fn get(cache: &Cache, place: Place, row: usize, decode: impl FnOnce() -> Result<Block>) -> Result<Arc<Block>> {
        cache.get(place, (row, row / 10 * 10), || Ok(((), 0)), |()| decode())
    }

    #[test]
    fn a_page_is_decoded_once_and_the_least_recently_used_makes_room() {
        let cache = Arc::new(Cache::new());
        let place = (0, 0, 0);
        let grant = Grant::new(cache.clone(), 2 * block(0).unwrap().bytes());
        for row in [3, 0, 9, 12, 5, 19] {
            assert!(get(&cache, place, row, || block(row / 10 * 10)).unwrap().rows().contains(&row));
        }
        assert_eq!(cache.decoded(), 2);
        get(&cache, place, 25, || block(20)).unwrap(); // drops the page of row 5
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
    fn loaders_that_share_a_set_add_their_grants_and_take_only_their_own_back() {
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
    fn a_page_must_fit_into_the_plan_of_each_loader_that_reads_it() {
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
    fn whole_blocks_make_room_before_they_are_fetched_and_large_ones_are_used_one_at_a_time() {
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
                    // It is used for a page, which may need a large dictionary.
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
    fn a_dictionary_is_counted_as_long_as_a_page_shares_it() {
        let cache = Arc::new(Cache::new());
        let page = |first| block(first).map(|block| block.sharing(600));
        let dictionary = || Ok(Block::of_bytes(0, 1, 600));
        let grant = Grant::new(cache.clone(), 3000);
        for row in [0, 10] {
            cache.dictionary((0, 0, 0), 600, dictionary).unwrap();
            get(&cache, (0, 0, 0), row, || page(row)).unwrap();
        }
        assert_eq!(cache.bytes(), 2600);
        // Pages of other columns make room for themselves, first of all of the pages that share it.
        get(&cache, (0, 0, 1), 0, || block(0)).unwrap();
        assert_eq!(cache.bytes(), 2600);
        assert!(cache.find((0, 0, 0), 0).is_none() && cache.find((0, 0, 0), 10).is_some());
        get(&cache, (0, 0, 1), 10, || block(10)).unwrap();
        assert!(cache.find((0, 0, 0), 10).is_some(), "used a short time ago");
        assert_eq!(cache.bytes(), 2600);
        drop(grant);
        // A dictionary that is not kept counts for each of its pages.
        let cache = Arc::new(Cache::new());
        let _grant = Grant::new(cache.clone(), 3000);
        get(&cache, (0, 0, 0), 0, || page(0)).unwrap();
        assert_eq!(cache.bytes(), 1600);
        get(&cache, (0, 0, 0), 10, || page(10)).unwrap();
        assert_eq!(cache.bytes(), 1600);
    }

    #[test]
    fn threads_that_need_a_page_at_the_same_time_decode_it_once() {
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
