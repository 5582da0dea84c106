//! Measures copies, decoding, conversions and the consumer's waits on the device's clock.
//!
//! Two timed events enclose each operation. They do not affect the order of the work, and cost the
//! host about 1 µs. The copy thread reads and reuses the events once they have completed. So the
//! host never waits for the device, except when a trace window begins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::device::Gpu;
use crate::error::Result;
use crate::trace::{Args, Counters, TraceRow};

/// Two timed events: one before an operation, and one after it.
pub(super) struct Pair<G: Gpu> {
    pub(super) begin: G::Event,
    pub(super) end: G::Event,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum TimedKind {
    Copy,
    Decode,
    Convert,
    /// The consumer's wait, from the request until the batch is ready.
    Stall,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TimedOp {
    pub(super) kind: TimedKind,
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) bytes: usize,
}

/// The offset between the device's clock and a trace's clock, measured at the start of a trace
/// window.
struct Clock<G: Gpu> {
    stream: G::Stream,
    zero: G::Event,
    /// Trace time, in ns, at which `zero` completed. The error is at most half the time between
    /// recording `zero` and detecting its completion, which is a few microseconds.
    host: u64,
    window: u64,
}

pub(super) struct Timing<G: Gpu> {
    counters: Arc<Counters>,
    spare: Vec<Pair<G>>,
    /// Pairs of events that have not been read, in the order of recording. Operations complete in
    /// almost the same order.
    pending: VecDeque<(TimedOp, Pair<G>)>,
    clock: Option<Clock<G>>,
}

impl<G: Gpu> Timing<G> {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Timing { counters, spare: Vec::new(), pending: VecDeque::new(), clock: None }
    }

    pub(super) fn pair(&mut self, gpu: &G) -> Result<Pair<G>> {
        match self.spare.pop() {
            Some(pair) => Ok(pair),
            None => Ok(Pair { begin: gpu.timed_event()?, end: gpu.timed_event()? }),
        }
    }

    pub(super) fn push(&mut self, op: TimedOp, pair: Pair<G>) {
        self.pending.push_back((op, pair));
    }

    pub(super) fn read_completed(&mut self, gpu: &G) -> Result<()> {
        self.set_clock(gpu)?;
        while let Some((_, pair)) = self.pending.front() {
            if !gpu.is_done(&pair.end)? {
                break;
            }
            let (op, pair) = self.pending.pop_front().expect("`front` returned an element");
            let ns = ns(gpu.elapsed_ms(&pair.begin, &pair.end)?);
            match op.kind {
                TimedKind::Copy => &self.counters.copy,
                TimedKind::Decode => &self.counters.device_decode,
                TimedKind::Convert => &self.counters.convert,
                TimedKind::Stall => &self.counters.stall,
            }
            .add(ns.max(0) as u64, op.bytes);
            if let (Some(trace), Some(clock)) = (self.counters.trace(), &self.clock) {
                // Negative if the work began before the trace was created. The trace itself
                // discards work that begins before its window.
                let begin = clock.host as i64 + self::ns(gpu.elapsed_ms(&clock.zero, &pair.begin)?);
                let (row, name) = match op.kind {
                    TimedKind::Copy => (TraceRow::CopyStream, "copy"),
                    TimedKind::Decode => (TraceRow::ConvertStream, "decode"),
                    TimedKind::Convert => (TraceRow::ConvertStream, "convert"),
                    TimedKind::Stall => (TraceRow::ConsumerStream, "wait for a batch"),
                };
                let bytes = (op.bytes > 0).then_some(op.bytes as u64);
                let args = Args { epoch: Some(op.epoch), batch: Some(op.number), bytes, ..Args::default() };
                if begin >= 0 && trace.window() == Some(clock.window) {
                    trace.record_at(row, name, begin as u64, (begin + ns.max(0)) as u64, args);
                }
            }
            self.spare.push(pair);
        }
        Ok(())
    }

    /// Sets the clock if a trace window has begun. The host then waits for a stream without other
    /// work.
    fn set_clock(&mut self, gpu: &G) -> Result<()> {
        let Some(trace) = self.counters.trace() else { return Ok(()) };
        let Some(window) = trace.window().filter(|w| self.clock.as_ref().is_none_or(|clock| clock.window != *w)) else {
            return Ok(());
        };
        let (stream, zero) = match self.clock.take() {
            Some(clock) => (clock.stream, clock.zero),
            None => (gpu.stream()?, gpu.timed_event()?),
        };
        // The first recording on a stream can take a long time, so use the second one.
        let mut host = 0;
        for _ in 0..2 {
            let start = trace.timestamp(Instant::now());
            gpu.record(&zero, &stream)?;
            while !gpu.is_done(&zero)? {
                std::hint::spin_loop();
            }
            host = start.midpoint(trace.timestamp(Instant::now()));
        }
        self.clock = Some(Clock { stream, zero, host, window });
        Ok(())
    }
}

/// Converts ms to ns. CUDA's elapsed times have a resolution of about 0.5 µs.
fn ns(ms: f32) -> i64 {
    (f64::from(ms) * 1e6) as i64
}
