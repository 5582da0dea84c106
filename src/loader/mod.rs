//! The options of a loader, and the code that opens it.
//!
//! `option_table` contains the options with a single value. Other files group the remaining setters
//! by purpose.

/// Defines setters on both [`Loader`] and [`DecoderBuilder`]. The body of a setter modifies `self`.
macro_rules! shared_setters {
    ($($(#[$meta:meta])* pub fn $name:ident(mut $this:ident, $arg:ident: $type:ty) -> Self $set:block)*) => {
        impl Loader {
            $($(#[$meta])* pub fn $name(mut $this, $arg: $type) -> Self { $set $this })*
        }

        /// Options with the same meaning as for [`Loader`].
        impl DecoderBuilder {
            $(
                #[doc = concat!("As [`Loader::", stringify!($name), "`].")]
                pub fn $name(mut $this, $arg: $type) -> Self { $set $this }
            )*
        }
    };
}

/// Defines the single-valued options. For each option, the macro generates a setter, and a field of
/// the struct that loaders and decoders share. The setters of `named` options are written by hand
/// in other modules.
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

        /// Options with the same meaning as for [`Loader`](crate::Loader).
        impl crate::loader::DecoderBuilder {
            $($(of_both! { $whose
                #[doc = concat!("As [`Loader::", stringify!($name), "`](crate::Loader::", stringify!($name), ").")]
                pub fn $name(mut self, $value: $type) -> Self { self.images.$name = $value.into(); self }
            })*)*
        }

        impl crate::loader::Loader {
            /// The single-valued options. An entry contains the name of the setter, its keyword in
            /// the Python package, the type and the default. The keyword is empty if it equals the
            /// name. For the setters in `named`, only the name is set.
            #[doc(hidden)]
            pub const OPTIONS: &[[&str; 4]] = &[
                $($([stringify!($name), concat!("" $(, stringify!($keyword))?), stringify!($kept), stringify!($default)],)*)*
                $([stringify!($named), "", "", ""],)*
            ];

            /// Calls the setter `name` of [`OPTIONS`](Self::OPTIONS) with the value in `json`.
            /// Returns `None` if there is no such option, and an error if `json` does not contain a
            /// value of the option's type.
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

        /// Expands to links to the options of one purpose, for the table in the documentation.
        macro_rules! listed {
            $(($purpose) => {
                concat!("" $(, "[`", stringify!($name), "`](Loader::", stringify!($name), ")",)", "*)
            };)*
        }
        pub(super) use listed;
    };
}

/// Defines a setter of [`DecoderBuilder`] if the option is marked `both`.
macro_rules! of_both {
    (both $($setter:tt)*) => { $($setter)* };
    (loader $($setter:tt)*) => {};
}

// The documentation of `Loader` begins with the methods of the first module, and so with `new`.
mod options;

mod batch_size;
mod batching;
mod class_list;
mod classes;
mod cores;
mod decoder;
#[cfg(feature = "_device")]
mod device;
mod display;
mod error_policy;
mod field_names;
mod fields;
mod images;
mod input;
mod memory;
#[cfg(feature = "cuda")]
mod nvidia;
mod observability;
mod open;
mod option_table;
mod pixels;
mod samples;
mod sampling;
#[cfg(test)]
mod tests;

pub use decoder::DecoderBuilder;
pub use options::Loader;

#[cfg(test)]
#[path = "../../tests/fuzz/resume.rs"]
mod fuzz;
