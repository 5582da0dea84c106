//! The fields of a batch, and the field types that convert samples to them.
//!
//! Masks, boxes, points and maps are cropped, resized, flipped and padded together with the
//! sample's image. After these steps, masks are bit-identical to the results of torchvision's v2
//! transforms with `tv_tensors`, and boxes, points and maps agree with torchvision to 1e-4. The
//! exception is [`zoom_out`](crate::Augment::zoom_out), which rounds the position of the image to
//! whole pixels. Rotations and other warps move these fields together with the image as well, but
//! points may differ from torchvision's (see [`Plan::point`](crate::transform::Plan::point)).
//!
//! The suffix of a field's name in the sample determines its encoding, as in WebDataset:
//!
//! | name | bytes |
//! |---|---|
//! | `x` | a little-endian array of the field's type, without a header |
//! | `x.npy`, `npy` | a NumPy array of booleans, integers or floats, in C order |
//! | `x.json`, `json` | JSON: a number, or nested lists of numbers |
//! | `x.txt`, `txt` | numbers as text, separated by whitespace or commas |
//!
//! The `x` batch field reads the first of the fields `x`, `x.npy`, `x.json` and `x.txt` that a
//! sample has. To read a particular one of them, include the suffix in the name of the batch field.
//! If `x` begins with NumPy's signature, it is read as a NumPy array. If `x` is text, such as a
//! column of a table, it is read like `x.txt`. Field types that read image files, such as [`Mask`],
//! find their fields by other suffixes.
//!
//! Numbers are converted to the element type of the batch field. A sample fails if a number does
//! not fit into an integer type. Float types round numbers. [`NdArray`] and [`Ragged`] also reject
//! integers that are not exact in `f32` or `f64`, and finite numbers that would become infinite.
//! Floats with an absolute value above 2⁵³ do not count as integers. `true` and `false` are
//! converted to 1 and 0.
//!
//! By default, a loader has the fields `image` and `label`. [`Loader::field`](crate::Loader::field)
//! adds or replaces a field, and [`Loader::drop_field`](crate::Loader::drop_field) removes one.

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
mod mask_sampler;
mod multi_hot;
mod nd_array;
mod number;
mod packed;
mod pasted;
mod patch_grid;
mod patches;
mod per_frame;
mod ragged;
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
pub use field_type::{AnyFieldType, FieldType, FieldWriter, Input, PasteRole, RowMut, Tile};
pub(crate) use field_type::{DecodeSettings, ImageContext};
pub(crate) use fields::{ArrayField, Fields};
pub use geometry::Geometry;
pub use image::Image;
pub(crate) use image::{ArrayFormat, ImageField, MixScratch};
pub use keypoints::Keypoints;
pub use label::Label;
pub use mask::Mask;
pub use multi_hot::MultiHot;
pub use nd_array::NdArray;
pub use packed::Packed;
pub(crate) use pasted::{NO_OBJECTS, Pasted};
pub use patches::Patches;
pub use ragged::Ragged;
#[cfg(feature = "_device")]
pub(crate) use split::DecodeSpace;
pub(crate) use split::DeviceSplit;
pub use text::Text;
pub use tokens::Tokens;

#[cfg(test)]
#[path = "../../tests/fuzz/fields.rs"]
mod fuzz;
