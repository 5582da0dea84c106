use crate::medium::brought::Companions;
use crate::medium::layout::{is_voc, is_voc_list};
use crate::options::{AtUrl, DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: is_voc,
    is_file: |path, _| is_voc_list(path),
    at_url: AtUrl::Brought(Companions {
        folder: |url| url.split_once("/ImageSets/").map(|(root, _)| root),
        ..Companions::NONE
    }),
    ..DataFormat::new(
        "voc",
        "a folder with `JPEGImages` and `Annotations` or `SegmentationClass`, or a list in its `ImageSets`",
        &[],
        |path, options| {
            with_feature!("annotations", "a Pascal VOC data set", path, options => {
                super::Voc::with_formats(path, options.formats.clone(), 1.0)?
            })
        },
    )
};
