//! [`Source`]: a dataset that maps an index to a sample.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::forward::forward;
use super::lookahead::{Lookahead, Prefetcher};
use super::sample::Sample;
use super::value::Numbers;
use crate::error::{Error, Result};
use crate::stats::NetworkStats;

/// Describes the video frames of a source. A loader uses this information to reserve memory and to
/// choose its number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoInfo {
    /// Number of pixels of the largest frame, or an estimate of it.
    pub pixels: u64,
    /// Whether the video engines of a GPU decode some of the videos, as they do with H.264, HEVC
    /// and VP9. If so, workers wait for an engine most of the time.
    pub needs_gpu: bool,
}

impl VideoInfo {
    /// Returns the description of a source that contains the frames of both sources.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        VideoInfo { pixels: self.pixels.max(other.pixels), needs_gpu: self.needs_gpu || other.needs_gpu }
    }
}

/// A dataset: `len` samples that can be read in any order, from many threads at once.
///
/// ```
/// use warpfeed_sources::Result;
/// use warpfeed_sources::{Sample, Source};
///
/// /// 1,000 gray 8x8 images, encoded as BMP on each read.
/// struct Gray;
///
/// impl Source for Gray {
///     fn len(&self) -> usize {
///         1000
///     }
///
///     fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
///         scratch.clear();
///         // ... write the encoded image into `scratch` ...
///         Ok(Sample::new("gray").with_field("bmp", scratch)?.with_label(index as i64% 10))
///     }
/// }
/// # assert_eq!(Gray.len(), 1000);
/// ```
pub trait Source: Send + Sync {
    /// Returns the number of samples, which must not change while the source is open.
    fn len(&self) -> usize;

    /// Returns whether the source has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads sample `index`, which is less than [`len`](Source::len).
    ///
    /// The fields may borrow from the source, for example from a memory map, or from `scratch`,
    /// which the source may overwrite. Callers pass the same buffer for many samples, so that a
    /// read need not allocate.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) or [`ErrorKind::Source`](crate::ErrorKind::Source)
    /// if the sample cannot be read. The error should contain the path of the file. The loader adds
    /// the index and the key of the sample.
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>>;

    /// Reads sample `index` for a loader, which passes the sample's random number `draw`. If the
    /// sample has several [choices](super::Frames::choices), a source may return only the choice
    /// that the loader would [draw](super::Frames::draw) with this number. The default calls
    /// [`read`](Source::read).
    ///
    /// # Errors
    /// See [`read`](Source::read).
    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let _ = draw;
        self.read(index, scratch)
    }

    /// If the only field of sample `index` is an array in memory, returns this array and appends
    /// the sample's key to `key`, without reading the sample. The key and the array must be the
    /// same as in the result of [`read`](Source::read). Returns `None`, the default, if the sample
    /// must be read.
    ///
    /// With this method, a loader that has only this field just copies each sample. The loader
    /// calls `read` instead if the result for this sample or for sample 0 is `None`, if a trace is
    /// being recorded, if the field type rejects the array, or if the array exceeds the maximum
    /// size of a sample. Implement this method only if [`fields`](Source::fields) returns a single
    /// name, and if finding the array usually costs no system call.
    fn stored(&self, index: usize, key: &mut String) -> Option<Numbers<'_>> {
        let _ = (index, key);
        None
    }

    /// Returns a prefetcher for a loader that will read in `order`. The default returns `None`: the
    /// source reads samples only on demand.
    ///
    /// A loader calls this method once, when it is opened. The source then prefetches samples, even
    /// across epoch boundaries and with any number of requests in flight, as long as they fit
    /// within [`Lookahead::budget_bytes`]. [`read`](Source::read) returns the prefetched bytes of a
    /// sample, and waits for a request in flight. If the sample was not prefetched, or if its read
    /// is retried after an error, `read` reads it directly.
    ///
    /// ```
    /// # use std::sync::{Arc, mpsc};
    /// # use warpfeed_sources::Result;
    /// # use warpfeed_sources::{Prefetcher, Lookahead, BatchIndex, Sample, Source};
    /// struct Remote {
    ///     fetch: mpsc::Sender<u64>, // to a thread that fetches samples
    /// }
    ///
    /// struct Following {
    ///     order: Lookahead,
    ///     fetch: mpsc::Sender<u64>,
    /// }
    ///
    /// impl Prefetcher for Following {
    ///     fn start(&self, index: BatchIndex) {
    ///         for (_index, samples) in self.order.batches_from(index).take(4) {
    ///             samples.into_iter().for_each(|sample| self.fetch.send(sample).unwrap());
    ///         }
    ///     }
    /// }
    ///
    /// impl Source for Remote {
    ///     fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
    ///         Some(Box::new(Following { order, fetch: self.fetch.clone() }))
    ///     }
    ///
    ///     fn prefetch_bytes(&self) -> usize {
    ///         256 << 20
    ///     }
    ///     # fn len(&self) -> usize { 10 }
    ///     # fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> { Ok(Sample::new("")) }
    ///     // ... `len` and `read` ...
    /// }
    /// # let (fetch, fetched) = mpsc::channel();
    /// # let order = Lookahead::new(0, |_| 2, |index| Some(vec![index.batch]));
    /// # Remote { fetch }.prefetcher(order).unwrap().start(BatchIndex::default());
    /// # assert_eq!(fetched.try_iter().collect::<Vec<_>>(), [0, 1, 0, 1]);
    /// ```
    ///
    /// If this method panics, opening the loader fails. If [`Prefetcher::start`] panics, the first
    /// batch fails.
    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let _ = order;
        None
    }

    /// Returns the prefetch budget that the source requests, in bytes. The default is 0. A loader
    /// grants at most this number of bytes, and at most a quarter of its memory limit or of the
    /// available memory.
    fn prefetch_bytes(&self) -> usize {
        0
    }

    /// Describes the video frames of the source. Returns `None`, the default, if it contains no
    /// videos.
    fn video_info(&self) -> Option<VideoInfo> {
        None
    }

    /// Checks that the files of the dataset have not changed since the source was opened. A check
    /// should cost no more than a few `stat` calls.
    ///
    /// A loader calls this method when the program requests an epoch, on the requesting thread, and
    /// before it prepares an epoch in advance. If the check fails, the epoch ends before its first
    /// batch. If the source has a [prefetcher](Source::prefetcher), opening the loader also calls
    /// this method, and fails if the check fails.
    ///
    /// Other threads may read samples or run the same check at the same time.
    ///
    /// Most sources of this crate check a file only when one of its samples is next read. If a
    /// shard was modified in place, reading this sample fails. Some sources, such as
    /// [`Lmdb`](crate::Lmdb), check their files immediately. Databases may be modified. If a file
    /// was removed or replaced, a warning is logged, because the open file can still be read.
    ///
    /// # Errors
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) if a file has changed. The error states the
    /// file.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Verifies whole files against checksums that individual reads do not check, such as the
    /// `hashes` of MDS shards. Verifies each file that has its first sample in `samples`, and calls
    /// `found` with an error for each file that is damaged or unreadable. The `warpfeed verify`
    /// command calls this method; a loader never does. The default does nothing.
    fn verify(&self, samples: Range<usize>, found: &mut dyn FnMut(Error)) {
        let _ = (samples, found);
    }

    /// Returns whether samples that were read before the last [`check`](Source::check) are still
    /// current. If a loader has prepared batches of an epoch in advance, it calls this method after
    /// `check` when the epoch is requested, and prepares the batches again if the result is
    /// `false`. The method should be as cheap as `check`. The default returns `true`.
    fn is_unchanged(&self) -> bool {
        true
    }

    /// Returns the label of sample `index`, as [`read`](Source::read) would return it. The default
    /// reads the sample. Implement this method if the source can find labels faster.
    ///
    /// # Errors
    /// Fails like [`read`](Source::read), and if the label is not a number.
    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        self.read(index, scratch)?.label()
    }

    /// Returns the key of sample `index`, as [`read`](Source::read) would return it. The default
    /// reads the sample. Implement this method if the source can find keys faster.
    ///
    /// # Errors
    /// See [`read`](Source::read).
    fn key(&self, index: usize, scratch: &mut Vec<u8>) -> Result<String> {
        Ok(self.read(index, scratch)?.key().to_owned())
    }

    /// Returns a hash of the keys of all samples in order, and of other properties that are known
    /// without reading samples, such as sizes. Ranks compare this hash to verify that they opened
    /// the same dataset. Returns `None`, the default, if computing the hash would require reading
    /// samples.
    fn fingerprint(&self) -> Option<u64> {
        None
    }

    /// Returns the file that contains sample `index`, for error messages: an image file, a shard or
    /// a database. Returns `None`, the default, if there is no such file.
    fn path(&self, _index: usize) -> Option<PathBuf> {
        None
    }

    /// Returns the index of the joined dataset that contains sample `index`, as in
    /// [`Concat`](super::Concat). The default returns 0.
    fn dataset_index(&self, _index: usize) -> usize {
        0
    }

    /// Returns the class names, indexed by label. The default is an empty list: the dataset has no
    /// class names.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// Returns the ID that the dataset uses for each class, indexed by label. Evaluation on
    /// [`Coco`](crate::Coco), for example, needs these category IDs. The default is an empty list:
    /// classes have no IDs.
    fn category_ids(&self) -> Vec<i64> {
        Vec::new()
    }

    /// Returns whether samples have images. Returns `None`, the default, if finding out requires
    /// reading samples.
    ///
    /// If a source has no images, a loader with other fields omits the `image` field, unless the
    /// program requested it.
    fn has_images(&self) -> Option<bool> {
        None
    }

    /// Returns the names of the fields that samples may have in addition to the image. Returns
    /// `None`, the default, if finding the names requires reading samples.
    ///
    /// Opening a loader fails if one of its field types reads a field that is not among these
    /// names, unless the field's name has the extension of an image format. A name without an
    /// extension, such as `mask`, matches every encoding.
    fn fields(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns the names of the fields that contain images in addition to the main image, such as
    /// the cameras of a robot. `pack` also re-encodes these images. The default returns no names.
    fn images(&self) -> Vec<String> {
        Vec::new()
    }

    /// Splits a dataset of robot episodes into frames and other files, for `pack --frames`.
    /// `packed` is the name of the file to which the frames will be packed. Returns `None`, the
    /// default, if the dataset has no episodes.
    ///
    /// # Errors
    /// If the dataset cannot be read, or if its options do not allow packing it.
    fn split_episodes(&self, packed: &str) -> Result<Option<SplitEpisodes>> {
        let _ = packed;
        Ok(None)
    }

    /// Returns a view of the dataset that may omit all fields except the image, the label and
    /// `fields`. The names in `fields` may omit the extension. Returns `None`, the default, if
    /// reading fewer fields is not faster.
    ///
    /// A loader reads its samples from the view. All other uses of the source, such as
    /// `Batches::source`, still see all fields.
    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let _ = fields;
        None
    }

    /// Returns the counters of the requests that the source has sent to an object store. Returns
    /// `None`, the default, if the dataset is on this machine. A source that wraps other sources
    /// returns the sum of their counters.
    fn network_stats(&self) -> Option<NetworkStats> {
        None
    }

    /// Returns the name of the source's type, for messages and statistics, such as `folder` or
    /// `memory`.
    fn kind(&self) -> &'static str {
        "custom"
    }
}

/// A dataset of robot episodes, as split by [`Source::split_episodes`].
pub struct SplitEpisodes {
    /// The images and texts of each frame. Each frame is a sample.
    pub frames: Arc<dyn Source>,
    /// The paths and contents of all other files. Paths are relative to the folder of the dataset.
    pub files: Vec<(String, Vec<u8>)>,
}

impl std::fmt::Debug for SplitEpisodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<_> = self.files.iter().map(|(path, _)| path).collect();
        f.debug_struct("SplitEpisodes").field("frames", &self.frames.len()).field("files", &files).finish()
    }
}

/// Allows `Loader::source` to accept the result of [`open`](crate::open()).
impl<S: Source + ?Sized> Source for Arc<S> {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        (**self).read(index, scratch)
    }

    fn read_drawn<'a>(&'a self, index: usize, draw: u64, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        (**self).read_drawn(index, draw, scratch)
    }

    forward! { |this| **this;
        fn len() -> usize;
        fn is_empty() -> bool;
        fn stored(index: usize, key: &mut String) -> Option<Numbers<'_>>;
        fn prefetcher(order: Lookahead) -> Option<Box<dyn Prefetcher>>;
        fn prefetch_bytes() -> usize;
        fn video_info() -> Option<VideoInfo>;
        fn check() -> Result<()>;
        fn verify(samples: Range<usize>, found: &mut dyn FnMut(Error));
        fn is_unchanged() -> bool;
        fn label(index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>>;
        fn key(index: usize, scratch: &mut Vec<u8>) -> Result<String>;
        fn fingerprint() -> Option<u64>;
        fn path(index: usize) -> Option<PathBuf>;
        fn dataset_index(index: usize) -> usize;
        fn classes() -> &[String];
        fn category_ids() -> Vec<i64>;
        fn has_images() -> Option<bool>;
        fn fields() -> Option<Vec<String>>;
        fn images() -> Vec<String>;
        fn split_episodes(packed: &str) -> Result<Option<SplitEpisodes>>;
        fn select_fields(fields: &[String]) -> Option<Arc<dyn Source>>;
        fn network_stats() -> Option<NetworkStats>;
        fn kind() -> &'static str;
    }
}
