//! A decoder for servers, whose batches are requests.
//!
//! Pictures enter in requests. Each request leaves as one batch, in the order in which the requests
//! were submitted.
//!
//! 1. `reply`: the place of an answer until it is taken.
//! 2. `requests`: the queue, and the source of the pictures of requests in progress.
//! 3. `decoder`: [`Decoder`], and the thread that answers.

mod decoder;
mod reply;
mod requests;

pub use decoder::{Decoder, Pending};
pub(crate) use requests::{Limits, Requests};
