//! Recognizes the folders of a set.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::medium::tree::Tree;

/// Folders of a set.
pub(super) const IMAGES: &str = "JPEGImages";
pub(super) const ANNOTATIONS: &str = "Annotations";
pub(super) const MASKS: &str = "SegmentationClass";
pub(super) const LISTS: &str = "ImageSets";

/// Whether a folder is laid out as Pascal VOC.
pub(super) fn is_voc(folder: Tree<'_>) -> Result<bool> {
    Ok(folder.has_folder(IMAGES)? && (folder.has_folder(ANNOTATIONS)? || folder.has_folder(MASKS)?))
}

/// Folder of the set, if `path` is one of its lists: `SET/ImageSets/Main/train.txt`.
pub(super) fn set_of_list(path: &Path) -> Option<PathBuf> {
    let lists = path.parent()?.parent()?;
    let text = path.extension().is_some_and(|end| end == "txt");
    (text && lists.ends_with(LISTS)).then(|| lists.parent().map(Path::to_owned))?
}
