//! Code for parsing and converting values that several formats share.
//!
//! 1. `record`: converts rows of typed columns to samples. `features`: metadata of the Hugging Face
//!    `datasets` library.
//! 2. `items`: reads samples that are stored one after the other in a file.
//! 3. `annotated`: builds the fields of an annotated image.
//! 4. `pickle`, `protobuf`, `npy`: parse the encodings of other libraries.
//! 5. `elements`: converts array elements. `pixels`: converts arrays of pixels to images.
//! 6. `video`: video files and their sample tables. `video_ahead`: prefetches their packets.
//! 7. `lru_cache`: an LRU cache. `grants`: the memory that loaders grant to the cache of a dataset.

#[cfg(feature = "annotations")]
pub(super) mod annotated;
#[cfg(any(feature = "arrays", feature = "lmdb", feature = "parquet"))]
pub(super) mod elements;
pub(super) mod features;
#[cfg(any(feature = "hdf5", feature = "parquet"))]
pub(super) mod grants;
#[cfg(feature = "chunks")]
pub(super) mod items;
#[cfg(any(feature = "hdf5", feature = "parquet"))]
pub(super) mod lru_cache;
pub(super) mod npy;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
pub(super) mod pickle;
#[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
pub(super) mod pixels;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
pub(super) mod protobuf;
pub(super) mod record;
#[cfg(feature = "video")]
pub(super) mod video;
#[cfg(feature = "video")]
pub(super) mod video_ahead;

pub use npy::{MAX_AXES, Npy, Shape};
