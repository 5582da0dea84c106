//! [`Source`]: maps an index to a sample.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::forward::forward;
use super::lookahead::{Lookahead, Prefetcher};
use super::sample::Sample;
use crate::error::{Error, Result};
use crate::stats::NetworkStats;

/// A dataset: `len` samples that can be read in any order, from many threads at once.
///
/// ```
/// use warpfeed_sources::Result;
/// use warpfeed_sources::{Sample, Source};
///
/// /// 1,000 gray images of 8 by 8, as BMP files made when they are read.
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
///         Ok(Sample::new("gray").with_field("bmp", scratch)?.with_label(index as i64 % 10))
///     }
/// }
/// # assert_eq!(Gray.len(), 1000);
/// ```
pub trait Source: Send + Sync {
    /// Number of samples. It never changes while the source is open.
    fn len(&self) -> usize;

    /// Whether the source has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads sample `index`, which is less than [`len`](Source::len).
    ///
    /// The fields may borrow from the source (a memory map) or from `scratch`. The source may fill
    /// `scratch` as it likes. The memory of `scratch` is kept from sample to sample, so a read need
    /// not allocate.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) or [`ErrorKind::Source`](crate::ErrorKind::Source)
    /// with the file. The loader adds the sample.
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>>;

    /// Takes the order in which a loader will read, if the source fetches ahead. Returns `None`,
    /// the default, if the source only reads on request.
    ///
    /// A loader calls it once, when it opens. The source then fetches as many samples ahead as
    /// [`Lookahead::bytes`] has room for, with any number of requests in flight, across the borders
    /// of epochs. [`read`](Source::read) returns what has arrived and waits for what has not. A
    /// sample that was not fetched, or that is read again after an error, is read as without a
    /// lookahead.
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
    ///     fn start(&self, place: BatchIndex) {
    ///         for (_place, samples) in self.order.from(place).take(4) {
    ///             samples.into_iter().for_each(|sample| self.fetch.send(sample).unwrap());
    ///         }
    ///     }
    /// }
    ///
    /// impl Source for Remote {
    ///     fn follow(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
    ///         Some(Box::new(Following { order, fetch: self.fetch.clone() }))
    ///     }
    ///
    ///     fn ahead_bytes(&self) -> usize {
    ///         256 << 20
    ///     }
    ///     # fn len(&self) -> usize { 10 }
    ///     # fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> { Ok(Sample::new("")) }
    ///     // ... `len` and `read` ...
    /// }
    /// # let (fetch, fetched) = mpsc::channel();
    /// # let order = Lookahead::new(0, |_| 2, |place| Some(vec![place.batch]));
    /// # Remote { fetch }.follow(order).unwrap().start(BatchIndex::default());
    /// # assert_eq!(fetched.try_iter().collect::<Vec<_>>(), [0, 1, 0, 1]);
    /// ```
    ///
    /// A panic here, or in [`Prefetcher::start`], is an error of the first batch.
    fn follow(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        let _ = order;
        None
    }

    /// Bytes of samples that the source wants to fetch ahead; 0 by default. The loader grants at
    /// most this, and at most a quarter of its memory limit or of
    /// the memory that is available.
    fn ahead_bytes(&self) -> usize {
        0
    }

    /// Checks that the medium has not changed since it was opened. The loader calls it when an
    /// epoch is requested, on the thread that requests it, and before it prepares an epoch that may
    /// be requested next; also when the loader opens, if the source [follows](Source::follow) its
    /// order. It should take no longer than a few calls of `stat`. An error ends the epoch before
    /// its first batch, or the opening of the loader.
    ///
    /// Other threads may read samples meanwhile: those of the last batches of an epoch, and those
    /// that are prepared ahead. Two threads may check at the same time.
    ///
    /// A shard that was written to in place is an error; a database may be written to. A file that
    /// was removed or replaced is a warning, because the open file can still be read.
    /// [`Lmdb`](crate::Lmdb) checks its file at once. [`Tar`](crate::Tar) checks
    /// each shard when its first sample is read after this call; the error is that sample's.
    ///
    /// # Errors
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) with the file.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Compares whole files with their checksums, if the dataset has some beyond those that each
    /// read checks, such as the `hashes` of MDS shards. Each file belongs to its first sample, and
    /// those of `samples` are read. `found` gets an error with the path for each file that is
    /// damaged or cannot be read. `warpfeed verify` calls it; a loader never does. By default
    /// nothing is read.
    fn verify(&self, samples: Range<usize>, found: &mut dyn FnMut(Error)) {
        let _ = (samples, found);
    }

    /// Whether samples that were read before the last [`check`](Source::check) are still the same.
    /// The loader calls it after `check` if it has prepared batches of the requested epoch. If the
    /// answer is `false`, it prepares them again. It should take no longer than `check`. `true` by
    /// default.
    fn is_unchanged(&self) -> bool {
        true
    }

    /// The label of sample `index`, equal to that of [`read`](Source::read). Implement it if the
    /// source knows labels without reading whole samples. The default reads the sample.
    ///
    /// # Errors
    /// The errors of [`read`](Source::read). Also if a label is not a number.
    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        self.read(index, scratch)?.label()
    }

    /// The key of sample `index`, equal to that of [`read`](Source::read). Implement it if the
    /// source knows keys without reading samples. The default reads the sample.
    ///
    /// # Errors
    /// The errors of [`read`](Source::read).
    fn key(&self, index: usize, scratch: &mut Vec<u8>) -> Result<String> {
        Ok(self.read(index, scratch)?.key().to_owned())
    }

    /// Hash of the list of samples: their keys in order, and what else is known without reading
    /// samples, such as sizes. Processes that divide a dataset compare it, to find that they
    /// opened the same list. `None`, the default, if samples would have to be read.
    fn fingerprint(&self) -> Option<u64> {
        None
    }

    /// The file of sample `index`, for error messages: its image, a shard or a database. `None`
    /// by default, for samples without a file.
    fn path(&self, _index: usize) -> Option<PathBuf> {
        None
    }

    /// Number of the joined dataset that sample `index` comes from, as in
    /// [`Concat`](super::Concat). 0 by default.
    fn part(&self, _index: usize) -> usize {
        0
    }

    /// Names of the classes by label, if the medium knows them.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The dataset's own number of each class, by label: the category ids of
    /// [`Coco`](crate::Coco), which its evaluation needs. Empty by default, for sets
    /// without such numbers, and if a class has none.
    fn category_ids(&self) -> Vec<i64> {
        Vec::new()
    }

    /// Whether samples have images, if the source knows it without reading samples. `None`, the
    /// default, if it does not.
    ///
    /// A loader with further fields has no field `image` if its source has no images, unless the
    /// field was asked for.
    fn has_images(&self) -> Option<bool> {
        None
    }

    /// Names of the fields that samples may have besides the image, if the source knows them
    /// without reading samples. `None`, the default, if it does not.
    ///
    /// A loader compares them with the names that its kinds read, and
    /// does not open if a name is missing. A name without an ending, such as `mask`, stands for
    /// every encoding.
    fn fields(&self) -> Option<Vec<String>> {
        None
    }

    /// The same dataset for a loader that reads only the image, the label and `fields`, names
    /// with or without an ending. Its samples may lack other fields, which then cost nothing.
    /// `None`, the default, if reading less saves nothing.
    ///
    /// A loader reads its samples from the result. Everything else, such as
    /// `Batches::source`, still has all fields.
    fn only(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        let _ = fields;
        None
    }

    /// What the source asked of its store so far. `None`, the default, for a source on this
    /// machine. A source that wraps others returns their sum.
    fn network(&self) -> Option<NetworkStats> {
        None
    }

    /// The kind of source, for messages and statistics: `folder`, `lmdb`, `tar`, `memory`, or a
    /// name of your own.
    fn kind(&self) -> &'static str {
        "custom"
    }
}

/// Implemented so that `Loader::source` accepts the result of
/// [`open`](crate::open()).
impl<S: Source + ?Sized> Source for Arc<S> {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        (**self).read(index, scratch)
    }

    forward! { |this| **this;
        fn len() -> usize;
        fn is_empty() -> bool;
        fn follow(order: Lookahead) -> Option<Box<dyn Prefetcher>>;
        fn ahead_bytes() -> usize;
        fn check() -> Result<()>;
        fn verify(samples: Range<usize>, found: &mut dyn FnMut(Error));
        fn is_unchanged() -> bool;
        fn label(index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>>;
        fn key(index: usize, scratch: &mut Vec<u8>) -> Result<String>;
        fn fingerprint() -> Option<u64>;
        fn path(index: usize) -> Option<PathBuf>;
        fn part(index: usize) -> usize;
        fn classes() -> &[String];
        fn category_ids() -> Vec<i64>;
        fn has_images() -> Option<bool>;
        fn fields() -> Option<Vec<String>>;
        fn only(fields: &[String]) -> Option<Arc<dyn Source>>;
        fn network() -> Option<NetworkStats>;
        fn kind() -> &'static str;
    }
}
