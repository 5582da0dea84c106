//! Finds the image folder of an annotation file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::slashes::normalize_separators;
use crate::model::store::Stores;
use crate::storage::referenced::FolderListing;
use crate::values::annotated::check_below_folder;

/// Returns the first candidate folder that contains the image `name`.
pub(super) fn find_folder(json: &Path, name: &str) -> Result<PathBuf> {
    let candidates = candidate_folders(json);
    for folder in &candidates {
        if file::is_file(folder.join(name))? {
            return Ok(folder.clone());
        }
    }
    let searched: Vec<_> = candidates.iter().map(|folder| display_folder(folder)).collect();
    let searched = searched.join(", ");
    Err(Error::in_source(format!(
        "the first image, {name:?}, was not found in {searched}; use Coco::with_images for a different folder"
    ))
    .at_path(json))
}

/// Maximum number of images that are looked up in a folder that the user has specified.
const MAX_TRIED_IMAGES: usize = 100;

/// Checks that `folder` contains one of the first [`MAX_TRIED_IMAGES`] images in `names`. Invalid
/// paths are ignored, because reading their samples reports them.
pub(super) fn check_folder<'a>(
    json: &Path,
    folder: &Path,
    names: impl ExactSizeIterator<Item = &'a str>,
) -> Result<PathBuf> {
    if !file::is_folder(folder)? {
        let cause = format!("the image folder {} is not a folder", display_folder(folder));
        return Err(Error::in_source(cause).at_path(json));
    }
    let (mut tried_count, mut first) = (0, None);
    for name in names.take(MAX_TRIED_IMAGES).filter(|name| check_below_folder(name).is_ok()) {
        if file::exists(folder.join(name))? {
            return Ok(folder.to_owned());
        }
        tried_count += 1;
        first.get_or_insert(name);
    }
    let Some(first) = first else { return Ok(folder.to_owned()) };
    let folder = display_folder(folder);
    let cause = match tried_count {
        1 => format!("the image {first:?} was not found in {folder}"),
        _ => format!("the first {tried_count} images, such as {first:?}, were not found in {folder}"),
    };
    Err(Error::in_source(cause).at_path(json))
}

/// An empty path means the current folder, and is shown as `.`.
fn display_folder(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() }
}

/// Returns the URL of the folder that contains the image `name`, with a trailing `/`.
pub(super) fn find_url_folder(json: &str, name: &str, stores: &Stores) -> Result<String> {
    let candidates: Vec<String> =
        candidate_folders(Path::new(json)).iter().filter_map(|path| resolve_url(path)).collect();
    for folder in &candidates {
        if FolderListing::new(folder).contains(&format!("{folder}{name}"), stores)? {
            return Ok(folder.clone());
        }
    }
    let searched = candidates.join(", ");
    Err(Error::in_source(format!("the first image, {name:?}, was not found in {searched}")).at_path(json))
}

/// Resolves `..` in a URL, and appends a `/`. Returns `None` if `url` is not a URL or points
/// outside its bucket.
fn resolve_url(url: &Path) -> Option<String> {
    let url = normalize_separators(url.to_str()?);
    let (scheme, path) = url.split_once("://")?;
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match part {
            // The first part is the bucket or the host.
            ".." if parts.len() < 2 => return None,
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| format!("{scheme}://{}/", parts.join("/")))
}

/// Returns the folders that may contain the images, in the order in which they are tried:
///
/// 1. The folder F of the annotation file.
/// 2. Folders next to F that are named after the file: `train2017` or `instances_train2017` for
///    `instances_train2017.json`.
/// 3. Folders with these names in a folder `images` next to F, and then `images` itself.
/// 4. The same folders in F instead of next to F.
fn candidate_folders(json: &Path) -> Vec<PathBuf> {
    let json_folder = json.parent().unwrap_or(Path::new("")).to_owned();
    let parent_folder = if json_folder.as_os_str().is_empty() { PathBuf::from("..") } else { json_folder.join("..") };
    let stem = json.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let split = stem.split_once('_').map(|(_, split)| split).into_iter().chain([stem]);
    let mut candidates = vec![json_folder.clone()];
    for base in [&parent_folder, &json_folder] {
        for images in [base.clone(), base.join("images")] {
            candidates.extend(split.clone().map(|split| images.join(split)));
        }
        candidates.push(base.join("images"));
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_candidate_is_outside_the_bucket() {
        let resolve = |json: &str| -> Vec<_> {
            candidate_folders(Path::new(json)).iter().filter_map(|path| resolve_url(path)).collect()
        };
        let in_root = ["", "train/", "x_train/", "images/train/", "images/x_train/", "images/"];
        assert_eq!(resolve("s3://b/x_train.json"), in_root.map(|folder| format!("s3://b/{folder}")));
        let folders = resolve("https://host/set/x_train.json");
        assert!(folders.contains(&"https://host/train/".to_owned()), "{folders:?}");
        assert_eq!(folders.len(), 11);
    }
}
