//! [`open`], and the methods of [`Options`] that open datasets.

use std::path::Path;
use std::sync::Arc;

use super::walk::detect_and_open;
use crate::error::{Error, Result};
use crate::formats::tar;
use crate::machine::file;
use crate::model::Source;
use crate::options::{DataFormat, Options};

/// Detects the format of the dataset at `path`, and opens it. [`DATA_FORMATS`](crate::DATA_FORMATS)
/// lists the formats and how each is recognized.
///
/// ```no_run
/// let source = warpfeed_sources::open("train")?;
/// println!("{} samples in a {}", source.len(), source.kind());
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// # Errors
/// If the path does not exist, if the format is not recognized, or if the dataset cannot be opened.
/// Also fails if a folder contains both tar shards and images.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    Options::new().open(path)
}

impl Options {
    /// Opens the dataset at `path` like [`open`], but with these options.
    ///
    /// # Errors
    /// Fails like [`open`], and if an option does not apply to this dataset:
    /// [`cache_listing`](Options::cache_listing), [`table`](Options::table),
    /// [`masks`](Options::masks), or `mmap(false)` for an LMDB database. Also fails if a class is
    /// not in the class list, if no [store](Options::store) is registered for the URL, or if the
    /// format cannot be read from stores.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
        // Copy the options without their record of used options, which clones would share.
        let (path, options) = (path.as_ref(), self.without_usage());
        let source = options.open_part(path)?;
        options.check_used().map_err(|e| e.at_path(path))?;
        Ok(source)
    }

    /// Opens one of several datasets that share these options. Unlike [`open`](Options::open),
    /// accepts [`cache_listing`](Options::cache_listing) and [`table`](Options::table) even if they
    /// do not apply to this dataset. After opening all datasets, call
    /// [`check_used`](Options::check_used) to verify that these options applied to at least one of
    /// them.
    ///
    /// # Errors
    /// Fails like [`open`](Options::open), except for `cache_listing` and `table`.
    pub fn open_part(&self, path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
        let path = path.as_ref();
        let source = self.relabel(open_any_format(path, self)?).map_err(|e| e.at_path(path))?;
        self.record_used_options(path, &*source);
        Ok(source)
    }
}

fn open_any_format(path: &Path, options: &Options) -> Result<Arc<dyn Source>> {
    if path.as_os_str().is_empty() {
        return Err(Error::config("the path of the dataset is empty"));
    }
    let location = options.locate(path)?;
    let mut format = options.format.as_deref().map(DataFormat::from_name).transpose()?;
    if options.masks.is_some() {
        if location.storage.is_store() {
            let cause = "separate masks are supported only for local folders: copy the dataset to this machine, or \
                         pack the dataset with its masks";
            return Err(Error::config(cause).at_path(path));
        }
        // Do not detect the format: the folders of images and masks together may look like a
        // different format, such as YOLO if the masks are in `labels`.
        if format.get_or_insert(DataFormat::from_name("folder")?).name != "folder" || file::is_file(path)? {
            return Err(Error::config(
                "separate masks require a folder of images, but this is not a folder of images: remove the option \
                 masks",
            )
            .at_path(path));
        }
    }
    if !location.storage.is_store() {
        tar::check_star(&location.path)?;
    }
    let path = location.path.clone();
    detect_and_open(location, format, options).map_err(|e| e.at_path(path))
}
