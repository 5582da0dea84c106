//! Records spans, and writes them as Chrome trace events.
//!
//! The format is described at
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>. The file is a
//! JSON object with complete events (`"ph": "X"`), counters (`"ph": "C"`), and metadata events with
//! the names of the rows (`"ph": "M"`). After each window, the file is a complete JSON document.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use crossbeam::utils::CachePadded;
use serde::Serialize;
use serde_json::json;
use warpfeed_sources::NetworkStats;
use warpfeed_sources::internal::Since;

use super::Schedule;
use super::schedule::Phase;
use super::span::{self, Listener};
use crate::error::{Error, Result};

/// Prefix of the name of a span in which the consumer uses a batch. The batch's index follows.
/// TensorBoard's profiler plug-in recognizes steps by this prefix.
pub(super) const STEP_PREFIX: &str = "ProfilerStep#";

/// End of the JSON document. The next window overwrites it.
const TAIL: &[u8] = b"\n]}\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TraceRow {
    /// A thread of the program, such as the consumer, by its number.
    Thread(u64),
    Coordinator,
    Worker(usize),
    Reader(usize),
    CopyStream,
    ConvertStream,
    ConsumerStream,
}

impl TraceRow {
    fn process_and_thread_ids(self) -> (u64, u64) {
        match self {
            TraceRow::Coordinator => (1, 1),
            TraceRow::Worker(index) => (1, 10 + index as u64),
            TraceRow::Reader(index) => (1, 5_000 + index as u64),
            TraceRow::Thread(thread) => (1, 10_000 + thread),
            TraceRow::CopyStream => (2, 1),
            TraceRow::ConvertStream => (2, 2),
            TraceRow::ConsumerStream => (2, 3),
        }
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Args {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sample: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Box<str>>,
    /// Number of samples, if the span covers more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

struct Event {
    row: TraceRow,
    name: Cow<'static, str>,
    /// Start in ns since the trace was created. `end` has the same unit.
    start: u64,
    end: u64,
    args: Args,
}

#[derive(Serialize)]
struct CompleteEvent<'a> {
    name: Cow<'a, str>,
    cat: &'static str,
    ph: &'static str,
    /// Start in microseconds. `dur` has the same unit.
    ts: f64,
    dur: f64,
    pid: u64,
    tid: u64,
    args: &'a Args,
}

pub(crate) type ReadNetworkStats = Box<dyn Fn() -> Option<NetworkStats> + Send + Sync>;

struct NetworkInterval {
    /// Start in ns since the trace was created. `end` has the same unit.
    start: u64,
    end: u64,
    activity: NetworkStats,
}

pub(crate) struct Trace {
    /// True while a window is open. While no window is open, threads read no other field.
    is_open: AtomicBool,
    /// Number of windows that have been opened. Each window calibrates the device's clock again.
    window_count: AtomicU64,
    start_time: Instant,
    /// The recorded spans: one list per worker, then one list per reader, to avoid contention. All
    /// other threads share the last list.
    events: Box<[CachePadded<Mutex<Vec<Event>>>]>,
    workers: usize,
    network: ReadNetworkStats,
    recorder: Mutex<Recorder>,
}

struct Recorder {
    schedule: Schedule,
    phase: Phase,
    /// Start of the window that is open or waiting to be written.
    window_start: u64,
    /// End of the window that is waiting to be written, and the number of delivered batches at
    /// which it is written. The window waits because the device reports its times late.
    pending_window: Option<(u64, u64)>,
    /// Time and network counters at the end of the previous interval.
    last_network: Option<(u64, NetworkStats)>,
    /// Network activity in the current window.
    network_intervals: Vec<NetworkInterval>,
    path: PathBuf,
    /// `None` after a failed write.
    file: Option<File>,
    /// Names of the rows that are already in the file.
    row_names: BTreeMap<TraceRow, String>,
    /// Names of the program's threads.
    threads: BTreeMap<u64, String>,
    is_empty: bool,
}

impl Trace {
    /// Creates the file. `workers` and `readers` are the maximum numbers of these threads. While a
    /// window is open, `network` is called once per batch.
    pub(crate) fn new(
        path: &Path,
        schedule: Schedule,
        (workers, readers): (usize, usize),
        network: ReadNetworkStats,
    ) -> Result<Arc<Self>> {
        schedule.check()?;
        let program = concat!("warpfeed ", env!("CARGO_PKG_VERSION"));
        let other_data = json!({ "program": program });
        // Leave the JSON array open, so that windows can be appended.
        let head =
            format!(r#"{{"schemaVersion": 1, "displayTimeUnit": "ms", "otherData": {other_data}, "traceEvents": ["#);
        let create_file = || {
            let mut file = File::create(path)?;
            file.write_all(head.as_bytes())?;
            file.write_all(TAIL)?;
            Ok(file)
        };
        let file = create_file().map_err(|e| {
            if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
                let _ = fs::remove_file(path);
            }
            Error::io(path, &e)
        })?;
        let trace = Arc::new(Trace {
            is_open: AtomicBool::new(false),
            window_count: AtomicU64::new(0),
            start_time: Instant::now(),
            events: (0..=workers + readers).map(|_| CachePadded::default()).collect(),
            workers,
            network,
            recorder: Mutex::new(Recorder {
                schedule,
                phase: Phase::Off,
                window_start: 0,
                pending_window: None,
                last_network: None,
                network_intervals: Vec::new(),
                path: path.to_owned(),
                file: Some(file),
                row_names: BTreeMap::new(),
                threads: BTreeMap::new(),
                is_empty: true,
            }),
        });
        let listener: Weak<Trace> = Arc::downgrade(&trace);
        span::add_listener(listener);
        Ok(trace)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    pub(crate) fn window(&self) -> Option<u64> {
        self.is_open().then(|| self.window_count.load(Relaxed))
    }

    /// Returns ns since the trace was created.
    pub(crate) fn timestamp(&self, time: Instant) -> u64 {
        time.duration_since(self.start_time).as_nanos() as u64
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn record(&self, row: TraceRow, name: &'static str, start: Instant, end: Instant, args: Args) {
        self.record_at(row, name, self.timestamp(start), self.timestamp(end), args);
    }

    /// Like [`record`](Trace::record), with times in ns since the trace was created.
    pub(crate) fn record_at(
        &self,
        row: TraceRow,
        name: impl Into<Cow<'static, str>>,
        start: u64,
        end: u64,
        args: Args,
    ) {
        if let TraceRow::Thread(thread) = row {
            let name = || std::thread::current().name().unwrap_or("thread").to_owned();
            self.recorder().threads.entry(thread).or_insert_with(name);
        }
        let list = match row {
            TraceRow::Worker(index) => index,
            TraceRow::Reader(index) => self.workers + index,
            _ => self.events.len() - 1,
        };
        let mut events = self.events[list].lock().expect("no code panics while holding this lock");
        events.push(Event { row, name: name.into(), start, end, args });
    }

    /// Opens, closes or writes a window if the schedule requires it. The consumer calls this when
    /// it requests a batch at `now`, after `delivered` batches.
    pub(crate) fn advance(&self, delivered: u64, now: Instant) {
        let now = self.timestamp(now);
        let phase = self.recorder().schedule.phase(delivered);
        // The source may be user code, so hold no lock during this call.
        let network = (self.is_open() || phase != Phase::Off).then(|| (self.network)()).flatten();
        let mut recorder = self.recorder();
        let mut result = None;
        recorder.record_network(now, network);
        if phase != recorder.phase {
            let previous_phase = std::mem::replace(&mut recorder.phase, phase);
            if matches!(previous_phase, Phase::Active(_)) {
                recorder.pending_window = Some((now, delivered + 2));
            }
            if previous_phase == Phase::Off || phase == Phase::Off {
                let is_open = phase != Phase::Off;
                self.is_open.store(is_open, Relaxed);
                if is_open { span::add_window() } else { span::remove_window() }
            }
            if let Phase::Active(_) = phase {
                result = self.write(&mut recorder);
                recorder.window_start = now;
                recorder.threads.insert(span::thread_number(), "consumer".to_owned());
            }
            if previous_phase == Phase::Off {
                result = result.or(self.write(&mut recorder));
                self.window_count.fetch_add(1, Relaxed);
            }
        }
        if recorder.pending_window.is_some_and(|(_, min_batches)| delivered >= min_batches) {
            result = result.or(self.write(&mut recorder));
        }
        drop(recorder);
        log_result(result);
    }

    /// Ends the trace. An open window is written with the spans recorded so far.
    pub(crate) fn end(&self) {
        let network = self.is_open().then(|| (self.network)()).flatten();
        let now = self.timestamp(Instant::now());
        let mut recorder = self.recorder();
        recorder.record_network(now, network);
        if self.is_open.swap(false, Relaxed) {
            span::remove_window();
        }
        if let Phase::Active(_) = std::mem::replace(&mut recorder.phase, Phase::Off) {
            recorder.pending_window = Some((now, 0));
        }
        let result = self.write(&mut recorder);
        recorder.file = None;
        drop(recorder);
        log_result(result);
    }

    /// Empties the lists. If a window is waiting to be written, writes its spans, and returns the
    /// path and the number of spans, or the error that ends the trace. The caller must log the
    /// result.
    fn write(&self, recorder: &mut Recorder) -> Option<Result<(PathBuf, usize)>> {
        let lists = self.events.iter().map(|list| list.lock().expect("no code panics while holding this lock"));
        let mut events: Vec<Event> = Vec::new();
        lists.for_each(|mut list| events.append(&mut list));
        let mut intervals = std::mem::take(&mut recorder.network_intervals);
        let (end, _) = recorder.pending_window.take()?;
        let mut file = recorder.file.take()?;
        events.retain(|event| recorder.window_start <= event.start && event.start <= event.end && event.end <= end);
        events.sort_by_key(|event| (event.row, event.start, std::cmp::Reverse(event.end)));
        intervals.retain(|interval| recorder.window_start <= interval.start && interval.end <= end);
        let mut text = recorder.format_events(&events);
        recorder.format_network_intervals(&mut text, intervals);
        let result = file.seek(SeekFrom::End(-(TAIL.len() as i64))).and_then(|offset| {
            text.extend(TAIL);
            file.write_all(&text).inspect_err(|_| {
                // If the disk is full, the earlier windows must stay readable. Rewriting the tail
                // requires no additional space.
                let _ = file
                    .set_len(offset)
                    .and_then(|()| file.seek(SeekFrom::Start(offset)))
                    .and_then(|_| file.write_all(TAIL));
            })
        });
        match result {
            Ok(()) => {
                recorder.file = Some(file);
                Some(Ok((recorder.path.clone(), events.len())))
            }
            Err(e) => Some(Err(Error::io(&recorder.path, &e))),
        }
    }
}

/// Logs the result of writing a window. The logger may be user code, so the caller must not hold a
/// lock.
fn log_result(result: Option<Result<(PathBuf, usize)>>) {
    match result {
        Some(Ok((path, spans))) => tracing::debug!(path = %path.display(), spans, "wrote a window of the trace"),
        Some(Err(e)) => tracing::warn!("{e}; tracing stops"),
        None => {}
    }
}

impl Listener for Trace {
    fn on_span_end(&self, name: &'static str, start: Instant, end: Instant) {
        if self.is_open() {
            self.record(TraceRow::Thread(span::thread_number()), name, start, end, Args::default());
        }
    }
}

impl Recorder {
    fn format_events(&mut self, events: &[Event]) -> Vec<u8> {
        let mut text = Vec::new();
        for event in events {
            let (pid, tid) = event.row.process_and_thread_ids();
            let name = match event.row {
                TraceRow::Thread(thread) => self.threads.get(&thread).cloned().unwrap_or_default(),
                TraceRow::Coordinator => "coordinator".to_owned(),
                TraceRow::Worker(index) => format!("worker {index}"),
                TraceRow::Reader(index) => format!("reader {index}"),
                TraceRow::CopyStream => "copy stream".to_owned(),
                TraceRow::ConvertStream => "convert stream".to_owned(),
                TraceRow::ConsumerStream => "consumer's stream".to_owned(),
            };
            if self.row_names.get(&event.row) != Some(&name) {
                let process = if pid == 1 { "host" } else { "device" };
                let sort_index = if name == "consumer" { 0 } else { tid };
                for (event_name, value) in [
                    ("process_name", json!({ "name": process })),
                    ("thread_name", json!({ "name": name })),
                    ("thread_sort_index", json!({ "sort_index": sort_index })),
                ] {
                    let event = json!({ "name": event_name, "ph": "M", "pid": pid, "tid": tid, "args": value });
                    self.push_event(&mut text, &event);
                }
                self.row_names.insert(event.row, name);
            }
            self.push_event(&mut text, &event.to_complete_event());
        }
        text
    }

    fn record_network(&mut self, now: u64, network: Option<NetworkStats>) {
        let Some(counts) = network else {
            self.last_network = None;
            return;
        };
        if let Some((start, previous)) = self.last_network.replace((now, counts.clone())) {
            self.network_intervals.push(NetworkInterval { start, end: now, activity: counts.since(&previous) });
        }
    }

    /// Writes the network counters. A counter keeps its value until its next event, so an
    /// interval's values are written with its start time, and zeros at the end of the window.
    fn format_network_intervals(&mut self, text: &mut Vec<u8>, mut intervals: Vec<NetworkInterval>) {
        let Some(&NetworkInterval { end, ref activity, .. }) = intervals.last() else { return };
        let mut zero = NetworkStats::default();
        zero.has_cache = activity.has_cache;
        intervals.push(NetworkInterval { start: end, end, activity: zero });
        for NetworkInterval { start, end, activity } in intervals {
            for (name, args) in activity.counters((end - start) as f64 * 1e-9) {
                let event = json!({ "name": name, "ph": "C", "ts": micros(start), "pid": 1, "tid": 0, "args": args });
                self.push_event(text, &event);
            }
        }
    }

    fn push_event(&mut self, text: &mut Vec<u8>, event: &impl Serialize) {
        text.extend(if self.is_empty { &b"\n"[..] } else { b",\n" });
        self.is_empty = false;
        serde_json::to_writer(text, event).expect("writing to a Vec cannot fail");
    }
}

/// Converts ns to microseconds. The result is exact to 1 ns for times of up to 52 days.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Event {
    fn to_complete_event(&self) -> CompleteEvent<'_> {
        let (pid, tid) = self.row.process_and_thread_ids();
        let category = match self.row {
            // PyTorch uses this category for `record_function`.
            TraceRow::Thread(_) => "user_annotation",
            TraceRow::Coordinator | TraceRow::Worker(_) | TraceRow::Reader(_) => "loader",
            _ => "device",
        };
        let name = match (&*self.name, self.args.batch) {
            (STEP_PREFIX, Some(batch)) => Cow::Owned(format!("{STEP_PREFIX}{batch}")),
            (name, _) => Cow::Borrowed(name),
        };
        let (ts, dur) = (micros(self.start), micros(self.end - self.start));
        CompleteEvent { name, cat: category, ph: "X", ts, dur, pid, tid, args: &self.args }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.end();
    }
}
