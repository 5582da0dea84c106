//! The options of a loader, and how it is opened.
//!
//! 1. `input`: where the samples come from; `listed`: the list that numbers their classes.
//!    `sampling`: which samples, in which order; `labels` asks for the labels that this takes.
//!    `share`: how large a batch is, and of which rank.
//! 2. `options`: [`Loader`]. Its setters, by purpose: `samples`, `batching`, `pixels`, `fields`,
//!    `classes`, `speed`, `limits`, `observe`.
//!    `pictures`: the options that it shares with [`DecoderBuilder`], which `decoder` has.
//! 3. `open`: checks the options, opens the source, and makes the engine; `cuda`: for batches on a
//!    device.
//! 4. `memory`: the memory that is available, and what a loader may take of it; `processors`: how
//!    many processors it may use.

// First, so that the documentation of `Loader` begins with `new`.
mod options;

mod batching;
mod classes;
#[cfg(feature = "cuda")]
mod cuda;
mod decoder;
mod fields;
mod input;
mod labels;
mod limits;
mod listed;
mod memory;
mod observe;
mod open;
mod pictures;
mod pixels;
mod processors;
mod samples;
mod sampling;
mod share;
mod speed;

pub use decoder::DecoderBuilder;
pub use input::DataSet;
pub use options::Loader;

#[cfg(test)]
#[path = "../../tests/fuzz/resume.rs"]
mod fuzz;
