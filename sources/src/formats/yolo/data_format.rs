//! The [`DataFormat`] of YOLO datasets.

use std::path::Path;

use super::detect::{IMAGES, LABELS, is_yolo};
use crate::error::Result;
use crate::options::{DataFormat, with_feature};
use crate::storage::Siblings;
use crate::storage::download::Companions;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: is_yolo,
    annotation_hint,
    companions: Some(Companions {
        folder: |url| {
            // The labels for `images/train` are in `labels/train`, so the parent of `images` must
            // be downloaded.
            match format!("{url}/").rfind("/images/") {
                Some(offset) => Some(&url[..offset]),
                None => url
                    .rsplit_once('/')
                    .filter(|(_, name)| DATA_FORMAT.has_extension(Path::new(name)))
                    .map(|(above, _)| above),
            }
        },
        ..Companions::NONE
    }),
    ..DataFormat::new(
        "yolo",
        "a `.yaml` file, a folder with `images` and `labels`, or a subfolder of `images` that has a matching \
         subfolder in `labels`",
        &["yaml", "yml"],
        |location, options| {
            with_feature!("annotations", "a YOLO dataset", location, options => {
                super::Yolo::with_formats(&location.path, "train", options.formats.clone())?
            })
        },
    )
};

fn annotation_hint(siblings: &Siblings<'_>) -> Result<Option<String>> {
    let open = |command: &str| Ok(Some(format!("a YOLO dataset with boxes in text files: open {command:?}")));
    if let Some(yaml) = siblings.file(&["yaml", "yml"], is_yolo_data)? {
        return open(yaml);
    }
    for (above, names) in &siblings.image_folders {
        if names.contains(&IMAGES) && !above.is_empty() && siblings.tree.has_folder(&format!("{above}{LABELS}"))? {
            return open(above.trim_end_matches('/'));
        }
    }
    Ok(None)
}

fn is_yolo_data(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    has("names:") && (has("train:") || has("val:"))
}
