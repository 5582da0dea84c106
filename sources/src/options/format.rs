use std::path::Path;
use std::sync::Arc;

use super::Options;
use crate::error::{Error, Result};
use crate::medium::download::Companions;
use crate::medium::tree::Tree;
use crate::medium::{Around, At};
use crate::model::Source;

pub(crate) type Opened = Result<Arc<dyn Source>>;
pub(crate) type Open = fn(At, &Options) -> Opened;

/// A dataset format.
pub struct DataFormat {
    /// Name of the format, as returned by [`Source::kind`] and accepted by [`Options::format`].
    pub name: &'static str,
    /// Description of the paths of such datasets, for messages.
    pub looks_like: &'static str,
    /// File extensions. A file with one of these extensions is opened as this format even if it is
    /// damaged, so that the format can report the damage.
    pub extensions: &'static [&'static str],
    /// Returns whether a folder is a dataset of this format.
    pub(crate) is_folder: fn(Tree<'_>) -> Result<bool>,
    /// Counts the files in a folder that indicate this format. Used if no format recognizes the
    /// folder and the folder contains no images.
    pub(crate) files: fn(Tree<'_>) -> Result<usize>,
    /// Returns whether a file is a dataset of this format, given its path and its first bytes. The
    /// first bytes of a file in a store may be unknown.
    pub(crate) is_file: fn(&Path, &[u8]) -> bool,
    /// Returns whether a path that does not exist is a pattern for several files.
    pub(crate) is_pattern: fn(&Path) -> Result<bool>,
    /// Returns a message if there are annotations around the images of a folder that would
    /// otherwise be opened as class folders. The message describes the annotations and says what to
    /// open instead.
    pub(crate) annotates: fn(&Around<'_>) -> Result<Option<String>>,
    /// Whether a path may name a part of a dataset, as in `all.lmdb/train`.
    pub(crate) has_parts: bool,
    /// The companion files to download, if the format can read only local files.
    pub(crate) brings: Option<Companions>,
    pub(crate) opener: Open,
}

impl DataFormat {
    /// Creates a format that is detected only by its file extensions.
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
            annotates: |_| Ok(None),
            has_parts: false,
            brings: None,
            opener,
        }
    }

    /// Opens the dataset at this location.
    ///
    /// # Errors
    /// If a part was requested but the format has no parts, or if the dataset cannot be downloaded
    /// or opened.
    pub(crate) fn open(&self, at: At, options: &Options) -> Opened {
        if !self.has_parts {
            self.check_whole(&at)?;
        }
        match &self.brings {
            Some(companions) => (self.opener)(at.brought(companions, options.mapped)?, options),
            None => (self.opener)(at, options),
        }
    }

    /// Checks that the whole dataset was requested.
    ///
    /// # Errors
    /// If a part was requested.
    pub(crate) fn check_whole(&self, at: &At) -> Result<()> {
        let Some(part) = &at.part else { return Ok(()) };
        Err(Error::config(format!("{} datasets have no parts such as {part:?}", self.name)).at_path(&at.path))
    }

    pub(crate) fn has_extension(&self, path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default();
        self.extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
    }
}

/// Returns the error of a build without the Cargo feature that reads this dataset.
#[allow(dead_code)] // unused if all features are enabled
pub(crate) fn missing(feature: &str, what: &str, path: &Path) -> Opened {
    let cause = format!("this is {what}; this build of warpfeed lacks the Cargo feature {feature:?}, which reads it");
    Err(Error::config(cause).at_path(path))
}

/// Opens a dataset with a module's function or with an expression. If the Cargo feature is
/// disabled, returns an error that names the feature.
macro_rules! with_feature {
    ($feature:literal, $what:literal, $open:path) => {{
        #[cfg(feature = $feature)]
        let open: $crate::options::Open = $open;
        #[cfg(not(feature = $feature))]
        let open: $crate::options::Open = |at, _| $crate::options::missing($feature, $what, &at.path);
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
