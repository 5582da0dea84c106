//! Prefetches samples from stores.

mod fetcher;
mod pace;
mod piece;
mod plan;
mod remote;
mod request;

#[cfg(feature = "parquet")]
pub(crate) use remote::MAX_PREFETCH;
pub use remote::Remote;
pub(crate) use remote::max_prefetch_bytes;
#[cfg(any(feature = "annotations", feature = "arrays", feature = "tables"))]
pub(crate) use request::order_of_reads;
pub(crate) use request::{SampleRanges, identity};
