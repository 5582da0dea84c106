use crate::medium::layout::{is_records_folder, is_records_name};
use crate::options::{DataFormat, with_feature};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: is_records_folder,
    is_file: |path, _| path.file_name().is_some_and(|name| is_records_name(&name.to_string_lossy())),
    has_parts: true,
    ..DataFormat::new(
        "tfrecord",
        "a TFRecord file of `tf.train.Example`, or a folder of shards such as `train-00000-of-01024`",
        &["tfrecord", "tfrecords", "tfrec"],
        |path, options| {
            with_feature!("arrays", "a TFRecord file", path, options => {
                super::TfRecord::with(path, options)?
            })
        },
    )
};
