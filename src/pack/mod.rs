//! Packs samples into files that a source can read.
//!
//! 1. `driver`: [`Pack`] passes every sample of a source to a writer, or packs a part of a set.
//! 2. `run`: reads and recodes samples on several threads, in order. `prepare`: processes one
//!    sample.
//! 3. `bad_images`: images that could not be recoded or are damaged. `report`: the counts of a run.
//! 4. `recode`: [`Recode`] specifies how images are recoded. `renumber`: applies new class numbers
//!    to class fields and masks.
//! 5. `jpeg`: [`repack_jpeg`], which rewrites a JPEG losslessly for fast crops.
//! 6. [`LmdbWriter`]: one LMDB database.
//! 7. [`TarWriter`]: one tar file, or numbered shards. `shard`: writes one shard. `member`: formats
//!    the files of a sample in a shard.
//! 8. `plan`: determines which samples are in which shard. `set`: manifests. `part`: packs a part
//!    of a plan. `merge`: [`Merge`] combines parts into a set. `overview`: the progress of all
//!    parts. `array`: determines which part a task of an array job packs.
//! 9. `destination`: the trait for places where a set is packed. `files`: a set in a folder.
//!    `stored`: a set in a store. `place`: chooses between the two.
//! 10. `writer`: the trait [`DatasetWriter`], and the lock for writers. `names`: the names of
//!     shards. Temporary files and locks come from `warpfeed_sources`.
//!
//! All writers use a name that ends in `.partial` and rename it at the end, so a file with the
//! target's name is always complete.

mod array;
mod bad_images;
mod destination;
mod driver;
mod files;
mod jpeg;
#[cfg(feature = "lmdb")]
mod lmdb;
mod member;
mod merge;
mod names;
mod overview;
mod part;
mod place;
mod plan;
mod prepare;
mod recode;
mod renumber;
mod report;
mod run;
mod set;
mod shard;
mod stored;
mod tar;
mod writer;

pub use array::part_from_env;
pub use bad_images::Refused;
pub use driver::Pack;
pub use jpeg::repack_jpeg;
#[cfg(feature = "lmdb")]
pub use lmdb::LmdbWriter;
pub use merge::{Merge, Merged};
pub use overview::Overview;
pub use recode::{RawSize, Recode};
pub use report::{Progress, Report};
pub use tar::TarWriter;
pub use writer::{DatasetWriter, WriteOptions, Written};
