//! Times the stages of a worker.

use std::time::Instant;

use crate::batch::Header;
use crate::recipe::SampleImage;
use crate::trace::{Args, Counters, Row, Stage, StageMap, WorkerCounts, nanos};

/// A worker's stopwatch. A lap covers one stage of one sample. Its time is added to the counters,
/// and to the trace if one is being recorded.
pub(crate) struct Meter<'a> {
    counters: &'a Counters,
    worker: usize,
    epoch: u64,
    batch: u64,
    now: Instant,
}

pub(crate) struct Timed<'a> {
    pub(crate) id: u64,
    /// The key of the sample. Empty until the sample has been read.
    pub(crate) key: &'a str,
    /// Bytes read for the sample and the samples that are combined with it.
    pub(crate) bytes: usize,
    /// Time spent in each stage so far, in ns.
    pub(crate) ns: StageMap<u64>,
    /// Time of the slowest field in ns, and the index of that field.
    pub(crate) slowest: (u64, usize),
}

impl<'a> Meter<'a> {
    pub(crate) fn new(counters: &'a Counters, worker: usize, header: &Header) -> Self {
        Meter { counters, worker, epoch: header.epoch, batch: header.number, now: Instant::now() }
    }

    pub(crate) fn enter(&self, stage: Stage, id: u64) {
        self.counters.worker(self.worker).enter(stage, id);
    }

    /// Ends a lap that does not belong to a single sample. Returns its duration in ns.
    pub(crate) fn lap(&mut self) -> u64 {
        let start = std::mem::replace(&mut self.now, Instant::now());
        nanos(self.now, start)
    }

    /// Ends the lap for `stage` of `sample`. The stage produced `bytes` bytes.
    pub(crate) fn stage(&mut self, stage: Stage, sample: &mut Timed<'_>, bytes: usize) {
        let ns = self.lap();
        self.add_time(stage, sample, ns, bytes);
        if let Some(trace) = self.counters.tracing() {
            let end = trace.at(self.now);
            let args = self.args(sample, bytes);
            trace.record_at(Row::Worker(self.worker), stage.name(), end.saturating_sub(ns), end, args);
        }
    }

    pub(crate) fn enter_field(&self, field: usize, id: u64) {
        self.counters.worker(self.worker).enter_field(field, self.counters.field(field), id);
    }

    /// Ends the lap for a field of `sample`. The lap produced `bytes` bytes.
    pub(crate) fn field(&mut self, field: usize, sample: &mut Timed<'_>, bytes: usize) {
        let ns = self.lap();
        sample.ns[Stage::Fields] += ns;
        sample.slowest = sample.slowest.max((ns, field));
        self.counters.worker(self.worker).spent_in_field(field, ns, bytes);
        if let Some(trace) = self.counters.tracing() {
            let (end, name) = (trace.at(self.now), self.counters.field(field).to_owned());
            trace.record_at(Row::Worker(self.worker), name, end.saturating_sub(ns), end, self.args(sample, bytes));
        }
    }

    /// Adds `ns` and `bytes` of output to a stage of `sample`.
    pub(super) fn add_time(&self, stage: Stage, sample: &mut Timed<'_>, ns: u64, bytes: usize) {
        sample.ns[stage] += ns;
        self.counters.worker(self.worker).spent(stage, ns, bytes);
    }

    /// Ends the lap in which images were decoded. `samples` yields their samples, each with its
    /// number of images. Images decoded as a group have no individual timings, so the time of the
    /// group is divided in proportion to their encoded size.
    pub(crate) fn decoded<'t, 'k: 't>(
        &mut self,
        sample_images: &[SampleImage<'_>],
        samples: impl Iterator<Item = (&'t mut Timed<'k>, usize)>,
    ) {
        let took = self.lap();
        let alone: u64 = sample_images.iter().filter_map(|sample_image| sample_image.ns).sum();
        let together = took.saturating_sub(alone);
        let encoded: usize = sample_images
            .iter()
            .filter(|sample_image| sample_image.ns.is_none())
            .map(|sample_image| sample_image.encoded)
            .sum();
        let one_by_one = sample_images.iter().all(|sample_image| sample_image.ns.is_some());
        let trace = self.counters.tracing();
        let mut begin = trace.map_or(0, |trace| trace.at(self.now).saturating_sub(took));
        let mut rest = sample_images.iter();
        for (sample, images) in samples {
            for sample_image in rest.by_ref().take(images) {
                let share = || (together as f64 * sample_image.encoded as f64 / encoded.max(1) as f64) as u64;
                let ns = sample_image.ns.unwrap_or_else(share);
                self.add_time(Stage::Decode, sample, ns, sample_image.pixels);
                let Some(trace) = trace else { continue };
                let (row, name) = (Row::Worker(self.worker), Stage::Decode.name());
                if one_by_one {
                    trace.record_at(row, name, begin, begin + ns, self.args(sample, sample_image.encoded));
                    begin += ns;
                } else if std::ptr::eq(sample_image, &raw const sample_images[0]) {
                    let encoded = sample_images.iter().map(|sample_image| sample_image.encoded).sum();
                    let args = Args { samples: Some(sample_images.len() as u64), ..self.args(sample, encoded) };
                    trace.record_at(row, name, begin, begin + took, args);
                }
            }
        }
    }

    /// Adds time to a stage without counting the sample.
    pub(super) fn add_uncounted_time(&self, stage: Stage, sample: &mut Timed<'_>, ns: u64) {
        sample.ns[stage] += ns;
        self.counters.worker(self.worker).add_uncounted_time(stage, ns);
    }

    /// Ends the lap in which `count` samples were copied from memory. `last` is the index and the
    /// key of the last sample, `read` the number of copied bytes, and `written` their size in the
    /// batch. The whole lap counts as writing.
    pub(crate) fn copied(&mut self, last: (u64, &str), count: u64, (read, written): (usize, usize)) {
        let ns = self.lap();
        let worker = self.counters.worker(self.worker);
        worker.spent_on(Stage::Read, count, 0, read);
        worker.spent_on(Stage::Write, count, ns, written);
        worker.counts().prepared.add(count);
        let mut each = StageMap::default();
        each[Stage::Write] = ns / count;
        self.counters.sample_took(each, 0, (last.0, last.1, read / count as usize));
    }

    pub(crate) fn counts(&self) -> &WorkerCounts {
        self.counters.worker(self.worker).counts()
    }

    /// Returns the mean decoded size of this worker's images in bytes, or `None` before the first
    /// image.
    pub(crate) fn mean_decoded_bytes(&self) -> Option<u64> {
        self.counters.worker(self.worker).mean_bytes(Stage::Decode)
    }

    pub(crate) fn finish_sample(&self, sample: &Timed<'_>) {
        self.counts().prepared.bump();
        self.counters.sample_took(sample.ns, sample.slowest.1, (sample.id, sample.key, sample.bytes));
    }

    fn args(&self, sample: &Timed<'_>, bytes: usize) -> Args {
        Args {
            epoch: Some(self.epoch),
            batch: Some(self.batch),
            sample: Some(sample.id),
            key: (!sample.key.is_empty()).then(|| sample.key.into()),
            bytes: Some(bytes as u64),
            ..Args::default()
        }
    }
}
