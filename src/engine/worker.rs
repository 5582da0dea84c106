//! What a worker does with its part of a batch: read, decode, transform, write.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use super::retry::{guarded, panicked, retried};
use super::scratch::{Scratch, Share};
use super::{Settings, Tuner};
use crate::batch::{self, Full, Part, Writer};
use crate::decode::{self, Codecs, Job, Picture, Pixels};
use crate::device::SampleOps;
use crate::error::{Error, Result};
use crate::order::{Pick, Rng};
use crate::source::{self, Sample, Source};
use crate::trace::{Args, Counters, Row, Stage, Trace, nanos};
use crate::transform::{self, Augment, Erase, ImageMut, Mixing, Resizer, Transform};

/// Samples that a worker takes at a time: enough for a decoder to work on several side by side, few
/// enough to share out a batch evenly.
pub(crate) const MAX_GROUP: usize = 8;

/// Bytes of a picture's pixels that are taken for what it needs, where eight of them are within a
/// worker's own share. Of larger ones the decoder is asked.
const SMALL: u64 = 1 << 20;

/// What is done to every sample; shared by all workers.
pub(crate) struct Work {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) codecs: Codecs,
    pub(crate) augment: Augment,
    pub(crate) transforms: Vec<Arc<dyn Transform>>,
    pub(crate) writer: Writer,
    /// Whether the last field of a slot is a record a sample of what the device is to do
    /// (`device::SampleOps`): then erasing is left to it.
    pub(crate) ops: bool,
    pub(crate) seed: u64,
    /// Whether a batch that is to be mixed is mixed by the worker that finishes it, and not on a
    /// device.
    pub(crate) mixes: bool,
    /// Classes and smoothing, if labels are also wanted as rows of shares.
    pub(crate) soft_labels: Option<(usize, f32)>,
    /// Whether samples may be without a label.
    pub(crate) unlabelled: bool,
    /// Whether a sample that fails is replaced by another of its batch.
    pub(crate) stand_in: bool,
    /// The run that is wanted now; parts of any other are passed on untouched.
    pub(crate) run: AtomicU64,
    pub(crate) counters: Arc<Counters>,
    /// The numbers of workers and slots in use, and who changes them, if they may change.
    pub(crate) settings: Arc<Settings>,
    pub(crate) tuner: Option<Tuner>,
    /// Whether epochs show a bar.
    #[cfg(feature = "progress")]
    pub(crate) progress: bool,
    pub(crate) limits: Limits,
    pub(crate) scratch: Scratch,
}

/// What a sample may claim before anything is made of it, and how often it may be asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) retries: usize,
    /// Bytes of all fields together.
    pub(crate) sample_bytes: u64,
}

/// One worker's memory, kept from sample to sample as far as it stays within the worker's own share
/// ([`Scratch`]).
pub(crate) struct Worker {
    work: Arc<Work>,
    index: usize,
    /// For each place one buffer a try: what a try that failed was given stays lent to it.
    encoded: [Box<[Vec<u8>]>; MAX_GROUP],
    pixels: [Pixels; MAX_GROUP],
    image: Vec<u8>,
    /// The last image of a batch that is being mixed.
    partner: Vec<u8>,
    /// What is erased in each of its images.
    erase: Vec<Option<Erase>>,
    resizer: Resizer,
}

/// A sample that was read and planned.
struct Planned<'a> {
    place: usize,
    id: u64,
    sample: Sample<'a>,
    plan: transform::Plan,
    rng: Rng,
    /// Its time in each stage.
    ns: [u64; 4],
    /// The image, until it is decoded.
    picture: Option<Picture<'a>>,
    /// Bytes of memory that decoding it takes.
    memory: usize,
}

/// What a sample's header says: the opened image, what happens to it, and the memory that decoding
/// it takes.
struct Prepared<'a> {
    picture: Picture<'a>,
    plan: transform::Plan,
    rng: Rng,
    memory: usize,
}

impl Worker {
    pub(crate) fn new(work: Arc<Work>, index: usize) -> Self {
        let size = work.augment.output_size();
        Worker {
            index,
            encoded: std::array::from_fn(|_| vec![Vec::new(); work.limits.retries + 1].into_boxed_slice()),
            pixels: Default::default(),
            image: vec![0; size.area() as usize * 3],
            partner: Vec::new(),
            erase: Vec::with_capacity(MAX_GROUP),
            resizer: Resizer::new(),
            work,
        }
    }

    /// Fills `part` if its run is still wanted. The last part of a batch gives the full slot.
    pub(crate) fn run(&mut self, mut part: Part) -> Option<Full> {
        // The user's code is guarded where it is called. What panics here is a defect, or a logger
        // of the user's; the batch goes on its way all the same, since its slot would be lost with
        // it.
        let filled = guarded(|| {
            self.fill(&mut part);
            Ok(())
        });
        if let Err(e) = filled {
            let (header, range) = (part.header(), part.range());
            let e = panicked(e, || {
                format!(
                    "a worker panicked at samples {} to {} of batch {} of epoch {}",
                    range.start,
                    range.end - 1,
                    header.number,
                    header.epoch
                )
            });
            range.for_each(|place| part.meta(place).fault = Some(e.clone()));
        }
        let mut full = part.finish()?;
        if full.header().run != self.work.run.load(Ordering::Relaxed) {
            return Some(full);
        }
        let finished = guarded(|| {
            self.finish(&mut full);
            Ok(())
        });
        if let Err(e) = finished {
            let number = full.header().number;
            full.meta_mut(0).fault = Some(panicked(e, || format!("a worker panicked at the end of batch {number}")));
        }
        Some(full)
    }

    /// What is done to a batch when all its samples are there.
    fn finish(&mut self, full: &mut Full) {
        self.work.check_labels(full);
        if self.work.stand_in {
            replace_faulty(full);
        }
        if let Some(mixing) = full.header().mixing.filter(|_| self.work.mixes) {
            self.mix(&mixing, full);
        }
        if let (Some(span), Some((_, smoothing))) = (full.plan().soft, self.work.soft_labels) {
            soften(full, span, smoothing);
        }
    }

    fn mix(&mut self, mixing: &Mixing, full: &mut Full) {
        let Worker { work, image, partner, erase, .. } = self;
        erase.clear();
        erase.extend((0..full.len()).map(|place| full.meta(place).erase));
        let start = Instant::now();
        let mixed = guarded(|| batch::mix(&work.writer, mixing, full.bytes_mut(0), erase, image, partner));
        self.work.counters.worker(self.index).mixed(nanos(Instant::now(), start));
        if let Err(e) = mixed {
            full.meta_mut(0).fault = Some(e);
        }
    }

    fn fill(&mut self, part: &mut Part) {
        let mut places = part.range();
        while !places.is_empty() && part.header().run == self.work.run.load(Ordering::Relaxed) {
            self.round(part, &mut places);
            self.trim();
        }
        self.work.counters.worker(self.index).idle();
    }

    /// Gives back what is kept beyond the worker's own share.
    fn trim(&mut self) {
        let share = self.work.scratch.share();
        let encoded = self.encoded.iter().flatten().map(Vec::capacity).sum::<usize>();
        if encoded > share.encoded {
            self.encoded.iter_mut().flatten().for_each(|buffer| *buffer = Vec::new());
        }
        keep(&mut self.pixels, share.decode);
        decode::keep(share.kept);
    }

    /// Fills the next of `places`: as many as there are buffers, or fewer if their encoded bytes
    /// are many.
    fn round(&mut self, part: &mut Part, places: &mut Range<usize>) {
        let Worker { work, index, encoded, pixels, image, resizer, .. } = self;
        let counters = work.counters.worker(*index);
        let run = part.header().run;
        let at = Place { epoch: part.header().epoch, batch: part.header().number };
        let share = work.scratch.share();

        let mut clock = Clock { now: Instant::now() };
        let mut planned = ArrayVec::<Planned<'_>, MAX_GROUP>::new();
        let mut held = 0;
        for encoded in encoded {
            let Some(place) = places.next() else { break };
            let Pick { sample: id, variant, .. } = part.header().picks[place];
            counters.enter(Stage::Read, id);
            let meta = part.meta(place);
            meta.key.clear();
            meta.fault = None;
            let read = work.read(id, run, encoded).map_err(|e| work.blame(id, "", e)).and_then(|sample| {
                meta.key.push_str(sample.key());
                let prepared = guarded(|| work.prepare(&sample, Rng::new(work.seed, variant, id)));
                prepared.map_err(|e| work.blame(id, sample.key(), e)).map(|prepared| (sample, prepared))
            });
            match read {
                Ok((sample, Prepared { picture, plan, rng, memory })) => {
                    let encoded = picture.bytes().len();
                    if picture.is_plain_jpeg() {
                        counters.plain_jpeg();
                    }
                    let ns = [clock.lap(), 0, 0, 0];
                    // A source that copies may have grown its buffer to twice that.
                    let buffer = 2 * sample.fields().iter().map(|f| f.1.len()).sum::<usize>();
                    let memory = if buffer > share.encoded { memory.saturating_add(buffer) } else { memory };
                    let planning = Planned { place, id, sample, plan, rng, ns, picture: Some(picture), memory };
                    clock.book(&work.counters, *index, Stage::Read, ns[0], encoded, |b| planning.args(at, b));
                    planned.push(planning);
                    held += buffer;
                    // One more like it might be too much.
                    if held + buffer > share.encoded {
                        break;
                    }
                }
                // All its time, the pauses before it was read again among it, is its own and not
                // the next one's.
                Err(e) => {
                    let ns = [clock.lap(), 0, 0, 0];
                    clock.book(&work.counters, *index, Stage::Read, ns[0], 0, |b| at.args(id, &meta.key, b));
                    counters.sample();
                    work.counters.sample_took(ns, id, &meta.key);
                    meta.fault = Some(e);
                }
            }
        }

        let mut desk = Desk { work, index: *index, pixels, image, resizer, part, clock, at };
        while !planned.is_empty() {
            let all = planned.iter().fold(0, |sum: usize, planned| sum.saturating_add(planned.memory));
            if all <= share.decode {
                desk.make_room(&planned);
                desk.make(std::mem::take(&mut planned));
                break;
            }
            let (count, hold) = match work.scratch.try_take(all) {
                Some(hold) => (planned.len(), Some(hold)),
                None if planned[0].memory <= share.decode => (fitting(&planned, share), None),
                None => {
                    // Who waits keeps little.
                    desk.release();
                    (1, Some(work.scratch.take(planned[0].memory)))
                }
            };
            if desk.part.header().run != work.run.load(Ordering::Relaxed) {
                return;
            }
            // What is held is beside the worker's own share.
            if hold.is_none() {
                desk.make_room(&planned[..count]);
            }
            let large = planned[0].memory > share.decode;
            desk.make(planned.drain(..count).collect());
            if large {
                desk.release();
            }
            keep(desk.pixels, share.decode);
            decode::keep(share.kept);
        }
    }
}

/// How many of `planned`, from the first on, are within a worker's own share.
fn fitting(planned: &[Planned<'_>], share: Share) -> usize {
    let mut sum = 0_usize;
    planned
        .iter()
        .take_while(|planned| {
            // An estimate of the user's may be as large as a number can be.
            sum = sum.saturating_add(planned.memory);
            sum <= share.decode
        })
        .count()
}

/// Gives back memory of `pixels` beyond `limit` bytes, the last first: the first are used most.
fn keep(pixels: &mut [Pixels], limit: usize) {
    let mut left = limit;
    for pixels in pixels {
        match left.checked_sub(pixels.capacity()) {
            Some(less) => left = less,
            None => pixels.release(),
        }
    }
}

/// Where a worker makes images of samples that were read.
struct Desk<'a> {
    work: &'a Work,
    index: usize,
    pixels: &'a mut [Pixels; MAX_GROUP],
    image: &'a mut [u8],
    resizer: &'a mut Resizer,
    part: &'a mut Part,
    clock: Clock,
    at: Place,
}

impl Desk<'_> {
    /// Gives back the memory that pictures take.
    fn release(&mut self) {
        self.pixels.iter_mut().for_each(Pixels::release);
        decode::release();
    }

    /// Gives back pixels of pictures before, if they and those that are planned would together be
    /// more than the worker's own share.
    fn make_room(&mut self, planned: &[Planned<'_>]) {
        let needed = planned.iter().map(|planned| planned.memory).chain(std::iter::repeat(0));
        let sum: usize = self.pixels.iter().zip(needed).map(|(pixels, needed)| pixels.capacity().max(needed)).sum();
        if sum > self.work.scratch.share().decode {
            self.pixels.iter_mut().for_each(Pixels::release);
        }
    }

    /// Decodes, transforms and writes what was planned.
    fn make(&mut self, mut planned: ArrayVec<Planned<'_>, MAX_GROUP>) {
        let Desk { work, index, pixels, image, resizer, part, clock, at } = self;
        let (index, at) = (*index, *at);
        let counters = work.counters.worker(index);
        let sample_bytes = part.plan().spans.iter().map(|span| span.sample_bytes).sum();
        let mut jobs = ArrayVec::<Job<'_>, MAX_GROUP>::new();
        for (planned, pixels) in planned.iter_mut().zip(pixels.iter_mut()) {
            pixels.time = None;
            let picture = planned.picture.take().expect("a sample that was planned is decoded once");
            jobs.push(Job::new(picture, planned.plan.region, pixels));
        }

        if let Some(first) = planned.first() {
            counters.enter(Stage::Decode, first.id);
        }
        clock.lap();
        decode(&mut jobs);
        // What was decoded side by side has no time of its own, but a share by its encoded bytes.
        let alone = jobs.iter().filter_map(|job| job.out.time).sum::<Duration>();
        let took = clock.lap();
        let together = took.saturating_sub(alone.as_nanos() as u64);
        if let Some(trace) = work.counters.tracing() {
            clock.trace_decoding(trace, index, took, &jobs, &planned, at);
        }
        let encoded =
            jobs.iter().filter(|job| job.out.time.is_none()).map(|job| job.picture.bytes().len()).sum::<usize>();

        for (job, mut planned) in jobs.into_iter().zip(planned) {
            let share = || (together as f64 * job.picture.bytes().len() as f64 / encoded.max(1) as f64) as u64;
            planned.ns[1] = job.out.time.map_or_else(share, |time| time.as_nanos() as u64);
            counters.spent(Stage::Decode, planned.ns[1], job.out.data().len());
            counters.enter(Stage::Transform, planned.id);
            let written = job.result.and_then(|()| {
                guarded(|| work.finish(job.out, &mut planned, resizer, image, part))?;
                planned.ns[2] = clock.lap();
                clock
                    .book(&work.counters, index, Stage::Transform, planned.ns[2], image.len(), |b| planned.args(at, b));
                counters.enter(Stage::Write, planned.id);
                guarded(|| work.write(image, &planned, part))
            });
            planned.ns[3] = clock.lap();
            clock.book(&work.counters, index, Stage::Write, planned.ns[3], sample_bytes, |b| planned.args(at, b));
            let meta = part.meta(planned.place);
            counters.sample();
            work.counters.sample_took(planned.ns, planned.id, &meta.key);
            if let Err(e) = written {
                meta.fault = Some(work.blame(planned.id, planned.sample.key(), e));
            }
        }
    }
}

/// The batch that a worker is at.
#[derive(Clone, Copy)]
struct Place {
    epoch: u64,
    batch: u64,
}

impl Place {
    fn args(self, sample: u64, key: &str, bytes: u64) -> Args {
        Args {
            epoch: Some(self.epoch),
            batch: Some(self.batch),
            sample: Some(sample),
            // One that could not be read has none that is known.
            key: (!key.is_empty()).then(|| key.into()),
            bytes: Some(bytes),
            ..Args::default()
        }
    }
}

impl Planned<'_> {
    fn args(&self, place: Place, bytes: u64) -> Args {
        place.args(self.id, self.sample.key(), bytes)
    }
}

/// A worker's stopwatch: each stage begins where the one before ended.
struct Clock {
    now: Instant,
}

impl Clock {
    /// Time since the last lap, in ns.
    fn lap(&mut self) -> u64 {
        let start = std::mem::replace(&mut self.now, Instant::now());
        nanos(self.now, start)
    }

    /// Counts and traces the lap of one sample that just ended: `ns`, out of which came `bytes`
    /// bytes.
    fn book(
        &self,
        counters: &Counters,
        worker: usize,
        stage: Stage,
        ns: u64,
        bytes: usize,
        args: impl FnOnce(u64) -> Args,
    ) {
        counters.worker(worker).spent(stage, ns, bytes);
        if let Some(trace) = counters.tracing() {
            self.trace(trace, worker, stage.name(), ns, args(bytes as u64));
        }
    }

    /// Traces the lap that just ended.
    fn trace(&self, trace: &Trace, worker: usize, stage: &'static str, ns: u64, args: Args) {
        let end = trace.at(self.now);
        trace.record_at(Row::Worker(worker), stage, end.saturating_sub(ns), end, args);
    }

    /// Traces the decoding of a group: sample by sample, unless they were decoded side by side.
    fn trace_decoding(
        &self,
        trace: &Trace,
        worker: usize,
        ns: u64,
        jobs: &[Job<'_>],
        planned: &[Planned<'_>],
        place: Place,
    ) {
        let alone: Option<Vec<u64>> = jobs.iter().map(|job| Some(job.out.time?.as_nanos() as u64)).collect();
        let row = Row::Worker(worker);
        if let Some(times) = alone {
            let mut end = trace.at(self.now);
            for ((job, planned), ns) in jobs.iter().zip(planned).zip(times).rev() {
                let begin = end.saturating_sub(ns);
                trace.record_at(row, "decode", begin, end, planned.args(place, job.picture.bytes().len() as u64));
                end = begin;
            }
        } else if let Some(first) = planned.first() {
            let bytes = jobs.iter().map(|job| job.picture.bytes().len() as u64).sum();
            let args = Args { samples: Some(jobs.len() as u64), ..first.args(place, bytes) };
            self.trace(trace, worker, "decode", ns, args);
        }
    }
}

impl Work {
    /// An epoch begins.
    pub(super) fn begin(&self) {
        self.settings.begin();
        self.counters.begin();
        if let Some(tuner) = &self.tuner {
            tuner.begin(&self.counters);
        }
    }

    /// The consumer got the batch it asked for at `asked`: number `batch` of `epoch`.
    pub(super) fn delivered(&self, epoch: u64, batch: u64, samples: usize, asked: Instant) {
        self.counters.delivered(epoch, batch, samples, asked);
        if let Some(tuner) = &self.tuner {
            tuner.delivered(&self.counters);
        }
    }

    /// An epoch ends, if one is under way.
    pub(super) fn end(&self) {
        self.settings.end();
        if let Some(tuner) = &self.tuner {
            tuner.end(&self.counters);
        }
    }

    /// Reads sample `id`, again if an error may be gone then, as often as there are buffers and as
    /// long as `run` is wanted.
    fn read<'a>(&'a self, id: u64, run: u64, buffers: &'a mut [Vec<u8>]) -> Result<Sample<'a>> {
        let go_on = || {
            let wanted = self.run.load(Ordering::Relaxed) == run;
            if wanted {
                self.counters.retried();
            }
            wanted
        };
        // What a try that failed was given stays lent to it.
        let (times, mut buffers) = (buffers.len() - 1, buffers.iter_mut());
        retried(times, id, go_on, || self.source.read(id as usize, buffers.next().expect("one for each try")))
    }

    /// The error of sample `id`.
    fn blame(&self, id: u64, key: &str, error: Error) -> Error {
        source::blame(&*self.source, id as usize, key, error)
    }

    /// Finds the image of a sample and decides what happens to it.
    fn prepare<'a>(&'a self, sample: &Sample<'a>, mut rng: Rng) -> Result<Prepared<'a>> {
        let (_, bytes) = self.codecs.image(sample).ok_or_else(|| {
            let names: Vec<_> = sample.fields().iter().map(|f| f.0).collect();
            Error::in_source(format!("no image among the fields {names:?}"))
        })?;
        let total: u64 = sample.fields().iter().map(|f| f.1.len() as u64).sum();
        if total > self.limits.sample_bytes {
            let cause = format!("the sample has {total} bytes, the limit is {}", self.limits.sample_bytes);
            return Err(Error::in_source(cause));
        }
        let picture = self.codecs.open(bytes)?;
        let size = picture.size();
        let plan = self.augment.plan(size, &mut rng)?;
        let all = size.area().saturating_mul(3);
        // Where memory is scarce, what decoders take beside the pixels counts too.
        let ample = self.scratch.share().decode as u64 >= SMALL * MAX_GROUP as u64;
        let memory = if ample && all <= SMALL { all } else { picture.memory(plan.region) };
        Ok(Prepared { picture, plan, rng, memory: usize::try_from(memory).unwrap_or(usize::MAX) })
    }

    /// Whether the images of this batch are written when it is full, since they are mixed before
    /// they are rounded. Until then each lies in its place as `u8` HWC, which it has room for
    /// whatever the dtype.
    fn writes_later(&self, part: &Part) -> bool {
        self.mixes && part.header().mixing.is_some()
    }

    /// From decoded pixels to the finished image: in the slot itself where it takes bytes as they
    /// are, else in `image`.
    fn finish(
        &self,
        pixels: &Pixels,
        planned: &mut Planned<'_>,
        resizer: &mut Resizer,
        image: &mut [u8],
        part: &mut Part,
    ) -> Result<()> {
        let Planned { place, plan, rng, .. } = planned;
        let image = if self.writer.is_copy() || self.writes_later(part) {
            &mut part.bytes(0, *place)[..self.writer.image_bytes()]
        } else {
            image
        };
        resizer.run(pixels, plan, image)?;
        let mut image = ImageMut::new(image, plan.output.width, plan.output.height);
        self.augment.colour(&mut image, rng);
        self.transforms.iter().try_for_each(|t| t.apply(&mut image, rng))
    }

    /// Writes the finished image, the label and the other fields into the slot.
    fn write(&self, image: &[u8], planned: &Planned<'_>, part: &mut Part) -> Result<()> {
        let Planned { place, sample, plan, .. } = planned;
        let fields = part.plan().spans.len() - usize::from(self.ops) - usize::from(part.plan().soft.is_some());
        let erase = plan.erase.as_ref();
        if self.ops {
            let ops = erase.map_or_else(SampleOps::new, |erase| SampleOps::new().erase(erase.rect, erase.value));
            let record = part.bytes(fields, *place).first_chunk_mut().expect("a record has its size");
            ops.write(record);
        }
        let erase = erase.filter(|_| !self.ops);
        if self.writes_later(part) {
            part.meta(*place).erase = erase.copied();
        } else if !self.writer.is_copy() {
            self.writer.write(image, erase, part.bytes(0, *place))?;
        } else if let Some(erase) = erase {
            self.writer.erase(erase, part.bytes(0, *place))?;
        }
        let label = sample.label()?;
        self.check_soft_label(label)?;
        part.meta(*place).labelled = label.is_some();
        part.bytes(1, *place).copy_from_slice(&label.unwrap_or(-1).to_ne_bytes());
        for span in 2..fields {
            let name = &part.plan().spans[span].field.name;
            let bytes = sample.field(name).ok_or_else(|| {
                let names: Vec<_> = sample.fields().iter().map(|f| f.0).collect();
                Error::in_source(format!("no field {name:?} among {names:?}"))
            })?;
            let expected = part.plan().spans[span].sample_bytes;
            if bytes.len() != expected {
                let cause = format!("field {name:?} has {} bytes, its dtype and shape need {expected}", bytes.len());
                return Err(Error::in_source(cause));
            }
            part.bytes(span, *place).copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Work {
    /// Whether `label` has a place in the rows of shares, if there are any. A negative one has
    /// none, and may be meant so.
    fn check_soft_label(&self, label: Option<i64>) -> Result<()> {
        match (label, self.soft_labels) {
            (None, Some(_)) if !self.unlabelled => {
                Err(Error::in_source("no label, which soft_labels needs; with unlabelled(true) its row has no class"))
            }
            (Some(label), Some((classes, _))) if label >= classes as i64 => {
                Err(Error::in_source(format!("label {label}, soft_labels is for {classes} classes, from 0")))
            }
            _ => Ok(()),
        }
    }

    /// Decides whether the batch's labels may be read. If some of its samples have a label, those
    /// without one have failed.
    fn check_labels(&self, full: &mut Full) {
        let labels = |full: &Full, has: bool| {
            (0..full.len()).any(|p| full.meta(p).fault.is_none() && full.meta(p).labelled == has)
        };
        let some = labels(full, true);
        full.header_mut().labelled = some || self.unlabelled;
        if self.unlabelled || !some || !labels(full, false) {
            return;
        }
        for place in 0..full.len() {
            let id = full.header().picks[place].sample;
            let meta = full.meta_mut(place);
            if meta.fault.is_none() && !meta.labelled {
                let cause = "no label, though others of its batch have one; unlabelled(true) makes it -1";
                meta.fault = Some(self.blame(id, &meta.key, Error::in_source(cause)));
            }
        }
    }
}

/// Writes the batch's labels as rows of shares to field `span`.
fn soften(full: &mut Full, span: usize, smoothing: f32) {
    let (count, row_bytes) = (full.len(), full.plan().spans[span].sample_bytes);
    let mixing = full.header().mixing;
    let label = |full: &Full, place: usize| bytemuck::cast_slice::<u8, i64>(full.bytes(1))[place];
    for place in 0..count {
        let own = label(full, place);
        let partner = mixing.map(|mixing| (label(full, Mixing::partner(place, count)), mixing.weight));
        let row = &mut full.bytes_mut(span)[place * row_bytes..][..row_bytes];
        batch::soft_label(own, partner, smoothing, bytemuck::cast_slice_mut(row));
    }
}

/// Decodes all jobs; a panic is blamed on the job that raises it when tried alone.
fn decode(jobs: &mut [Job<'_>]) {
    let group = guarded(|| {
        decode::decode_group(jobs);
        Ok(())
    });
    if group.is_err() {
        for job in jobs {
            job.result = guarded(|| job.picture.decode(job.region, job.out));
        }
    }
}

/// Puts a copy of the next sound sample of the batch into the place of each that failed, so that
/// the batch keeps its shape. A batch without a sound sample stays as it is.
fn replace_faulty(full: &mut Full) {
    let len = full.len();
    let sound = |full: &Full, place: usize| full.meta(place).fault.is_none();
    for place in 0..len {
        if sound(full, place) {
            continue;
        }
        let Some(donor) = (1..len).map(|d| (place + d) % len).find(|&p| sound(full, p)) else { return };
        for span in 0..full.plan().spans.len() {
            let bytes = full.plan().spans[span].sample_bytes;
            full.bytes_mut(span).copy_within(donor * bytes..(donor + 1) * bytes, place * bytes);
        }
        full.meta_mut(place).erase = full.meta(donor).erase;
        full.header_mut().picks[place].valid = false;
    }
}
