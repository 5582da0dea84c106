//! Recognizes the folders of a YOLO dataset.

use std::path::{Path, PathBuf};

use crate::error::{ErrorKind, Result};
use crate::machine::file;
use crate::machine::slashes::with_trailing_slash;
use crate::storage::tree::Tree;

pub(super) const IMAGES: &str = "images";
pub(super) const LABELS: &str = "labels";

/// Returns the image folder of the YOLO dataset at `folder`, or `None` if `folder` is not a YOLO
/// dataset. Accepts both `data` (with `data/images` and `data/labels`) and `data/images/train`
/// (with a `data/labels/train`).
pub(super) fn yolo_images(folder: &Path) -> Result<Option<PathBuf>> {
    if file::is_folder(folder.join(IMAGES))? && file::is_folder(folder.join(LABELS))? {
        return Ok(Some(folder.join(IMAGES)));
    }
    let Ok(path) = with_trailing_slash(folder) else { return Ok(None) };
    let Some(offset) = last_images_offset(&path) else { return Ok(None) };
    let labels = [&path[..offset], LABELS, &path[offset + IMAGES.len()..]].concat();
    Ok(file::is_folder(&labels)?.then(|| folder.to_owned()))
}

/// Returns whether `folder` is a YOLO dataset, by the same rules as [`yolo_images`].
pub(super) fn is_yolo(folder: Tree<'_>) -> Result<bool> {
    let (url, remote) = match folder {
        Tree::Local(folder) => return Ok(yolo_images(folder)?.is_some()),
        Tree::Stored(url, _, remote) => (url, remote),
    };
    if folder.has_folder(IMAGES)? && folder.has_folder(LABELS)? {
        return Ok(true);
    }
    let url = format!("{}/", url.trim_end_matches('/'));
    let Some(offset) = last_images_offset(&url) else { return Ok(false) };
    match remote.list(&[&url[..offset], LABELS, &url[offset + IMAGES.len()..]].concat()) {
        Err(e) if e.kind() == ErrorKind::Io => Err(e),
        // Some stores return an error if the folder does not exist.
        result => Ok(result.is_ok_and(|names| !names.is_empty())),
    }
}

pub(super) fn last_images_offset(path: &str) -> Option<usize> {
    let is_component = |offset: usize| offset == 0 || path.as_bytes()[offset - 1] == b'/';
    path.rmatch_indices("images/").map(|(offset, _)| offset).find(|&offset| is_component(offset))
}
