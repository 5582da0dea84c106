//! Recognises a data set by its files. Compiled with every set of features, so that a data set
//! whose feature is off is not mistaken for a folder of pictures.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Magic number of an LMDB file, at byte 16.
pub(super) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// Folder of the pictures of a YOLO set, and of their labels.
pub(super) const IMAGES: &str = "images";
pub(super) const LABELS: &str = "labels";

/// Folders of a Pascal VOC set.
pub(super) const VOC_PICTURES: &str = "JPEGImages";
pub(super) const VOC_ANNOTATIONS: &str = "Annotations";
pub(super) const VOC_MASKS: &str = "SegmentationClass";
pub(super) const VOC_LISTS: &str = "ImageSets";

/// Whether a file that begins with `start` is an LMDB file in this machine's byte order.
pub(super) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}

/// COCO annotations in a folder of pictures: a file `_annotations.coco.json`, as exporters name it.
pub(super) fn coco_json(folder: &Path) -> Option<PathBuf> {
    let path = folder.join("_annotations.coco.json");
    fs::metadata(&path).is_ok_and(|file| file.is_file()).then_some(path)
}

/// Pictures of a folder that is laid out as a YOLO set: it contains `images` and `labels`, or it is
/// below a folder `images` that has a counterpart `labels`.
pub(super) fn yolo_pictures(folder: &Path) -> Option<PathBuf> {
    if folder.join(IMAGES).is_dir() && folder.join(LABELS).is_dir() {
        return Some(folder.join(IMAGES));
    }
    let path = root(folder).ok()?;
    let at = images_in(&path)?;
    let labels = [&path[..at], LABELS, &path[at + IMAGES.len()..]].concat();
    Path::new(&labels).is_dir().then(|| folder.to_owned())
}

/// Position of the last folder `images` in a path.
pub(super) fn images_in(path: &str) -> Option<usize> {
    let stands = |at: usize| at == 0 || path.as_bytes()[at - 1] == b'/';
    path.rmatch_indices("images/").map(|(at, _)| at).find(|&at| stands(at))
}

/// Whether a folder is laid out as Pascal VOC.
pub(super) fn is_voc(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_dir();
    has(VOC_PICTURES) && (has(VOC_ANNOTATIONS) || has(VOC_MASKS))
}

/// Whether a file is a list of a Pascal VOC set.
pub(super) fn is_voc_list(path: &Path) -> bool {
    voc_of_list(path).is_some_and(|folder| is_voc(&folder))
}

/// Folder of the set, if `path` is one of its lists: `SET/ImageSets/Main/train.txt`.
pub(super) fn voc_of_list(path: &Path) -> Option<PathBuf> {
    let lists = path.parent()?.parent()?;
    let text = path.extension().is_some_and(|end| end == "txt");
    (text && lists.ends_with(VOC_LISTS)).then(|| lists.parent().map(Path::to_owned))?
}

/// `folder` as a prefix for file names.
///
/// # Errors
/// If it is not UTF-8.
pub(super) fn root(folder: &Path) -> Result<String> {
    let Some(text) = folder.to_str() else {
        return Err(Error::in_source("the path is not UTF-8").at_path(folder));
    };
    // Names in the current folder have no prefix.
    let slash = if text.is_empty() || text.ends_with('/') { "" } else { "/" };
    Ok(format!("{text}{slash}"))
}
