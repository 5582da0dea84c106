//! [`Files`]: all files of a dataset, and the numbering of their samples.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::OpenFile;
use crate::error::{Error, Result, push};
use crate::model::{Lookahead, Prefetcher};
use crate::stats::NetworkStats;
use crate::storage::prefetch::{Remote, SampleRanges, max_prefetch_bytes};

/// All files of a dataset, either local or in a single store. Samples are numbered consecutively
/// across all files. `T` describes the locations of the samples in a file.
pub(crate) struct Files<T> {
    files: Vec<(OpenFile, T)>,
    /// Index of the first sample of each file, followed by the total number of samples.
    starts: Vec<usize>,
    requested_checks: AtomicU64,
}

/// Maximum number of files that [`are_unchanged`] checks. In a larger dataset, each file is only
/// checked before its next read.
const MAX_CHECKED_FILES: usize = 64;

/// Returns whether all files are unchanged. Returns `true` without a check if checking could take
/// long: for files in a store, and for more than [`MAX_CHECKED_FILES`] files, because these may be
/// on a network.
pub(crate) fn are_unchanged<'a>(
    files: impl ExactSizeIterator<Item = &'a OpenFile> + Clone,
    requested_checks: u64,
) -> bool {
    let is_cheap = files.len() <= MAX_CHECKED_FILES && files.clone().all(|file| file.object().is_none());
    !is_cheap || files.clone().all(|file| file.check_once(requested_checks).is_ok())
}

/// Implements the methods of a [`Source`](crate::model::Source) that delegate to its [`Files`].
macro_rules! delegate_to_files {
    ($($field:ident).+) => {
        $crate::model::forward::forward! { |this| this.$($field).+;
            fn len() -> usize;
            fn network_stats() -> Option<$crate::stats::NetworkStats>;
            fn prefetch_bytes() -> usize;
            fn check() -> $crate::error::Result<()>;
            fn is_unchanged() -> bool;
        }

        fn path(&self, index: usize) -> Option<std::path::PathBuf> {
            Some(self.$($field).+.path(index).to_owned())
        }
    };
}
pub(crate) use delegate_to_files;

impl<T> Files<T> {
    pub(crate) fn new(files: Vec<(OpenFile, T)>, count: impl Fn(&T) -> usize) -> Result<Self> {
        let mut starts = vec![0_usize];
        for (file, layout) in &files {
            let end = starts[starts.len() - 1].checked_add(count(layout));
            push(&mut starts, end.ok_or_else(|| Error::in_source("too many samples").at_path(&file.path))?)?;
        }
        Ok(Files { files, starts, requested_checks: AtomicU64::new(0) })
    }

    pub(crate) fn len(&self) -> usize {
        self.starts[self.files.len()]
    }

    /// Yields each file, its `T`, and the index of its first sample.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (&OpenFile, &T, usize)> + Clone {
        self.files.iter().zip(&self.starts).map(|((file, layout), start)| (file, layout, *start))
    }

    /// Returns the index of the file with sample `index`, and the sample's index within it.
    pub(crate) fn file_and_index(&self, index: usize) -> (usize, usize) {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        // An empty file starts where the next one does, so the last file that starts at or before
        // `index` is not empty.
        let file = self.starts.partition_point(|&start| start <= index) - 1;
        (file, index - self.starts[file])
    }

    pub(crate) fn locate(&self, index: usize) -> (&OpenFile, &T, usize) {
        let (file, index) = self.file_and_index(index);
        let (file, layout) = &self.files[file];
        (file, layout, index)
    }

    /// Like [`locate`](Files::locate), but first checks that the file is unchanged if
    /// [`check`](Files::check) has been called since the last read of this file.
    pub(crate) fn open(&self, index: usize) -> Result<(&OpenFile, &T, usize)> {
        let location = self.locate(index);
        location.0.check_once(self.requested_checks.load(Ordering::Relaxed))?;
        Ok(location)
    }

    pub(crate) fn path(&self, index: usize) -> &Path {
        &self.locate(index).0.path
    }

    /// Causes each file to be checked before its next read, because a check of 10,000 files on a
    /// network would delay the epoch by seconds. Returns a result like
    /// [`Source::check`](crate::Source::check), but never fails.
    pub(crate) fn check(&self) -> Result<()> {
        self.requested_checks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        are_unchanged(self.files.iter().map(|(file, _)| file), self.requested_checks.load(Ordering::Relaxed))
    }

    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        Some(self.files.first()?.0.object()?.1)
    }

    pub(crate) fn network_stats(&self) -> Option<NetworkStats> {
        self.remote().map(|remote| remote.network_stats())
    }

    pub(crate) fn prefetch_bytes(&self) -> usize {
        self.remote().map_or(0, |_| max_prefetch_bytes(self.files.iter().map(|(file, _)| file.len())))
    }

    /// `range` returns a sample's byte range, given its file's `T` and its index in the file.
    pub(crate) fn prefetcher(
        self: &Arc<Self>,
        order: Lookahead,
        range: impl Fn(&T, usize) -> Range<u64> + Send + Sync + 'static,
    ) -> Option<Box<dyn Prefetcher>>
    where
        T: Send + Sync + 'static,
    {
        let remote = self.remote()?;
        let objects = self.files.iter().filter_map(|(file, _)| Some(file.object()?.0.clone()));
        let files = self.clone();
        let byte_range = move |sample: u64| {
            let (file, index) = files.file_and_index(usize::try_from(sample).ok()?);
            Some((u32::try_from(file).ok()?, range(&files.files[file].1, index)))
        };
        remote.prefetcher(order, SampleRanges::new(objects.collect(), byte_range))
    }
}
