//! One LMDB database.
//!
//! 1. `read`: [`Lmdb`], and the sample at each key.
//! 2. `keys`: the keys of the samples.
//! 3. [`ValueFormat`]: content of a value: [`MsgPack`] maps, [`Bare`] pictures, or a format of your
//!    own.
//! 4. `pickled` and `datum`: values of other libraries.
//! 5. `msgpack`: MessagePack in place.
//! 6. `snapshot`: the environment, and slices of its map that live as long as the source.
//! 7. `header`: the meta pages, checked before LMDB maps the file.

mod datum;
mod header;
mod keys;
mod layout;
mod msgpack;
mod pickled;
mod read;
mod snapshot;

pub use layout::{Bare, MsgPack, ValueFormat};
#[cfg(feature = "pack")]
pub(crate) use read::CLASSES_KEY;
pub use read::Lmdb;
pub(in crate::source) use read::LmdbOptions;
#[cfg(feature = "pack")]
pub(crate) use snapshot::lmdb_error;

#[cfg(test)]
#[path = "../../../../tests/fuzz/lmdb.rs"]
mod fuzz;
