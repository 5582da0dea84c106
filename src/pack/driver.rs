use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel;

#[cfg(feature = "lmdb")]
use super::LmdbWriter;
use super::bad::{Bad, Refused, Remark, list};
use super::recode::{Recode, Treatment};
use super::renumber::renumber;
use super::{TarWriter, WriteOptions, Writer, Written};
use crate::decode::{Codec, Codecs};
use crate::error::{Error, ErrorKind, Result, guarded};
use crate::source::{self, Sample, Source};

/// Receives the progress of packing.
type Callback<'a> = Box<dyn FnMut(&Progress) + 'a>;

/// Maximum number of samples per worker ahead of the writer.
const AHEAD: usize = 8;
/// Maximum bytes of finished samples that wait for earlier ones. Above it, no new samples start.
const WAITING_BYTES: usize = 256 << 20;
/// Maximum size of a sample buffer that is kept for reuse.
const SPARE_BYTES: usize = 16 << 20;

/// Packs a data set: every sample of a [`Source`] into one LMDB database or into tar shards.
///
/// By default JPEGs are rewritten losslessly for fast crops; see [`Recode`]. Labels, other fields
/// and class names are unchanged. Samples keep the source's order.
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
    progress: Option<Callback<'a>>,
}

impl std::fmt::Debug for Pack<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Pack { source, recode, workers, force, shard_size, .. } = self;
        f.debug_struct("Pack")
            .field("source", &source.kind())
            .field("recode", recode)
            .field("workers", workers)
            .field("force", force)
            .field("shard_size", shard_size)
            .finish_non_exhaustive()
    }
}

/// The progress of a [`Pack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Samples given to the writer.
    pub samples: u64,
    /// Samples of the source.
    pub total: u64,
    /// Bytes of these samples' images before packing.
    pub bytes_in: u64,
    /// Bytes of these samples' images as they are stored.
    pub bytes_out: u64,
}

/// The result of a [`Pack`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Samples stored, which are all samples of the source.
    pub samples: u64,
    /// Bytes of the images before packing.
    pub bytes_in: u64,
    /// Bytes of the images as they are stored.
    pub bytes_out: u64,
    /// JPEGs rewritten with the same coefficients.
    pub repacked: u64,
    /// Images decoded and encoded again.
    pub encoded: u64,
    /// Images stored as arrays.
    pub raw: u64,
    /// Images stored unchanged by choice or because they are not JPEGs, plus samples without an
    /// image. Images of `refused_count` are not included.
    ///
    /// `repacked`, `encoded`, `raw`, `kept` and `refused_count` add up to `samples`.
    pub kept: u64,
    /// Images stored unchanged because they could not be recoded or do not decode.
    pub refused_count: u64,
    /// The first 10,000 of these images, with the reasons.
    pub refused: Vec<Refused>,
    /// Images of `refused_count` that do not decode; 0 unless [`keep_bad`](Pack::keep_bad) is set.
    pub undecodable_count: u64,
    /// Images that decode but are damaged.
    pub damaged_count: u64,
    /// The first 10,000 of these images, with the damage.
    pub damaged: Vec<Refused>,
    /// Samples that repeat the key of an earlier sample. They are stored like the others.
    pub duplicate_keys: u64,
    /// The files.
    pub written: Written,
}

impl<'a> Pack<'a> {
    /// Packs `source`.
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
            progress: None,
        }
    }

    /// Treatment of the images; [`Recode::Lossless`] by default.
    pub fn recode(mut self, recode: Recode) -> Self {
        self.recode = recode;
        self
    }

    /// Number of threads that read and recode; the calling thread writes. The default 0 means one
    /// for each processor this process may use. The number does not change the files.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Whether to replace an existing data set of the same kind once the new one is complete. Off
    /// by default.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Adds a codec of your own, as [`Loader::codec`](crate::Loader::codec) does. It also checks
    /// its pictures ([`Codec::damage`]), and decodes them if the [`Recode`] needs pixels.
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codecs = self.codecs.with(codec);
        self
    }

    /// Maximum number of repeated reads after a [transient](Error::is_transient) error of the
    /// source; 3 by default, at most 1,000. The pauses are those of
    /// [`Loader::retries`](crate::Loader::retries).
    pub fn retries(mut self, times: usize) -> Self {
        self.retries = times;
        self
    }

    /// Whether to store undecodable images unchanged and list them in [`Report::refused`]. By
    /// default they are an error, and the pack is not finished.
    ///
    /// [`Picture::check`](crate::decode::Picture::check) decides which images decode, for every
    /// [`Recode`]. If only your own codec decodes a picture, add it with [`codec`](Pack::codec).
    pub fn keep_bad(mut self, keep: bool) -> Self {
        self.keep_bad = keep;
        self
    }

    /// Whether an image that decodes but is [damaged](crate::decode::Condition::Tolerated) is an
    /// error too. By default it is packed and listed in [`Report::damaged`].
    /// [`keep_bad`](Pack::keep_bad) overrides this option.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Begins a new tar shard before a shard exceeds this many bytes. `OUT.tar` becomes
    /// `OUT-000000.tar`, `OUT-000001.tar`, … The default is one file. LMDB ignores this option.
    pub fn shard_size(mut self, bytes: u64) -> Self {
        self.shard_size = Some(bytes);
        self
    }

    /// Calls `progress` on the calling thread after each written sample.
    pub fn progress(mut self, progress: impl FnMut(&Progress) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Packs into `target`: an LMDB database if its name ends in `.lmdb`, tar if it ends in `.tar`.
    ///
    /// The files are written under temporary names and renamed at the end, so an interrupted run
    /// never leaves an incomplete file under a final name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the name has another ending, if an option is invalid, or if the
    /// target exists and [`force`](Pack::force) is not set. If a sample cannot be read or stored,
    /// the error names the first one by index and key. If the target cannot be written, it names
    /// the file. If images do not decode, [`ErrorKind::Decode`] after all samples have been read,
    /// with their number and the first ten by index and key; see [`keep_bad`](Pack::keep_bad) and
    /// [`strict`](Pack::strict). An image that decodes but cannot be recoded is not an error;
    /// [`Report::refused`] lists it.
    pub fn to(self, target: impl AsRef<Path>) -> Result<Report> {
        let target = target.as_ref();
        // All options are checked before anything is created.
        self.recode.check()?;
        source::check_retries(self.retries)?;
        let options = WriteOptions {
            classes: self.source.classes().to_vec(),
            force: self.force,
            shard_size: self.shard_size.filter(|&bytes| bytes > 0),
        };
        let extension = target.extension().unwrap_or_default();
        if extension.eq_ignore_ascii_case("lmdb") {
            #[cfg(feature = "lmdb")]
            return self.to_writer(Box::new(LmdbWriter::create(target, &options)?));
            #[cfg(not(feature = "lmdb"))]
            Err(Error::config("this build of warpfeed lacks the Cargo feature \"lmdb\" that writes an LMDB")
                .at_path(target))
        } else if extension.eq_ignore_ascii_case("tar") {
            self.to_writer(Box::new(TarWriter::create(target, &options)?))
        } else {
            Err(Error::config("the target's name must end in .lmdb or .tar, which sets the format").at_path(target))
        }
    }

    /// Packs into your own writer. It ignores [`force`](Pack::force) and
    /// [`shard_size`](Pack::shard_size), and leaves the class names to the writer.
    ///
    /// # Errors
    /// As [`to`](Pack::to). The writer is then dropped and not [finished](Writer::finish). It has
    /// received the samples before the first error.
    pub fn to_writer(self, mut writer: Box<dyn Writer + '_>) -> Result<Report> {
        self.recode.check()?;
        source::check_retries(self.retries)?;
        let mut tally = Tally::new(self.source.len() as u64, self.progress);
        let workers = match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(workers)
            .thread_name(|i| format!("warpfeed-pack-{i}"))
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start {workers} worker threads: {e}")))?;
        let (source, stop) = (self.source, AtomicBool::new(false));
        let task = Task { source, codecs: &self.codecs, recode: self.recode, retries: self.retries, stop: &stop };
        let (keep_bad, strict, mut bad) = (self.keep_bad, self.strict, Bad::default());
        let spare = Mutex::new(Vec::new());
        // The calling thread hands out indices, restores the order of the results, and writes. It
        // may wait. The workers never wait, because the channel has room for everything in flight.
        let outcome = pool.in_place_scope(|scope| {
            let (sender, results) = channel::unbounded();
            let mut waiting: VecDeque<Option<Result<Prepared>>> = VecDeque::new();
            let mut waiting_bytes = 0;
            let (mut written, mut begun) = (0, 0);
            let packed = loop {
                while begun < source.len()
                    && begun - written < workers * AHEAD
                    && (waiting_bytes < WAITING_BYTES || begun == written)
                {
                    let (index, sender, spare) = (begun, sender.clone(), &spare);
                    scope.spawn(move |_| {
                        if task.stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let prepared: Option<Prepared> = spare.lock().expect("nothing panics while holding it").pop();
                        let prepared = task.prepare(index, prepared.unwrap_or_default());
                        // After an error the receiver is gone.
                        let _ = sender.send((index, prepared));
                    });
                    waiting.push_back(None);
                    begun += 1;
                }
                if written == begun {
                    break Ok(());
                }
                let (index, prepared) = results.recv().expect("this thread holds a sender");
                waiting_bytes += prepared.as_ref().map_or(0, |p| p.bytes.len());
                waiting[index - written] = Some(prepared);
                let mut put_ready = || {
                    while let Some(ready) = waiting.front_mut().and_then(Option::take) {
                        let prepared = ready?;
                        waiting.pop_front();
                        waiting_bytes -= prepared.bytes.len();
                        let at = |e: Error| match e.path() {
                            // The target could not be written; the sample is not the cause.
                            Some(_) => e,
                            None => source::sample_error(source, written, &prepared.key, e),
                        };
                        match &prepared.remark {
                            Some(remark) if !keep_bad && remark.is_bad(strict) => {
                                bad.add(written as u64, &prepared.key, remark);
                            }
                            _ => {}
                        }
                        // After a bad image, samples are read to count all bad images, but no
                        // longer written.
                        if bad.is_empty() {
                            prepared.sample().and_then(|sample| writer.put(&sample)).map_err(at)?;
                        }
                        tally.add(written as u64, &prepared);
                        written += 1;
                        if prepared.bytes.capacity() <= SPARE_BYTES {
                            spare.lock().expect("nothing panics while holding it").push(prepared);
                        }
                    }
                    Ok(())
                };
                if let Err(e) = put_ready() {
                    break Err(e);
                }
            };
            stop.store(true, Ordering::Relaxed);
            packed
        });
        outcome?;
        bad.check(tally.report.samples)?;
        Ok(tally.report(writer.finish()?))
    }
}

/// A sample on its way from a worker to the writer. Its memory is reused.
#[derive(Default)]
struct Prepared {
    key: String,
    label: Option<i64>,
    /// Names of the fields, and their ranges in `bytes`.
    fields: Vec<(String, Range<usize>)>,
    bytes: Vec<u8>,
    treatment: Option<Treatment>,
    refused: bool,
    remark: Option<Remark>,
    image_in: usize,
    image_out: usize,
    /// One buffer for each attempt to read. A failed attempt may still borrow its buffer.
    scratch: Vec<Vec<u8>>,
}

impl Prepared {
    fn sample(&self) -> Result<Sample<'_>> {
        let mut sample = Sample::new(&self.key);
        if let Some(label) = self.label {
            sample = sample.with_label(label);
        }
        for (name, range) in &self.fields {
            sample.push(name, &self.bytes[range.clone()])?;
        }
        Ok(sample)
    }

    fn fill(&mut self, task: Task<'_>, index: usize) -> Result<()> {
        let Task { source, codecs, recode, retries, stop } = task;
        self.scratch.resize_with(retries + 1, Vec::new);
        let (mut buffers, go_on) = (self.scratch.iter_mut(), || !stop.load(Ordering::Relaxed));
        let read = || source.read(index, buffers.next().expect("one for each attempt"));
        self.key.clear();
        let sample = source::retried(retries, index as u64, go_on, read)?;
        self.key.push_str(sample.key());
        self.label = sample.label()?;
        self.fields.clear();
        self.bytes.clear();
        (self.treatment, self.refused, self.remark) = (None, false, None);
        (self.image_in, self.image_out) = (0, 0);
        let image = codecs.image(&sample).map(|(name, _)| name);
        for &(name, value) in sample.fields() {
            let bytes = &*value.encoded(name);
            let start = self.bytes.len();
            let mut stored_as = name;
            if Some(name) == image {
                match recode.apply(codecs, bytes, &mut self.bytes) {
                    Ok((treatment, renamed)) => {
                        if matches!(treatment, Treatment::Encoded | Treatment::Raw) {
                            keeps_annotations(codecs, &sample, bytes, &self.bytes[start..])?;
                        }
                        self.treatment = Some(treatment);
                        stored_as = renamed.unwrap_or(name);
                        // Only a sound file can be repacked.
                        if treatment != Treatment::Repacked {
                            self.remark = Remark::of(codecs, bytes, None);
                            self.refused = matches!(self.remark, Some(Remark::Undecodable(_)));
                        }
                    }
                    Err(e) => {
                        self.bytes.truncate(start);
                        self.bytes.extend_from_slice(bytes);
                        (self.remark, self.refused) = (Remark::of(codecs, bytes, Some(e)), true);
                    }
                }
                (self.image_in, self.image_out) = (bytes.len(), self.bytes.len() - start);
            } else {
                self.bytes.extend_from_slice(bytes);
                renumber(&sample, name, &mut self.bytes[start..])?;
            }
            self.fields.push((stored_as.to_owned(), start..self.bytes.len()));
        }
        Ok(())
    }
}

/// Checks that fields in pixel coordinates stay valid when `image` becomes `recoded`.
///
/// # Errors
/// If the size changes, and the sample has boxes, points or a mask in pixels.
fn keeps_annotations(codecs: &Codecs, sample: &Sample<'_>, image: &[u8], recoded: &[u8]) -> Result<()> {
    let relative = sample.field("boxes.units.txt").is_some_and(|text| text.trim_ascii() == b"relative");
    let in_pixels = |name: &str| match name.split('.').next() {
        Some("boxes") => !relative,
        Some("mask" | "points") => true,
        _ => false,
    };
    let Some((name, _)) = sample.fields().iter().find(|(name, _)| in_pixels(name)) else { return Ok(()) };
    let (was, is) = (codecs.open(image)?.size(), codecs.open(recoded)?.size());
    if was == is {
        return Ok(());
    }
    Err(Error::in_source(format!(
        "the picture would become {}x{} from {}x{}, but the field {name:?} is in pixels of the original; pack it without resizing",
        is.width, is.height, was.width, was.height
    )))
}

/// The work on each sample.
#[derive(Clone, Copy)]
struct Task<'a> {
    source: &'a dyn Source,
    codecs: &'a Codecs,
    recode: Recode,
    retries: usize,
    /// Set when packing ends.
    stop: &'a AtomicBool,
}

impl Task<'_> {
    /// Reads and recodes sample `index`. A panic of the source or of a codec becomes an error.
    fn prepare(self, index: usize, mut prepared: Prepared) -> Result<Prepared> {
        let filled = guarded(|| prepared.fill(self, index));
        filled.map_err(|e| source::sample_error(self.source, index, &prepared.key, e))?;
        Ok(prepared)
    }
}

/// Counts the written samples.
struct Tally<'a> {
    report: Report,
    progress: Progress,
    callback: Option<Callback<'a>>,
    /// Hashes of all keys, eight bytes per sample; the keys would take far more memory.
    keys: HashSet<u64>,
}

impl<'a> Tally<'a> {
    fn new(total: u64, callback: Option<Callback<'a>>) -> Self {
        Tally {
            report: Report::default(),
            progress: Progress { total, ..Progress::default() },
            callback,
            keys: HashSet::new(),
        }
    }

    fn add(&mut self, index: u64, done: &Prepared) {
        let Tally { report, progress, .. } = self;
        report.samples += 1;
        report.bytes_in += done.image_in as u64;
        report.bytes_out += done.image_out as u64;
        if let Some(Remark::Damaged(how)) = &done.remark {
            report.damaged_count += 1;
            list(&mut report.damaged, index, &done.key, how);
        }
        if done.refused {
            report.refused_count += 1;
            report.undecodable_count += u64::from(matches!(done.remark, Some(Remark::Undecodable(_))));
            list(&mut report.refused, index, &done.key, done.remark.as_ref().map_or("", Remark::reason));
        } else {
            match done.treatment {
                Some(Treatment::Repacked) => report.repacked += 1,
                Some(Treatment::Encoded) => report.encoded += 1,
                Some(Treatment::Raw) => report.raw += 1,
                Some(Treatment::Kept) | None => report.kept += 1,
            }
        }
        let mut hasher = DefaultHasher::new();
        done.key.hash(&mut hasher);
        report.duplicate_keys += u64::from(!self.keys.insert(hasher.finish()));
        (progress.samples, progress.bytes_in, progress.bytes_out) = (report.samples, report.bytes_in, report.bytes_out);
        if let Some(callback) = &mut self.callback {
            callback(progress);
        }
    }

    fn report(self, written: Written) -> Report {
        Report { written, ..self.report }
    }
}
