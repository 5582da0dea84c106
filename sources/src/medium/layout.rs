//! Recognises a data set by its files. Compiled with every set of features, so that a data set
//! whose feature is off is not mistaken for a folder of pictures.

use std::path::{Path, PathBuf};

use super::tree::Tree;
use crate::error::{Error, Result};
use crate::format;
use crate::machine::file;
use crate::machine::slashes::slashed;

/// Magic number of an LMDB file, at byte 16.
pub(crate) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// The file that lists the shards of a data set in its folder.
pub(crate) const INDEX: &str = "index.json";

/// Whether the file at `path`, which begins with `start`, lists MDS shards.
pub(crate) fn is_mds(path: &Path, start: &[u8]) -> bool {
    path.ends_with(INDEX) && memchr::memmem::find(start, b"\"shards\"").is_some()
}

/// Whether the file at `path`, which begins with `start`, lists LitData's chunks.
pub(crate) fn is_litdata(path: &Path, start: &[u8]) -> bool {
    path.ends_with(INDEX) && memchr::memmem::find(start, b"\"chunks\"").is_some()
}

/// Folder of the pictures of a YOLO set, and of their labels.
pub(crate) const IMAGES: &str = "images";
pub(crate) const LABELS: &str = "labels";

/// Folders of a Pascal VOC set.
pub(crate) const VOC_PICTURES: &str = "JPEGImages";
pub(crate) const VOC_ANNOTATIONS: &str = "Annotations";
pub(crate) const VOC_MASKS: &str = "SegmentationClass";
pub(crate) const VOC_LISTS: &str = "ImageSets";

/// Whether a file that begins with `start` is an LMDB file in this machine's byte order.
pub(crate) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}

/// COCO annotations in a folder of pictures, as exporters name them.
pub(crate) const COCO_JSON: &str = "_annotations.coco.json";

/// Pictures of a folder that is laid out as a YOLO set: it contains `images` and `labels`, or it is
/// below a folder `images` that has a counterpart `labels`.
///
/// # Errors
/// If the system cannot tell.
pub(crate) fn yolo_pictures(folder: &Path) -> Result<Option<PathBuf>> {
    if file::is_folder(folder.join(IMAGES))? && file::is_folder(folder.join(LABELS))? {
        return Ok(Some(folder.join(IMAGES)));
    }
    let Ok(path) = root(folder) else { return Ok(None) };
    let Some(at) = images_in(&path) else { return Ok(None) };
    let labels = [&path[..at], LABELS, &path[at + IMAGES.len()..]].concat();
    Ok(file::is_folder(&labels)?.then(|| folder.to_owned()))
}

/// Whether a folder has the pictures of a YOLO set, with their labels next to it or in it.
pub(crate) fn is_yolo(folder: Tree<'_>) -> bool {
    let (url, remote) = match folder {
        Tree::Local(folder) => return yolo_pictures(folder).is_ok_and(|found| found.is_some()),
        Tree::Stored(url, _, remote) => (url, remote),
    };
    if folder.has_folder(IMAGES) && folder.has_folder(LABELS) {
        return true;
    }
    let url = format!("{}/", url.trim_end_matches('/'));
    images_in(&url).is_some_and(|at| {
        let labels = [&url[..at], LABELS, &url[at + IMAGES.len()..]].concat();
        remote.list(&labels).is_ok_and(|found| !found.is_empty())
    })
}

/// Position of the last folder `images` in a path.
pub(crate) fn images_in(path: &str) -> Option<usize> {
    let stands = |at: usize| at == 0 || path.as_bytes()[at - 1] == b'/';
    path.rmatch_indices("images/").map(|(at, _)| at).find(|&at| stands(at))
}

/// Whether a folder is laid out as Pascal VOC.
pub(crate) fn is_voc(folder: Tree<'_>) -> bool {
    let has = |name: &str| folder.has_folder(name);
    has(VOC_PICTURES) && (has(VOC_ANNOTATIONS) || has(VOC_MASKS))
}

/// Whether a file is a list of a Pascal VOC set.
pub(crate) fn is_voc_list(path: &Path) -> bool {
    voc_of_list(path).is_some_and(|folder| is_voc(Tree::Local(&folder)))
}

/// Folder of the set, if `path` is one of its lists: `SET/ImageSets/Main/train.txt`.
pub(crate) fn voc_of_list(path: &Path) -> Option<PathBuf> {
    let lists = path.parent()?.parent()?;
    let text = path.extension().is_some_and(|end| end == "txt");
    (text && lists.ends_with(VOC_LISTS)).then(|| lists.parent().map(Path::to_owned))?
}

/// Number of folders that are looked at for annotations. More are classes.
const LOOKED_FOR_ANNOTATIONS: usize = 16;
/// Bytes that tell whether a file has annotations.
const ANNOTATIONS_START: usize = 4096;

/// Describes the annotations of a folder that would open as class folders, and says what to open
/// instead. `None` if it has none. `pictures` are the folders of the pictures, below `folder`.
pub(crate) fn annotations_in<'a>(folder: Tree<'_>, pictures: impl Iterator<Item = &'a str>) -> Option<String> {
    let yolo = |at: &str| format!("a YOLO data set, whose boxes are in text files: open {at:?}");
    let coco = |at: &str| format!("a COCO data set: open its annotations, such as {at:?}");
    let mut files: Vec<String> = folder.entries().filter(|(_, is_folder)| !is_folder).map(|(name, _)| name).collect();
    files.sort();
    let of = |ends: &[&str], is: fn(&[u8]) -> bool| {
        let has_end =
            |name: &&String| Path::new(name).extension().is_some_and(|end| ends.iter().any(|one| end == *one));
        files
            .iter()
            .filter(has_end)
            .take(LOOKED_FOR_ANNOTATIONS)
            .find(|name| is(&folder.start_of(name, ANNOTATIONS_START)))
    };
    if let Some(name) = of(&["yaml", "yml"], is_yolo_data) {
        return Some(yolo(name));
    }
    if let Some(name) = of(&["json"], is_coco) {
        return Some(coco(name));
    }
    // The folders above the pictures, each with the names of those in it that lead to pictures.
    let mut above: Vec<(&str, Vec<&str>)> = Vec::new();
    for path in pictures {
        let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
        for start in starts {
            let (place, inside) = (&path[..start], path[start..].split('/').next().unwrap_or_default());
            match above.iter().position(|(other, _)| *other == place) {
                Some(at) if !above[at].1.contains(&inside) && above[at].1.len() < LOOKED_FOR_ANNOTATIONS => {
                    above[at].1.push(inside);
                }
                None if above.len() < LOOKED_FOR_ANNOTATIONS => above.push((place, vec![inside])),
                _ => {}
            }
        }
    }
    for (place, names) in above {
        let shown = place.trim_end_matches('/');
        if names.contains(&IMAGES) && !shown.is_empty() && folder.has_folder(&format!("{place}{LABELS}")) {
            return Some(yolo(shown));
        }
        let has = |name: &str| folder.has_folder(&format!("{place}{name}"));
        if names.contains(&VOC_PICTURES) && !shown.is_empty() && (has(VOC_ANNOTATIONS) || has(VOC_MASKS)) {
            return Some(format!("a Pascal VOC data set: open {shown:?}"));
        }
        if let Some(json) = names
            .iter()
            .map(|name| format!("{place}{name}"))
            .find(|name| folder.has_file(&format!("{name}/{COCO_JSON}")))
        {
            return Some(format!("a COCO data set: open {json:?}, or another folder that has {COCO_JSON}"));
        }
        for name in [VOC_ANNOTATIONS, "annotations"] {
            let inside = folder.names_in(&format!("{place}{name}"), LOOKED_FOR_ANNOTATIONS);
            let ends = |end: &str| inside.iter().filter(|name| name.ends_with(end)).count();
            let first = inside.iter().min().map(|first| format!("{place}{name}/{first}"));
            match first {
                Some(first) if ends(".json") == inside.len() => return Some(coco(&first)),
                Some(first) if ends(".xml") > 0 => {
                    return Some(format!(
                        "a Pascal VOC data set, whose boxes are in files such as {first:?}: call the folder of its \
                         pictures {VOC_PICTURES} and that of its boxes {VOC_ANNOTATIONS}, and open the folder of both"
                    ));
                }
                _ => {}
            }
        }
    }
    None
}

/// Whether a YAML file that begins with `start` describes a YOLO data set.
fn is_yolo_data(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    has("names:") && (has("train:") || has("val:"))
}

/// Whether a JSON file that begins with `start` has annotations in COCO's form.
fn is_coco(start: &[u8]) -> bool {
    let has = |word: &str| memchr::memmem::find(start, word.as_bytes()).is_some();
    has("\"supercategory\"")
        || has("\"images\"") && has("\"file_name\"")
        || has("\"licenses\"") && has("\"info\"")
        || has("\"annotations\"") && has("\"bbox\"")
}

/// Maximum number of arrays in a folder of them. A sample has fewer fields.
const MOST_ARRAYS: usize = 64;

/// Whether a folder only holds `.npy` files and files that are not data.
pub(crate) fn is_npy_folder(folder: Tree<'_>) -> bool {
    let mut arrays = 0;
    for (name, is_folder) in folder.entries() {
        let extension = Path::new(&name).extension().and_then(|end| end.to_str()).unwrap_or_default();
        let other = extension.eq_ignore_ascii_case("tar") || format::field_of_file(extension, &[]).is_some();
        if other || arrays > MOST_ARRAYS || is_folder {
            return false;
        }
        arrays += usize::from(extension.eq_ignore_ascii_case("npy"));
    }
    (1..=MOST_ARRAYS).contains(&arrays)
}

/// Number of a TFRecord shard and of all shards, in a name such as `train-00000-of-01024`.
fn shard_number(name: &str) -> Option<(usize, usize)> {
    let (rest, of) = name.rsplit_once("-of-")?;
    let (_, number) = rest.rsplit_once('-')?;
    let parsed = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    Some((parsed(number)?, parsed(of)?))
}

/// Whether a file has the name of TFRecord data.
pub(crate) fn is_records_name(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    let plain = extension.split_once('-').map_or(&*extension, |(plain, _)| plain);
    matches!(plain, "tfrecord" | "tfrecords" | "tfrec") || (extension.is_empty() && shard_number(name).is_some())
}

/// Number of entries that tell whether a folder holds TFRecord files. A folder may have millions.
const LOOKED_AT: usize = 64;

/// Whether a folder holds TFRecord files, and neither folders nor pictures.
pub(crate) fn is_records_folder(folder: Tree<'_>) -> bool {
    let mut found = false;
    for (name, is_folder) in folder.entries().take(LOOKED_AT) {
        if is_folder {
            return false;
        }
        found |= is_records_name(&name);
    }
    found
}

/// `folder` as a prefix for file names.
///
/// # Errors
/// If it is not UTF-8.
pub(crate) fn root(folder: &Path) -> Result<String> {
    let Some(text) = folder.to_str() else {
        return Err(Error::in_source("the path is not UTF-8").at_path(folder));
    };
    let text = slashed(text);
    // Names in the current folder have no prefix.
    let slash = if text.is_empty() || text.ends_with('/') { "" } else { "/" };
    Ok(format!("{text}{slash}"))
}
