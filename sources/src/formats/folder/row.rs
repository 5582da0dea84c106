use std::sync::Arc;

use super::Folder;
use crate::options::{AtUrl, DataFormat};

pub(crate) const ROW: DataFormat = DataFormat {
    at_url: AtUrl::Other(|url, options| {
        Ok(Arc::new(Folder::at_url(url, options.stores.of(url)?, options.formats.clone())?))
    }),
    ..DataFormat::new(
        "folder",
        "any other folder: pictures, in one sub-folder for each class or flat",
        &[],
        |path, options| Ok(Arc::new(Folder::with(path, options)?)),
    )
};
