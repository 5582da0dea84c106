//! The options of a loader, and how it is opened.
//!
//! 1. `options`: [`Loader`]. The setters lie by purpose: `sampling`, `batching`, `pixels`, `fields`,
//!    `speed`, `limits`, `observe`.
//! 2. `input`: where the samples come from.
//! 3. `open`: checks the options, opens the source, and makes the engine; `cuda`: for batches on a
//!    device.
//! 4. `memory`: what there is, and what a loader may take; `processors`: how many are its own.

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
