use std::sync::Arc;

use super::{Arrow, MAGIC};
use crate::medium::brought::Companions;
use crate::options::{AtUrl, DataFormat};

pub(crate) const ROW: DataFormat = DataFormat {
    is_folder: Arrow::is_saved,
    is_file: |_, start| start.starts_with(MAGIC),
    at_url: AtUrl::Brought(Companions::NONE),
    ..DataFormat::new(
        "arrow",
        "a folder that `datasets.save_to_disk` wrote, an `.arrow` file in the stream or file format, or a \
                     folder of them",
        &["arrow"],
        |path, options| Ok(Arc::new(Arrow::with(path, None, options)?)),
    )
};
