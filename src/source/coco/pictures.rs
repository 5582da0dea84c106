//! Finds the folder of the pictures of a JSON file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::store::Stores;
use crate::source::stored::Below;

/// Finds the folder that contains the picture `name` of `json`.
///
/// # Errors
/// If no folder contains it. The message lists the folders that were tried.
pub(super) fn folder_of(json: &Path, name: &str) -> Result<PathBuf> {
    let candidates = candidates(json);
    if let Some(found) = candidates.iter().find(|folder| folder.join(name).is_file()) {
        return Ok(found.clone());
    }
    let looked: Vec<_> = candidates.iter().map(|folder| folder.display().to_string()).collect();
    let looked = looked.join(", ");
    Err(Error::in_source(format!(
        "the first picture, {name:?}, was not found; looked in {looked}; Coco::with_pictures takes another folder"
    ))
    .at_path(json))
}

/// The URL of the folder that contains the picture `name` of the file at the URL `json`, with a `/`
/// at its end.
///
/// # Errors
/// If no folder contains it, or one cannot be listed.
pub(super) fn url_folder_of(json: &str, name: &str, stores: &Stores) -> Result<String> {
    let candidates: Vec<String> = candidates(Path::new(json)).iter().filter_map(|path| resolved(path)).collect();
    for folder in &candidates {
        if Below::new(folder).has(&format!("{folder}{name}"), stores)? {
            return Ok(folder.clone());
        }
    }
    let looked = candidates.join(", ");
    Err(Error::in_source(format!("the first picture, {name:?}, was not found; looked in {looked}")).at_path(json))
}

/// A URL without `..`, with a `/` at its end. `None` if it leads out of its bucket.
fn resolved(url: &Path) -> Option<String> {
    let (scheme, path) = url.to_str()?.split_once("://")?;
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| format!("{scheme}://{}/", parts.join("/")))
}

/// Folders to try: the file's folder; then, in its parent and in it, the folder that the file is
/// named after (`train2017` for `instances_train2017.json`), the same in `images`, and `images`.
fn candidates(json: &Path) -> Vec<PathBuf> {
    let beside = json.parent().unwrap_or(Path::new("")).to_owned();
    let above = if beside.as_os_str().is_empty() { PathBuf::from("..") } else { beside.join("..") };
    let stem = json.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let split = stem.split_once('_').map(|(_, split)| split).into_iter().chain([stem]);
    let mut all = vec![beside.clone()];
    for base in [&above, &beside] {
        for images in [base.clone(), base.join("images")] {
            all.extend(split.clone().map(|split| images.join(split)));
        }
        all.push(base.join("images"));
    }
    all
}
