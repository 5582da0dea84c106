//! The datasets of a loader.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::source::{self, Concat, Dataset, Join, Source};

#[derive(Clone)]
pub(super) enum Input {
    Path(PathBuf),
    Source(Arc<dyn Source>),
    Mixture(Vec<(Input, f64)>),
}

impl From<Dataset> for Input {
    fn from(dataset: Dataset) -> Self {
        match dataset {
            Dataset::Path(path) => Input::Path(path),
            Dataset::Source(source) => Input::Source(source),
        }
    }
}

/// The number of samples and the proportion of each dataset of a mixture.
pub(super) type Proportions = Vec<(u64, f64)>;

/// The open source, and the proportions if the source is a mixture.
pub(super) type OpenInput = (Arc<dyn Source>, Option<Proportions>);

impl Input {
    /// Opens the dataset, or all datasets of a mixture. `join` determines how the labels of a
    /// mixture are combined. Fails if `join` is set for a single dataset, or if an option does not
    /// apply to any dataset.
    pub(super) fn open(self, options: &source::Options, join: Option<Join>) -> Result<OpenInput> {
        if join.is_some() && !matches!(self, Input::Mixture(_)) {
            return Err(Error::config(
                "match_labels_by_name and keep_labels require a mixture, but this loader has one dataset; \
                 to concatenate datasets, use source::Concat, which has both options",
            ));
        }
        if join.is_some() && options.has_classes() {
            return Err(Error::config(
                "classes already numbers the labels of every dataset by name: remove match_labels_by_name and keep_labels",
            ));
        }
        let path = self.path().map(Path::to_owned);
        let input = self.open_part(options, join)?;
        options.check_used().map_err(|e| if let Some(path) = path { e.at_path(path) } else { e })?;
        Ok(input)
    }

    fn open_part(
        self,
        options: &source::Options,
        join: Option<Join>,
    ) -> Result<(Arc<dyn Source>, Option<Proportions>)> {
        match self {
            Input::Path(path) => Ok((options.open_part(path)?, None)),
            Input::Source(_) if options.has_masks() => Err(Error::config(
                "masks: the dataset is already open; pass the folder of masks to the call that opens it",
            )),
            Input::Source(source) => Ok((options.relabel(source)?, None)),
            Input::Mixture(parts) if parts.is_empty() => Err(Error::config("mixture: expected at least one dataset")),
            Input::Mixture(parts) => {
                let open = |(part, proportion): (Input, f64)| Ok((part.open_part(options, None)?.0, proportion));
                let parts = parts.into_iter().map(open).collect::<Result<Vec<_>>>()?;
                let mixture = parts.iter().map(|(part, proportion)| (part.len() as u64, *proportion)).collect();
                let parts = parts.into_iter().map(|(part, _)| part).collect();
                Ok((Arc::new(Concat::join(parts, join.unwrap_or_default())?), Some(mixture)))
            }
        }
    }
}

impl Input {
    pub(super) fn dataset_count(&self) -> Option<usize> {
        match self {
            Input::Mixture(parts) => Some(parts.len()),
            _ => None,
        }
    }

    /// Returns the path if this is a single dataset that is not open yet.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Input::Path(path) => Some(path),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::Path(path) => path.fmt(f),
            Input::Source(source) => write!(f, "{} source", source.kind()),
            Input::Mixture(parts) => parts.fmt(f),
        }
    }
}
