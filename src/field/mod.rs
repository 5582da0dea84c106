//! What a batch is made of: named fields, each of a kind.
//!
//! 1. `kind`: [`Kind`], the trait of all kinds, for your own too.
//! 2. `image`: [`Image`], a picture: decoded, cropped, resized and normalised.
//! 3. `label`: [`Label`], the class as an integer, and as a row of shares.
//! 4. `numbers`: [`Numbers`], an array of one shape.
//! 5. `rows`: [`Rows`], a varying number of rows a sample, padded, with a count.
//! 6. `mask`: [`Mask`], an integer a pixel; `sampler` takes its nearest pixels.
//! 7. `boxes`: [`Boxes`], with what belongs to each: `corners` says what their numbers are,
//!    `columns` reads one number of each, `segments` makes masks of COCO's outlines and run lengths.
//! 8. `points`: [`Points`], key points of the picture; `skeleton`: a set of them.
//! 9. [`Annotations`]: boxes, masks and points of one sample, for programs that look at a set.
//! 10. `multi_hot`: [`MultiHot`], several labels a sample.
//! 11. `fields`: all fields of a loader.
//! 12. `encoded`: how the numbers of a field are written; `json`: lists of numbers; `number`: one
//!     number and its conversion.
//!
//! Masks, boxes and points lie in the coordinates of the sample's picture and follow its crop,
//! resize, flip and padding. They equal torchvision's v2 with `tv_tensors`.
//!
//! The end of a field's name says how its numbers are written, as in WebDataset:
//!
//! | name | bytes |
//! |---|---|
//! | `x` | a little-endian array of the kind's type, without a header |
//! | `x.npy` | a NumPy array of booleans, integers or floats, in C order |
//! | `x.json` | JSON: a number, or nested lists of numbers |
//! | `x.txt` | numbers as text, with spaces or commas between them |
//!
//! The batch field `x` takes the first of these that a sample has. A batch field whose own name
//! ends so takes that field alone. Numbers are converted to the kind's type. A float is rounded to
//! the nearest of its type. A number that an integer type cannot hold is an error. `true` and
//! `false` are 1 and 0.
//!
//! The file of a kind says three things: how a sample's bytes become its part of the batch, what
//! the plan of the augmentation means for it, and what a device does with it.
//!
//! A loader has two fields by default: `image`, the sample's picture, and `label`.
//! [`Loader::field`](crate::Loader::field) adds a field or replaces one of these.
//! [`Loader::without`](crate::Loader::without) leaves one out.

mod annotations;
mod boxes;
mod columns;
mod corners;
mod encoded;
mod fields;
mod image;
mod json;
mod kind;
mod label;
mod map;
mod mask;
mod multi_hot;
mod number;
mod numbers;
mod points;
mod rows;
mod sampler;
mod segments;
mod skeleton;

pub use annotations::Annotations;
pub use boxes::Boxes;
pub use corners::{BoxFormat, BoxReader};
#[cfg(feature = "cuda")]
pub(crate) use fields::Room;
pub(crate) use fields::{Device, Fields, Member};
pub use image::Image;
pub(crate) use image::{ImageField, MixScratch, Written};
pub use kind::{FieldKind, Input, Kind, Maker, Place};
pub use label::Label;
pub use map::Map;
pub use mask::Mask;
pub use multi_hot::MultiHot;
pub use numbers::Numbers;
pub use points::Points;
pub use rows::Rows;
