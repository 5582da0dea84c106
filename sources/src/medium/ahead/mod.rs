//! Prefetches samples from stores.
//!
//! 1. [`Remote`]: a store, as a dataset uses it. Reads the byte ranges of samples, either from
//!    prefetched data or on demand. All retries happen in this module.
//! 2. `request`: definitions shared by all requests: byte ranges, counters and the retry policy.
//! 3. `fetcher`: prefetches in the order of one loader and keeps requests in flight.
//! 4. `piece`: one request and its response.
//! 5. `plan`: merges the ranges of adjacent samples into requests.
//! 6. `pace`: controls the number of requests in flight, and decides when a request is late.

mod fetcher;
mod pace;
mod piece;
mod plan;
mod remote;
mod request;

#[cfg(feature = "parquet")]
pub(crate) use remote::AHEAD;
pub use remote::Remote;
pub(crate) use remote::ahead_of;
#[cfg(any(feature = "annotations", feature = "arrays", feature = "tables"))]
pub(crate) use request::wide;
pub(crate) use request::{Parts, identity};
