//! The options of a loader, and how it is opened.
//!
//! 1. `input`: the origin of the samples; `class_list`: the list that numbers their classes.
//!    `sampling`: the choice and order of samples. `share`: the batch size, and the rank that it
//!    applies to.
//! 2. `options`: [`Loader`]. `rows`: its options that are one value. Other setters, by purpose:
//!    `samples`, `batching`, `pixels`, `fields`, `classes`, `limits`, `observe`. `images`: the
//!    options that it shares with [`DecoderBuilder`], which is in `decoder`. `display`: a loader as text.
//! 3. `open`: checks the options, opens the source, and makes the engine; `device`: the same for
//!    batches on a device, and `nvidia` on NVIDIA's; `field_names`: whether the source has the fields.
//! 4. `memory`: available memory, and the loader's share of it; `cores`: the number of
//!    cores that it may use.

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

/// Defines the options of `rows`. Each is a field of the options that a loader and a decoder share, and a
/// setter; a `named` one is a setter that is written elsewhere.
macro_rules! options {
    (
        $(#[$about:meta])* $fields:ident { $($field:ident: $field_type:ty = $field_default:expr,)* }
        $(purpose $purpose:tt, $of:literal {
            $(
                $(#[$meta:meta])*
                $whose:ident fn $name:ident($value:ident: $type:ty) -> $kept:ty = $default:expr $(, as $keyword:ident)?;
            )*
        })*
        named { $($named:ident),* }
    ) => {
        $(#[$about])*
        #[derive(Clone)]
        pub(super) struct $fields {
            $(pub(super) $field: $field_type,)*
            $($(pub(super) $name: $kept,)*)*
        }

        impl Default for $fields {
            fn default() -> Self {
                $fields { $($field: $field_default,)* $($($name: $default,)*)* }
            }
        }

        impl $fields {
            /// The values of the options by name.
            pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
                vec![$($((stringify!($name), format!("{:?}", self.$name)),)*)*]
            }
        }

        $(
            #[doc = $of]
            impl crate::loader::Loader {
                $($(#[$meta])* pub fn $name(mut self, $value: $type) -> Self { self.images.$name = $value.into(); self })*
            }
        )*

        /// Options that [`Loader`](crate::Loader) has too, with the same meaning.
        impl crate::loader::DecoderBuilder {
            $($(of_both! { $whose
                #[doc = concat!("As [`Loader::", stringify!($name), "`](crate::Loader::", stringify!($name), ").")]
                pub fn $name(mut self, $value: $type) -> Self { self.images.$name = $value.into(); self }
            })*)*
        }

        impl crate::loader::Loader {
            /// The options that are one value: the setter, the keyword of the Python package if that is
            /// another one, the type and the default.
            #[doc(hidden)]
            pub const OPTIONS: &[[&str; 4]] = &[
                $($([stringify!($name), concat!("" $(, stringify!($keyword))?), stringify!($kept), stringify!($default)],)*)*
                $([stringify!($named), "", "", ""],)*
            ];

            /// Calls the setter `name` of [`OPTIONS`](Self::OPTIONS) with the value that `json` is. `None`
            /// if there is none.
            #[doc(hidden)]
            pub fn set(self, name: &str, json: &str) -> Option<serde_json::Result<Self>> {
                $($(if name == stringify!($name) {
                    return Some(serde_json::from_str(json).map(|value| self.$name(value)));
                })*)*
                $(if name == stringify!($named) {
                    return Some(serde_json::from_str(json).map(|value| self.$named(value)));
                })*
                None
            }
        }

        /// Links to the options of a purpose, for the table in the documentation of the loader.
        macro_rules! listed {
            $(($purpose) => {
                concat!("" $(, "[`", stringify!($name), "`](Loader::", stringify!($name), ")",)", "*)
            };)*
        }
        pub(super) use listed;
    };
}

/// Keeps a setter of a decoder if the loader is not the only one that has it.
macro_rules! of_both {
    (both $($setter:tt)*) => { $($setter)* };
    (loader $($setter:tt)*) => {};
}

// First, so that the documentation of `Loader` begins with `new`.
mod options;

mod batching;
mod class_list;
mod classes;
mod cores;
mod decoder;
#[cfg(feature = "_device")]
mod device;
mod display;
mod field_names;
mod fields;
mod images;
mod input;
mod limits;
mod memory;
#[cfg(feature = "cuda")]
mod nvidia;
mod observe;
mod open;
mod pixels;
mod rows;
mod samples;
mod sampling;
mod share;
#[cfg(test)]
mod tests;

pub use decoder::DecoderBuilder;
pub use options::Loader;

#[cfg(test)]
#[path = "../../tests/fuzz/resume.rs"]
mod fuzz;
