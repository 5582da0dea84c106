use std::sync::Arc;

use super::{Tar, is_manifest, is_tar};
use crate::medium::ahead::Remote;
use crate::options::{AtUrl, DataFormat};

pub(crate) const ROW: DataFormat = DataFormat {
    is_file: |path, start| is_tar(start) || is_manifest(path, start),
    at_url: AtUrl::Other(|url, options| {
        Ok(Arc::new(Tar::in_store(url, Remote::new(options.stores.of(url)?.clone()), None)?))
    }),
    ..DataFormat::new(
        "tar",
        "a file that begins with a tar header, a folder of `.tar` files, a pattern such as \
                     `train-{000..099}.tar`, or a manifest `train.manifest.json`",
        &["tar", "tgz", "gz"],
        |path, options| Ok(Arc::new(if options.mapped { Tar::open(path)? } else { Tar::open_unmapped(path)? })),
    )
};
