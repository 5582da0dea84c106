//! Pixels to one host buffer.
//!
//! 1. `schema`: what a batch is made of: fields with a name, a [`Dtype`] and a shape.
//! 2. `write`: [`Writer`], the last pass over an image: normalise, cast, lay out.

mod schema;
mod write;

pub use schema::{Dtype, Field, Layout, Normalize};
pub use write::Writer;
