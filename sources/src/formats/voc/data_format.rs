//! The [`DataFormat`] of Pascal VOC datasets.

use super::detect::{ANNOTATIONS, IMAGES, folder_of_list, is_voc};
use crate::error::Result;
use crate::options::{DataFormat, with_feature};
use crate::storage::Siblings;
use crate::storage::download::Companions;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder: is_voc,
    is_file: |path, _| folder_of_list(path).is_some(),
    annotation_hint,
    companions: Some(Companions {
        folder: |url| url.split_once("/ImageSets/").map(|(root, _)| root),
        ..Companions::NONE
    }),
    ..DataFormat::new(
        "voc",
        "a folder that contains `JPEGImages` and either `Annotations` or `SegmentationClass`, or a list file in the \
         `ImageSets` subfolder of one",
        &[],
        |location, options| {
            with_feature!("annotations", "a Pascal VOC dataset", location, options => {
                super::Voc::with_formats(&location.path, options.formats.clone(), 1.0)?
            })
        },
    )
};

fn annotation_hint(siblings: &Siblings<'_>) -> Result<Option<String>> {
    for (above, names) in &siblings.image_folders {
        let set = above.trim_end_matches('/');
        if names.contains(&IMAGES) && !set.is_empty() && siblings.tree.in_subfolder(set, is_voc)? {
            return Ok(Some(format!("a Pascal VOC dataset: open {set:?}")));
        }
    }
    let folders = siblings.annotations()?;
    let first = folders.iter().find(|files| files.iter().any(|file| file.ends_with(".xml"))).map(|files| &files[0]);
    Ok(first.map(|first| {
        format!(
            "a Pascal VOC dataset (with boxes in {first:?} and other files): to load the boxes, rename the image \
             folder to {IMAGES} and the annotation folder to {ANNOTATIONS}, and open the parent of both"
        )
    }))
}
