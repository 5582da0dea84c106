//! Tests packing.

#[path = "../support/before_read.rs"]
mod before_read;
#[path = "../support/process.rs"]
mod process;

mod concurrent_runs;
mod conversion;
mod image_fields;
mod killed;
mod object_store;
mod overview;
mod parts;
mod writers;
