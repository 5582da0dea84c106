//! What a batch is made of: named fields, each of a kind.
//!
//! 1. `kind`: [`Kind`], what every kind says of itself, for those of your own too.
//! 2. `image`: [`Image`], a picture: decoded, cropped, resized and normalised.
//! 3. `label`: [`Label`], the class as an integer, and as a row of shares.
//! 4. `numbers`: [`Numbers`], an array of one shape.
//! 5. `rows`: [`Rows`], rows of which samples have different numbers, padded, with a count.
//! 6. `fields`: the fields of a loader together.
//!
//! A kind says in its file how a sample's bytes become its part of the batch, what the
//! augmentation's plan means for it, and what a device does with it.
//!
//! A loader has two fields unless it is told otherwise: `image`, the sample's picture, and `label`.
//! [`Loader::field`](crate::Loader::field) adds others or replaces these,
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
pub(crate) use kind::Inner;
pub use kind::{FieldKind, Kind, Place};
pub use label::Label;
pub use numbers::Numbers;
pub use rows::Rows;
