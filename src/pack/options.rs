//! [`Pack`] contains the options for packing a dataset, and validates them.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "lmdb")]
use super::LmdbWriter;
use super::destination::Destination;
use super::frames;
use super::merge::{self, Merge, not_replaced_error};
use super::names::ShardNames;
use super::open::open_destination;
use super::packer::Packer;
use super::pipeline::{Pipeline, Selection};
use super::plan::{Plan, ShardSize};
use super::recode::Recode;
use super::report::{Callback, Counts, Progress, Report, Tally};
use super::writer::{exists_error, no_samples_error};
use super::{DatasetWriter, TarWriter, WriteOptions};
use crate::decode::{Codec, Codecs};
use crate::error::{Error, Result};
use crate::source::{self, Location, MANIFEST_SUFFIX, Source, Store, Stores};

/// Packs a dataset by writing the samples of a [`Source`] to an LMDB database, a tar file or tar
/// shards.
///
/// By default, JPEGs are rewritten for fast crops without changing a pixel. Comments, XMP and EXIF
/// entries other than the orientation are dropped. [`recode`](Pack::recode) has other options.
/// Labels, class names and other fields are stored as the source returns them, except that classes
/// in boxes and masks are renumbered if the source renumbers its classes.
/// Unless [`samples`](Pack::samples) sets an order, samples are written in the order of the source.
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
    recode: Option<Recode>,
    workers: usize,
    force: bool,
    keep_undecodable: bool,
    strict: bool,
    retries: usize,
    codecs: Codecs,
    images: Vec<String>,
    frames: bool,
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
            recode: None,
            workers: 0,
            force: false,
            keep_undecodable: false,
            strict: false,
            retries: source::RETRIES,
            codecs: Codecs::new(),
            images: source.images(),
            frames: false,
            shard_size: None,
            shard_samples: None,
            part: None,
            indices: None,
            keys: None,
            stores: Stores::default(),
            progress: None,
        }
    }

    /// Sets how images are recoded. The default is [`Recode::Lossless`].
    pub fn recode(mut self, recode: Recode) -> Self {
        self.recode = Some(recode);
        self
    }

    /// Sets the number of threads that read and recode samples. The calling thread writes them. The
    /// default, 0, starts one thread per core that this process may use. The number of threads does
    /// not affect the files.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Sets whether to replace an existing dataset of the same format once the new one is complete.
    /// If the target consists of shards, an unfinished pack with a different source or different
    /// options is also discarded. The default is false. Packing to a store fails with `true`,
    /// because datasets in stores are never replaced.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets the names of the fields that contain images in addition to the main image, such as the
    /// cameras of a robot. These images are recoded in place. The names may omit the extension. By
    /// default, [`Source::images`] determines these fields.
    ///
    /// Fields with masks or depth maps must not be named, because lossy encoding destroys them.
    /// Packing fails if no sample has a field that is named, or if a dataset has more than 1,000
    /// samples and none of 1,000 samples has the field.
    pub fn images(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.images = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a custom codec, like [`Loader::codec`](crate::Loader::codec). The codec checks images
    /// of its format for damage ([`Codec::damage`]), and decodes them if the [`Recode`] requires
    /// pixels.
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codecs = self.codecs.with(codec);
        self
    }

    /// Sets the color with which transparent pixels are blended when an image is decoded, like
    /// [`Loader::background`](crate::Loader::background). By default, the alpha channel is dropped.
    ///
    /// Packing fails if the [`Recode`] does not decode images.
    pub fn background(mut self, color: [u8; 3]) -> Self {
        self.codecs = self.codecs.background(color);
        self
    }

    /// Sets whether channels with more than 8 bits are converted to 8 bits when an image is
    /// decoded, like [`Loader::convert_to_u8`](crate::Loader::convert_to_u8). By default, such an
    /// image is stored unchanged, and listed in [`Report::not_recoded`].
    ///
    /// Images that [`Recode::MaxSide`] does not shrink are not converted. Packing fails if the
    /// [`Recode`] does not decode images.
    pub fn convert_to_u8(mut self, converts: bool) -> Self {
        self.codecs = self.codecs.convert_to_u8(converts);
        self
    }

    /// Sets how often a read is repeated after a [transient](Error::is_transient) error of the
    /// source. The default is 3, and the maximum is 1,000. The delays are the same as for
    /// [`Loader::retries`](crate::Loader::retries).
    pub fn retries(mut self, times: usize) -> Self {
        self.retries = times;
        self
    }

    /// Sets whether images that cannot be decoded are stored unchanged, and listed in
    /// [`Report::not_recoded`]. By default, such images cause an error, and the pack is not
    /// finished.
    ///
    /// Every image is checked as with [`EncodedImage::check`](crate::decode::EncodedImage::check),
    /// even if the [`Recode`] does not decode images. If images require a custom codec, add it with
    /// [`codec`](Pack::codec).
    pub fn keep_undecodable(mut self, keep: bool) -> Self {
        self.keep_undecodable = keep;
        self
    }

    /// Sets whether images that can be decoded but are
    /// [damaged](crate::decode::Condition::Tolerated) cause an error. By default, such images are
    /// packed, and listed in [`Report::damaged`]. If [`keep_undecodable`](Pack::keep_undecodable)
    /// is set, this option has no effect.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets the maximum size of a tar shard in bytes. `OUT.tar` becomes `OUT-000000.tar`,
    /// `OUT-000001.tar`, … Only a shard of a single sample may exceed this size. With 0, the
    /// default, a single file is written.
    ///
    /// If only a [`part`](Pack::part) is packed, this is the approximate average size of a shard.
    pub fn shard_size(mut self, bytes: u64) -> Self {
        self.shard_size = Some(bytes);
        self
    }

    /// Sets the number of samples per tar shard, instead of [`shard_size`](Pack::shard_size).
    pub fn shard_samples(mut self, samples: u64) -> Self {
        self.shard_samples = Some(samples);
        self
    }

    /// Packs one part of the shards of a `.tar` target, such as part 0 of 4. Several machines can
    /// pack different parts to the same folder or store at the same time. [`Merge`] combines the
    /// parts.
    ///
    /// All shards but the last have the same number of samples. This number is
    /// [`shard_samples`](Pack::shard_samples), or is estimated from 64 samples so that shards have
    /// about [`shard_size`](Pack::shard_size) bytes. A part consists of whole shards, so the number
    /// of parts does not affect the content of the shards.
    ///
    /// A complete part is not packed again, and an interrupted part continues after its last
    /// complete shard. Several processes may pack the same part at the same time, with the same
    /// result. Packing fails if the source or the options differ from those of the other parts,
    /// unless [`force`](Pack::force) discards the other parts. A change to only a few samples of
    /// the source may remain undetected.
    pub fn part(mut self, part: u64, parts: u64) -> Self {
        self.part = Some((part, parts));
        self
    }

    /// Packs only the samples with these indices, in this order, such as the result of
    /// [`sampler::split`](crate::sampler::split). Cannot be combined with [`keys`](Pack::keys).
    pub fn samples(mut self, indices: impl IntoIterator<Item = u64>) -> Self {
        self.indices = Some(indices.into_iter().collect());
        self
    }

    /// Packs only the samples with these keys, in the order of the source. Packing fails if the
    /// source does not contain one of the keys. Cannot be combined with [`samples`](Pack::samples).
    pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keys = Some(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Adds object stores to which targets with the given URL schemes are written. The stores must
    /// implement [`Store::create`]. The `warpfeed-stores` crate provides stores for `s3://`,
    /// `gs://` and `az://`.
    ///
    /// A dataset in a store consists of shards, so [`shard_size`](Pack::shard_size) or
    /// [`shard_samples`](Pack::shard_samples) must be set. An existing dataset is never replaced.
    ///
    /// ```ignore
    /// Pack::new(&*source).stores(warpfeed_stores::all()).shard_size(1 << 30).to("s3://bucket/train.tar")?;
    /// ```
    pub fn stores<S: Into<String>>(mut self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Self {
        stores.into_iter().for_each(|(scheme, store)| self.stores.add(scheme.into(), store));
        self
    }

    /// Sets a callback that is called on the calling thread after each sample is processed, and
    /// once for each complete shard of an interrupted run.
    pub fn progress(mut self, progress: impl FnMut(&Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Packs the frames of a LeRobot dataset so that the result opens as a LeRobot dataset with
    /// episodes, statistics, and windows of several frames. Unless [`recode`](Pack::recode) is set,
    /// images and frames of videos are stored as JPEGs with quality 95. Without `frames(true)`,
    /// each frame becomes an independent sample.
    ///
    /// The target is a folder for `frames.tar` or its shards, the numeric features of all frames,
    /// and the metadata of the original dataset. The target may also be the path of a `.tar` in
    /// such a folder, which [`Merge`] expects.
    ///
    /// Packing fails if the source is not a LeRobot dataset, if it has deltas, or if only some of
    /// its samples are packed. Existing metadata is not replaced, even with
    /// [`force`](Pack::force).
    pub fn frames(mut self, frames: bool) -> Self {
        self.frames = frames;
        self
    }

    /// Packs to `target`. If the name ends in `.lmdb`, writes an LMDB database. If it ends in
    /// `.tar`, writes a tar file, or shards with [`shard_size`](Pack::shard_size) or
    /// [`shard_samples`](Pack::shard_samples).
    ///
    /// A file with its final name is always complete. If the target consists of shards, an
    /// interrupted pack can be run again and continues after the last complete shard. When all
    /// shards are complete, the pack writes a manifest, `OUT.manifest.json`. For
    /// [parts](Pack::part), [`Merge`] writes the manifest. A
    /// [`CancelToken`](crate::source::CancelToken) of the calling thread interrupts the pack.
    ///
    /// # Errors
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if the name of the target has neither
    ///   ending, if an option is invalid, or if the target exists and [`force`](Pack::force) is not
    ///   set. A complete [`part`](Pack::part) with the same source and options is not an error.
    /// - If a sample cannot be read or stored. The error contains the index and the key of the
    ///   first sample that fails.
    /// - If the target cannot be written. The error names the file.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if images cannot be decoded, or if images
    ///   are damaged and [`strict`](Pack::strict) is set. The message states their number, and the
    ///   indices and keys of the first ten. The error is returned after all samples have been read.
    ///   See [`keep_undecodable`](Pack::keep_undecodable).
    ///
    /// An image that can be decoded but not recoded is stored unchanged and listed in
    /// [`Report::not_recoded`]. An image that recoding would resize is an error if the sample has
    /// boxes, points or a mask in pixels of the original image, or a field that has the size of the
    /// original image and is not recoded.
    pub fn to(self, target: impl AsRef<Path>) -> Result<Report> {
        if self.frames {
            return self.pack_frames(target.as_ref());
        }
        self.pack_samples(target.as_ref())
    }

    /// `shard_size(0)` means no shards.
    fn shard_bytes(&self) -> Option<u64> {
        self.shard_size.filter(|&bytes| bytes > 0)
    }

    fn pack_samples(self, target: &Path) -> Result<Report> {
        // If an option is invalid, no file may be created.
        self.recode.unwrap_or_default().check(&self.codecs)?;
        source::check_retries(self.retries)?;
        if self.shard_samples == Some(0) {
            return Err(Error::config("shard_samples(0): expected at least 1"));
        }
        let location = Location::parse(target);
        let is_url = location.scheme().is_some();
        let target = match &location {
            Location::Path(path) => path,
            Location::Url(_) => target,
        };
        if is_url && self.force {
            return Err(not_replaced_error().at_path(target));
        }
        let extension = target.extension().unwrap_or_default();
        let is_tar = extension.eq_ignore_ascii_case("tar");
        if let Some(part) = self.part {
            return self.pack_part(target, part, is_tar);
        }
        let options =
            WriteOptions { classes: self.source.classes().to_vec(), force: self.force, shard_size: self.shard_bytes() };
        if extension.eq_ignore_ascii_case("lmdb") {
            self.pack_lmdb(target, &options, is_url)
        } else if is_tar {
            let size = match (self.shard_samples, options.shard_size) {
                (None, None) if is_url => {
                    let cause =
                        "a dataset in a store consists of shards: set shard_size(bytes) or shard_samples(samples)";
                    return Err(Error::config(cause).at_path(target));
                }
                (None, None) => return self.to_writer(Box::new(TarWriter::create(target, &options)?)),
                (Some(samples), None) => ShardSize::Samples(samples),
                (None, Some(bytes)) => ShardSize::Bytes(bytes),
                (Some(_), Some(_)) => return Err(both_sizes_error()),
            };
            let destination = open_destination(target, &self.stores)?;
            if !self.force && destination.get(MANIFEST_SUFFIX)?.is_some() && !destination.is_merging()? {
                return Err(exists_error(&destination.path_of(MANIFEST_SUFFIX)));
            }
            let (force, stores) = (self.force, self.stores.clone());
            let duplicate_keys = self.pack_shards(&*destination, size, (0, 1), true)?.duplicate_keys;
            // This process has just written the shards or compared their checksums, so a quick
            // check is enough.
            let merged = Merge::with_stores(target, stores).force(force).skip_checksums(true).run()?;
            Ok(Report { duplicate_keys, ..merged.report })
        } else {
            Err(Error::config("the name of the target must end in .lmdb or .tar, which determines the format")
                .at_path(target))
        }
    }

    fn pack_frames(mut self, target: &Path) -> Result<Report> {
        if self.indices.is_some() || self.keys.is_some() {
            return Err(Error::config(
                "frames(true) packs whole episodes: remove samples or keys, and choose episodes when you open the dataset",
            ));
        }
        let recode = *self.recode.get_or_insert(Recode::Quality { quality: frames::DEFAULT_QUALITY, max_side: None });
        recode.check(&self.codecs)?;
        let target = frames::frames_target(target)?;
        if let Location::Path(path) = Location::parse(&target) {
            let is_numbered = self.shard_bytes().is_some() || self.shard_samples.is_some() || self.part.is_some();
            // Otherwise, a reader would find both the shards and the single file.
            if let Some(old) = ShardNames::new(&path, !is_numbered).existing_shards()?.first() {
                let cause = "the dataset already has its frames here: delete this file, or pack to a different folder";
                return Err(Error::config(cause).at_path(old));
            }
        }
        let frames = frames::write_metadata(self.source, &target, &self.stores)?;
        let images = frames.images();
        Pack { source: &*frames, images, frames: false, ..self }.pack_samples(&target)
    }

    fn pack_lmdb(self, target: &Path, options: &WriteOptions, is_url: bool) -> Result<Report> {
        let sizes = [("shard_size", options.shard_size.is_some()), ("shard_samples", self.shard_samples.is_some())];
        if let Some((option, _)) = sizes.into_iter().find(|(_, is_set)| *is_set) {
            let cause =
                format!("{option}: an LMDB has no shards: remove the option, or use a target that ends in .tar");
            return Err(Error::config(cause).at_path(target));
        }
        if is_url {
            let cause = "an LMDB can only be written to a local path: pack shards to a URL that ends in .tar";
            return Err(Error::config(cause).at_path(target));
        }
        #[cfg(feature = "lmdb")]
        return self.to_writer(Box::new(LmdbWriter::create(target, options)?));
        #[cfg(not(feature = "lmdb"))]
        Err(Error::config("this build of warpfeed lacks the Cargo feature \"lmdb\" that writes an LMDB")
            .at_path(target))
    }

    fn pack_part(self, target: &Path, (part, parts): (u64, u64), is_tar: bool) -> Result<Report> {
        if part >= parts {
            return Err(Error::config(format!("part {part} of {parts}: expected a part less than {parts}")));
        }
        if !is_tar {
            let cause = "parts are tar shards, so the name of the target must end in .tar";
            return Err(Error::config(cause).at_path(target));
        }
        let size = match (self.shard_samples, self.shard_bytes()) {
            (Some(samples), None) => ShardSize::Samples(samples),
            (None, Some(bytes)) => ShardSize::AboutBytes(bytes),
            (Some(_), Some(_)) => return Err(both_sizes_error()),
            (None, None) => {
                let cause = "parts consist of whole shards: set shard_size(bytes) or shard_samples(samples)";
                return Err(Error::config(cause));
            }
        };
        let destination = open_destination(target, &self.stores)?;
        self.pack_shards(&*destination, size, (part, parts), false)
    }

    fn pack_shards(
        mut self,
        destination: &dyn Destination,
        size: ShardSize,
        part: (u64, u64),
        compares_checksums: bool,
    ) -> Result<Report> {
        let selection = self.select_samples()?;
        if selection.len() == 0 {
            return Err(no_samples_error(&destination.target()));
        }
        let progress = self.progress.take();
        let plan = Plan::new(&self.pipeline(), &selection, size)?;
        let range = plan.sample_positions(part.0, part.1);
        let mut tally = Tally::new(range.end - range.start, progress);
        let mut packer = Packer {
            pipeline: self.pipeline(),
            selection: &selection,
            destination,
            plan,
            part,
            force: self.force,
            compares_checksums,
        };
        let shards = packer.pack(&mut tally)?;
        Ok(merge::report_shards(destination, &shards, tally.duplicate_keys))
    }

    /// Packs to a custom writer. Ignores [`force`](Pack::force), [`frames`](Pack::frames) and the
    /// options for shards and parts. The class names are not passed to the writer.
    ///
    /// # Errors
    /// Same as [`to`](Pack::to). The writer may already have received the samples before the one
    /// that caused the error. The writer is dropped without a call to
    /// [`finish`](DatasetWriter::finish).
    pub fn to_writer(mut self, mut writer: Box<dyn DatasetWriter + '_>) -> Result<Report> {
        self.recode.unwrap_or_default().check(&self.codecs)?;
        source::check_retries(self.retries)?;
        let selection = self.select_samples()?;
        let (mut tally, mut counts) = (Tally::new(selection.len() as u64, self.progress.take()), Counts::default());
        self.pipeline().for_each(&selection, 0..selection.len(), &mut |index, sample, is_good| {
            if is_good {
                writer.put(&sample.sample()?)?;
            }
            counts.add(index, sample);
            tally.add(sample);
            Ok(())
        })?;
        Ok(counts.into_report(tally.duplicate_keys, writer.finish()?))
    }

    fn pipeline(&self) -> Pipeline<'_> {
        Pipeline {
            source: self.source,
            codecs: &self.codecs,
            recode: self.recode.unwrap_or_default(),
            images: &self.images,
            retries: self.retries,
            workers: self.workers,
            keep_undecodable: self.keep_undecodable,
            strict: self.strict,
        }
    }

    fn select_samples(&mut self) -> Result<Selection> {
        let selection = self.find_samples()?;
        self.pipeline().check_images(&selection)?;
        Ok(selection)
    }

    fn find_samples(&mut self) -> Result<Selection> {
        let len = self.source.len();
        match (self.indices.take(), self.keys.take()) {
            (None, None) => Ok(Selection::All(len)),
            (Some(indices), None) => match indices.iter().find(|&&index| index >= len as u64) {
                Some(index) => {
                    Err(Error::config(format!("samples: index {index} is out of range: the source has {len} samples")))
                }
                None => Ok(Selection::Listed(indices)),
            },
            (None, Some(keys)) => self.pipeline().find_indices(keys).map(Selection::Listed),
            (Some(_), Some(_)) => Err(Error::config("samples and keys are both set: set only one of them")),
        }
    }
}

fn both_sizes_error() -> Error {
    Error::config("shard_size and shard_samples are both set: set only one of them")
}
