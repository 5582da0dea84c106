//! The options of a loader, and how it is opened.
//!
//! 1. `input`: the origin of the samples; `listed`: the list that numbers their classes.
//!    `sampling`: the choice and order of samples. `share`: the batch size, and the rank that it
//!    applies to.
//! 2. `options`: [`Loader`]. Its setters, by purpose: `samples`, `batching`, `pixels`, `fields`,
//!    `classes`, `speed`, `limits`, `observe`. `pictures`: the options that it shares with
//!    [`DecoderBuilder`], which is in `decoder`.
//! 3. `open`: checks the options, opens the source, and makes the engine; `device`: the same for
//!    batches on a device, and `nvidia` on NVIDIA's; `field_names`: whether the source has the fields.
//! 4. `memory`: available memory, and the loader's share of it; `processors`: the number of
//!    processors that it may use.

/// Defines setters of a [`Loader`], and the same of a [`DecoderBuilder`]. Each sets a field and returns
/// `self`.
macro_rules! shared_setters {
    ($($(#[$meta:meta])* pub fn $name:ident(mut $this:ident, $arg:ident: $type:ty) -> Self $set:block)*) => {
        impl Loader {
            $($(#[$meta])* pub fn $name(mut $this, $arg: $type) -> Self { $set $this })*
        }

        /// Options that [`Loader`] has too, with the same meaning.
        impl DecoderBuilder {
            $(
                #[doc = concat!("As [`Loader::", stringify!($name), "`].")]
                pub fn $name(mut $this, $arg: $type) -> Self { $set $this }
            )*
        }
    };
}

// First, so that the documentation of `Loader` begins with `new`.
mod options;

mod batching;
mod classes;
mod decoder;
#[cfg(feature = "_device")]
mod device;
mod field_names;
mod fields;
mod input;
mod limits;
mod listed;
mod memory;
#[cfg(feature = "cuda")]
mod nvidia;
mod observe;
mod open;
mod pictures;
mod pixels;
mod processors;
mod samples;
mod sampling;
mod share;
mod speed;
#[cfg(test)]
mod tests;

pub use decoder::DecoderBuilder;
pub use options::Loader;

#[cfg(test)]
#[path = "../../tests/fuzz/resume.rs"]
mod fuzz;
