//! Packs the samples of a source into files that are fast to read.
//!
//! 1. `options`: [`Pack`], which packs the samples of a source to a writer, or to shards.
//! 2. `pipeline`: reads and recodes samples on several threads. `prepare`: reads and recodes one
//!    sample.
//! 3. `bad_images`: images that could not be re-encoded, or that are damaged. `report`: [`Report`],
//!    the result of a pack.
//! 4. `recode`: [`Recode`], which specifies how images are recoded. `renumber`: renumbers classes
//!    in fields and masks.
//! 5. `jpeg`: [`repack_jpeg`], which rewrites a JPEG losslessly for fast crops.
//! 6. `lmdb`: [`LmdbWriter`], which writes an LMDB database.
//! 7. `tar`: [`TarWriter`], which writes a tar file or numbered shards. `shard`: writes a shard.
//!    `member`: formats the files of a sample in a shard.
//! 8. `plan`: determines which samples a shard contains. `manifests`: the manifests. `packer`: packs
//!    a part of a dataset. `merge`: [`Merge`], which combines parts. `overview`: the progress of
//!    all parts. `array`: determines the part that a task of an array job packs.
//! 9. `destination`: the trait of folders and stores to which a dataset is packed.
//!    `folder_destination`: packs to a folder. `store_destination`: packs to a store. `open`: opens a
//!    destination.
//! 10. `writer`: the [`DatasetWriter`] trait, and the lock of writers. `names`: the names of
//!     shards.
//! 11. `frames`: the metadata and the numeric features of a packed LeRobot dataset.
//!
//! In a folder, files are renamed from names that end in `.partial` when they are complete. In a
//! store, an object appears when its upload is complete. So a file with its final name is always
//! complete.

mod array;
mod bad_images;
mod destination;
mod folder_destination;
mod frames;
mod jpeg;
#[cfg(feature = "lmdb")]
mod lmdb;
mod manifests;
mod member;
mod merge;
mod names;
mod open;
mod options;
mod overview;
mod packer;
mod pipeline;
mod plan;
mod prepare;
mod recode;
mod renumber;
mod report;
mod shard;
mod store_destination;
mod tar;
mod writer;

pub use array::part_from_env;
pub use bad_images::Refused;
pub use jpeg::repack_jpeg;
#[cfg(feature = "lmdb")]
pub use lmdb::LmdbWriter;
pub use merge::{Merge, Merged};
pub use options::Pack;
pub use overview::Overview;
pub use recode::{RawSize, Recode};
pub use report::{Progress, Psnr, Report};
pub use tar::TarWriter;
pub use writer::{DatasetWriter, WriteOptions, Written};
