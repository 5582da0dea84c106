//! What a batch is made of: named fields, each of a kind.
//!
//! 1. `kind`: [`Kind`], the trait of all kinds, for your own too.
//! 2. `image`: [`Image`], a picture: decoded, cropped, resized and normalised.
//! 3. `label`: [`Label`], the class as an integer, and as a row of shares.
//! 4. `numbers`: [`Numbers`], an array of one shape.
//! 5. `rows`: [`Rows`], a varying number of rows a sample, padded, with a count.
//! 6. `fields`: all fields of a loader.
//!
//! The file of a kind says three things: how a sample's bytes become its part of the batch, what
//! the plan of the augmentation means for it, and what a device does with it.
//!
//! A loader has two fields by default: `image`, the sample's picture, and `label`.
//! [`Loader::field`](crate::Loader::field) adds a field or replaces one of these.
//! [`Loader::without`](crate::Loader::without) leaves one out.

mod fields;
mod image;
mod kind;
mod label;
mod numbers;
mod rows;

pub(crate) use fields::{Device, Fields};
pub use image::Image;
pub(crate) use image::{ImageField, MixScratch, Written};
#[cfg(feature = "cuda")]
pub(crate) use kind::Inner;
pub use kind::{FieldKind, Kind, Place};
pub use label::Label;
pub use numbers::Numbers;
pub use rows::Rows;
