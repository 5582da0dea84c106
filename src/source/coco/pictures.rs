//! The folder of the pictures of a JSON file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The folder that holds the picture `name` of the annotations in `json`.
///
/// # Errors
/// If no folder does; the message lists those that were looked in.
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

/// Beside the file, in `images`, and in what the file is named after, `train2017` for
/// `instances_train2017.json`, each beside the file's folder too.
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
