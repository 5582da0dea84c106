//! LMDB databases.
//!
//! 1. `read`: [`Lmdb`], the source.
//! 2. `keys`: the keys of the samples, which are computed or listed.
//! 3. `layout`: [`ValueFormat`], the layout of a value. It is implemented by [`MsgPack`] for maps
//!    and by [`RawValues`] for images, and can be implemented for custom layouts.
//! 4. `pickled` and `datum`: values in other layouts, which are pickles and Caffe's `Datum`.
//! 5. `msgpack`: zero-copy MessagePack parser.
//! 6. `snapshot`: the environment, and slices of its memory map that live as long as the source.
//! 7. `header`: checks the meta pages before LMDB maps the file.
//!
//! `row` registers the format, and `detect` detects its files.

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
