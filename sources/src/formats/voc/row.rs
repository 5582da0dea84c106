//! Registers the format.

use super::detect::{ANNOTATIONS, IMAGES, is_voc, set_of_list};
use crate::error::Result;
use crate::medium::Around;
use crate::medium::download::Companions;
use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: is_voc,
    is_file: |path, _| set_of_list(path).is_some(),
    annotates,
    brings: Some(Companions { folder: |url| url.split_once("/ImageSets/").map(|(root, _)| root), ..Companions::NONE }),
    ..DataFormat::new(
        "voc",
        "a folder with `JPEGImages` and `Annotations` or `SegmentationClass`, or a list in its `ImageSets`",
        &[],
        |at, options| {
            with_feature!("annotations", "a Pascal VOC dataset", at, options => {
                super::Voc::with_formats(&at.path, options.formats.clone(), 1.0)?
            })
        },
    )
};

fn annotates(around: &Around<'_>) -> Result<Option<String>> {
    for (place, names) in &around.above {
        let set = place.trim_end_matches('/');
        if names.contains(&IMAGES) && !set.is_empty() && around.tree.within(set, is_voc)? {
            return Ok(Some(format!("a Pascal VOC dataset: open {set:?}")));
        }
    }
    let folders = around.annotations()?;
    let first = folders.iter().find(|files| files.iter().any(|file| file.ends_with(".xml"))).map(|files| &files[0]);
    Ok(first.map(|first| {
        format!(
            "a Pascal VOC dataset with boxes in files such as {first:?}: rename the image folder to {IMAGES} and the \
             annotation folder to {ANNOTATIONS}, and open the parent of both"
        )
    }))
}
