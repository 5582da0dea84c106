//! [`DataFormat`]: a format, with the functions that recognize and open its datasets.

use std::path::Path;
use std::sync::Arc;

use super::Options;
use crate::error::{Error, Result};
use crate::model::Source;
use crate::storage::download::Companions;
use crate::storage::tree::Tree;
use crate::storage::{DatasetLocation, Siblings};

pub(crate) type Opened = Result<Arc<dyn Source>>;
pub(crate) type Open = fn(DatasetLocation, &Options) -> Opened;

/// A dataset format, with the functions that recognize and open its datasets.
pub struct DataFormat {
    /// Name of the format, as returned by [`Source::kind`] and accepted by [`Options::format`].
    pub name: &'static str,
    /// Description of the files or folders of this format, for messages.
    pub looks_like: &'static str,
    /// File extensions. A file with one of these extensions belongs to this format even if its
    /// content does not match, so that the error for a damaged file names the format.
    pub extensions: &'static [&'static str],
    pub(crate) is_folder: fn(Tree<'_>) -> Result<bool>,
    /// Counts the files in a folder that indicate this format. Called only if `is_folder` of this
    /// format has returned false.
    pub(crate) files: fn(Tree<'_>) -> Result<usize>,
    /// Recognizes a file by its path and its first bytes. For a file in a store, the first bytes
    /// may be missing.
    pub(crate) is_file: fn(&Path, &[u8]) -> bool,
    /// Recognizes a path that does not exist as a pattern for several files.
    pub(crate) is_pattern: fn(&Path) -> Result<bool>,
    /// Looks for annotations of this format near a folder that is about to be opened as class
    /// folders. If there are any, returns a message that names the path to open instead.
    pub(crate) annotation_hint: fn(&Siblings<'_>) -> Result<Option<String>>,
    /// Whether a path may name a split of a dataset, as in `all.lmdb/train`.
    pub(crate) has_splits: bool,
    /// Rules for the files to download with the dataset, if the format can read only local files.
    pub(crate) companions: Option<Companions>,
    pub(crate) opener: Open,
}

impl DataFormat {
    /// Creates a format that is recognized only by its file extensions.
    pub(crate) const fn new(
        name: &'static str,
        looks_like: &'static str,
        extensions: &'static [&'static str],
        opener: Open,
    ) -> Self {
        DataFormat {
            name,
            looks_like,
            extensions,
            is_folder: |_| Ok(false),
            files: |_| Ok(0),
            is_file: |_, _| false,
            is_pattern: |_| Ok(false),
            annotation_hint: |_| Ok(None),
            has_splits: false,
            companions: None,
            opener,
        }
    }

    /// Fails if the location names a split of the dataset but the format has no splits.
    pub(crate) fn open(&self, location: DatasetLocation, options: &Options) -> Opened {
        if !self.has_splits {
            self.check_whole(&location)?;
        }
        match &self.companions {
            Some(companions) => (self.opener)(location.downloaded(companions, options.mapped)?, options),
            None => (self.opener)(location, options),
        }
    }

    pub(crate) fn check_whole(&self, location: &DatasetLocation) -> Result<()> {
        let Some(split) = &location.split else { return Ok(()) };
        Err(Error::config(format!("{} datasets have no parts: remove {split:?} from the path", self.name))
            .at_path(&location.path))
    }

    pub(crate) fn has_extension(&self, path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default();
        self.extensions.iter().any(|ending| extension.eq_ignore_ascii_case(ending))
    }
}

/// `what` describes the dataset that needs the disabled Cargo feature.
#[allow(dead_code)] // unused if all features are enabled
pub(crate) fn missing(feature: &str, what: &str, path: &Path) -> Opened {
    let cause = format!("this build of warpfeed cannot read {what}: enable the Cargo feature {feature:?}");
    Err(Error::config(cause).at_path(path))
}

/// Expands to a function that opens a dataset. The form with `=>` expands to the opened dataset
/// instead. If the Cargo feature is disabled, opening fails with an error that names the feature.
macro_rules! with_feature {
    ($feature:literal, $what:literal, $open:path) => {{
        #[cfg(feature = $feature)]
        let open: $crate::options::Open = $open;
        #[cfg(not(feature = $feature))]
        let open: $crate::options::Open = |location, _| $crate::options::missing($feature, $what, &location.path);
        open
    }};
    ($feature:literal, $what:literal, $at:ident, $options:ident => $source:expr) => {{
        #[cfg(feature = $feature)]
        let opened: $crate::options::Opened = Ok(std::sync::Arc::new($source));
        #[cfg(not(feature = $feature))]
        let opened = {
            let _ = $options;
            $crate::options::missing($feature, $what, &$at.path)
        };
        opened
    }};
}
pub(crate) use with_feature;
