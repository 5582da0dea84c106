//! The [`DataFormat`] of folders of images.

use std::sync::Arc;

use super::Folder;
use crate::options::DataFormat;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat::new(
    "folder",
    "any other folder: images, in one subfolder per class or flat",
    &[],
    |mut location, options| {
        location.list()?;
        Ok(Arc::new(Folder::open_at(&location, options)?))
    },
);
