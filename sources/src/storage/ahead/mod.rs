//! Prefetches samples from stores.
//!
//! 1. `remote`: [`Remote`], which reads the byte ranges of samples from a store, prefetched if
//!    possible, and retries failed requests.
//! 2. `request`: the byte ranges of a dataset, counters of requests, and the retry policy.
//! 3. `fetcher`: prefetches samples in the order of one loader.
//! 4. `piece`: a request for one or more samples, and its response.
//! 5. `plan`: merges the byte ranges of adjacent samples into requests.
//! 6. `pace`: controls the number of requests in flight, and decides when a request is late.

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
