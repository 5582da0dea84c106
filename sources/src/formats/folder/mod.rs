//! Images in a folder.
//!
//! 1. `walk`: lists folders.
//! 2. `names`: the images of a folder, their labels and classes.
//! 3. `index`: a file next to the folder that keeps them.
//! 4. `folder`: [`Folder`], the source.
//! 5. `masks`: masks in a separate folder.
//! 6. `stored`: finds the images below a URL of a store.
//!
//! `row`: its row in the table of formats.

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
