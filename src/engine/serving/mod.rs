//! A decoder for servers, whose batches are requests.
//!
//! Pictures enter in requests. Each request leaves as one batch, in the order in which the requests
//! were submitted.
//!
//! 1. `reply`: the place of an answer until it is taken.
//! 2. `requests`: the queue, and the source of the pictures of requests in progress.
//! 3. `decoder`: [`Decoder`], and the thread that answers.
//! 4. `joined`: [`Joined`], which joins requests, and the thread that begins their batches.

mod decoder;
mod joined;
mod reply;
mod requests;

pub use decoder::{Decoder, Pending};
pub use joined::{Joined, JoinedBatch};
pub(crate) use requests::{Limits, Requests};
