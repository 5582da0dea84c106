//! Opens the [`Destination`] to which a dataset is packed, a local folder or an object store.

use std::path::Path;

use super::destination::Destination;
use super::folder_destination::FolderDestination;
use super::store_destination::StoreDestination;
use crate::error::Result;
use crate::source::{Location, Stores};

/// Opens the destination for `target`, a path or a URL. Suffixes replace its ending `.tar`, if any.
pub(super) fn open_destination(target: &Path, stores: &Stores) -> Result<Box<dyn Destination>> {
    match Location::parse(target) {
        Location::Path(path) => Ok(Box::new(FolderDestination::new(&path))),
        Location::Url(url) => Ok(Box::new(StoreDestination::new(&url, stores.for_url(&url)?.clone())?)),
    }
}
