//! Finds the folder of the images of a JSON file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::slashes::slashed;
use crate::medium::stored::Below;
use crate::model::store::Stores;
use crate::values::annotated::below;

/// Finds the folder that contains the image `name` of `json`.
///
/// # Errors
/// If no folder contains it. The message lists the folders that were tried.
pub(super) fn folder_of(json: &Path, name: &str) -> Result<PathBuf> {
    let candidates = candidates(json);
    for folder in &candidates {
        if file::is_file(folder.join(name))? {
            return Ok(folder.clone());
        }
    }
    let looked: Vec<_> = candidates.iter().map(|folder| shown(folder)).collect();
    let looked = looked.join(", ");
    Err(Error::in_source(format!(
        "the first image, {name:?}, was not found; looked in {looked}; Coco::with_images takes another folder"
    ))
    .at_path(json))
}

/// Number of images that are looked for in a folder that the user chose.
const TRIED: usize = 100;

/// Returns the user's `folder` if it contains one of the first images of `json`, which have these
/// `names`.
///
/// # Errors
/// If the folder does not exist, or none of these images is in it.
pub(super) fn check_folder<'a>(
    json: &Path,
    folder: &Path,
    names: impl ExactSizeIterator<Item = &'a str>,
) -> Result<PathBuf> {
    if !file::is_folder(folder)? {
        let cause = format!("the folder of the images, {}, is not a folder", shown(folder));
        return Err(Error::in_source(cause).at_path(json));
    }
    let (tried, mut first) = (names.len().min(TRIED), None);
    for name in names.take(TRIED) {
        // A name that leads out of the folder is an error of its sample.
        if below(name).is_err() || file::exists(folder.join(name))? {
            return Ok(folder.to_owned());
        }
        first.get_or_insert(name);
    }
    let (first, folder) = (first.unwrap_or_default(), shown(folder));
    let cause = match tried {
        1 => format!("the image, {first:?}, was not found in {folder}"),
        _ => format!("the first {tried} images, such as {first:?}, were not found in {folder}"),
    };
    Err(Error::in_source(cause).at_path(json))
}

/// The folder for a message. The folder of a file that is named without one is the current one.
fn shown(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() }
}

/// The URL of the folder that contains the image `name` of the file at the URL `json`, with a `/`
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
    Err(Error::in_source(format!("the first image, {name:?}, was not found; looked in {looked}")).at_path(json))
}

/// A URL without `..`, with a `/` at its end. `None` if it leads out of its bucket.
fn resolved(url: &Path) -> Option<String> {
    let url = slashed(url.to_str()?);
    let (scheme, path) = url.split_once("://")?;
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
