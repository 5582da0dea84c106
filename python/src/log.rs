//! Passes the crate's log messages to Python's `logging`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::option_names::in_python;

/// Messages of worker threads, which must not wait for the interpreter. A thread that is attached
/// to the interpreter logs them.
static QUEUE: Mutex<VecDeque<(i32, String)>> = Mutex::new(VecDeque::new());
static HAS_MESSAGES: AtomicBool = AtomicBool::new(false);
/// Maximum number of queued messages. The oldest message is dropped first.
const MAX_QUEUED: usize = 1000;

struct QueueSubscriber;

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

/// Whether this process runs the command-line tool, which prints warnings instead of queuing
/// messages.
static IS_PROGRAM: AtomicBool = AtomicBool::new(false);

pub(crate) fn print_warnings() {
    IS_PROGRAM.store(true, Ordering::Relaxed);
}

/// Passes the queued messages to `logging`. Long waits call this function regularly, because the
/// messages may explain the wait.
pub(crate) fn flush(py: Python<'_>) -> PyResult<()> {
    if HAS_MESSAGES.load(Ordering::Relaxed) {
        py.import("warpfeed._loader")?.call_method0("_log_messages")?;
    }
    Ok(())
}

impl Subscriber for QueueSubscriber {
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
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        if let Ok(mut queue) = QUEUE.lock() {
            if queue.len() == MAX_QUEUED {
                queue.pop_front();
            }
            queue.push_back((level, in_python(&format!("{}{}", line.message, line.values))));
            HAS_MESSAGES.store(true, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Has no effect if the process already has a subscriber.
#[pyfunction]
pub(crate) fn start_log() {
    let _ = tracing::subscriber::set_global_default(QueueSubscriber);
}

#[pyfunction]
pub(crate) fn drain_log() -> Vec<(i32, String)> {
    if !HAS_MESSAGES.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    QUEUE.lock().map_or_else(|_| Vec::new(), |mut queue| queue.drain(..).collect())
}
