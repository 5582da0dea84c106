//! warpfeed

pub mod decode;
mod error;
pub mod source;

pub use error::{Error, ErrorKind, Result};
