//! Reads LMDB databases.

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
