//! Times the stages of a worker.

use std::time::Instant;

use crate::batch::BatchHeader;
use crate::recipe::SampleImage;
use crate::trace::{Args, Counters, Stage, StageMap, TraceRow, WorkerCounts, nanos};

/// A worker's stopwatch. A lap usually covers one stage of one sample. Most methods that end a lap
/// add its time to the counters, and to the trace if one is being recorded.
pub(crate) struct Meter<'a> {
    counters: &'a Counters,
    worker: usize,
    epoch: u64,
    batch: u64,
    lap_start: Instant,
}

pub(crate) struct SampleTiming<'a> {
    pub(crate) id: u64,
    /// Empty until the sample has been read, and if reading it fails.
    pub(crate) key: &'a str,
    /// Bytes read for the sample and the samples that are combined with it.
    pub(crate) bytes: usize,
    /// Time spent in each stage so far, in ns.
    pub(crate) ns: StageMap<u64>,
    /// Time of the slowest computed field so far in ns, and the index of that field; (0, 0) before
    /// the first.
    pub(crate) slowest_field: (u64, usize),
}

impl<'a> Meter<'a> {
    pub(crate) fn new(counters: &'a Counters, worker: usize, header: &BatchHeader) -> Self {
        Meter { counters, worker, epoch: header.epoch, batch: header.batch_index, lap_start: Instant::now() }
    }

    pub(crate) fn enter(&self, stage: Stage, id: u64) {
        self.counters.worker(self.worker).enter(stage, id);
    }

    /// Ends the lap, and returns its duration in ns.
    pub(crate) fn lap(&mut self) -> u64 {
        let previous_start = std::mem::replace(&mut self.lap_start, Instant::now());
        nanos(self.lap_start, previous_start)
    }

    /// Ends the lap of a stage, which read or produced `bytes` bytes.
    pub(crate) fn finish_stage(&mut self, stage: Stage, sample: &mut SampleTiming<'_>, bytes: usize) {
        let ns = self.lap();
        self.add_time(stage, sample, ns, bytes);
        if let Some(trace) = self.counters.open_trace() {
            let end = trace.timestamp(self.lap_start);
            let args = self.args(sample, bytes);
            trace.record_at(TraceRow::Worker(self.worker), stage.name(), end.saturating_sub(ns), end, args);
        }
    }

    pub(crate) fn enter_field(&self, field: usize, id: u64) {
        self.counters.worker(self.worker).enter_field(field, self.counters.field(field), id);
    }

    /// Ends the lap of a field, which produced `bytes` bytes.
    pub(crate) fn finish_field(&mut self, field: usize, sample: &mut SampleTiming<'_>, bytes: usize) {
        let ns = self.lap();
        sample.ns[Stage::Fields] += ns;
        sample.slowest_field = sample.slowest_field.max((ns, field));
        self.counters.worker(self.worker).add_field(field, ns, bytes);
        if let Some(trace) = self.counters.open_trace() {
            let (end, name) = (trace.timestamp(self.lap_start), self.counters.field(field).to_owned());
            trace.record_at(TraceRow::Worker(self.worker), name, end.saturating_sub(ns), end, self.args(sample, bytes));
        }
    }

    /// Adds `ns` to the stage's time. `bytes` is the size of the output.
    pub(super) fn add_time(&self, stage: Stage, sample: &mut SampleTiming<'_>, ns: u64, bytes: usize) {
        sample.ns[stage] += ns;
        self.counters.worker(self.worker).add_sample(stage, ns, bytes);
    }

    /// Ends the lap in which images were decoded. `samples` yields their samples, each with its
    /// number of images. Images decoded as a group have no individual timings, so the time of the
    /// group is divided in proportion to their encoded size.
    pub(crate) fn finish_decoding<'t, 'k: 't>(
        &mut self,
        images: &[SampleImage<'_>],
        samples: impl Iterator<Item = (&'t mut SampleTiming<'k>, usize)>,
    ) {
        let lap_ns = self.lap();
        let timed_ns: u64 = images.iter().filter_map(|image| image.decode_ns).sum();
        let group_ns = lap_ns.saturating_sub(timed_ns);
        let untimed_images = images.iter().filter(|image| image.decode_ns.is_none());
        let group_bytes: usize = untimed_images.map(|image| image.encoded_bytes).sum();
        let are_all_timed = images.iter().all(|image| image.decode_ns.is_some());
        let trace = self.counters.open_trace();
        let mut start = trace.map_or(0, |trace| trace.timestamp(self.lap_start).saturating_sub(lap_ns));
        let mut remaining_images = images.iter();
        for (sample, image_count) in samples {
            for image in remaining_images.by_ref().take(image_count) {
                let share = || (group_ns as f64 * image.encoded_bytes as f64 / group_bytes.max(1) as f64) as u64;
                let ns = image.decode_ns.unwrap_or_else(share);
                self.add_time(Stage::Decode, sample, ns, image.pixel_bytes);
                let Some(trace) = trace else { continue };
                let (row, name) = (TraceRow::Worker(self.worker), Stage::Decode.name());
                if are_all_timed {
                    trace.record_at(row, name, start, start + ns, self.args(sample, image.encoded_bytes));
                    start += ns;
                } else if std::ptr::eq(image, &raw const images[0]) {
                    let encoded_bytes = images.iter().map(|image| image.encoded_bytes).sum();
                    let args = Args { samples: Some(images.len() as u64), ..self.args(sample, encoded_bytes) };
                    trace.record_at(row, name, start, start + lap_ns, args);
                }
            }
        }
    }

    pub(super) fn add_uncounted_time(&self, stage: Stage, sample: &mut SampleTiming<'_>, ns: u64) {
        sample.ns[stage] += ns;
        self.counters.worker(self.worker).add_uncounted_time(stage, ns);
    }

    /// Ends the lap in which `count` samples were copied from memory. `count` must not be 0.
    /// `last_id` and `last_key` identify the last of these samples. `read_bytes` is the total size
    /// of the arrays in the source, and `written_bytes` the total size of their rows in the batch.
    /// The whole lap counts as writing.
    pub(crate) fn finish_copying(
        &mut self,
        (last_id, last_key): (u64, &str),
        count: u64,
        (read_bytes, written_bytes): (usize, usize),
    ) {
        let ns = self.lap();
        let worker = self.counters.worker(self.worker);
        worker.add_samples(Stage::Read, count, 0, read_bytes);
        worker.add_samples(Stage::Write, count, ns, written_bytes);
        worker.counts().prepared_samples.add(count);
        let mut mean_ns = StageMap::default();
        mean_ns[Stage::Write] = ns / count;
        self.counters.record_sample(mean_ns, 0, (last_id, last_key, read_bytes / count as usize));
    }

    pub(crate) fn counts(&self) -> &WorkerCounts {
        self.counters.worker(self.worker).counts()
    }

    /// Returns the mean number of decoded bytes per image of this worker, or `None` before the
    /// first image. An image that is left to the device counts as 0 bytes.
    pub(crate) fn mean_decoded_bytes(&self) -> Option<u64> {
        self.counters.worker(self.worker).mean_bytes(Stage::Decode)
    }

    pub(crate) fn finish_sample(&self, sample: &SampleTiming<'_>) {
        self.counts().prepared_samples.bump();
        self.counters.record_sample(sample.ns, sample.slowest_field.1, (sample.id, sample.key, sample.bytes));
    }

    fn args(&self, sample: &SampleTiming<'_>, bytes: usize) -> Args {
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
