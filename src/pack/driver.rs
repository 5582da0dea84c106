//! The options of a pack, and their validation.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "lmdb")]
use super::LmdbWriter;
use super::destination::Destination;
use super::merge::{self, Merge, not_replaced};
use super::part::Packer;
use super::place::destination;
use super::plan::{Plan, Size};
use super::recode::Recode;
use super::report::{Callback, Counts, Progress, Report, Tally};
use super::run::{Chosen, Run};
use super::writer::{exists, no_samples};
use super::{DatasetWriter, TarWriter, WriteOptions};
use crate::decode::{Codec, Codecs};
use crate::error::{Error, Result};
use crate::source::{self, Location, MANIFEST_END, Source, Store, Stores};

/// Packs a dataset: writes every sample of a [`Source`] into one LMDB database or into tar shards.
///
/// By default, JPEGs are rewritten losslessly for fast crops; see [`Recode`]. Labels, other fields
/// and class names are not changed. Samples are written in the order of the source.
///
/// ```no_run
/// use warpfeed::pack::Pack;
/// use warpfeed::source;
///
/// let report = Pack::new(&*source::open("train")?).to("train.lmdb")?;
/// println!("{} samples, {} bytes", report.samples, report.written.bytes);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[must_use = "nothing is packed until `to` is called"]
pub struct Pack<'a> {
    source: &'a dyn Source,
    recode: Recode,
    workers: usize,
    force: bool,
    keep_bad: bool,
    strict: bool,
    retries: usize,
    codecs: Codecs,
    shard_size: Option<u64>,
    shard_samples: Option<u64>,
    part: Option<(u64, u64)>,
    indices: Option<Vec<u64>>,
    keys: Option<Vec<String>>,
    stores: Stores,
    progress: Option<Callback<'a>>,
}

impl std::fmt::Debug for Pack<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Pack { source, recode, workers, force, shard_size, part, .. } = self;
        f.debug_struct("Pack")
            .field("source", &source.kind())
            .field("recode", recode)
            .field("workers", workers)
            .field("force", force)
            .field("shard_size", shard_size)
            .field("part", part)
            .finish_non_exhaustive()
    }
}

impl<'a> Pack<'a> {
    /// Creates a pack of `source`.
    pub fn new(source: &'a dyn Source) -> Self {
        Pack {
            source,
            recode: Recode::default(),
            workers: 0,
            force: false,
            keep_bad: false,
            strict: false,
            retries: source::RETRIES,
            codecs: Codecs::new(),
            shard_size: None,
            shard_samples: None,
            part: None,
            indices: None,
            keys: None,
            stores: Stores::default(),
            progress: None,
        }
    }

    /// Sets how images are recoded; [`Recode::Lossless`] by default.
    pub fn recode(mut self, recode: Recode) -> Self {
        self.recode = recode;
        self
    }

    /// Sets the number of threads that read and recode samples; the calling thread writes them. 0,
    /// the default, means one thread per core that this process may use. The number does not affect
    /// the content of the files.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Sets whether to replace an existing dataset of the same format once the new one is complete.
    /// Off by default.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Adds a custom codec, like [`Loader::codec`](crate::Loader::codec). The codec also checks
    /// images of its format ([`Codec::damage`]), and decodes them if the [`Recode`] requires
    /// pixels.
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codecs = self.codecs.with(codec);
        self
    }

    /// Sets the color with which transparent pixels are blended when an image is decoded, like
    /// [`Loader::background`](crate::Loader::background). By default, alpha is dropped.
    ///
    /// Packing fails if the [`Recode`] does not decode images.
    pub fn background(mut self, color: [u8; 3]) -> Self {
        self.codecs = self.codecs.background(color);
        self
    }

    /// Sets whether channels with more than 8 bits are converted to 8 bits when an image is
    /// decoded, like [`Loader::convert_to_u8`](crate::Loader::convert_to_u8). By default, such an
    /// image is stored unchanged and listed in [`Report::refused`].
    ///
    /// Images that [`Recode::MaxSide`] does not shrink are not converted. Packing fails if the
    /// [`Recode`] does not decode images.
    pub fn convert_to_u8(mut self, converts: bool) -> Self {
        self.codecs = self.codecs.convert_to_u8(converts);
        self
    }

    /// Sets the maximum number of retries after a [transient](Error::is_transient) read error of
    /// the source; 3 by default, at most 1,000. The pauses are the same as for
    /// [`Loader::retries`](crate::Loader::retries).
    pub fn retries(mut self, times: usize) -> Self {
        self.retries = times;
        self
    }

    /// Sets whether images that cannot be decoded are stored unchanged and listed in
    /// [`Report::refused`]. By default, such images cause an error, and the pack is not finished.
    ///
    /// For every [`Recode`], [`EncodedImage::check`](crate::decode::EncodedImage::check) determines
    /// whether an image can be decoded. If an image requires a custom codec, add that codec with
    /// [`codec`](Pack::codec).
    pub fn keep_bad(mut self, keep: bool) -> Self {
        self.keep_bad = keep;
        self
    }

    /// Sets whether an image that can be decoded but is
    /// [damaged](crate::decode::Condition::Tolerated) also causes an error. By default, such an
    /// image is packed and listed in [`Report::damaged`]. [`keep_bad`](Pack::keep_bad) overrides
    /// this option.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets the maximum size of a tar shard in bytes. `OUT.tar` becomes `OUT-000000.tar`,
    /// `OUT-000001.tar`, … By default, there is only one file. LMDB targets ignore this option.
    ///
    /// If only a [`part`](Pack::part) is packed, this is the average size of a shard.
    pub fn shard_size(mut self, bytes: u64) -> Self {
        self.shard_size = Some(bytes);
        self
    }

    /// Sets the number of samples per tar shard, instead of [`shard_size`](Pack::shard_size).
    pub fn shard_samples(mut self, samples: u64) -> Self {
        self.shard_samples = Some(samples);
        self
    }

    /// Packs only part `part` out of `parts`, counted from 0, of the shards of a `.tar` target.
    /// Many machines that share a folder can pack different parts at the same time. [`Merge`]
    /// combines the parts into a set.
    ///
    /// All shards have the same number of samples: [`shard_samples`](Pack::shard_samples), or a
    /// number that results in [`shard_size`](Pack::shard_size) on average, estimated from 64
    /// samples. A part consists of whole shards, so the set contains the same bytes for any number
    /// of parts.
    ///
    /// A complete part is not packed again. If a part was interrupted, packing continues after its
    /// last complete shard. Several processes may pack the same part at the same time, and the
    /// result is the same. Packing fails if the source differs from the source of the other parts.
    /// However, changes in the bytes of a few samples are not detected.
    pub fn part(mut self, part: u64, parts: u64) -> Self {
        self.part = Some((part, parts));
        self
    }

    /// Packs only the samples with these indices, in this order, for example a part from
    /// [`sampler::split`](crate::sampler::split). Cannot be combined with [`keys`](Pack::keys).
    pub fn samples(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.indices = Some(indices.into_iter().collect());
        self
    }

    /// Packs only the samples with these keys, in the order of the source. Packing fails if a key
    /// does not occur in the source. Cannot be combined with [`samples`](Pack::samples).
    pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keys = Some(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Adds stores for writing, each with its URL scheme. The stores must implement
    /// [`Store::create`]. The crate `warpfeed-stores` provides stores for `s3://`, `gs://` and
    /// `az://`.
    ///
    /// A set in a store consists of shards, so [`shard_size`](Pack::shard_size) or
    /// [`shard_samples`](Pack::shard_samples) must be set. Existing objects are never replaced.
    ///
    /// ```ignore
    /// Pack::new(&*source).stores(warpfeed_stores::all()).shard_size(1 << 30).to("s3://bucket/train.tar")?;
    /// ```
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Sets a callback that runs on the calling thread after each written sample.
    pub fn progress(mut self, progress: impl FnMut(&Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Packs into `target`: an LMDB database if the name ends in `.lmdb`, tar if it ends in `.tar`.
    ///
    /// Files are written under temporary names and renamed at the end, so an interrupted run never
    /// leaves an incomplete file under a final name. If the target consists of shards, the next run
    /// of the same pack continues after the last complete shard, and a manifest,
    /// `OUT.manifest.json`, is written for the set. A [`CancelToken`](crate::source::CancelToken)
    /// of the calling thread interrupts a run.
    ///
    /// # Errors
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if the name of the target has a different
    ///   ending, if an option is invalid, or if the target exists and [`force`](Pack::force) is not
    ///   set.
    /// - If a sample cannot be read or stored. The error names the first such sample by index and
    ///   key.
    /// - If the target cannot be written. The error names the file.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if images cannot be decoded. This error is
    ///   returned after all samples have been read. It contains the number of such images, and the
    ///   index and key of the first ten; see [`keep_bad`](Pack::keep_bad) and
    ///   [`strict`](Pack::strict).
    ///
    /// An image that can be decoded but not recoded does not cause an error, and is listed in
    /// [`Report::refused`].
    pub fn to(self, target: impl AsRef<Path>) -> Result<Report> {
        let target = target.as_ref();
        // Check all options before any file is created.
        self.recode.check(&self.codecs)?;
        source::check_retries(self.retries)?;
        if self.shard_samples == Some(0) {
            return Err(Error::config("shard_samples(0): expected at least 1"));
        }
        let location = Location::of(target);
        let url = location.scheme().is_some();
        // `file://` URLs are paths.
        let target = match &location {
            Location::Path(path) => path,
            Location::Url(_) => target,
        };
        if url && self.force {
            return Err(not_replaced().at_path(target));
        }
        let extension = target.extension().unwrap_or_default();
        let tar = extension.eq_ignore_ascii_case("tar");
        if let Some(part) = self.part {
            return self.pack_part(target, part, tar);
        }
        let options = WriteOptions {
            classes: self.source.classes().to_vec(),
            force: self.force,
            shard_size: self.shard_size.filter(|&bytes| bytes > 0),
        };
        if extension.eq_ignore_ascii_case("lmdb") {
            self.pack_lmdb(target, &options, url)
        } else if tar {
            let size = match (self.shard_samples, options.shard_size) {
                (None, None) if url => {
                    let cause = "a set in a store is shards: set shard_size(bytes) or shard_samples(samples)";
                    return Err(Error::config(cause).at_path(target));
                }
                (None, None) => return self.to_writer(Box::new(TarWriter::create(target, &options)?)),
                (Some(samples), None) => Size::Samples(samples),
                (None, Some(bytes)) => Size::Bytes(bytes),
                (Some(_), Some(_)) => return Err(two_sizes()),
            };
            let place = destination(target, &self.stores)?;
            if !self.force && place.get(MANIFEST_END)?.is_some() && !place.is_merging()? {
                return Err(exists(&place.at(MANIFEST_END)));
            }
            let (force, stores) = (self.force, self.stores.clone());
            let duplicate_keys = self.pack_shards(&*place, size, (0, 1), true)?.duplicate_keys;
            // The quick check is sufficient, because this process has just written the shards or
            // compared the existing ones.
            let merged = Merge::of(target, stores).force(force).quick(true).run()?;
            Ok(Report { duplicate_keys, ..merged.report })
        } else {
            Err(Error::config("the target's name must end in .lmdb or .tar, which sets the format").at_path(target))
        }
    }

    /// Packs into an LMDB database.
    fn pack_lmdb(self, target: &Path, options: &WriteOptions, url: bool) -> Result<Report> {
        let sizes = [("shard_size", options.shard_size.is_some()), ("shard_samples", self.shard_samples.is_some())];
        if let Some((option, _)) = sizes.into_iter().find(|(_, is_set)| *is_set) {
            let cause = format!("{option}: an LMDB is one file; only a target that ends in .tar has shards");
            return Err(Error::config(cause).at_path(target));
        }
        if url {
            let cause = "an LMDB can only be written to a local path: pack shards to a URL that ends in .tar";
            return Err(Error::config(cause).at_path(target));
        }
        #[cfg(feature = "lmdb")]
        return self.to_writer(Box::new(LmdbWriter::create(target, options)?));
        #[cfg(not(feature = "lmdb"))]
        Err(Error::config("this build of warpfeed lacks the Cargo feature \"lmdb\" that writes an LMDB")
            .at_path(target))
    }

    /// Packs one part of the shards of `target`.
    fn pack_part(self, target: &Path, (part, parts): (u64, u64), tar: bool) -> Result<Report> {
        if part >= parts {
            return Err(Error::config(format!("part {part} of {parts}: parts start at 0")));
        }
        if !tar {
            let cause = "parts are tar shards, so the target's name must end in .tar";
            return Err(Error::config(cause).at_path(target));
        }
        let size = match (self.shard_samples, self.shard_size.filter(|&bytes| bytes > 0)) {
            (Some(samples), None) => Size::Samples(samples),
            (None, Some(bytes)) => Size::AboutBytes(bytes),
            (Some(_), Some(_)) => return Err(two_sizes()),
            (None, None) => {
                let cause = "parts consist of whole shards: set shard_size(bytes) or shard_samples(samples)";
                return Err(Error::config(cause));
            }
        };
        let place = destination(target, &self.stores)?;
        self.pack_shards(&*place, size, (part, parts), false)
    }

    fn pack_shards(mut self, place: &dyn Destination, size: Size, part: (u64, u64), compare: bool) -> Result<Report> {
        let chosen = self.choose()?;
        if chosen.len() == 0 {
            return Err(no_samples(&place.target()));
        }
        let progress = self.progress.take();
        let plan = Plan::of(&self.run(), &chosen, size)?;
        let range = plan.range(part.0, part.1);
        let mut tally = Tally::new(range.end - range.start, progress);
        let mut packer =
            Packer { run: self.run(), chosen: &chosen, destination: place, plan, part, force: self.force, compare };
        let shards = packer.pack(&mut tally)?;
        Ok(merge::report(place, &shards, tally.duplicate_keys))
    }

    /// Packs into a custom writer. Ignores [`force`](Pack::force) and the options for shards and
    /// parts. The writer must store the class names itself.
    ///
    /// # Errors
    /// The same errors as for [`to`](Pack::to). After an error, the writer has received the samples
    /// before the first error, and is dropped without a call to [`finish`](DatasetWriter::finish).
    pub fn to_writer(mut self, mut writer: Box<dyn DatasetWriter + '_>) -> Result<Report> {
        self.recode.check(&self.codecs)?;
        source::check_retries(self.retries)?;
        let chosen = self.choose()?;
        let (mut tally, mut counts) = (Tally::new(chosen.len() as u64, self.progress.take()), Counts::default());
        self.run().each(&chosen, 0..chosen.len(), &mut |index, prepared, good| {
            if good {
                writer.put(&prepared.sample()?)?;
            }
            counts.add(index, prepared);
            tally.add(prepared);
            Ok(())
        })?;
        Ok(counts.report(tally.duplicate_keys, writer.finish()?))
    }

    fn run(&self) -> Run<'_> {
        Run {
            source: self.source,
            codecs: &self.codecs,
            recode: self.recode,
            retries: self.retries,
            workers: self.workers,
            keep_bad: self.keep_bad,
            strict: self.strict,
        }
    }

    /// Determines which samples to pack.
    fn choose(&mut self) -> Result<Chosen> {
        let len = self.source.len();
        match (self.indices.take(), self.keys.take()) {
            (None, None) => Ok(Chosen::All(len)),
            (Some(indices), None) => match indices.iter().find(|&&index| index >= len as u64) {
                Some(index) => Err(Error::config(format!("sample {index} of {len}: samples start at 0"))),
                None => Ok(Chosen::Listed(indices)),
            },
            (None, Some(keys)) => self.run().find(keys).map(Chosen::Listed),
            (Some(_), Some(_)) => Err(Error::config("samples and keys are both set; set one of them")),
        }
    }
}

fn two_sizes() -> Error {
    Error::config("shard_size and shard_samples are both set; set one of them")
}
