//! Times of copies, conversions and the consumer's waits, on the device's clock.
//!
//! Two events with timing, which order nothing, bracket each of them. The events are read when the
//! device has passed them, and reused: no host waits for the device, and in steady state no event
//! is created. Two events and a reading cost the host about 1 us.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::device::Gpu;
use crate::error::Result;
use crate::trace::{Args, Counters, Row};

/// Two events with timing.
pub(super) struct Pair<G: Gpu> {
    pub(super) begin: G::Event,
    pub(super) end: G::Event,
}

/// Work between the two events of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bracket {
    Copy,
    Decode,
    Convert,
    /// The consumer's stream waits: from the mark of the request until the batch is there.
    Stall,
}

/// Bracketed work, and its batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bracketed {
    pub(super) what: Bracket,
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) bytes: usize,
}

/// The device's clock relative to the host's, set at the start of each window of a trace.
struct Clock<G: Gpu> {
    stream: G::Stream,
    zero: G::Event,
    /// Time of `zero` in ns of the trace, to within half the duration of a query, some
    /// microseconds.
    host: u64,
    window: u64,
}

/// The times of one ring, kept by its thread.
pub(super) struct Timing<G: Gpu> {
    counters: Arc<Counters>,
    spare: Vec<Pair<G>>,
    /// In queue order, which is nearly the order in which the device passes them.
    pending: VecDeque<(Bracketed, Pair<G>)>,
    clock: Option<Clock<G>>,
}

impl<G: Gpu> Timing<G> {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Timing { counters, spare: Vec::new(), pending: VecDeque::new(), clock: None }
    }

    /// A pair to record.
    pub(super) fn pair(&mut self, gpu: &G) -> Result<Pair<G>> {
        match self.spare.pop() {
            Some(pair) => Ok(pair),
            None => Ok(Pair { begin: gpu.timed_event()?, end: gpu.timed_event()? }),
        }
    }

    /// Takes a pair whose events have been recorded.
    pub(super) fn recorded(&mut self, what: Bracketed, pair: Pair<G>) {
        self.pending.push_back((what, pair));
    }

    /// Reads the pairs that the device has passed.
    pub(super) fn settle(&mut self, gpu: &G) -> Result<()> {
        self.set_clock(gpu)?;
        while let Some((_, pair)) = self.pending.front() {
            if !gpu.is_done(&pair.end)? {
                break;
            }
            let (what, pair) = self.pending.pop_front().expect("there is a front");
            let ns = ns(gpu.elapsed_ms(&pair.begin, &pair.end)?);
            match what.what {
                Bracket::Copy => &self.counters.copy,
                Bracket::Decode => &self.counters.device_decode,
                Bracket::Convert => &self.counters.convert,
                Bracket::Stall => &self.counters.stall,
            }
            .add(ns.max(0) as u64, what.bytes);
            if let (Some(trace), Some(clock)) = (self.counters.trace(), &self.clock) {
                // The trace keeps only what lies in its window, so work from before the clock was
                // set is dropped.
                let begin = clock.host as i64 + self::ns(gpu.elapsed_ms(&clock.zero, &pair.begin)?);
                let (row, name) = match what.what {
                    Bracket::Copy => (Row::CopyStream, "copy"),
                    Bracket::Decode => (Row::ConvertStream, "decode"),
                    Bracket::Convert => (Row::ConvertStream, "convert"),
                    Bracket::Stall => (Row::ConsumerStream, "wait for a batch"),
                };
                let bytes = (what.bytes > 0).then_some(what.bytes as u64);
                let args = Args { epoch: Some(what.epoch), batch: Some(what.number), bytes, ..Args::default() };
                if begin >= 0 && trace.window() == Some(clock.window) {
                    trace.record_at(row, name, begin as u64, (begin + ns.max(0)) as u64, args);
                }
            }
            self.spare.push(pair);
        }
        Ok(())
    }

    /// Sets the clock if a window of a trace has begun. Only then does the host wait for the
    /// device, on an empty stream.
    fn set_clock(&mut self, gpu: &G) -> Result<()> {
        let Some(trace) = self.counters.trace() else { return Ok(()) };
        let Some(window) = trace.window().filter(|w| self.clock.as_ref().is_none_or(|clock| clock.window != *w)) else {
            return Ok(());
        };
        let (stream, zero) = match self.clock.take() {
            Some(clock) => (clock.stream, clock.zero),
            None => (gpu.stream()?, gpu.timed_event()?),
        };
        // The first record on a stream may take long, so the second one counts.
        let mut host = 0;
        for _ in 0..2 {
            let before = trace.at(Instant::now());
            gpu.record(&zero, &stream)?;
            while !gpu.is_done(&zero)? {
                std::hint::spin_loop();
            }
            host = before.midpoint(trace.at(Instant::now()));
        }
        self.clock = Some(Clock { stream, zero, host, window });
        Ok(())
    }
}

/// Converts the driver's milliseconds, which have a resolution of half a microsecond.
fn ns(ms: f32) -> i64 {
    (f64::from(ms) * 1e6) as i64
}
