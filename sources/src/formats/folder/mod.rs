//! Reads images from a local folder, or under a URL in an object store.

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
