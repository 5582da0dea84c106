//! A decoder for inference servers.
//!
//! A request contains encoded images, and its response is one batch. Responses arrive in order.

mod decoder;
mod dynamic_batcher;
mod requests;
mod response;

pub use decoder::{Decoder, Pending};
pub use dynamic_batcher::{DynamicBatch, DynamicBatcher};
pub(crate) use requests::{Limits, Requests};
