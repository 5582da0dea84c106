//! A decoder for servers, whose batches are requests.
//!
//! Images enter in requests. Each request leaves as one batch, in the order in which the requests
//! were submitted.
//!
//! 1. `reply`: the place of an answer until it is taken.
//! 2. `requests`: the queue, and the source of the images of requests in progress.
//! 3. `decoder`: [`Decoder`], and the thread that answers.
//! 4. `dynamic_batcher`: [`DynamicBatcher`], which joins requests, and the thread that begins their batches.

mod decoder;
mod dynamic_batcher;
mod reply;
mod requests;

pub use decoder::{Decoder, Pending};
pub use dynamic_batcher::{DynamicBatch, DynamicBatcher};
pub(crate) use requests::{Limits, Requests};
