//! Reads ahead of need from a store.
//!
//! 1. [`Remote`]: a store with the objects of a dataset; reads the parts of samples, ahead or on
//!    request. The only place where requests are repeated.
//! 2. `request`: what all requests share.
//! 3. `fetcher`: follows the order of one loader and keeps requests in flight.
//! 4. `piece`: one request and its answer.
//! 5. `plan`: merges the parts of neighboring samples into requests.
//! 6. `pace`: how many requests are in flight, and when one is late.

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
