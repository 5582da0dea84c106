use crate::medium::layout::COCO_JSON;
use crate::medium::tree::Tree;
use crate::options::{AtUrl, DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: |folder| folder.has_file(COCO_JSON),
    at_url: AtUrl::Other(|url, options| {
        let in_folder = (!url.ends_with(".json")).then(|| format!("{}/{COCO_JSON}", url.trim_end_matches('/')));
        let (json, pictures) = in_folder.as_deref().map_or((url, None), |json| (json, Some(url)));
        with_feature!("annotations", "a COCO data set", json, pictures, options => {
            super::Coco::in_store(json, pictures, options.formats.clone(), &options.stores)?
        })
    }),
    ..DataFormat::new(
        "coco",
        "a `.json` file, or a folder with `_annotations.coco.json`",
        &["json"],
        |path, options| {
            let in_folder = Tree::Local(path).has_file(COCO_JSON).then(|| path.join(COCO_JSON));
            let (json, pictures) = in_folder.as_deref().map_or((path, None), |json| (json, Some(path)));
            with_feature!("annotations", "a COCO data set", json, pictures, options => {
                super::Coco::with_formats(json, pictures, options.formats.clone())?
            })
        },
    )
};
