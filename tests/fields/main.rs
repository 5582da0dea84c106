//! Tests the fields of a batch and their values.

#[path = "../support/annotated.rs"]
mod annotated;
#[path = "../support/reference.rs"]
mod reference;
#[path = "../support/reference_fields.rs"]
mod reference_fields;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiff.rs"]
mod tiff;

mod annotated_batches;
mod annotations_exif;
mod batch;
mod boxes;
mod clips;
mod datasets;
mod float_values;
mod frames;
mod geometry;
mod labels;
mod mask_values;
mod masks;
mod mosaics;
mod numbers;
mod pastes;
mod patches;
mod sizes;
mod texts;
mod views;
