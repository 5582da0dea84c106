use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::option_names::in_python;

/// Messages that wait for the next thread that is attached to the interpreter. They are queued
/// because worker threads must not wait for the interpreter in order to log.
static WAITING: Mutex<VecDeque<(i32, String)>> = Mutex::new(VecDeque::new());
/// Whether there are queued messages. Can be checked without the lock.
static ANY: AtomicBool = AtomicBool::new(false);
/// Maximum number of queued messages. Beyond it, the oldest are dropped.
const MOST: usize = 1000;

struct Collected;

/// The message and the values of an event, as one line.
#[derive(Default)]
struct Line {
    message: String,
    values: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.values, " {}={value:?}", field.name())
        };
    }
}

/// Whether the command-line tool is running, which prints warnings itself.
static IS_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Prints warnings from now on, for the command-line tool.
pub(crate) fn print() {
    IS_PROGRAM.store(true, Ordering::Relaxed);
}

/// Passes the queued messages to Python's log, so that a long wait is explained while it lasts.
pub(crate) fn tell(py: Python<'_>) -> PyResult<()> {
    if ANY.load(Ordering::Relaxed) {
        py.import("warpfeed._loader")?.call_method0("_log_messages")?;
    }
    Ok(())
}

impl Subscriber for Collected {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("warpfeed")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if IS_PROGRAM.load(Ordering::Relaxed) {
            if *event.metadata().level() <= Level::WARN {
                warpfeed_cli::warn(&format!("{}{}", line.message, line.values));
            }
            return;
        }
        // The levels of Python's `logging`.
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        if let Ok(mut waiting) = WAITING.lock() {
            if waiting.len() == MOST {
                waiting.pop_front();
            }
            waiting.push_back((level, in_python(&format!("{}{}", line.message, line.values))));
            ANY.store(true, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Starts to collect the loader's messages, unless the process already has a subscriber.
#[pyfunction]
pub(crate) fn start_log() {
    let _ = tracing::subscriber::set_global_default(Collected);
}

/// Returns the messages since the last call, with their levels in Python's `logging`.
#[pyfunction]
pub(crate) fn drain_log() -> Vec<(i32, String)> {
    if !ANY.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    WAITING.lock().map_or_else(|_| Vec::new(), |mut waiting| waiting.drain(..).collect())
}
