use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::Source;

/// A data set: a path, or an open [`Source`].
///
/// `Loader::mixture` takes paths or sources directly. This type is for a list of both:
///
/// ```no_run
/// use warpfeed_sources::{DataSet, open};
///
/// let sketches = open("sketches")?;
/// let parts = [(DataSet::from("photos.lmdb"), 0.7), (DataSet::from(sketches), 0.3)];
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Clone)]
pub enum DataSet {
    /// A path or URL that is not open yet.
    Path(PathBuf),
    /// An open source.
    Source(Arc<dyn Source>),
}

impl fmt::Debug for DataSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSet::Path(path) => path.fmt(f),
            DataSet::Source(source) => write!(f, "{} source", source.kind()),
        }
    }
}

impl<S: Source + 'static> From<S> for DataSet {
    fn from(source: S) -> Self {
        DataSet::Source(Arc::new(source))
    }
}

macro_rules! from_paths {
    ($($path:ty),*) => {
        $(impl From<$path> for DataSet {
            fn from(path: $path) -> Self {
                DataSet::Path(path.into())
            }
        })*
    };
}

from_paths!(&str, String, &String, &Path, PathBuf, &PathBuf, OsString);
