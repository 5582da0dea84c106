//! Writes samples to a file that a source can read.
//!
//! 1. `driver`: [`Pack`] puts every sample of a source into a writer, or packs a part of a set.
//! 2. `run`: reads and recodes samples on several threads, in order. `prepare`: one sample.
//! 3. `bad_images`: images that could not be recoded or are damaged. `report`: what a run counts.
//! 4. `recode`: [`Recode`], the treatment of images. `renumber`: new numbers for class fields and
//!    masks.
//! 5. `jpeg`: [`repack_jpeg`], which rewrites a JPEG losslessly for fast crops.
//! 6. [`LmdbWriter`]: one LMDB database.
//! 7. [`TarWriter`]: one tar file, or numbered shards. `shard`: one shard. `member`: a sample's
//!    files in it.
//! 8. `plan`: which samples are in which shard. `set`: manifests. `part`: packs a part of a plan.
//!    `merge`: [`Merge`] makes parts a set. `overview`: the progress of all parts. `array`:
//!    which part a task of a cluster packs.
//! 9. `destination`: where a set is packed. `files`: a folder. `stored`: a store. `place`: one of
//!    them.
//! 10. `writer`: the trait [`DatasetWriter`], and its lock. `names`: names of shards. Unfinished files and
//!     locks are those of `warpfeed_sources`.
//!
//! All writers write under a name that ends in `.partial` and rename it at the end, so a file with
//! the target's name is always complete.

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
