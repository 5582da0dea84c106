//! Writes samples to a file that a source can read.
//!
//! 1. `driver`: [`Pack`] puts every sample of a source into a writer.
//! 2. `bad`: the images that a pack lists, with the reasons.
//! 3. `recode`: [`Recode`], the treatment of images. `renumber` renumbers fields of classes.
//! 4. `jpeg`: [`repack_jpeg`] rewrites a JPEG for fast crops, with the same pixels.
//! 5. [`LmdbWriter`]: one LMDB database.
//! 6. [`TarWriter`]: one tar file, or numbered shards.
//! 7. `writer`: [`Writer`], the trait of both, and the names of their files.
//!
//! All writers write under a name that ends in `.partial`, and rename at the end. So a file with
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
