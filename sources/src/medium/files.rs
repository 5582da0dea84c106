use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::HeldFile;
use crate::error::{Error, Result, push};
use crate::medium::ahead::{Parts, Remote, ahead_of};
use crate::model::{Lookahead, Prefetcher};
use crate::stats::NetworkStats;

/// The files of a dataset, here or in one store, each with `T`, the places of its samples. Samples
/// are numbered through all files.
pub(crate) struct Files<T> {
    files: Vec<(HeldFile, T)>,
    /// Number of the first sample of each file, then of all samples.
    starts: Vec<usize>,
    /// Number of requested checks.
    looks: AtomicU64,
}

/// Maximum number of files that are checked at once when an epoch begins.
const MOST_CHECKED: usize = 64;

/// Whether `files` are unchanged, as far as that takes little time: a store takes longer to ask,
/// and so do many files on a network.
pub(crate) fn are_unchanged<'a>(files: impl ExactSizeIterator<Item = &'a HeldFile> + Clone, looks: u64) -> bool {
    let quick = files.len() <= MOST_CHECKED && files.clone().all(|file| file.object().is_none());
    !quick || files.clone().all(|file| file.look(looks).is_ok())
}

/// What a [`Source`](crate::model::Source) does for its field of [`Files`].
macro_rules! of_files {
    ($($field:ident).+) => {
        $crate::model::forward::forward! { |this| this.$($field).+;
            fn len() -> usize;
            fn network() -> Option<$crate::stats::NetworkStats>;
            fn ahead_bytes() -> usize;
            fn check() -> $crate::error::Result<()>;
            fn is_unchanged() -> bool;
        }

        fn path(&self, index: usize) -> Option<std::path::PathBuf> {
            Some(self.$($field).+.path(index).to_owned())
        }
    };
}
pub(crate) use of_files;

impl<T> Files<T> {
    /// The samples of `files`. `count` is the number of samples of a file.
    ///
    /// # Errors
    /// If there are more samples than this machine can count.
    pub(crate) fn new(files: Vec<(HeldFile, T)>, count: impl Fn(&T) -> usize) -> Result<Self> {
        let mut starts = vec![0_usize];
        for (file, places) in &files {
            let end = starts[starts.len() - 1].checked_add(count(places));
            push(&mut starts, end.ok_or_else(|| Error::in_source("too many samples").at_path(&file.path))?)?;
        }
        Ok(Files { files, starts, looks: AtomicU64::new(0) })
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.starts[self.files.len()]
    }

    /// The files with their places, and the number of the first sample of each.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = (&HeldFile, &T, usize)> + Clone {
        self.files.iter().zip(&self.starts).map(|((file, places), start)| (file, places, *start))
    }

    /// The number of the file of sample `index`, and the sample's number in it.
    pub(crate) fn number(&self, index: usize) -> (usize, usize) {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        // An empty file starts where the next one does, so the last file that starts at or before
        // `index` is not empty.
        let number = self.starts.partition_point(|&start| start <= index) - 1;
        (number, index - self.starts[number])
    }

    /// The file of sample `index`, its places, and the sample's number in it.
    pub(crate) fn locate(&self, index: usize) -> (&HeldFile, &T, usize) {
        let (number, place) = self.number(index);
        let (file, places) = &self.files[number];
        (file, places, place)
    }

    /// Like [`locate`](Files::locate), and checks the file if that was requested.
    ///
    /// # Errors
    /// If the file has changed.
    pub(crate) fn open(&self, index: usize) -> Result<(&HeldFile, &T, usize)> {
        let found = self.locate(index);
        found.0.look(self.looks.load(Ordering::Relaxed))?;
        Ok(found)
    }

    /// The path or the URL of the file of sample `index`.
    pub(crate) fn path(&self, index: usize) -> &Path {
        &self.locate(index).0.path
    }

    /// Asks each file to be checked when it is next read. To check all of them here would delay an
    /// epoch by seconds for 10,000 files on a network.
    ///
    /// # Errors
    /// None. The method has the signature of [`Source::check`](crate::Source::check).
    pub(crate) fn check(&self) -> Result<()> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the files are unchanged, as far as that takes little time.
    pub(crate) fn is_unchanged(&self) -> bool {
        are_unchanged(self.files.iter().map(|(file, _)| file), self.looks.load(Ordering::Relaxed))
    }

    /// The store of all files, if they are in one.
    pub(crate) fn remote(&self) -> Option<&Arc<Remote>> {
        Some(self.files.first()?.0.object()?.1)
    }

    /// What was asked of the store.
    pub(crate) fn network(&self) -> Option<NetworkStats> {
        self.remote().map(|remote| remote.network())
    }

    /// Bytes of samples to hold ahead of need, for files in a store.
    pub(crate) fn ahead_bytes(&self) -> usize {
        self.remote().map_or(0, |_| ahead_of(self.files.iter().map(|(file, _)| file.len())))
    }

    /// Fetches the samples of `order` ahead, if they are in a store. `range` is the part of the
    /// file that a sample needs, by its number in the file.
    pub(crate) fn follow(
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
        let part = move |sample: u64| {
            let (number, place) = files.number(usize::try_from(sample).ok()?);
            Some((u32::try_from(number).ok()?, range(&files.files[number].1, place)))
        };
        remote.follow(order, Parts::new(objects.collect(), part))
    }
}
