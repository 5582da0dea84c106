//! Tests of the sample order: epochs, ranks, splits and resuming.

#[path = "../support/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

mod buckets;
mod budget;
mod changed_weights;
mod combinations;
mod determinism;
mod epoch_boundaries;
mod epochs;
mod ranks;
mod replay;
mod resume;
mod size_buckets;
mod split;
