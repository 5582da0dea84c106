//! One LMDB database.
//!
//! 1. `read`: [`Lmdb`], its keys, and the sample at each.
//! 2. [`ValueFormat`]: content of a value: [`MsgPack`] maps, [`Bare`] pictures, or a format of your
//!    own.
//! 3. `msgpack`: MessagePack in place.
//! 4. `snapshot`: the environment, and slices of its map that live as long as the source.
//! 5. `header`: the meta pages, checked before LMDB maps the file.

mod header;
mod layout;
mod msgpack;
mod read;
mod snapshot;

pub use layout::{Bare, MsgPack, ValueFormat};
#[cfg(feature = "pack")]
pub(crate) use read::CLASSES_KEY;
pub use read::Lmdb;
#[cfg(feature = "pack")]
pub(crate) use snapshot::lmdb_error;

#[cfg(test)]
#[path = "../../../tests/fuzz/lmdb.rs"]
mod fuzz;
