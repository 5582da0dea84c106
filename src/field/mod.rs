//! Field types: the named fields of a batch.
//!
//! 1. `field_type`: [`FieldType`], the trait of all field types, including custom ones.
//! 2. `image`: [`Image`], an image that is decoded, cropped, resized and normalized.
//! 3. `label`: [`Label`], the class as an integer and as a soft label.
//! 4. `nd_array`: [`NdArray`], an array with a fixed shape.
//! 5. `ragged`: [`Ragged`], a variable number of rows per sample, with padding and a row count.
//! 6. `mask`: [`Mask`], one integer per pixel. `sampler` samples the nearest pixels, and `values`
//!    maps stored values.
//! 7. `dense_map`: [`DenseMap`], floats per pixel, such as depth.
//! 8. `boxes`: [`Boxes`], with their classes, masks and keypoints. `corners` defines the formats of
//!    boxes, `columns` reads one number per box, and `segments` draws COCO's polygons and run
//!    lengths.
//! 9. `keypoints`: [`Keypoints`], keypoints of the image. `skeleton` handles one set of points.
//! 10. `annotations`: [`Annotations`], the boxes, masks and points of one sample, read without a
//!     loader.
//! 11. `multi_hot`: [`MultiHot`], several labels per sample.
//! 12. `tokens`: [`Tokens`], windows of tokens with their documents.
//! 13. `text`: [`Text`], one string per sample.
//! 14. `split` decides where the steps of an image run. `fields` contains all fields of a loader.
//! 15. `geometry`: [`Geometry`], the position of the source image in the output. `builtin`
//!     deserializes built-in field types.
//! 16. `encoded`: the encodings of numbers. `json` parses lists of numbers, and `number` converts
//!     one number.
//!
//! Masks, boxes and points use coordinates of the sample's image and are cropped, resized, flipped
//! and padded together with it. The results equal those of torchvision's v2 transforms with
//! `tv_tensors`.
//!
//! The suffix of a field's name determines its encoding, as in WebDataset:
//!
//! | name | bytes |
//! |---|---|
//! | `x` | a little-endian array of the field's type, without a header |
//! | `x.npy`, `npy` | a NumPy array of booleans, integers or floats, in C order |
//! | `x.json`, `json` | JSON: a number, or nested lists of numbers |
//! | `x.txt`, `txt` | numbers as text, separated by spaces or commas |
//!
//! The batch field `x` reads the first of these fields that a sample has. If the name of the batch
//! field already has such a suffix, it reads only the field with exactly that name. A field whose
//! bytes begin with NumPy's signature is read as a NumPy array, whatever its name.
//!
//! Numbers are converted to the field's element type. A sample fails if an integer type cannot hold
//! one of its numbers. Floats are rounded to the nearest value; [`Dtype::F64`](crate::Dtype::F64)
//! preserves 64-bit floats. [`NdArray`] and [`Ragged`] round only fractions. They reject an integer
//! (up to 2⁵³) that `f32` or `f64` cannot hold exactly, and a number that would become infinite.
//! `true` and `false` are converted to 1 and 0.
//!
//! A loader has two fields by default: `image`, the sample's image, and `label`.
//! [`Loader::field`](crate::Loader::field) adds a field or replaces one of these.
//! [`Loader::drop_field`](crate::Loader::drop_field) removes one.

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
