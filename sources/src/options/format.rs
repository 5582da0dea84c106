use std::path::Path;
use std::sync::Arc;

use super::Options;
use crate::error::{Error, Result};
use crate::medium::brought::Companions;
use crate::medium::tree::Tree;
use crate::model::Source;

pub(crate) type Opened = Result<Arc<dyn Source>>;
pub(crate) type Open = fn(&Path, &Options) -> Opened;

/// One format of data sets.
pub struct DataFormat {
    /// Its name, as [`Source::kind`] returns it and [`Options::format`] takes it.
    pub name: &'static str,
    /// Description of a path to such a data set.
    pub looks_like: &'static str,
    /// Extensions of its files. A file with one of them is opened as this format, so a damaged file
    /// gets the format's own message.
    pub extensions: &'static [&'static str],
    pub(crate) is_folder: fn(Tree<'_>) -> bool,
    /// Recognises a file by its path and its first bytes.
    pub(crate) is_file: fn(&Path, &[u8]) -> bool,
    /// Whether a path may name a part of a data set: `all.lmdb/train`.
    pub(crate) has_parts: bool,
    pub(crate) open: Open,
    pub(crate) at_url: AtUrl,
}

/// How a data set at a URL is opened.
pub(crate) enum AtUrl {
    /// As a path is.
    Same,
    Other(fn(&str, &Options) -> Opened),
    /// Its files are brought to this machine first.
    Brought(Companions),
}

impl DataFormat {
    /// A format that is recognised by extensions alone, and opens paths and URLs alike.
    pub(crate) const fn new(
        name: &'static str,
        looks_like: &'static str,
        extensions: &'static [&'static str],
        open: Open,
    ) -> Self {
        DataFormat {
            name,
            looks_like,
            extensions,
            is_folder: |_| false,
            is_file: |_, _| false,
            has_parts: false,
            open,
            at_url: AtUrl::Same,
        }
    }

    pub(crate) fn has_extension(&self, path: &Path) -> bool {
        let extension = path.extension().unwrap_or_default();
        self.extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
    }
}

/// The error of a build without the Cargo feature that reads this data set.
#[allow(dead_code)] // with all features, nothing is missing
pub(crate) fn missing(feature: &str, what: &str, path: &Path) -> Opened {
    let cause = format!("this is {what}, and this build of warpfeed lacks the Cargo feature {feature:?} that reads it");
    Err(Error::config(cause).at_path(path))
}

/// Opens a data set by a function of a module, or by an expression. Without the Cargo feature, the
/// error names it.
macro_rules! with_feature {
    ($feature:literal, $what:literal, $open:path) => {{
        #[cfg(feature = $feature)]
        let open: $crate::options::Open = $open;
        #[cfg(not(feature = $feature))]
        let open: $crate::options::Open = |path, _| $crate::options::missing($feature, $what, path);
        open
    }};
    ($feature:literal, $what:literal, $path:expr, $($used:ident),+ => $source:expr) => {{
        #[cfg(feature = $feature)]
        let opened: $crate::options::Opened = Ok(std::sync::Arc::new($source));
        #[cfg(not(feature = $feature))]
        let opened = {
            let _ = ($(&$used),+);
            $crate::options::missing($feature, $what, $path.as_ref())
        };
        opened
    }};
}
pub(crate) use with_feature;
