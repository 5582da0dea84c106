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

/// One format of datasets.
pub struct DataFormat {
    /// Its name, as [`Source::kind`] returns it and [`Options::format`] takes it.
    pub name: &'static str,
    /// Description of a path to such a dataset.
    pub looks_like: &'static str,
    /// Extensions of its files. A file with one of them is opened as this format, so a damaged file
    /// gets the format's own message.
    pub extensions: &'static [&'static str],
    /// Recognizes a folder.
    pub(crate) is_folder: fn(Tree<'_>) -> Result<bool>,
    /// Number of files that make a folder this dataset, if no format recognizes the folder and it
    /// has no images.
    pub(crate) files: fn(Tree<'_>) -> Result<usize>,
    /// Recognizes a file by its path and its first bytes. Those of a file in a store may be unknown.
    pub(crate) is_file: fn(&Path, &[u8]) -> bool,
    /// Whether a path that leads nowhere names several files.
    pub(crate) is_pattern: fn(&Path) -> Result<bool>,
    /// Describes annotations around the images of a folder that would open as class folders, and
    /// says what to open instead.
    pub(crate) annotates: fn(&Around<'_>) -> Result<Option<String>>,
    /// Whether a path may name a part of a dataset: `all.lmdb/train`.
    pub(crate) has_parts: bool,
    /// What is brought with a file, if the format only reads files of this machine.
    pub(crate) brings: Option<Companions>,
    pub(crate) opener: Open,
}

impl DataFormat {
    /// A format that is recognized by extensions alone.
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

    /// Opens the dataset that is there.
    ///
    /// # Errors
    /// If it has no parts and one is wanted, it cannot be brought to this machine, or it cannot be
    /// opened.
    pub(crate) fn open(&self, at: At, options: &Options) -> Opened {
        if !self.has_parts {
            self.check_whole(&at)?;
        }
        match &self.brings {
            Some(companions) => (self.opener)(at.brought(companions, options.mapped)?, options),
            None => (self.opener)(at, options),
        }
    }

    /// # Errors
    /// If a part is wanted.
    pub(crate) fn check_whole(&self, at: &At) -> Result<()> {
        let Some(part) = &at.part else { return Ok(()) };
        Err(Error::config(format!("{} datasets have no parts such as {part:?}", self.name)).at_path(&at.path))
    }

    pub(crate) fn has_extension(&self, path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default();
        self.extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
    }
}

/// The error of a build without the Cargo feature that reads this dataset.
#[allow(dead_code)] // with all features, nothing is missing
pub(crate) fn missing(feature: &str, what: &str, path: &Path) -> Opened {
    let cause = format!("this is {what}, and this build of warpfeed lacks the Cargo feature {feature:?} that reads it");
    Err(Error::config(cause).at_path(path))
}

/// Opens a dataset by a function of a module, or by an expression. Without the Cargo feature, the
/// error names it.
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
