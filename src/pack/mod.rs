//! Writes samples to a file that a source can read.
//!
//! 1. `driver`: [`Pack`] puts every sample of a source into a writer.
//! 2. `bad`: images that could not be recoded or are damaged.
//! 3. `recode`: [`Recode`], the treatment of images. `renumber`: new numbers for class fields.
//! 4. `jpeg`: [`repack_jpeg`], which rewrites a JPEG losslessly for fast crops.
//! 5. [`LmdbWriter`]: one LMDB database.
//! 6. [`TarWriter`]: one tar file, or numbered shards.
//! 7. `writer`: the trait [`Writer`], and helpers for files.
//!
//! All writers write under a name that ends in `.partial` and rename it at the end, so a file with
//! the target's name is always complete.

mod bad;
mod driver;
mod jpeg;
#[cfg(feature = "lmdb")]
mod lmdb;
mod recode;
mod renumber;
mod tar;
mod writer;

pub use bad::Refused;
pub use driver::{Pack, Progress, Report};
pub use jpeg::repack_jpeg;
#[cfg(feature = "lmdb")]
pub use lmdb::LmdbWriter;
pub use recode::{RawSize, Recode};
pub use tar::TarWriter;
pub use writer::{WriteOptions, Writer, Written};
