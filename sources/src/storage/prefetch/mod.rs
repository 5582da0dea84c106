//! Prefetches samples from stores.

mod congestion;
mod fetcher;
mod piece;
mod plan;
mod remote;
mod request;

#[cfg(feature = "parquet")]
pub(crate) use remote::MAX_PREFETCH_BYTES;
pub use remote::Remote;
pub(crate) use remote::max_prefetch_bytes;
#[cfg(any(feature = "annotations", feature = "arrays", feature = "tables"))]
pub(crate) use request::order_of_reads;
pub(crate) use request::{SampleRanges, hash_objects};
