//! [`Classes`]: a list of class names that determines the labels.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::forward::forward;
use super::relabel::Relabel;
use super::source::{SplitEpisodes, VideoInfo};
use super::{Lookahead, Prefetcher, Sample, Source};
use crate::error::{Error, Result, counted};
use crate::machine::file::{self, MAX_FILE};
use crate::stats::NetworkStats;

/// Maximum number of names that a message lists.
const MAX_LISTED_NAMES: usize = 10;

/// A list of class names. The label of a class is the index of its name in the list, regardless of
/// the label that the dataset itself assigns to the class.
///
/// With a shared list, a class has the same label in every dataset. For example, if a class does
/// not occur in the validation set, the labels of the other classes do not shift.
///
/// ```
/// use warpfeed_sources::Classes;
///
/// let classes = Classes::new(["cat", "dog"])?;
/// assert_eq!(classes.names(), ["cat", "dog"]);
/// let twice = Classes::new(["cat", "cat"]).unwrap_err();
/// assert_eq!(twice.cause(), "classes: \"cat\" occurs twice, at indices 0 and 1");
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    names: Arc<[String]>,
}

impl Classes {
    /// Creates a list of `names`. Their labels are 0, 1, 2, ….
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the list or a name is empty, or if a name
    /// occurs twice.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let names: Arc<[String]> = names.into_iter().map(Into::into).collect();
        if names.is_empty() {
            return Err(Error::config("classes: the list is empty"));
        }
        let mut labels = HashMap::with_capacity(names.len());
        for (label, name) in names.iter().enumerate() {
            if name.is_empty() {
                return Err(Error::config(format!("classes: name {label} is empty")));
            }
            if let Some(first) = labels.insert(name, label) {
                return Err(Error::config(format!("classes: {name:?} occurs twice, at indices {first} and {label}")));
            }
        }
        drop(labels);
        Ok(Classes { names })
    }

    /// Reads the list from a text file with one name per line, or from a `.json` file with an array
    /// of names. In a text file, white space around names, empty lines at the end, and a byte order
    /// mark are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be read.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if it does not contain a list of names that
    /// [`new`](Classes::new) accepts. The error contains the path of the file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = file::read(path, MAX_FILE).map_err(|e| Error::io(path, &e))?;
        let text = std::str::from_utf8(&bytes).map_err(|e| {
            let line = 1 + memchr::memchr_iter(b'\n', &bytes[..e.valid_up_to()]).count();
            Error::config(format!("line {line}: the text is not UTF-8")).at_path(path)
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let names = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
            serde_json::from_str::<Vec<String>>(text)
                .map_err(|e| Error::config(format!("not a list of names: {e}")).at_path(path))?
        } else {
            text.trim_end().lines().map(|line| line.trim().to_owned()).collect()
        };
        Self::new(names).map_err(|e| e.at_path(path))
    }

    /// Returns the class names, indexed by label.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Replaces the labels of `source` with indices into the list, by class name. If the source has
    /// no class names, its labels must already be indices into the list.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use warpfeed_sources::{Classes, Memory, OwnedSample, Source};
    /// let dogs = Memory::new(vec![OwnedSample::new("a").label(0)]).with_classes(["dog"]);
    /// let listed = Classes::new(["cat", "dog"])?.relabel(Arc::new(dogs))?;
    /// assert_eq!(listed.label(0, &mut Vec::new())?, Some(1));
    /// # Ok::<(), warpfeed_sources::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the source has a class that is not in the
    /// list. The message names the class.
    pub fn relabel(&self, source: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        self.relabel_with(source, false)
    }

    /// Like [`relabel`](Classes::relabel), but if `allows_unknown` is true, the error for a class
    /// that is not in the list is returned only when one of its samples is read.
    pub(crate) fn relabel_with(&self, source: Arc<dyn Source>, allows_unknown: bool) -> Result<Arc<dyn Source>> {
        if source.classes() == self.names() {
            return Ok(source);
        }
        if source.classes().is_empty() {
            let relabel = Relabel::Unnamed(self.names.len());
            return Ok(Arc::new(Relabeled { source, classes: self.clone(), relabel }));
        }
        let labels: HashMap<&String, i64> = self.names.iter().zip(0..).collect();
        let classes: Vec<_> = source.classes().iter().map(|name| (name.clone(), labels.get(name).copied())).collect();
        let unknown: Vec<&str> = classes.iter().filter(|(_, new)| new.is_none()).map(|(name, _)| &**name).collect();
        if !unknown.is_empty() && !allows_unknown {
            return Err(self.unknown_classes_error(&unknown));
        }
        let relabel =
            Relabel::Named { classes, dataset: "the dataset".to_owned(), numbering: "numbered by the list of classes" };
        Ok(Arc::new(Relabeled { source, classes: self.clone(), relabel }))
    }

    fn unknown_classes_error(&self, names: &[&str]) -> Error {
        let shown: Vec<String> = names.iter().take(MAX_LISTED_NAMES).map(|name| format!("{name:?}")).collect();
        let more = names.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (shown, name_count) = (shown.join(", "), counted(self.names.len(), "name", "names"));
        Error::config(format!(
            "classes: the dataset has classes that are not in the list of {name_count}: {shown}{more}; add them, or \
             skip these samples with OnError::Skip"
        ))
    }
}

/// Returns the category ID of each class. The result is empty if a class has no ID, or has
/// different IDs in different `datasets`.
pub(crate) fn category_ids<'a>(classes: &[String], datasets: impl Iterator<Item = &'a Arc<dyn Source>>) -> Vec<i64> {
    let mut ids = HashMap::new();
    for dataset in datasets {
        for (name, id) in dataset.classes().iter().zip(dataset.category_ids()) {
            if ids.insert(name.clone(), id).is_some_and(|other| other != id) {
                return Vec::new();
            }
        }
    }
    classes.iter().map(|name| ids.get(name).copied()).collect::<Option<_>>().unwrap_or_default()
}

struct Relabeled {
    source: Arc<dyn Source>,
    classes: Classes,
    relabel: Relabel,
}

impl Source for Relabeled {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.source.read(index, scratch)?.relabeled(&self.relabel)
    }

    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.source.read_drawn(index, draw, scratch)?.relabeled(&self.relabel)
    }

    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let (source, relabel) = (self.source.select_fields(fields)?, self.relabel.clone());
        Some(Arc::new(Relabeled { source, classes: self.classes.clone(), relabel }))
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        self.source.label(index, scratch)?.map(|label| self.relabel.new_label(label)).transpose()
    }

    fn classes(&self) -> &[String] {
        self.classes.names()
    }

    fn category_ids(&self) -> Vec<i64> {
        category_ids(self.classes.names(), std::iter::once(&self.source))
    }

    forward! { |this| this.source;
        fn len() -> usize;
        fn prefetcher(order: Lookahead) -> Option<Box<dyn Prefetcher>>;
        fn prefetch_bytes() -> usize;
        fn video_info() -> Option<VideoInfo>;
        fn check() -> Result<()>;
        fn verify(samples: Range<usize>, found: &mut dyn FnMut(Error));
        fn is_unchanged() -> bool;
        fn key(index: usize, scratch: &mut Vec<u8>) -> Result<String>;
        fn fingerprint() -> Option<u64>;
        fn path(index: usize) -> Option<PathBuf>;
        fn dataset_index(index: usize) -> usize;
        fn has_images() -> Option<bool>;
        fn fields() -> Option<Vec<String>>;
        fn images() -> Vec<String>;
        fn split_episodes(packed: &str) -> Result<Option<SplitEpisodes>>;
        fn network_stats() -> Option<NetworkStats>;
        fn kind() -> &'static str;
    }
}
