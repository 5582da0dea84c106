//! Finds masks in a separate folder. The name of a mask is the name of its image, optionally with a
//! prefix and a suffix.

use std::collections::HashMap;
use std::path::Path;

use super::listing::Listing;
use super::walk::images_below;
use crate::error::{Error, Result, counted};
use crate::format::Format;
use crate::machine::file;
use crate::machine::hash::Hash;
use crate::machine::slashes::normalize_separators;

/// File extensions of each mask format, and the sample field for its masks.
const MASK_FORMATS: [(&[&str], &str); 6] = [
    (&["png"], "mask.png"),
    (&["npy"], "mask.npy"),
    (&["tif", "tiff"], "mask.tif"),
    (&["gif"], "mask.gif"),
    (&["bmp"], "mask.bmp"),
    (&["webp"], "mask.webp"),
];

/// Value in `extension_indices` for an image that has no mask.
const NO_MASK: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct Masks {
    /// Path of the mask folder, with a trailing `/`.
    root: String,
    /// The text before and after the image's name in a mask's name.
    affixes: (String, String),
    /// Distinct extensions, spelled as in the file names, with their fields.
    extensions: Vec<(String, &'static str)>,
    /// For each image, an index into `extensions`, or [`NO_MASK`].
    extension_indices: Vec<u8>,
}

fn field_of(extension: &str) -> Option<&'static str> {
    let has = |ends: &[&str]| ends.iter().any(|end| end.eq_ignore_ascii_case(extension));
    MASK_FORMATS.iter().find(|(extensions, _)| has(extensions)).map(|(_, field)| *field)
}

fn split_extension(path: &str) -> (&str, &str) {
    path.rsplit_once('.').filter(|(_, end)| !end.contains('/')).unwrap_or((path, ""))
}

impl Masks {
    /// Finds the masks of the listed images. The last component of `path` may be a pattern, in
    /// which `*` stands for the name of the image without the extension. Fails if two masks differ
    /// only in their extension, or if no image has a mask.
    pub(super) fn find(path: &Path, listing: &Listing) -> Result<Self> {
        let pattern = path.file_name().and_then(|name| name.to_str()).filter(|name| name.contains('*'));
        let (folder, affixes) = match pattern.and_then(|name| name.split_once('*')) {
            Some((before, after)) => (path.parent().unwrap_or(Path::new("")), (before.to_owned(), after.to_owned())),
            None => (path, Default::default()),
        };
        if !file::is_folder(folder)? {
            let cause =
                "masks: no such folder: expected an absolute path, or one relative to the parent of the image folder";
            return Err(Error::config(cause).at_path(folder));
        }
        let Some(root) = folder.to_str() else {
            return Err(Error::in_source("the path of the folder is not UTF-8").at_path(folder));
        };
        let root = format!("{}/", normalize_separators(root).trim_end_matches('/'));
        // Masks may be arrays, so list `.npy` files as images.
        let npy = Format { name: "npy", field: "npy", extensions: &["npy"], matches: |_| false };
        let files = images_below(folder, &[npy])?;
        let mut masks =
            Masks { root, affixes, extensions: Vec::new(), extension_indices: Vec::with_capacity(listing.len()) };
        let mut by_key = HashMap::<&str, (u8, &str)>::with_capacity(files.len());
        for file in &files {
            let (key, extension) = split_extension(file);
            let Some(field) = field_of(extension) else { continue };
            let extension_index =
                masks.extensions.iter().position(|(other, _)| other == extension).unwrap_or_else(|| {
                    masks.extensions.push((extension.to_owned(), field));
                    masks.extensions.len() - 1
                });
            if let Some((_, other)) = by_key.insert(key, (extension_index as u8, file)) {
                let cause = format!("masks: {other:?} and {file:?} belong to the same image: remove one of them");
                return Err(Error::in_source(cause).at_path(folder));
            }
        }
        masks.assign(by_key, files.len(), folder, listing)?;
        Ok(masks)
    }

    /// `count` is the number of images and arrays in `folder`.
    fn assign(
        &mut self,
        mut masks: HashMap<&str, (u8, &str)>,
        count: usize,
        folder: &Path,
        listing: &Listing,
    ) -> Result<()> {
        let (mut used, mut missing) = (0, None);
        for index in 0..listing.len() {
            let key = self.key(listing.path(index));
            match masks.get_mut(&*key) {
                Some((extension_index, file)) => {
                    self.extension_indices.push(*extension_index);
                    used += usize::from(!file.is_empty());
                    *file = "";
                }
                None => {
                    self.extension_indices.push(NO_MASK);
                    missing.get_or_insert(key);
                }
            }
        }
        if used == 0 {
            let key = missing.unwrap_or_default();
            let cause =
                format!("masks: no image has a mask; looked for {key}.png among {}", counted(count, "file", "files"));
            return Err(Error::in_source(cause).at_path(folder));
        }
        let unused_count = masks.len() - used;
        if unused_count > 0 {
            let first = masks.values().map(|(_, file)| *file).filter(|file| !file.is_empty()).min().unwrap_or_default();
            let unused_masks = counted(unused_count, "mask", "masks");
            tracing::warn!("{}: ignored {unused_masks} without an image, such as {first}", folder.display());
        }
        Ok(())
    }

    /// Returns the path of the mask for the image at `path`, relative to the mask folder and
    /// without the extension.
    fn key(&self, path: &str) -> String {
        let (key, _) = split_extension(path);
        let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (folder, name));
        let slash = if folder.is_empty() { "" } else { "/" };
        let (before, after) = &self.affixes;
        format!("{folder}{slash}{before}{name}{after}")
    }

    /// Returns the field and the path of the mask for image `index`, which is at `path`. The error
    /// for a missing mask states one of its possible paths.
    pub(super) fn mask_of(&self, index: usize, path: &str) -> Result<(&'static str, String)> {
        let file = format!("{}{}", self.root, self.key(path));
        match self.extensions.get(usize::from(self.extension_indices[index])) {
            Some((extension, field)) => Ok((field, format!("{file}.{extension}"))),
            None => Err(Error::in_source("the mask is missing").at_path(format!("{file}.png"))),
        }
    }

    pub(super) fn add_to(&self, hash: Hash) -> Hash {
        let (before, after) = &self.affixes;
        let hash = self.extensions.iter().fold(hash.text(before).text(after), |hash, (end, _)| hash.text(end));
        self.extension_indices.iter().fold(hash, |hash, &extension_index| hash.number(extension_index.into()))
    }
}
