//! Named fields of a batch, each of a kind.
//!
//! 1. `kind`: [`Kind`], the trait of all kinds, for your own too.
//! 2. `image`: [`Image`], a picture: decoded, cropped, resized and normalised.
//! 3. `label`: [`Label`], the class as an integer, and as a row of shares.
//! 4. `numbers`: [`Numbers`], an array of one shape.
//! 5. `rows`: [`Rows`], a varying number of rows per sample, padded, with a count.
//! 6. `mask`: [`Mask`], one integer per pixel. `sampler` takes the nearest pixels, and `values`
//!    says what stored values become.
//! 7. `map`: [`Map`], floats per pixel, such as depth.
//! 8. `boxes`: [`Boxes`], with their classes, masks and key points. `corners` defines the formats
//!    of boxes, `columns` reads one number per box, and `segments` draws COCO's outlines and run
//!    lengths.
//! 9. `points`: [`Points`], key points of the picture. `skeleton` is one set of points.
//! 10. `annotations`: [`Annotations`], boxes, masks and points of one sample, without a loader.
//! 11. `multi_hot`: [`MultiHot`], several labels per sample.
//! 12. `tokens`: [`Tokens`], windows of tokens with their documents.
//! 13. `text`: [`Text`], one string per sample.
//! 14. `split`: where the steps of a picture run. `fields`: all fields of a loader.
//! 15. `geometry`: [`Geometry`], where the picture lies in the image. `given`: built-in kinds as data.
//! 16. `encoded`: the encodings of numbers. `json` reads lists of numbers, `number` converts one.
//!
//! Masks, boxes and points lie in the coordinates of the sample's picture and follow its crop,
//! resize, flip and padding. They equal torchvision's v2 with `tv_tensors`.
//!
//! The ending of a field's name determines its encoding, as in WebDataset:
//!
//! | name | bytes |
//! |---|---|
//! | `x` | a little-endian array of the kind's type, without a header |
//! | `x.npy`, `npy` | a NumPy array of booleans, integers or floats, in C order |
//! | `x.json`, `json` | JSON: a number, or nested lists of numbers |
//! | `x.txt`, `txt` | numbers as text, separated by spaces or commas |
//!
//! The batch field `x` takes the first of these that a sample has. A batch field with such an
//! ending in its own name takes only the field of that name. A field that begins with NumPy's
//! signature is an array of NumPy under every name.
//!
//! Numbers are converted to the kind's type. A number that an integer type cannot hold is an error.
//! Floats are rounded to the nearest value: [`Dtype::F64`](crate::Dtype::F64) keeps those of 64
//! bits. [`Numbers`] and [`Rows`] refuse what changes more than a fraction: a whole number (up to
//! 2⁵³) that `f32` or `f64` cannot hold exactly, and a number that would become infinite. `true`
//! and `false` are 1 and 0.
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
mod geometry;
mod given;
mod image;
mod json;
mod kind;
mod label;
mod map;
mod mask;
mod multi_hot;
mod number;
mod numbers;
mod pasted;
mod points;
mod rows;
mod sampler;
mod segments;
mod skeleton;
mod split;
mod text;
mod tokens;
mod values;

pub use annotations::Annotations;
pub use boxes::Boxes;
pub use corners::{BoxFormat, BoxReader};
pub(crate) use fields::{Fields, Member};
pub use geometry::Geometry;
pub use image::Image;
pub(crate) use image::{ImageField, MixScratch, Written};
pub(crate) use kind::Shown;
pub use kind::{FieldKind, Input, Kind, Maker, Pastes, RowMut, Tile};
pub use label::Label;
pub use map::Map;
pub use mask::Mask;
pub use multi_hot::MultiHot;
pub use numbers::Numbers;
pub(crate) use pasted::{NOTHING, Pasted};
pub use points::Points;
pub use rows::Rows;
#[cfg(feature = "_device")]
pub(crate) use split::Room;
pub(crate) use split::Split;
pub use text::Text;
pub use tokens::Tokens;

#[cfg(test)]
#[path = "../../tests/fuzz/fields.rs"]
mod fuzz;
