//! Detects the folders of a Pascal VOC dataset.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::medium::tree::Tree;

/// Names of the folders in a dataset.
pub(super) const IMAGES: &str = "JPEGImages";
pub(super) const ANNOTATIONS: &str = "Annotations";
pub(super) const MASKS: &str = "SegmentationClass";
pub(super) const LISTS: &str = "ImageSets";

/// Returns whether a folder has the layout of a Pascal VOC dataset.
pub(super) fn is_voc(folder: Tree<'_>) -> Result<bool> {
    Ok(folder.has_folder(IMAGES)? && (folder.has_folder(ANNOTATIONS)? || folder.has_folder(MASKS)?))
}

/// If `path` is a list such as `SET/ImageSets/Main/train.txt`, returns the dataset's folder
/// (`SET`).
pub(super) fn set_of_list(path: &Path) -> Option<PathBuf> {
    let lists = path.parent()?.parent()?;
    let text = path.extension().is_some_and(|end| end == "txt");
    (text && lists.ends_with(LISTS)).then(|| lists.parent().map(Path::to_owned))?
}
