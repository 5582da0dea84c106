//! [`DecodedCacheStats`] contains the counters of the cache of decoded images.

use serde::{Deserialize, Serialize};
use warpfeed_sources::internal::Since;

/// Counters of the [cache of decoded images](crate::Loader::cache_decoded).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DecodedCacheStats {
    /// Number of images that were taken from the cache.
    pub hits: u64,
    /// Number of compressed images that were not in the cache.
    pub misses: u64,
    /// Number of images in the cache.
    pub images: u64,
    /// Size of the cache, in bytes.
    pub bytes: u64,
    /// Maximum size of the cache, in bytes.
    pub capacity_bytes: u64,
}

impl DecodedCacheStats {
    /// Returns whether the cache may have no space for another image. An image is admitted only if
    /// its pixels would fit, even if the cache stores its coefficients, which may be several times
    /// smaller.
    pub(super) fn is_full(&self) -> bool {
        const LARGEST_RATIO: u64 = 6;
        self.images > 0 && self.bytes + LARGEST_RATIO * self.bytes / self.images > self.capacity_bytes
    }
}

impl Since for DecodedCacheStats {
    fn since(&self, earlier: &Self) -> Self {
        DecodedCacheStats { hits: self.hits.since(&earlier.hits), misses: self.misses.since(&earlier.misses), ..*self }
    }
}
