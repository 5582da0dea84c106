//! Pictures in a folder.
//!
//! 1. `walk`: lists folders.
//! 2. `names`: the pictures of a folder, their labels and classes.
//! 3. `index`: a file next to the folder that keeps them.
//! 4. `folder`: [`Folder`], the source.

#[allow(clippy::module_inception)]
mod folder;
mod index;
mod names;
mod walk;

pub use folder::Folder;
#[cfg(feature = "annotations")]
pub(super) use walk::pictures_below;
