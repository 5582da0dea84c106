//! Samples to a file that a source reads.
//!
//! 1. `driver`: [`Pack`], every sample of a source into a writer.
//! 2. `bad`: the images that a pack lists, and what it says of them.
//! 3. `recode`: [`Recode`], what becomes of the images.
//! 4. `jpeg`: [`repack_jpeg`], the same picture in a form from which crops are cut fast.
//! 5. [`LmdbWriter`]: one LMDB database.
//! 6. [`TarWriter`]: one tar file, or numbered shards.
//! 7. `writer`: [`Writer`], what both are, and the names that they write under.
//!
//! All write beside the target, under a name that ends in `.partial`, and rename at the end: what
//! has the target's name is whole.

mod bad;
mod driver;
mod jpeg;
mod lmdb;
mod recode;
mod tar;
mod writer;

pub use bad::Refused;
pub use driver::{Pack, Progress, Report};
pub use jpeg::repack_jpeg;
pub use lmdb::LmdbWriter;
pub use recode::{RawSize, Recode};
pub use tar::TarWriter;
pub use writer::{WriteOptions, Writer, Written};
