//! Lists the images of a dataset, and finds the paths of their label files.
//!
//! The path of a label file is the image's path with two changes: `labels` replaces the last
//! `images` folder, and `.txt` replaces the extension. If the path contains no `images` folder, the
//! label file is next to the image.

use std::path::{Path, PathBuf};

use super::data::DataYaml;
use super::detect::{IMAGES, LABELS, last_images_offset};
use crate::error::{Error, Result, reserve, try_collect};
use crate::format::Format;
use crate::formats::folder::images_below;
use crate::machine::file::{self, MAX_FILE};
use crate::machine::slashes::{normalize_separators, with_trailing_slash};

#[derive(Debug)]
pub(super) struct ImageEntry {
    pub(super) path: Box<str>,
    /// Start of the sample's key in the path.
    pub(super) key_start: usize,
}

/// Returns the path of an image's label file, as four strings to concatenate.
pub(super) fn label_path(path: &str) -> [&str; 4] {
    let end = match path.rfind(['.', '/']) {
        Some(dot) if path.as_bytes()[dot] == b'.' => dot,
        _ => path.len(),
    };
    match last_images_offset(path) {
        Some(offset) => [&path[..offset], LABELS, &path[offset + IMAGES.len()..end], ".txt"],
        None => [&path[..end], ".txt", "", ""],
    }
}

/// Returns the parent of the last `images` folder in the path of an image folder, or the image
/// folder itself if its path contains no `images` folder.
pub(super) fn images_parent(images: &Path) -> PathBuf {
    let path = with_trailing_slash(images).unwrap_or_default();
    last_images_offset(&path).map_or(images.to_owned(), |offset| path[..offset].into())
}

pub(super) fn list_folder(folder: &Path, formats: &[Format]) -> Result<Vec<ImageEntry>> {
    let root = with_trailing_slash(folder)?;
    let names = images_below(folder, formats)?;
    try_collect(names.into_iter().map(|name| Ok(image_entry(format!("{root}{name}"), root.len()))))
}

/// The key starts after the last `images` folder in the path, or at `key_start` if there is no such
/// folder.
fn image_entry(path: String, key_start: usize) -> ImageEntry {
    let key_start = last_images_offset(&path).map_or(key_start, |offset| offset + IMAGES.len() + 1);
    ImageEntry { path: path.into(), key_start }
}

/// Lists the images of one split. If a folder or list does not exist, the error contains the paths
/// that were tried.
pub(super) fn list_split(yaml: &Path, data: &DataYaml, split: &str, formats: &[Format]) -> Result<Vec<ImageEntry>> {
    let yaml_folder = yaml.parent().unwrap_or(Path::new(""));
    let roots = match &data.root {
        Some(root) => vec![yaml_folder.join(root), PathBuf::from(root), yaml_folder.to_owned()],
        None => vec![yaml_folder.to_owned()],
    };
    let Some((_, listed_paths)) = data.splits.iter().find(|(name, _)| *name == split) else {
        let split_names: Vec<_> = data.splits.iter().map(|(name, _)| *name).collect();
        return Err(Error::in_source(format!("no split {split:?}: expected one of {split_names:?}")).at_path(yaml));
    };
    let mut entries = Vec::new();
    for listed_path in listed_paths {
        // Some exporters write `../train/images` even if the `train` folder is next to the YAML
        // file.
        let stripped = listed_path.strip_prefix("../").unwrap_or(listed_path);
        let candidates: Vec<_> = [listed_path.as_str(), stripped]
            .iter()
            .flat_map(|name| roots.iter().map(move |root| root.join(name)))
            .collect();
        let mut path = None;
        for candidate in &candidates {
            if path.is_none() && file::exists(candidate)? {
                path = Some(candidate);
            }
        }
        let Some(split) = path else {
            let tried_paths: Vec<_> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
            return Err(Error::in_source(format!(
                "{split}: {listed_path:?} does not exist; looked for {}",
                tried_paths.join(", ")
            ))
            .at_path(yaml));
        };
        let images = if file::is_folder(split)? { list_folder(split, formats)? } else { read_list(split)? };
        reserve(&mut entries, images.len())?;
        entries.extend(images);
    }
    Ok(entries)
}

/// Each line is the path of an image, absolute or relative to the folder of the list.
fn read_list(list: &Path) -> Result<Vec<ImageEntry>> {
    let text = file::read_text(list, MAX_FILE).map_err(|e| Error::io(list, &e))?;
    let folder = with_trailing_slash(list.parent().unwrap_or(Path::new("")))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let entries = lines.map(|line| match &*normalize_separators(line.strip_prefix("./").unwrap_or(line)) {
        absolute if Path::new(absolute).is_absolute() => Ok(image_entry(absolute.to_owned(), 0)),
        relative => Ok(image_entry(format!("{folder}{relative}"), folder.len())),
    });
    try_collect(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_paths_follow_image_paths() {
        for (image, label) in [
            ("/a/images/train/x.y.jpg", "/a/labels/train/x.y.txt"),
            ("images/x.png", "labels/x.txt"),
            ("/images/a/images/b/x.jpg", "/images/a/labels/b/x.txt"),
            ("/myimages/x.jpg", "/myimages/x.txt"),
            ("a.b/x", "a.b/x.txt"),
        ] {
            assert_eq!(label_path(image).concat(), label);
        }
    }
}
