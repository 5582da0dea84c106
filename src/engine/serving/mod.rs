//! A decoder for inference servers, which turns each request into a batch.
//!
//! The input is requests with encoded images. The output is one batch per request, in the order of
//! submission.
//!
//! 1. `reply`: holds a response until it is received.
//! 2. `requests`: the queue of requests, and the source that provides the images of the requests in
//!    progress.
//! 3. `decoder`: [`Decoder`], and the thread that sends responses.
//! 4. `dynamic_batcher`: [`DynamicBatcher`], and the thread that starts its batches.

mod decoder;
mod dynamic_batcher;
mod reply;
mod requests;

pub use decoder::{Decoder, Pending};
pub use dynamic_batcher::{DynamicBatch, DynamicBatcher};
pub(crate) use requests::{Limits, Requests};
