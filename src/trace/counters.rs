//! Running totals of a loader. Counting is always on.
//!
//! Counting costs tens of nanoseconds per stage, because threads do not share cache lines: workers
//! and readers update their own counters with relaxed atomic operations, and the consumer updates
//! its state when it requests or receives a batch. A worker locks the list of stragglers only if a
//! sample takes longer than a threshold, which depends on the slowest samples so far and decays
//! with time.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use warpfeed_sources::internal::Since;

use super::nvtx;
use super::stats::{LoaderCounts, WorkerCounts};
use super::timeline::Timeline;
use super::{Args, ProcessStats, STEP_PREFIX, Stage, StageMap, Stats, Straggler, Tally, Trace, TraceRow, span};
use crate::error::{Result, reserve};

pub(super) const MAX_STRAGGLERS: usize = 8;
pub(crate) const BATCH_WAIT: &str = "wait for a batch";
pub(crate) const SLOT_WAIT: &str = "wait for a slot";
/// Time in seconds in which a straggler loses half of its weight.
const HALF_LIFE_SECONDS: f64 = 30.0;
const READY_ENTRIES: usize = 64;

#[derive(Default)]
pub(crate) struct WorkerCounters {
    stages: StageMap<Tally>,
    /// Counters of the computed fields. Their sum is included in `stages`.
    fields: Box<[Tally]>,
    counts: WorkerCounts,
    /// Index of the current sample plus 1, or 0 while the worker is idle.
    sample: AtomicU64,
    /// Stage of the current sample, or `Stage::Fields as usize + n` for the computed field `n`.
    stage: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct ReaderCounters {
    read: Tally,
    /// Index of the current sample plus 1, or 0 while the reader is idle.
    sample: AtomicU64,
    /// Start of the current read, in ns since the loader was opened.
    read_start: AtomicU64,
}

struct Consumer {
    /// Delivery time, epoch and index of the last batch. `None` when an epoch begins, because the
    /// time between epochs is not a step.
    last_delivery: Option<(Instant, u64, u64)>,
    is_epoch_start: bool,
    epoch_start_ns: u64,
    epoch_count: u64,
    /// Element `n` counts the requests at which `n` batches were ready. The last element also
    /// counts requests at which more were ready.
    ready_histogram: [u64; READY_ENTRIES],
    timeline: Timeline,
}

/// Totals since the loader was opened.
pub(crate) struct Counters {
    workers: Box<[CachePadded<WorkerCounters>]>,
    /// Counters of each reader, allocated at its first read, because most loaders start no readers.
    readers: Box<[OnceLock<Box<CachePadded<ReaderCounters>>>]>,
    fields: Box<[String]>,
    open_time: Instant,
    process: ProcessStats,
    counts: LoaderCounts,
    consumer: Mutex<Consumer>,
    /// Time in ns above which a sample is a straggler. The threshold rises until few samples exceed
    /// it, and decays with time.
    straggler_ns: AtomicU64,
    stragglers: Mutex<Vec<RankedStraggler>>,
    trace: OnceLock<Arc<Trace>>,
}

impl Deref for Counters {
    type Target = LoaderCounts;

    fn deref(&self) -> &LoaderCounts {
        &self.counts
    }
}

impl Counters {
    pub(crate) fn new(workers: usize, readers: usize, fields: Vec<String>) -> Result<Self> {
        let (mut worker_counters, mut reader_counters) = (Vec::new(), Vec::new());
        reserve(&mut worker_counters, workers)?;
        reserve(&mut reader_counters, readers)?;
        let tallies = || fields.iter().map(|_| Tally::default()).collect();
        let create_worker = || CachePadded::new(WorkerCounters { fields: tallies(), ..WorkerCounters::default() });
        worker_counters.resize_with(workers, create_worker);
        reader_counters.resize_with(readers, OnceLock::new);
        Ok(Counters {
            workers: worker_counters.into(),
            readers: reader_counters.into(),
            fields: fields.into(),
            open_time: Instant::now(),
            process: ProcessStats::now(),
            counts: LoaderCounts::default(),
            consumer: Mutex::new(Consumer {
                last_delivery: None,
                is_epoch_start: false,
                epoch_start_ns: 0,
                epoch_count: 0,
                ready_histogram: [0; READY_ENTRIES],
                timeline: Timeline::new()?,
            }),
            straggler_ns: AtomicU64::new(0),
            stragglers: Mutex::new(Vec::with_capacity(MAX_STRAGGLERS + 1)),
            trace: OnceLock::new(),
        })
    }

    pub(crate) fn set_trace(&self, trace: Arc<Trace>) {
        assert!(self.trace.set(trace).is_ok(), "a loader has one trace");
    }

    pub(crate) fn end_trace(&self) {
        if let Some(trace) = self.trace() {
            trace.end();
        }
    }

    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.get().map(|trace| &**trace)
    }

    pub(crate) fn open_trace(&self) -> Option<&Trace> {
        self.trace().filter(|trace| trace.is_open())
    }

    pub(crate) fn worker(&self, index: usize) -> &WorkerCounters {
        &self.workers[index]
    }

    pub(crate) fn begin_read(&self, index: usize, sample: u64) {
        let reader = self.readers[index].get_or_init(Box::default);
        reader.read_start.store(nanos(Instant::now(), self.open_time), Relaxed);
        reader.sample.store(sample + 1, Relaxed);
        nvtx::push(Stage::Read.name());
    }

    pub(crate) fn end_read(&self, index: usize, ns: u64, bytes: usize) {
        nvtx::pop();
        let reader = self.readers[index].get().expect("`begin_read` was called for this reader");
        reader.sample.store(0, Relaxed);
        reader.read.add(ns, bytes);
    }

    fn consumer(&self) -> std::sync::MutexGuard<'_, Consumer> {
        self.consumer.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn begin(&self) {
        let mut consumer = self.consumer();
        (consumer.last_delivery, consumer.is_epoch_start) = (None, true);
    }

    /// Records a request while `ready` batches are ready. Returns the start of the wait.
    pub(crate) fn record_request(&self, ready: usize) -> Instant {
        let now = Instant::now();
        let mut consumer = self.consumer();
        consumer.ready_histogram[ready.min(READY_ENTRIES - 1)] += 1;
        if let Some((delivery_time, epoch, batch)) = consumer.last_delivery.take() {
            self.step.add(nanos(now, delivery_time), 0);
            if let Some(trace) = self.open_trace() {
                let args = Args { epoch: Some(epoch), batch: Some(batch), ..Args::default() };
                trace.record(TraceRow::Thread(span::thread_number()), STEP_PREFIX, delivery_time, now, args);
            }
        }
        drop(consumer);
        let Some(trace) = self.trace() else { return now };
        trace.advance(self.batches(), now);
        // The wait for a batch must not include the time for writing the trace.
        Instant::now()
    }

    pub(crate) fn record_delivery(
        &self,
        epoch: u64,
        batch: u64,
        (samples, damaged_images): (usize, u64),
        request_time: Instant,
    ) {
        let now = Instant::now();
        let wait_ns = nanos(now, request_time);
        self.wait.add(wait_ns, 0);
        self.batches.add(1);
        self.samples.add(samples as u64);
        self.damaged_images.add(damaged_images);
        if let Some(trace) = self.open_trace() {
            let args = Args { epoch: Some(epoch), batch: Some(batch), ..Args::default() };
            trace.record(TraceRow::Thread(span::thread_number()), BATCH_WAIT, request_time, now, args);
        }
        let mut consumer = self.consumer();
        consumer.last_delivery = Some((now, epoch, batch));
        if std::mem::take(&mut consumer.is_epoch_start) {
            consumer.epoch_start_ns += wait_ns;
            consumer.epoch_count += 1;
        }
        let seconds = now.duration_since(self.open_time).as_secs_f64();
        consumer.timeline.add_batch(seconds, samples, wait_ns as f64 * 1e-9, || {
            let mut stragglers = self.stragglers.lock().expect("no code panics while holding this lock");
            self.straggler_ns.store(trim_stragglers(&mut stragglers, seconds), Relaxed);
            self.busy_ns()
        });
    }

    /// Records that the coordinator waited for a slot for batch `batch`. `wait_time` is the time
    /// since `wait_start`, without the time between epochs.
    pub(crate) fn record_slot_wait(&self, epoch: u64, batch: u64, wait_start: Instant, wait_time: Duration) {
        let now = Instant::now();
        self.slot_wait.add(wait_time.as_nanos() as u64, 0);
        if let Some(trace) = self.open_trace() {
            let args = Args { epoch: Some(epoch), batch: Some(batch), ..Args::default() };
            trace.record(TraceRow::Coordinator, SLOT_WAIT, wait_start, now, args);
        }
    }

    pub(crate) fn field(&self, field_index: usize) -> &str {
        &self.fields[field_index]
    }

    /// Adds a sample to the stragglers if it was slow. `ns` contains the time of the sample in each
    /// stage, and `slowest_field` is the index of the computed field that took the most time. The
    /// tuple contains the sample's index, key and size in bytes.
    pub(crate) fn record_sample(
        &self,
        ns: StageMap<u64>,
        slowest_field: usize,
        (sample, key, bytes): (u64, &str, usize),
    ) {
        let total_ns: u64 = ns.values().sum();
        if total_ns > self.straggler_ns.load(Relaxed) {
            self.record_straggler(total_ns, ns, slowest_field, (sample, key, bytes));
        }
    }

    #[cold]
    fn record_straggler(
        &self,
        total_ns: u64,
        ns: StageMap<u64>,
        slowest_field: usize,
        (sample, key, bytes): (u64, &str, usize),
    ) {
        let (slowest_stage, _) = ns.iter().max_by_key(|(_, ns)| **ns).expect("a sample has at least one stage");
        let slowest_stage =
            if slowest_stage == Stage::Fields { self.field(slowest_field) } else { slowest_stage.name() };
        let (seconds, now) = (total_ns as f64 * 1e-9, self.open_time.elapsed().as_secs_f64());
        let mut stragglers = self.stragglers.lock().expect("no code panics while holding this lock");
        if let Some(existing) = stragglers.iter_mut().find(|s| s.straggler.sample == sample) {
            existing.straggler.times += 1;
            existing.straggler.total_seconds += seconds;
            existing.straggler.at_seconds = now;
            if seconds > existing.weight(now) {
                existing.measure_time = now;
                existing.straggler.seconds = seconds;
                slowest_stage.clone_into(&mut existing.straggler.stage);
            }
        } else {
            let straggler = Straggler {
                sample,
                key: key.to_owned(),
                stage: slowest_stage.into(),
                seconds,
                times: 1,
                total_seconds: seconds,
                at_seconds: now,
                bytes: bytes as u64,
            };
            stragglers.push(RankedStraggler { straggler, measure_time: now });
        }
        self.straggler_ns.store(trim_stragglers(&mut stragglers, now), Relaxed);
    }

    /// Describes what each busy worker and reader is doing, such as `worker 3 in decode of sample
    /// 18231` or `reader 5 reading sample 18240 for 31.2 s`.
    pub(crate) fn activity(&self) -> Vec<String> {
        let worker_activity = |(i, w): (usize, &CachePadded<WorkerCounters>)| {
            let sample = w.sample.load(Relaxed).checked_sub(1)?;
            let stage = w.stage.load(Relaxed);
            let stage = stage
                .checked_sub(Stage::Fields as usize)
                .map_or_else(|| Stage::ALL[stage].name(), |field| self.field(field));
            Some(format!("worker {i} in {stage} of sample {sample}"))
        };
        let now = nanos(Instant::now(), self.open_time);
        let reader_activity = |(i, r): (usize, &OnceLock<Box<CachePadded<ReaderCounters>>>)| {
            let r = r.get()?;
            let sample = r.sample.load(Relaxed).checked_sub(1)?;
            let seconds = now.saturating_sub(r.read_start.load(Relaxed)) as f64 * 1e-9;
            Some(format!("reader {i} reading sample {sample} for {seconds:.1} s"))
        };
        let workers = self.workers.iter().enumerate().filter_map(worker_activity);
        workers.chain(self.readers.iter().enumerate().filter_map(reader_activity)).collect()
    }

    pub(crate) fn batches(&self) -> u64 {
        self.batches.get()
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.get()
    }

    pub(crate) fn busy_ns(&self) -> StageMap<u64> {
        StageMap::from_fn(|stage| self.workers.iter().map(|w| w.stages[stage].ns()).sum())
    }

    /// Returns the statistics. The caller must add the values that only the loader knows, such as
    /// the memory, the number of workers, the prefetch depth, and the duration of the epochs.
    pub(crate) fn stats(&self) -> Stats {
        let stage = |stage: Stage| Tally::sum(self.workers.iter().map(|w| &w.stages[stage]));
        let loader_stats = Stats::from_counts(&self.counts, self.workers.iter().map(|worker| &worker.counts));
        let read = stage(Stage::Read);
        let busy_ns = self.busy_ns();
        let mut consumer = self.consumer();
        let stragglers = self.stragglers.lock().expect("no code panics while holding this lock");
        let mut stragglers: Vec<Straggler> = stragglers.iter().map(|slow| slow.straggler.clone()).collect();
        stragglers.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let ready_len = consumer.ready_histogram.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
        Stats {
            uptime_seconds: self.open_time.elapsed().as_secs_f64(),
            bytes_read: read.bytes,
            waited_seconds: loader_stats.wait.seconds,
            epochs: consumer.epoch_count,
            start_wait_seconds: consumer.epoch_start_ns as f64 * 1e-9,
            read,
            readahead: Some(Tally::sum(self.readers.iter().filter_map(OnceLock::get).map(|r| &r.read)))
                .filter(|ahead| ahead.count > 0),
            decode: stage(Stage::Decode),
            transform: stage(Stage::Transform),
            write: stage(Stage::Write),
            fields: self
                .fields
                .iter()
                .enumerate()
                .map(|(field_index, name)| {
                    (name.clone(), Tally::sum(self.workers.iter().map(|w| &w.fields[field_index])))
                })
                .collect(),
            ready_histogram: consumer.ready_histogram[..ready_len].to_vec(),
            process: ProcessStats::now().since(&self.process),
            slowest: stragglers,
            timeline: consumer.timeline.intervals(self.open_time.elapsed().as_secs_f64(), busy_ns),
            ..loader_stats
        }
    }
}

impl WorkerCounters {
    pub(crate) fn enter(&self, stage: Stage, sample: u64) {
        self.leave();
        nvtx::push(stage.name());
        self.sample.store(sample + 1, Relaxed);
        self.stage.store(stage as usize, Relaxed);
    }

    pub(crate) fn enter_field(&self, field_index: usize, name: &str, sample: u64) {
        self.leave();
        nvtx::push(name);
        self.sample.store(sample + 1, Relaxed);
        self.stage.store(Stage::Fields as usize + field_index, Relaxed);
    }

    /// Counts one sample. `bytes` is the size of the stage's output.
    pub(crate) fn add_sample(&self, stage: Stage, ns: u64, bytes: usize) {
        self.stages[stage].add(ns, bytes);
    }

    /// Counts `count` samples. `ns` and `bytes` are the totals of these samples.
    pub(crate) fn add_samples(&self, stage: Stage, count: u64, ns: u64, bytes: usize) {
        self.stages[stage].add_each(count, ns, bytes);
    }

    pub(crate) fn add_field(&self, field_index: usize, ns: u64, bytes: usize) {
        self.fields[field_index].add(ns, bytes);
        self.stages[Stage::Fields].add_time(ns);
    }

    pub(crate) fn add_uncounted_time(&self, stage: Stage, ns: u64) {
        self.stages[stage].add_time(ns);
    }

    /// Returns the mean bytes per sample, or `None` if the stage has not produced any bytes yet.
    pub(crate) fn mean_bytes(&self, stage: Stage) -> Option<u64> {
        self.stages[stage].mean_bytes()
    }

    /// Only the worker itself may write to the counts.
    pub(crate) fn counts(&self) -> &WorkerCounts {
        &self.counts
    }

    pub(crate) fn set_idle(&self) {
        self.leave();
        self.sample.store(0, Relaxed);
    }

    fn leave(&self) {
        if self.sample.load(Relaxed) > 0 {
            nvtx::pop();
        }
    }
}

/// Keeps only the [`MAX_STRAGGLERS`] samples with the greatest weights at time `now`. Returns the
/// new threshold in ns. A straggler's weight is halved every [`HALF_LIFE_SECONDS`], so that a slow
/// start does not hide later stragglers.
fn trim_stragglers(stragglers: &mut Vec<RankedStraggler>, now: f64) -> u64 {
    stragglers.sort_by(|a, b| b.weight(now).total_cmp(&a.weight(now)));
    stragglers.truncate(MAX_STRAGGLERS);
    stragglers.get(MAX_STRAGGLERS - 1).map_or(0, |last| (last.weight(now) * 1e9) as u64)
}

struct RankedStraggler {
    straggler: Straggler,
    /// When the straggler's `seconds` were measured, in seconds since the loader was opened.
    measure_time: f64,
}

impl RankedStraggler {
    /// The sample's longest time, which decays with age.
    fn weight(&self, now: f64) -> f64 {
        self.straggler.seconds * 0.5f64.powf((now - self.measure_time).max(0.0) / HALF_LIFE_SECONDS)
    }
}

pub(crate) fn nanos(end: Instant, start: Instant) -> u64 {
    end.duration_since(start).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_start_does_not_hide_later_stragglers() {
        let straggler = |sample: u64, seconds: f64, measure_time: f64| RankedStraggler {
            straggler: Straggler { sample, seconds, ..Straggler::default() },
            measure_time,
        };
        let mut stragglers: Vec<_> = (0..MAX_STRAGGLERS as u64).map(|sample| straggler(sample, 0.5, 1.0)).collect();
        assert_eq!(trim_stragglers(&mut stragglers, 1.0), 500_000_000);
        stragglers.push(straggler(90, 0.3, 2.0));
        trim_stragglers(&mut stragglers, 2.0);
        assert!(stragglers.iter().all(|s| s.straggler.sample != 90), "recent stragglers are kept");
        let threshold = trim_stragglers(&mut stragglers, 61.0);
        assert!(
            (124_000_000..126_000_000).contains(&threshold),
            "after a minute, the threshold is a quarter: {threshold}"
        );
        stragglers.push(straggler(91, 0.3, 61.0));
        trim_stragglers(&mut stragglers, 61.0);
        assert_eq!((stragglers[0].straggler.sample, stragglers.len()), (91, MAX_STRAGGLERS));
    }

    #[test]
    fn activity_names_the_sample_and_time_of_each_read() {
        let counters = Counters::new(1, 2, vec!["mask".into(), "wave".into()]).unwrap();
        counters.worker(0).enter_field(1, "wave", 6);
        assert_eq!(counters.activity(), ["worker 0 in wave of sample 6"]);
        counters.worker(0).enter(Stage::Decode, 7);
        counters.begin_read(1, 9);
        let activity = counters.activity();
        assert_eq!(activity[0], "worker 0 in decode of sample 7");
        assert!(activity[1].starts_with("reader 1 reading sample 9 for 0."), "{activity:?}");
        counters.end_read(1, 1000, 10);
        counters.worker(0).set_idle();
        assert!(counters.activity().is_empty());
        assert_eq!(counters.stats().readahead.map(|ahead| (ahead.count, ahead.bytes)), Some((1, 10)));
    }

    #[test]
    fn a_shorter_delay_does_not_renew_an_old_maximum() {
        let counters = Counters::new(1, 0, vec!["mask".into(), "wave".into()]).unwrap();
        let all_in = |stage, ns| StageMap::from_fn(|slow_stage| if slow_stage == stage { ns } else { 0 });
        counters.record_straggler(2_000_000_000, all_in(Stage::Decode, 2_000_000_000), 0, (7, "a", 900));
        counters.stragglers.lock().unwrap()[0].measure_time -= 300.0;
        counters.record_straggler(30_000_000, all_in(Stage::Read, 30_000_000), 0, (7, "a", 900));
        let stragglers = counters.stats().slowest;
        assert_eq!((stragglers[0].stage.as_str(), stragglers[0].times), ("read", 2));
        assert!((stragglers[0].seconds - 0.03).abs() < 1e-9);
        assert!((stragglers[0].total_seconds - 2.03).abs() < 1e-9);
        counters.record_straggler(40_000_000, all_in(Stage::Fields, 40_000_000), 1, (8, "b", 0));
        assert_eq!(counters.stats().slowest[0].stage, "wave", "a field is listed under its name");
    }
}
