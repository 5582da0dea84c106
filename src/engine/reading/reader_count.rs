//! Chooses the number of reader threads from the rate at which they read.
//!
//! Until a network link is saturated, the time of a read hardly depends on the number of concurrent
//! reads, so more readers mean more throughput. A disk serves only a few reads at a time, and
//! additional readers only make each read slower. Therefore, the number of readers is found by
//! trial. While parts wait for a reader, the number is doubled, up to [`MAX_READERS`]. If that
//! raises the read rate by less than a quarter, although parts are still waiting, the number is
//! halved again, and the next trial is delayed.
//!
//! When the consumer pauses, for example to evaluate a model, reading pauses as well. Therefore,
//! the rate of a window excludes the longest gap between two reads.

use crate::engine::state::MAX_READERS;

/// Initial number of readers, enough to saturate most disks. `benches/RESULTS.md` compares up to 64
/// concurrent reads.
pub(super) const INITIAL_READERS: usize = 32;

/// Minimum length of a window in ns, without the longest gap between two reads.
const WINDOW_NS: u64 = 100_000_000;
/// Minimum length of a window, in samples per reader.
const WINDOW_SAMPLES: usize = 4;

/// A doubled number of readers is kept if the read rate grows by at least this factor, or if parts
/// no longer wait for a reader.
const MIN_GAIN: f64 = 1.25;

/// Number of windows after a reverted doubling in which no trial starts.
const REST_WINDOWS: u32 = 32;

/// All times are in ns.
#[derive(Debug)]
pub(super) struct ReaderCount {
    readers: usize,
    window_start: u64,
    last_read: u64,
    longest_gap: u64,
    samples: usize,
    /// Samples of the window that were read while a part waited for a reader.
    waiting_samples: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The number of readers stays constant for this many windows. The number is then doubled after
    /// the first window in which parts wait for readers.
    Resting(u32),
    /// The number of readers has just been doubled. The value is the rate before the doubling. The
    /// current window is not representative, because the new readers are still starting.
    Starting(f64),
    /// The current window measures the rate after the doubling. The value is the rate before the
    /// doubling.
    Measuring(f64),
}

impl ReaderCount {
    pub(super) fn new() -> Self {
        ReaderCount {
            readers: INITIAL_READERS,
            window_start: 0,
            last_read: 0,
            longest_gap: 0,
            samples: 0,
            waiting_samples: 0,
            phase: Phase::Resting(0),
        }
    }

    /// Records that a sample was read at time `now`, in ns since any fixed instant.
    /// `is_part_waiting` is true if a part waits for a reader although the memory for reading it is
    /// available. Returns the new number of readers if it changes.
    pub(super) fn record_read(&mut self, now: u64, is_part_waiting: bool) -> Option<usize> {
        self.samples += 1;
        self.waiting_samples += usize::from(is_part_waiting);
        self.longest_gap = self.longest_gap.max(now.saturating_sub(self.last_read));
        self.last_read = now;
        let ns = now.saturating_sub(self.window_start).saturating_sub(self.longest_gap);
        if ns < WINDOW_NS || self.samples < WINDOW_SAMPLES * self.readers {
            return None;
        }
        let rate = self.samples as f64 / ns as f64;
        let is_starved = 4 * self.waiting_samples >= 3 * self.samples;
        (self.window_start, self.longest_gap, self.samples, self.waiting_samples) = (now, 0, 0, 0);
        let (phase, readers) = match self.phase {
            Phase::Resting(0) if is_starved && 2 * self.readers <= MAX_READERS => {
                (Phase::Starting(rate), 2 * self.readers)
            }
            Phase::Resting(windows) => (Phase::Resting(windows.saturating_sub(1)), self.readers),
            Phase::Starting(previous_rate) => (Phase::Measuring(previous_rate), self.readers),
            // If no part is waiting, the readers keep up, so keep the new number as well.
            Phase::Measuring(previous_rate) if rate >= MIN_GAIN * previous_rate || !is_starved => {
                (Phase::Resting(0), self.readers)
            }
            Phase::Measuring(_) => (Phase::Resting(REST_WINDOWS), self.readers / 2),
        };
        let has_changed = readers != self.readers;
        (self.phase, self.readers) = (phase, readers);
        has_changed.then_some(readers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `rate(readers)` samples per second. Returns the successive numbers of readers.
    fn simulate(
        reader_count: &mut ReaderCount,
        seconds: f64,
        is_part_waiting: bool,
        rate: impl Fn(usize) -> f64,
    ) -> Vec<usize> {
        let (mut now, mut readers, mut counts) =
            (reader_count.last_read as f64, reader_count.readers, vec![reader_count.readers]);
        let end = now + 1e9 * seconds;
        while now < end {
            now += 1e9 / rate(readers);
            if let Some(new_readers) = reader_count.record_read(now as u64, is_part_waiting) {
                readers = new_readers;
                counts.push(new_readers);
            }
        }
        counts
    }

    #[test]
    fn readers_are_doubled_while_latency_limits_the_rate() {
        let rate = |readers| readers as f64 / 0.05;
        assert_eq!(simulate(&mut ReaderCount::new(), 10.0, true, rate), [32, 64, 128, 256, 512]);
    }

    #[test]
    fn saturated_storage_gets_no_more_readers() {
        let mut reader_count = ReaderCount::new();
        assert_eq!(simulate(&mut reader_count, 2.0, true, |_| 2000.0), [32, 64, 32]);
        assert_eq!(
            simulate(&mut reader_count, 1.0, true, |_| 2000.0),
            [32],
            "no trial starts before the waiting period is over"
        );
        assert!(
            simulate(&mut reader_count, 30.0, true, |_| 2000.0).ends_with(&[64, 32]),
            "one more trial after the waiting period"
        );
        let rate = |readers: usize| (readers as f64 / 0.05).min(3000.0);
        assert_eq!(
            simulate(&mut ReaderCount::new(), 5.0, true, rate),
            [32, 64, 128, 256, 128],
            "doubling stops once it gains too little"
        );
    }

    /// Like [`simulate`], but the consumer pauses for `pause` seconds after `reads` reads.
    fn simulate_with_pause(reads: usize, pause: f64, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut reader_count = ReaderCount::new();
        let mut counts = simulate(&mut reader_count, reads as f64 / rate(INITIAL_READERS), true, &rate);
        counts.extend(reader_count.record_read(reader_count.last_read + (1e9 * pause) as u64, true));
        counts.extend_from_slice(&simulate(&mut reader_count, 5.0, true, &rate)[1..]);
        counts
    }

    #[test]
    fn a_pause_of_the_consumer_does_not_change_decisions() {
        for pause in [0.05, 0.5, 5.0, 600.0] {
            for reads in (0..1600).step_by(50) {
                let network = simulate_with_pause(reads, pause, |readers| readers as f64 / 0.05);
                assert_eq!(network, [32, 64, 128, 256, 512], "{pause} s after {reads} reads");
                let disk = simulate_with_pause(reads, pause, |_| 2000.0);
                assert_eq!(disk[..3], [32, 64, 32], "{pause} s after {reads} reads");
            }
        }
    }

    #[test]
    fn the_number_of_readers_is_constant_while_no_part_waits() {
        assert_eq!(simulate(&mut ReaderCount::new(), 10.0, false, |readers| readers as f64 / 0.05), [32]);
    }
}
