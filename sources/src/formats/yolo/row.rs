use std::path::Path;

use crate::medium::brought::Companions;
use crate::medium::layout::is_yolo;
use crate::options::{AtUrl, DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: is_yolo,
    at_url: AtUrl::Brought(Companions {
        folder: |url| {
            // The labels of the folder `images/train` are in `labels/train`.
            match format!("{url}/").rfind("/images/") {
                Some(at) => Some(&url[..at]),
                None => {
                    url.rsplit_once('/').filter(|(_, name)| ROW.has_extension(Path::new(name))).map(|(above, _)| above)
                }
            }
        },
        ..Companions::NONE
    }),
    ..DataFormat::new(
        "yolo",
        "a `.yaml` file, a folder with `images` and `labels`, or a folder below `images` that has its \
                     counterpart below `labels`",
        &["yaml", "yml"],
        |path, options| {
            with_feature!("annotations", "a YOLO data set", path, options => {
                super::Yolo::with_formats(path, "train", options.formats.clone())?
            })
        },
    )
};
