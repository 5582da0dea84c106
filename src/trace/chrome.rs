//! Records spans, and writes them as Chrome trace events.
//!
//! The format is described at
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>. The file is a
//! JSON object with complete events (`"ph": "X"`) and counters (`"ph": "C"`). After each window,
//! the file is a complete JSON document.

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

/// The name of a span in which the consumer uses a batch: this prefix and the batch's index.
/// TensorBoard's profiler plug-in recognizes steps by the prefix.
pub(super) const STEP: &str = "ProfilerStep#";

/// End of the JSON document. The next window overwrites it.
const TAIL: &[u8] = b"\n]}\n";

/// A row of the trace: a thread or a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// A thread of the program, such as the consumer, with its number.
    Thread(u64),
    Coordinator,
    Worker(usize),
    Reader(usize),
    CopyStream,
    ConvertStream,
    ConsumerStream,
}

impl Row {
    fn ids(self) -> (u64, u64) {
        match self {
            Row::Coordinator => (1, 1),
            Row::Worker(index) => (1, 10 + index as u64),
            Row::Reader(index) => (1, 5_000 + index as u64),
            Row::Thread(thread) => (1, 10_000 + thread),
            Row::CopyStream => (2, 1),
            Row::ConvertStream => (2, 2),
            Row::ConsumerStream => (2, 3),
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

/// A recorded span.
struct Event {
    row: Row,
    name: Cow<'static, str>,
    /// Start in ns since the trace was created. `end` has the same unit.
    begin: u64,
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

pub(crate) type NetworkCounters = Box<dyn Fn() -> Option<NetworkStats> + Send + Sync>;

/// The network activity in an interval.
struct NetworkInterval {
    /// Start in ns since the trace was created. `end` has the same unit.
    begin: u64,
    end: u64,
    did: NetworkStats,
}

pub(crate) struct Trace {
    /// Whether a window is open. If none is, threads read only this flag.
    is_open: AtomicBool,
    /// Number of windows that have been opened. Each window calibrates the device's clock again.
    window: AtomicU64,
    zero: Instant,
    /// The recorded spans: one list per worker, then one list per reader, to avoid contention. All
    /// other threads share the last list.
    events: Box<[CachePadded<Mutex<Vec<Event>>>]>,
    workers: usize,
    network: NetworkCounters,
    machine: Mutex<Machine>,
}

/// The state of the windows, and the file.
struct Machine {
    schedule: Schedule,
    phase: Phase,
    /// Start of the window that is open or waiting to be written.
    begin: u64,
    /// End of the window that is waiting to be written, and the number of delivered batches at
    /// which it is written. The window is not written earlier because the device reports its times
    /// late.
    closed: Option<(u64, u64)>,
    /// Time and network counters at the end of the previous interval.
    network: Option<(u64, NetworkStats)>,
    /// Network activity in the current window.
    counted: Vec<NetworkInterval>,
    path: PathBuf,
    /// The file, or `None` after a failed write.
    file: Option<File>,
    /// Names of the rows that are already in the file.
    row_names: BTreeMap<Row, String>,
    /// Names of the program's threads, by thread ID.
    threads: BTreeMap<u64, String>,
    empty: bool,
}

impl Trace {
    /// Creates the file. While a window is open, `network` is called once per batch.
    pub(crate) fn new(
        path: &Path,
        schedule: Schedule,
        (workers, readers): (usize, usize),
        network: NetworkCounters,
    ) -> Result<Arc<Self>> {
        schedule.check()?;
        let program = concat!("warpfeed ", env!("CARGO_PKG_VERSION"));
        let other = json!({ "program": program });
        // Leave the JSON array open, so that windows can be appended.
        let head = format!(r#"{{"schemaVersion": 1, "displayTimeUnit": "ms", "otherData": {other}, "traceEvents": ["#);
        let make = || {
            let mut file = File::create(path)?;
            file.write_all(head.as_bytes())?;
            file.write_all(TAIL)?;
            Ok(file)
        };
        let file = make().map_err(|e| {
            if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
                let _ = fs::remove_file(path);
            }
            Error::io(path, &e)
        })?;
        let trace = Arc::new(Trace {
            is_open: AtomicBool::new(false),
            window: AtomicU64::new(0),
            zero: Instant::now(),
            events: (0..=workers + readers).map(|_| CachePadded::default()).collect(),
            workers,
            network,
            machine: Mutex::new(Machine {
                schedule,
                phase: Phase::Off,
                begin: 0,
                closed: None,
                network: None,
                counted: Vec::new(),
                path: path.to_owned(),
                file: Some(file),
                row_names: BTreeMap::new(),
                threads: BTreeMap::new(),
                empty: true,
            }),
        });
        let listener: Weak<Trace> = Arc::downgrade(&trace);
        span::listen(listener);
        Ok(trace)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    pub(crate) fn window(&self) -> Option<u64> {
        self.is_on().then(|| self.window.load(Relaxed))
    }

    /// Converts `time` to ns since the trace was created.
    pub(crate) fn at(&self, time: Instant) -> u64 {
        time.duration_since(self.zero).as_nanos() as u64
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn record(&self, row: Row, name: &'static str, begin: Instant, end: Instant, args: Args) {
        self.record_at(row, name, self.at(begin), self.at(end), args);
    }

    /// Like [`record`](Trace::record), with times in ns since the trace was created.
    pub(crate) fn record_at(&self, row: Row, name: impl Into<Cow<'static, str>>, begin: u64, end: u64, args: Args) {
        if let Row::Thread(thread) = row {
            let name = || std::thread::current().name().unwrap_or("thread").to_owned();
            self.machine().threads.entry(thread).or_insert_with(name);
        }
        let list = match row {
            Row::Worker(index) => index,
            Row::Reader(index) => self.workers + index,
            _ => self.events.len() - 1,
        };
        let mut events = self.events[list].lock().expect("no code panics while holding this lock");
        events.push(Event { row, name: name.into(), begin, end, args });
    }

    /// Opens, closes or writes a window if the schedule requires it. The consumer (the calling
    /// thread) calls this when it requests a batch at `now`. `delivered` is the number of batches
    /// delivered so far.
    pub(crate) fn step(&self, delivered: u64, now: Instant) {
        let now = self.at(now);
        let phase = self.machine().schedule.phase(delivered);
        // The source may be user code, so hold no lock during this call.
        let network = (self.is_on() || phase != Phase::Off).then(|| (self.network)()).flatten();
        let mut machine = self.machine();
        let mut written = None;
        machine.count(now, network);
        if phase != machine.phase {
            let was = std::mem::replace(&mut machine.phase, phase);
            if matches!(was, Phase::Active(_)) {
                machine.closed = Some((now, delivered + 2));
            }
            if was == Phase::Off || phase == Phase::Off {
                let is_on = phase != Phase::Off;
                self.is_open.store(is_on, Relaxed);
                if is_on { span::opened() } else { span::closed() }
            }
            if let Phase::Active(_) = phase {
                written = self.write(&mut machine);
                machine.begin = now;
                machine.threads.insert(span::this_thread(), "consumer".to_owned());
            }
            if was == Phase::Off {
                written = written.or(self.write(&mut machine));
                self.window.fetch_add(1, Relaxed);
            }
        }
        if machine.closed.is_some_and(|(_, due)| delivered >= due) {
            written = written.or(self.write(&mut machine));
        }
        drop(machine);
        log_result(written);
    }

    /// Ends the trace. An open window is written with the spans recorded so far.
    pub(crate) fn end(&self) {
        let network = self.is_on().then(|| (self.network)()).flatten();
        let now = self.at(Instant::now());
        let mut machine = self.machine();
        machine.count(now, network);
        if self.is_open.swap(false, Relaxed) {
            span::closed();
        }
        if let Phase::Active(_) = std::mem::replace(&mut machine.phase, Phase::Off) {
            machine.closed = Some((now, 0));
        }
        let written = self.write(&mut machine);
        machine.file = None;
        drop(machine);
        log_result(written);
    }

    /// Empties the lists. If a window is waiting to be written, writes its spans, and returns the
    /// path of the file and the number of spans, or the error that ends the trace. The caller must
    /// log the result.
    fn write(&self, machine: &mut Machine) -> Option<Result<(PathBuf, usize)>> {
        let lists = self.events.iter().map(|list| list.lock().expect("no code panics while holding this lock"));
        let mut events: Vec<Event> = Vec::new();
        lists.for_each(|mut list| events.append(&mut list));
        let mut counted = std::mem::take(&mut machine.counted);
        let (end, _) = machine.closed.take()?;
        let mut file = machine.file.take()?;
        events.retain(|event| machine.begin <= event.begin && event.begin <= event.end && event.end <= end);
        events.sort_by_key(|event| (event.row, event.begin, std::cmp::Reverse(event.end)));
        counted.retain(|interval| machine.begin <= interval.begin && interval.end <= end);
        let mut text = machine.format(&events);
        machine.format_network(&mut text, counted);
        let written = file.seek(SeekFrom::End(-(TAIL.len() as i64))).and_then(|offset| {
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
        match written {
            Ok(()) => {
                machine.file = Some(file);
                Some(Ok((machine.path.clone(), events.len())))
            }
            Err(e) => Some(Err(Error::io(&machine.path, &e))),
        }
    }
}

/// Logs the result of writing a window. The logger may be user code, so the caller must not hold a
/// lock.
fn log_result(written: Option<Result<(PathBuf, usize)>>) {
    match written {
        Some(Ok((path, spans))) => tracing::debug!(path = %path.display(), spans, "wrote a window of the trace"),
        Some(Err(e)) => tracing::warn!("{e}; tracing stops"),
        None => {}
    }
}

impl Listener for Trace {
    fn span_ended(&self, name: &'static str, start: Instant, end: Instant) {
        if self.is_on() {
            self.record(Row::Thread(span::this_thread()), name, start, end, Args::default());
        }
    }
}

impl Machine {
    fn format(&mut self, events: &[Event]) -> Vec<u8> {
        let mut text = Vec::new();
        for event in events {
            let (pid, tid) = event.row.ids();
            let name = match event.row {
                Row::Thread(thread) => self.threads.get(&thread).cloned().unwrap_or_default(),
                Row::Coordinator => "coordinator".to_owned(),
                Row::Worker(index) => format!("worker {index}"),
                Row::Reader(index) => format!("reader {index}"),
                Row::CopyStream => "copy stream".to_owned(),
                Row::ConvertStream => "convert stream".to_owned(),
                Row::ConsumerStream => "consumer's stream".to_owned(),
            };
            if self.row_names.get(&event.row) != Some(&name) {
                let process = if pid == 1 { "host" } else { "device" };
                let order = if name == "consumer" { 0 } else { tid };
                for (what, value) in [
                    ("process_name", json!({ "name": process })),
                    ("thread_name", json!({ "name": name })),
                    ("thread_sort_index", json!({ "sort_index": order })),
                ] {
                    let event = json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": value });
                    self.push_event(&mut text, &event);
                }
                self.row_names.insert(event.row, name);
            }
            self.push_event(&mut text, &event.complete());
        }
        text
    }

    fn count(&mut self, now: u64, network: Option<NetworkStats>) {
        let Some(counts) = network else {
            self.network = None;
            return;
        };
        if let Some((begin, before)) = self.network.replace((now, counts.clone())) {
            self.counted.push(NetworkInterval { begin, end: now, did: counts.since(&before) });
        }
    }

    /// Writes the network counters. A counter in a trace keeps its value until its next event. The
    /// values of an interval are therefore written with its start time, and zeros at the end of the
    /// window.
    fn format_network(&mut self, text: &mut Vec<u8>, mut counted: Vec<NetworkInterval>) {
        let Some(&NetworkInterval { end, ref did, .. }) = counted.last() else { return };
        let mut zero = NetworkStats::default();
        zero.cached = did.cached;
        counted.push(NetworkInterval { begin: end, end, did: zero });
        for NetworkInterval { begin, end, did } in counted {
            for (name, args) in did.counters((end - begin) as f64 * 1e-9) {
                let event = json!({ "name": name, "ph": "C", "ts": micros(begin), "pid": 1, "tid": 0, "args": args });
                self.push_event(text, &event);
            }
        }
    }

    fn push_event(&mut self, text: &mut Vec<u8>, event: &impl Serialize) {
        text.extend(if self.empty { &b"\n"[..] } else { b",\n" });
        self.empty = false;
        serde_json::to_writer(text, event).expect("writing to a Vec cannot fail");
    }
}

/// Converts ns to microseconds. The result is exact to 1 ns for times of up to 52 days.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Event {
    fn complete(&self) -> CompleteEvent<'_> {
        let (pid, tid) = self.row.ids();
        let category = match self.row {
            // PyTorch uses this category for `record_function`.
            Row::Thread(_) => "user_annotation",
            Row::Coordinator | Row::Worker(_) | Row::Reader(_) => "loader",
            _ => "device",
        };
        let name = match (&*self.name, self.args.batch) {
            (STEP, Some(batch)) => Cow::Owned(format!("{STEP}{batch}")),
            (name, _) => Cow::Borrowed(name),
        };
        let (ts, dur) = (micros(self.begin), micros(self.end - self.begin));
        CompleteEvent { name, cat: category, ph: "X", ts, dur, pid, tid, args: &self.args }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.end();
    }
}
