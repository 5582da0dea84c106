//! Code for parsing and converting values that several formats share.

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
pub(super) mod video_prefetch;

pub use npy::{MAX_AXES, Npy, Shape};
