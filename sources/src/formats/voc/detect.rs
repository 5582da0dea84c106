//! Recognizes the folders of a Pascal VOC dataset.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::storage::tree::Tree;

pub(super) const IMAGES: &str = "JPEGImages";
pub(super) const ANNOTATIONS: &str = "Annotations";
pub(super) const MASKS: &str = "SegmentationClass";
pub(super) const LISTS: &str = "ImageSets";

pub(super) fn is_voc(folder: Tree<'_>) -> Result<bool> {
    Ok(folder.has_folder(IMAGES)? && (folder.has_folder(ANNOTATIONS)? || folder.has_folder(MASKS)?))
}

/// Returns `SET` for `SET/ImageSets/Main/train.txt`, and `None` for other paths.
pub(super) fn folder_of_list(path: &Path) -> Option<PathBuf> {
    let lists = path.parent()?.parent()?;
    let is_text = path.extension().is_some_and(|end| end == "txt");
    (is_text && lists.ends_with(LISTS)).then(|| lists.parent().map(Path::to_owned))?
}
