//! [`DecodedCache`]: decoded images in memory, which later epochs crop without decoding.
//! [`CacheFormat`]: whether JPEGs are stored as pixels or as coefficients.
//!
//! The key of an image is the 128-bit XXH3 hash of its encoded bytes, so a changed file is decoded
//! again, and samples with the same image share an entry. A hit on cached pixels costs only the
//! hash (about 10 µs for a photograph), because the pixels are not copied.
//!
//! Entries are never evicted. If each image occurs once in an epoch, an epoch cannot find more than
//! the images that are in the cache when the epoch begins. Replacing some of these images with
//! others of the same size would not increase the number of hits, and would require a complete
//! decoding of each new image.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use twox_hash::XxHash3_128;
use warpfeed_jpeg::CompactCoefficients;

use super::{EncodedImage, Pixels, Size};
use crate::error::guarded;
use crate::trace::DecodedCacheStats;

const SHARDS: usize = 64;
/// Upper bound on the overhead of a cached image in bytes: a key and a pointer, doubled because a
/// growing table is copied, and the headers of the allocations. Rounding to pages is added
/// separately.
const ENTRY_BYTES: usize = 256;
/// Size of a page, to which allocators round larger allocations up.
const PAGE_BYTES: usize = 4096;

/// How [`Loader::cache_decoded`](crate::Loader::cache_decoded) stores JPEGs in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheFormat {
    /// Decoded pixels, which take 3 bytes per pixel. Later epochs only crop them.
    #[default]
    Pixels,
    /// DCT coefficients, from which pixels are computed in each epoch. Coefficients take about
    /// twice as much memory as the files, and usually less than half as much as pixels. If the
    /// coefficients of a JPEG would take more memory than its pixels, the pixels are stored
    /// instead. Images in other formats are stored as pixels.
    Coefficients,
}

pub(crate) struct DecodedCache {
    format: CacheFormat,
    max_bytes: usize,
    used_bytes: AtomicUsize,
    image_count: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Maps the hash of the encoded bytes to the decoded image, or to `None` while a worker decodes
    /// the image.
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<u128, Option<Cached>>;

#[derive(Clone)]
enum Cached {
    Pixels(Arc<Pixels>),
    Coefficients(Arc<CompactCoefficients>),
}

pub(crate) enum CacheLookup<'a> {
    Hit(Arc<Pixels>),
    /// The cache contains the image's coefficients. [`EncodedImage::decode`] will use them.
    Coefficients,
    /// The cache has reserved space for the image. The caller must decode the whole image.
    Admitted(Admission<'a>),
    /// The image is not in the cache, and the caller must not add it: the image is uncompressed,
    /// the cache has no space, or a different worker is decoding the image for the cache.
    Declined,
}

/// Space in the cache for an image. On drop, the space is freed unless the image was stored.
pub(crate) struct Admission<'a> {
    cache: &'a DecodedCache,
    key: u128,
    reserved_bytes: usize,
    /// Maximum size of the coefficients in bytes; 0 if pixels are stored.
    pub(crate) max_coefficient_bytes: usize,
}

impl DecodedCache {
    pub(crate) fn new(max_bytes: usize, format: CacheFormat) -> Self {
        DecodedCache {
            format,
            max_bytes,
            used_bytes: AtomicUsize::new(0),
            image_count: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Returns an upper bound on the memory for the coefficients of `image`, in bytes. The result
    /// is 0 if the cache would store the pixels of `image`.
    pub(crate) fn max_coefficient_bytes(&self, image: &EncodedImage<'_>) -> usize {
        let caches_coefficients = self.format == CacheFormat::Coefficients && image.is_jpeg();
        if caches_coefficients {
            usize::try_from(image.size().area().saturating_mul(3)).unwrap_or(usize::MAX)
        } else {
            0
        }
    }

    pub(crate) fn find(&self, image: &mut EncodedImage<'_>) -> CacheLookup<'_> {
        let (encoded, pixel_bytes) = (image.bytes(), image.size().area().saturating_mul(3));
        // Reading an uncompressed image is as fast as a cache hit.
        if encoded.len() as u64 >= pixel_bytes {
            return CacheLookup::Declined;
        }
        let key = XxHash3_128::oneshot(encoded);
        let mut shard = self.shard(key);
        match shard.get(&key) {
            Some(Some(cached)) => {
                self.hits.fetch_add(1, Relaxed);
                return match cached {
                    Cached::Pixels(pixels) => CacheLookup::Hit(pixels.clone()),
                    Cached::Coefficients(coefficients) => {
                        image.set_coefficients(coefficients.clone());
                        CacheLookup::Coefficients
                    }
                };
            }
            None => {
                if let Some(reserved_bytes) = self.reserve(pixel_bytes) {
                    shard.insert(key, None);
                    self.misses.fetch_add(1, Relaxed);
                    return CacheLookup::Admitted(Admission {
                        cache: self,
                        key,
                        reserved_bytes,
                        max_coefficient_bytes: self.max_coefficient_bytes(image),
                    });
                }
            }
            Some(None) => {}
        }
        self.misses.fetch_add(1, Relaxed);
        CacheLookup::Declined
    }

    fn reserve(&self, pixel_bytes: u64) -> Option<usize> {
        let bytes = entry_bytes(usize::try_from(pixel_bytes).ok()?, 1)?;
        let reserve_bytes = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max_bytes);
        self.used_bytes.fetch_update(Relaxed, Relaxed, reserve_bytes).ok().map(|_| bytes)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard> {
        self.shards[key as usize % SHARDS].lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn stats(&self) -> DecodedCacheStats {
        DecodedCacheStats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            images: self.image_count.load(Relaxed),
            bytes: self.used_bytes.load(Relaxed) as u64,
            capacity_bytes: self.max_bytes as u64,
        }
    }
}

/// Returns an upper bound on the memory of an entry, in bytes. `bytes` is the size of its data, and
/// `large_lists` the number of allocations that may be rounded up to pages. Returns `None` on
/// overflow.
fn entry_bytes(bytes: usize, large_lists: usize) -> Option<usize> {
    let rounding = if bytes < 16 * PAGE_BYTES { 0 } else { large_lists * (PAGE_BYTES - 1) };
    bytes.checked_add(rounding + ENTRY_BYTES)
}

impl Admission<'_> {
    /// Stores the coefficients if they fit in the space that is reserved for the pixels, and
    /// otherwise a copy of the pixels. `image` is the size of the image, which must not be damaged.
    /// Stores nothing if `pixels` is only a part of the image, or if memory runs out.
    pub(crate) fn fill(mut self, image: Size, pixels: &Pixels, coefficients: Option<CompactCoefficients>) {
        if (pixels.size(), pixels.origin()) != (image, (0, 0)) {
            return;
        }
        let cached = guarded(|| {
            Ok(self.store_coefficients(coefficients).unwrap_or_else(|| Cached::Pixels(Arc::new(copy(pixels)))))
        });
        if let Ok(cached) = cached {
            self.cache.shard(self.key).insert(self.key, Some(cached));
            self.cache.image_count.fetch_add(1, Relaxed);
            // The cached image now owns the space.
            self.reserved_bytes = 0;
        }
    }

    fn store_coefficients(&mut self, coefficients: Option<CompactCoefficients>) -> Option<Cached> {
        let coefficients = coefficients?;
        // The coefficients have four lists, one of which is always small.
        let bytes = entry_bytes(coefficients.bytes(), 3).filter(|&bytes| bytes <= self.reserved_bytes)?;
        self.cache.used_bytes.fetch_sub(self.reserved_bytes - bytes, Relaxed);
        self.reserved_bytes = bytes;
        Some(Cached::Coefficients(Arc::new(coefficients)))
    }
}

/// Copies the pixels to a buffer without spare capacity.
fn copy(pixels: &Pixels) -> Pixels {
    let mut copy = Pixels::new();
    copy.reset(pixels.size()).copy_from_slice(pixels.data());
    copy
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.reserved_bytes > 0 {
            self.cache.shard(self.key).remove(&self.key);
            self.cache.used_bytes.fetch_sub(self.reserved_bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Codecs, Job, Rect, decode_group};
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
        let (codecs, cache, file) = (Codecs::new(), DecodedCache::new(1 << 20, CacheFormat::Pixels), jpeg(1));
        let mut image = codecs.open(&file).unwrap();
        let area = Rect::full(image.size());
        let CacheLookup::Admitted(dropped) = cache.find(&mut image) else { panic!("an empty cache has space") };
        assert!(matches!(cache.find(&mut image), CacheLookup::Declined), "a different worker is decoding the image");
        drop(dropped);
        assert_eq!((cache.stats().bytes, cache.stats().images), (0, 0));
        let CacheLookup::Admitted(cropped) = cache.find(&mut image) else { panic!("the space is free again") };
        cropped.fill(image.size(), &decoded(&mut image, Rect::new(0, 0, 16, 16)), None);
        assert_eq!(cache.stats().bytes, 0);
        let CacheLookup::Admitted(admission) = cache.find(&mut image) else { panic!("the space is free again") };
        let pixels = decoded(&mut image, area);
        admission.fill(image.size(), &pixels, None);
        let CacheLookup::Hit(hit) = cache.find(&mut image) else { panic!("the image is in the cache") };
        assert!(hit.data() == pixels.data() && hit.size() == pixels.size() && hit.origin() == (0, 0));
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.images), (1, 4, 1));
        assert_eq!(stats.bytes as usize, 120 * 90 * 3 + ENTRY_BYTES);
    }

    #[test]
    fn images_are_admitted_while_they_fit() {
        let (codecs, image_bytes) = (Codecs::new(), 120 * 90 * 3 + ENTRY_BYTES);
        let cache = DecodedCache::new(3 * image_bytes + image_bytes / 2, CacheFormat::Pixels);
        let files: Vec<_> = (0..6).map(jpeg).collect();
        let admitted: Vec<_> = files.iter().map(|file| cache.find(&mut codecs.open(file).unwrap())).collect();
        let count = admitted.iter().filter(|lookup| matches!(lookup, CacheLookup::Admitted(_))).count();
        assert_eq!((count, cache.stats().bytes as usize), (3, 3 * image_bytes));
    }

    fn fill(admission: Admission<'_>, image: EncodedImage<'_>) -> Pixels {
        let (size, mut pixels) = (image.size(), Pixels::new());
        let mut jobs = [Job {
            max_coefficient_bytes: admission.max_coefficient_bytes,
            ..Job::new(image, Rect::full(size), &mut pixels)
        }];
        decode_group(&mut jobs);
        let coefficients = jobs[0].coefficients.take();
        drop(jobs);
        admission.fill(size, &pixels, coefficients);
        pixels
    }

    #[test]
    fn a_jpeg_is_stored_as_coefficients_if_they_are_smaller_than_its_pixels() {
        let codecs = Codecs::new();
        let noise: Vec<u8> = (0..120 * 90 * 3).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let large = encode(&noise, 120, 90, 3, &Options::new(92, 1, 1));
        for (file, format, is_coefficients) in [
            (&jpeg(1), CacheFormat::Coefficients, true),
            (&jpeg(1), CacheFormat::Pixels, false),
            (&large, CacheFormat::Coefficients, false),
        ] {
            let cache = DecodedCache::new(1 << 20, format);
            let mut image = codecs.open(file).unwrap();
            let size = image.size();
            let CacheLookup::Admitted(admission) = cache.find(&mut image) else { panic!("an empty cache has space") };
            let pixels = fill(admission, image);
            let mut image = codecs.open(file).unwrap();
            let bytes = match cache.find(&mut image) {
                CacheLookup::Coefficients => image.coefficients().unwrap().bytes(),
                CacheLookup::Hit(hit) => hit.data().len(),
                _ => panic!("the image is in the cache"),
            };
            assert_eq!(image.coefficients().is_some(), is_coefficients);
            assert!(decoded(&mut image, Rect::full(size)).data() == pixels.data());
            let stats = cache.stats();
            assert_eq!((stats.hits, stats.misses, stats.images, stats.bytes as usize), (1, 1, 1, bytes + ENTRY_BYTES));
        }
    }
}
