//! Reads LMDB databases.
//!
//! 1. `source`: [`Lmdb`], the source.
//! 2. `keys`: computes or lists the keys of the samples.
//! 3. `layout`: [`ValueFormat`], which users can implement for custom layouts of values, and its
//!    implementations [`MsgPack`] for maps and [`RawValues`] for images.
//! 4. `pickled` and `datum`: values that are pickles or Caffe `Datum` messages.
//! 5. `msgpack`: a zero-copy MessagePack parser.
//! 6. `snapshot`: the LMDB environment, and slices of its memory map that live as long as the
//!    source.
//! 7. `header`: checks the meta pages before LMDB maps the file.
//!
//! `data_format` registers the format, and `detect` recognizes its files.

mod data_format;
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
mod snapshot;
#[cfg(feature = "lmdb")]
mod source;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "lmdb")]
pub use layout::{MsgPack, RawValues, ValueFormat};
#[cfg(feature = "lmdb")]
pub use snapshot::lmdb_error;
#[cfg(feature = "lmdb")]
pub use source::CLASSES_KEY;
#[cfg(feature = "lmdb")]
pub use source::Lmdb;

#[cfg(all(test, feature = "lmdb"))]
#[path = "../../../tests/fuzz/lmdb.rs"]
mod fuzz;
