//! The [`DataFormat`] of COCO datasets.

use crate::error::Result;
use crate::options::{DataFormat, with_feature};
use crate::storage::Siblings;

/// Some exporters write this annotation file into the image folder.
pub(super) const COCO_JSON: &str = "_annotations.coco.json";

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: |folder| folder.has_file(COCO_JSON),
    annotation_hint,
    ..DataFormat::new(
        "coco",
        "a `.json` file, or a folder with `_annotations.coco.json`",
        &["json"],
        |location, options| {
            with_feature!("annotations", "a COCO dataset", location, options => {
                let in_folder = match location.storage.is_store() {
                    true => !location.url().ends_with(".json"),
                    false => location.tree().has_file(COCO_JSON)?,
                };
                match in_folder {
                    true => {
                        let json = location.storage.join(&location.path, COCO_JSON);
                        super::Coco::open_with(&location.storage, &json, Some(&location.path), options)?
                    }
                    false => super::Coco::open_with(&location.storage, &location.path, None, options)?,
                }
            })
        },
    )
};

fn annotation_hint(siblings: &Siblings<'_>) -> Result<Option<String>> {
    let open = |json: &str| Ok(Some(format!("a COCO dataset: open its annotations, such as {json:?}")));
    if let Some(json) = siblings.file(&["json"], is_coco)? {
        return open(json);
    }
    for (above, names) in &siblings.image_folders {
        for folder in names.iter().map(|name| format!("{above}{name}")) {
            if siblings.tree.has_file(&format!("{folder}/{COCO_JSON}"))? {
                return Ok(Some(format!("a COCO dataset: open {folder:?}, or a different folder with {COCO_JSON}")));
            }
        }
    }
    let folders = siblings.annotations()?;
    match folders.iter().find(|files| !files.is_empty() && files.iter().all(|file| file.ends_with(".json"))) {
        Some(files) => open(&files[0]),
        None => Ok(None),
    }
}

fn is_coco(start: &[u8]) -> bool {
    let has = |word: &str| memchr::memmem::find(start, word.as_bytes()).is_some();
    has("\"supercategory\"")
        || has("\"images\"") && has("\"file_name\"")
        || has("\"licenses\"") && has("\"info\"")
        || has("\"annotations\"") && has("\"bbox\"")
}
