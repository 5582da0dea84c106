//! warpfeed

pub mod batch;
pub mod decode;
mod error;
pub mod order;
pub mod source;
pub mod transform;

pub use error::{Error, ErrorKind, Result};
