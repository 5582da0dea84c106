//! Pixels to one host buffer.
//!
//! 1. `schema`: what a batch is made of: fields with a name, a [`Dtype`] and a shape.

mod schema;

pub use schema::{Dtype, Field, Layout, Normalize};
