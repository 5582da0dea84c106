//! [`Dataset`]: a path, or a source that is already open.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::Source;

/// A dataset: a path, or an open [`Source`].
///
/// `Loader::mixture` accepts a list of paths or a list of sources. Use this type for a list that
/// contains both:
///
/// ```no_run
/// use warpfeed_sources::{Dataset, open};
///
/// let sketches = open("sketches")?;
/// let parts = [(Dataset::from("photos.lmdb"), 0.7), (Dataset::from(sketches), 0.3)];
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Clone)]
pub enum Dataset {
    /// The path or URL of a dataset that has not been opened yet.
    Path(PathBuf),
    /// An open source.
    Source(Arc<dyn Source>),
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dataset::Path(path) => path.fmt(f),
            Dataset::Source(source) => write!(f, "{} source", source.kind()),
        }
    }
}

impl<S: Source + 'static> From<S> for Dataset {
    fn from(source: S) -> Self {
        Dataset::Source(Arc::new(source))
    }
}

macro_rules! from_paths {
    ($($path:ty),*) => {
        $(impl From<$path> for Dataset {
            fn from(path: $path) -> Self {
                Dataset::Path(path.into())
            }
        })*
    };
}

from_paths!(&str, String, &String, &Path, PathBuf, &PathBuf, OsString);
