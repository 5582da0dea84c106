//! Reads images from a local folder, or under a URL in an object store.
//!
//! 1. `walk`: lists folders.
//! 2. `listing`: finds the images or videos, labels and classes of a folder.
//! 3. `index`: caches the listing in a file next to the folder.
//! 4. `source`: [`Folder`], the source.
//! 5. `masks`: finds masks in a separate folder.
//! 6. `store_listing`: finds the images under a URL in an object store.
//!
//! `data_format` registers the format.

mod data_format;
mod index;
mod listing;
mod masks;
#[allow(clippy::module_inception)]
mod source;
mod store_listing;
mod walk;

pub(crate) use data_format::DATA_FORMAT;
pub use source::Folder;
#[cfg(feature = "annotations")]
pub(crate) use walk::images_below;
#[cfg(feature = "video")]
pub(crate) use {listing::Listing, store_listing::select_samples, walk::FileKind};
