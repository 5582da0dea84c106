//! A decoder for inference servers.
//!
//! A request contains encoded images, and the response to it is one batch. Responses arrive in the
//! order of submission.
//!
//! - `response`: stores a response until it is received.
//! - `requests`: the queue of requests, and the source that provides their images to the engine.
//! - `decoder`: [`Decoder`], and the thread that turns batches into responses.
//! - `dynamic_batcher`: [`DynamicBatcher`], and the thread that combines requests into batches.

mod decoder;
mod dynamic_batcher;
mod requests;
mod response;

pub use decoder::{Decoder, Pending};
pub use dynamic_batcher::{DynamicBatch, DynamicBatcher};
pub(crate) use requests::{Limits, Requests};
