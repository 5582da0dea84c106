//! Tests of the fields of a batch and their values.

#[path = "../support/annotated.rs"]
mod annotated;
#[path = "../support/follow.rs"]
mod follow;
#[path = "../support/reference.rs"]
mod reference;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiff.rs"]
mod tiff;

mod annotated_batches;
mod annotations_follow;
mod batch;
mod boxes;
mod clips;
mod datasets;
mod geometry;
mod labels;
mod mask_values;
mod masks;
mod mosaics;
mod numbers;
mod pastes;
mod patches;
mod sizes;
mod stored_values;
mod texts;
mod views;
