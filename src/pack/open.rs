//! Opens the [`Destination`] of a pack: a local folder or an object store.

use std::path::Path;

use super::destination::Destination;
use super::folder_destination::FolderDestination;
use super::store_destination::StoreDestination;
use crate::error::Result;
use crate::source::{Location, Stores};

/// `target` is a path or a URL. Suffixes replace the ending `.tar` of its name, if any.
pub(super) fn open_destination(target: &Path, stores: &Stores) -> Result<Box<dyn Destination>> {
    match Location::parse(target) {
        Location::Path(path) => Ok(Box::new(FolderDestination::new(&path))),
        Location::Url(url) => Ok(Box::new(StoreDestination::new(&url, stores.for_url(&url)?.clone())?)),
    }
}
