//! Values and layouts that several formats share.
//!
//! 1. `record`: turns rows of typed columns into samples. `features`: metadata of the library
//!    `datasets`.
//! 2. `items`: finds samples in files that hold one after the other.
//! 3. `annotated`: the fields of an annotated image.
//! 4. `pickle`, `protobuf`, `npy`: values of other libraries.
//! 5. `elements`, `pixels`: convert arrays of numbers and pixels.
//! 6. `lru_cache`: keeps what was used last. `grants`: shares its memory between readers.

#[cfg(feature = "annotations")]
pub(super) mod annotated;
#[cfg(any(feature = "arrays", feature = "lmdb"))]
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

pub use npy::{MAX_AXES, Npy, Shape};
