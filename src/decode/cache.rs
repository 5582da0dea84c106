//! [`DecodedCache`]: decoded images in memory, which later epochs crop without decoding.
//!
//! The key of an image is the 128-bit XXH3 hash of its encoded bytes, so changed files are decoded
//! again, and samples with the same image share an entry. A hit costs the hash (about 10 µs for a
//! photograph) and no copy.
//!
//! Entries are never evicted. If each sample occurs once in an epoch, an epoch finds at most the
//! images that are in the cache when it begins. No eviction policy can therefore beat keeping the
//! first images, and refilling an evicted entry would cost a complete decoding.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use twox_hash::XxHash3_128;

use super::{EncodedImage, Pixels, Size};
use crate::error::guarded;
use crate::trace::DecodedCacheStats;

const SHARDS: usize = 64;
/// Maximum overhead of an entry: a key and a pointer, doubled because a growing table is copied,
/// and the headers of the allocations.
const ENTRY: usize = 256;
/// Allocators round larger allocations up to whole pages.
const PAGE: usize = 4096;

pub(crate) struct DecodedCache {
    limit: usize,
    used: AtomicUsize,
    images: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Maps the hash of the encoded bytes to the pixels. `None` stands for an image that a worker
    /// is decoding.
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<u128, Option<Arc<Pixels>>>;

pub(crate) enum Lookup<'a> {
    Hit(Arc<Pixels>),
    /// The cache has space for the image, which must then be decoded completely.
    Admitted(Admission<'a>),
    /// The image is not in the cache and will not be.
    Declined,
}

/// Space in the cache for an image, which is freed on drop.
pub(crate) struct Admission<'a> {
    cache: &'a DecodedCache,
    key: u128,
    bytes: usize,
}

impl DecodedCache {
    pub(crate) fn new(limit: usize) -> Self {
        DecodedCache {
            limit,
            used: AtomicUsize::new(0),
            images: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(crate) fn find(&self, image: &EncodedImage<'_>) -> Lookup<'_> {
        let (encoded, pixels) = (image.bytes(), image.size().area().saturating_mul(3));
        // Reading an uncompressed image is as fast as a cache hit.
        if encoded.len() as u64 >= pixels {
            return Lookup::Declined;
        }
        let key = XxHash3_128::oneshot(encoded);
        let mut shard = self.shard(key);
        match shard.get(&key) {
            Some(Some(pixels)) => {
                self.hits.fetch_add(1, Relaxed);
                return Lookup::Hit(pixels.clone());
            }
            None => {
                if let Some(bytes) = self.take(pixels) {
                    shard.insert(key, None);
                    self.misses.fetch_add(1, Relaxed);
                    return Lookup::Admitted(Admission { cache: self, key, bytes });
                }
            }
            Some(None) => {}
        }
        self.misses.fetch_add(1, Relaxed);
        Lookup::Declined
    }

    fn take(&self, pixels: u64) -> Option<usize> {
        let pixels = usize::try_from(pixels).ok()?;
        let bytes = pixels.checked_next_multiple_of(if pixels < 16 * PAGE { 1 } else { PAGE })?.checked_add(ENTRY)?;
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).ok().map(|_| bytes)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard> {
        self.shards[key as usize % SHARDS].lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn stats(&self) -> DecodedCacheStats {
        DecodedCacheStats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            images: self.images.load(Relaxed),
            bytes: self.used.load(Relaxed) as u64,
            limit: self.limit as u64,
        }
    }
}

impl Admission<'_> {
    /// `pixels` must not be damaged.
    pub(crate) fn fill(mut self, image: Size, pixels: &Pixels) {
        if (pixels.size(), pixels.origin()) != (image, (0, 0)) {
            return;
        }
        let copied = guarded(|| {
            let mut copy = Pixels::new();
            copy.reset(pixels.size()).copy_from_slice(pixels.data());
            Ok(Arc::new(copy))
        });
        if let Ok(copy) = copied {
            self.cache.shard(self.key).insert(self.key, Some(copy));
            self.cache.images.fetch_add(1, Relaxed);
            // The entry now owns the space.
            self.bytes = 0;
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.cache.shard(self.key).remove(&self.key);
            self.cache.used.fetch_sub(self.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Codecs, Rect};
    use crate::libjpeg::{Options, encode};

    fn jpeg(number: u8) -> Vec<u8> {
        encode(&[number.wrapping_mul(9); 120 * 90 * 3], 120, 90, 3, &Options::new(90, 2, 2))
    }

    fn decoded(image: &mut EncodedImage<'_>, region: Rect) -> Pixels {
        let mut pixels = Pixels::new();
        image.decode(region, &mut pixels).unwrap();
        pixels
    }

    #[test]
    fn a_filled_entry_is_found_and_a_dropped_one_frees_its_space() {
        let (codecs, cache, file) = (Codecs::new(), DecodedCache::new(1 << 20), jpeg(1));
        let mut image = codecs.open(&file).unwrap();
        let area = Rect::full(image.size());
        let Lookup::Admitted(dropped) = cache.find(&image) else { panic!("an empty cache has space") };
        assert!(matches!(cache.find(&image), Lookup::Declined), "a different worker is decoding the image");
        drop(dropped);
        assert_eq!((cache.stats().bytes, cache.stats().images), (0, 0));
        let Lookup::Admitted(part) = cache.find(&image) else { panic!("the space is free again") };
        part.fill(image.size(), &decoded(&mut image, Rect::new(0, 0, 16, 16)));
        assert_eq!(cache.stats().bytes, 0);
        let Lookup::Admitted(slot) = cache.find(&image) else { panic!("the space is free again") };
        let pixels = decoded(&mut image, area);
        slot.fill(image.size(), &pixels);
        let Lookup::Hit(hit) = cache.find(&image) else { panic!("the image is in the cache") };
        assert!(hit.data() == pixels.data() && hit.size() == pixels.size() && hit.origin() == (0, 0));
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.images), (1, 4, 1));
        assert_eq!(stats.bytes as usize, 120 * 90 * 3 + ENTRY);
    }

    #[test]
    fn images_are_admitted_while_they_fit() {
        let (codecs, each) = (Codecs::new(), 120 * 90 * 3 + ENTRY);
        let cache = DecodedCache::new(3 * each + each / 2);
        let files: Vec<_> = (0..6).map(jpeg).collect();
        let admitted: Vec<_> = files.iter().map(|file| cache.find(&codecs.open(file).unwrap())).collect();
        let count = admitted.iter().filter(|lookup| matches!(lookup, Lookup::Admitted(_))).count();
        assert_eq!((count, cache.stats().bytes as usize), (3, 3 * each));
    }
}
