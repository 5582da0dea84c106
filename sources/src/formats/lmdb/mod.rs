//! One LMDB database.
//!
//! 1. `read`: [`Lmdb`], and the sample at each key.
//! 2. `keys`: the keys of the samples.
//! 3. [`ValueFormat`]: content of a value: [`MsgPack`] maps, [`RawValues`] images, or a format of your
//!    own.
//! 4. `pickled` and `datum`: values of other libraries.
//! 5. `msgpack`: MessagePack in place.
//! 6. `snapshot`: the environment, and slices of its map that live as long as the source.
//! 7. `header`: the meta pages, checked before LMDB maps the file.
//!
//! `row`: its row in the table of formats, and `detect`: what it is recognized by.

#[cfg(feature = "lmdb")]
mod datum;
mod detect;
#[cfg(feature = "lmdb")]
mod header;
#[cfg(feature = "lmdb")]
mod keys;
#[cfg(feature = "lmdb")]
mod layout;
#[cfg(feature = "lmdb")]
mod msgpack;
#[cfg(feature = "lmdb")]
mod pickled;
#[cfg(feature = "lmdb")]
mod read;
mod row;
#[cfg(feature = "lmdb")]
mod snapshot;

#[cfg(feature = "lmdb")]
pub use layout::{MsgPack, RawValues, ValueFormat};
#[cfg(feature = "lmdb")]
pub use read::CLASSES_KEY;
#[cfg(feature = "lmdb")]
pub use read::Lmdb;
pub(crate) use row::ROW;
#[cfg(feature = "lmdb")]
pub use snapshot::lmdb_error;

#[cfg(all(test, feature = "lmdb"))]
#[path = "../../../tests/fuzz/lmdb.rs"]
mod fuzz;
