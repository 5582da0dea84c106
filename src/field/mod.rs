//! Named fields of a batch, each of a kind.
//!
//! 1. `field_type`: [`FieldType`], the trait of all kinds, for your own too.
//! 2. `image`: [`Image`], an image: decoded, cropped, resized and normalized.
//! 3. `label`: [`Label`], the class as an integer, and as a row of shares.
//! 4. `nd_array`: [`NdArray`], an array of one shape.
//! 5. `ragged`: [`Ragged`], a varying number of rows per sample, padded, with a count.
//! 6. `mask`: [`Mask`], one integer per pixel. `sampler` takes the nearest pixels, and `values`
//!    says what stored values become.
//! 7. `dense_map`: [`DenseMap`], floats per pixel, such as depth.
//! 8. `boxes`: [`Boxes`], with their classes, masks and key points. `corners` defines the formats
//!    of boxes, `columns` reads one number per box, and `segments` draws COCO's outlines and run
//!    lengths.
//! 9. `keypoints`: [`Keypoints`], key points of the image. `skeleton` is one set of points.
//! 10. `annotations`: [`Annotations`], boxes, masks and points of one sample, without a loader.
//! 11. `multi_hot`: [`MultiHot`], several labels per sample.
//! 12. `tokens`: [`Tokens`], windows of tokens with their documents.
//! 13. `text`: [`Text`], one string per sample.
//! 14. `split`: where the steps of an image run. `fields`: all fields of a loader.
//! 15. `geometry`: [`Geometry`], where the image lies in the image. `builtin`: built-in kinds as data.
//! 16. `encoded`: the encodings of numbers. `json` reads lists of numbers, `number` converts one.
//!
//! Masks, boxes and points lie in the coordinates of the sample's image and follow its crop,
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
//! bits. [`NdArray`] and [`Ragged`] refuse what changes more than a fraction: a whole number (up to
//! 2⁵³) that `f32` or `f64` cannot hold exactly, and a number that would become infinite. `true`
//! and `false` are 1 and 0.
//!
//! A loader has two fields by default: `image`, the sample's image, and `label`.
//! [`Loader::field`](crate::Loader::field) adds a field or replaces one of these.
//! [`Loader::drop_field`](crate::Loader::drop_field) leaves one out.

mod annotations;
mod boxes;
mod builtin;
mod columns;
mod corners;
mod dense_map;
mod encoded;
mod field_type;
mod fields;
mod geometry;
mod image;
mod json;
mod keypoints;
mod label;
mod mask;
mod multi_hot;
mod nd_array;
mod number;
mod pasted;
mod ragged;
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
pub use dense_map::DenseMap;
pub(crate) use field_type::Shown;
pub use field_type::{FieldKind, FieldType, FieldWriter, Input, PasteRole, RowMut, Tile};
pub(crate) use fields::{Fields, Member};
pub use geometry::Geometry;
pub use image::Image;
pub(crate) use image::{ImageField, MixScratch, Written};
pub use keypoints::Keypoints;
pub use label::Label;
pub use mask::Mask;
pub use multi_hot::MultiHot;
pub use nd_array::NdArray;
pub(crate) use pasted::{NOTHING, Pasted};
pub use ragged::Ragged;
#[cfg(feature = "_device")]
pub(crate) use split::Room;
pub(crate) use split::Split;
pub use text::Text;
pub use tokens::Tokens;

#[cfg(test)]
#[path = "../../tests/fuzz/fields.rs"]
mod fuzz;
