//! Reads images from a local folder, or under a URL in an object store.
//!
//! 1. `walk`: lists folders.
//! 2. `names`: finds the images or videos, labels and classes of a folder.
//! 3. `index`: caches the listing in a file next to the folder.
//! 4. `folder`: [`Folder`], the source.
//! 5. `masks`: finds masks in a separate folder.
//! 6. `stored`: finds the images under a URL in an object store.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

#[allow(clippy::module_inception)]
mod folder;
mod index;
mod masks;
mod names;
mod row;
mod stored;
mod walk;

pub use folder::Folder;
pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub(crate) use walk::images_below;
#[cfg(feature = "video")]
pub(crate) use {names::Names, stored::select, walk::Wanted};
