//! The options of a loader, and how it is opened.
//!
//! 1. `options`: [`Loader`]. Its setters, by purpose: `sampling`, `batching`, `pixels`, `fields`,
//!    `speed`, `limits`, `observe`.
//! 2. `input`: where the samples come from.
//! 3. `open`: checks the options, opens the source, and makes the engine; `cuda`: for batches on a
//!    device.
//! 4. `memory`: the memory that is available, and what a loader may take of it; `processors`: how
//!    many processors it may use.

// First, so that the documentation of `Loader` begins with `new`.
mod options;

mod batching;
#[cfg(feature = "cuda")]
mod cuda;
mod fields;
mod input;
mod limits;
mod memory;
mod observe;
mod open;
mod pixels;
mod processors;
mod sampling;
mod speed;

pub use options::Loader;

#[cfg(test)]
#[path = "../../tests/fuzz/resume.rs"]
mod fuzz;
