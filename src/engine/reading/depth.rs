//! Adjusts the number of readers while they are reading.
//!
//! Network latency hardly depends on the number of reads in flight, so more readers increase the
//! throughput. A disk serves only a limited number of reads at a time, and beyond that, more
//! readers only increase the latency. Therefore, the number of readers is doubled while parts are
//! waiting for a reader. If doubling increases the read rate by less than a quarter, it is undone,
//! and the next trial starts only after a waiting period.
//!
//! Reads also pause when the consumer pauses, for example at the end of an epoch or during an
//! evaluation. Therefore, the longest idle interval of a window is excluded from the window's rate.

use crate::engine::state::MOST_READERS;

/// Initial number of readers. It is enough to saturate disks (`benches/RESULTS.md`).
pub(super) const FIRST_READERS: usize = 32;

/// Minimum length of a window, in ns.
const WINDOW_NS: u64 = 100_000_000;
/// Minimum length of a window, in samples per reader.
const WINDOW_SAMPLES: usize = 4;

/// Minimum factor by which the read rate must increase to justify doubling the number of readers.
const GAIN: f64 = 1.25;

/// Waiting period after a trial that gained too little, in windows.
const REST: u32 = 32;

/// The number of readers, and the counters of the current window.
#[derive(Debug)]
pub(super) struct Depth {
    readers: usize,
    since: u64,
    /// Time of the last read.
    last: u64,
    /// Longest idle interval of the current window.
    longest: u64,
    samples: usize,
    /// Number of samples that were read while at least one part waited for a reader.
    waiting: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Waits for this many windows, then doubles the number of readers if parts are waiting.
    Rests(u32),
    /// The number of readers has just doubled, and the new readers have not read yet. Holds the
    /// rate before the doubling.
    Begins(f64),
    /// Measures the gain over this rate in the current window.
    Tries(f64),
}

impl Depth {
    pub(super) fn new() -> Self {
        Depth { readers: FIRST_READERS, since: 0, last: 0, longest: 0, samples: 0, waiting: 0, phase: Phase::Rests(0) }
    }

    /// Records that a sample was read at time `now`, in ns of any clock. `waiting` says whether a
    /// part fits into the budget but has no reader. Returns the new number of readers if it
    /// changes.
    pub(super) fn read(&mut self, now: u64, waiting: bool) -> Option<usize> {
        self.samples += 1;
        self.waiting += usize::from(waiting);
        self.longest = self.longest.max(now.saturating_sub(self.last));
        self.last = now;
        let ns = now.saturating_sub(self.since).saturating_sub(self.longest);
        if ns < WINDOW_NS || self.samples < WINDOW_SAMPLES * self.readers {
            return None;
        }
        let rate = self.samples as f64 / ns as f64;
        let short = 4 * self.waiting >= 3 * self.samples;
        (self.since, self.longest, self.samples, self.waiting) = (now, 0, 0, 0);
        let (phase, readers) = match self.phase {
            Phase::Rests(0) if short && 2 * self.readers <= MOST_READERS => (Phase::Begins(rate), 2 * self.readers),
            Phase::Rests(windows) => (Phase::Rests(windows.saturating_sub(1)), self.readers),
            Phase::Begins(before) => (Phase::Tries(before), self.readers),
            // If no parts are waiting, the readers keep up, so the new number is kept.
            Phase::Tries(before) if rate >= GAIN * before || !short => (Phase::Rests(0), self.readers),
            Phase::Tries(_) => (Phase::Rests(REST), self.readers / 2),
        };
        let changed = readers != self.readers;
        (self.phase, self.readers) = (phase, readers);
        changed.then_some(readers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `seconds` of reading at `rate(readers)` samples per second. Returns the numbers of
    /// readers in the order in which they were chosen.
    fn run(depth: &mut Depth, seconds: f64, waiting: bool, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let (mut now, mut readers, mut all) = (depth.last as f64, depth.readers, vec![depth.readers]);
        let end = now + 1e9 * seconds;
        while now < end {
            now += 1e9 / rate(readers);
            if let Some(new) = depth.read(now as u64, waiting) {
                readers = new;
                all.push(new);
            }
        }
        all
    }

    #[test]
    fn the_number_grows_while_latency_is_the_limit() {
        let rate = |readers| readers as f64 / 0.05;
        assert_eq!(run(&mut Depth::new(), 10.0, true, rate), [32, 64, 128, 256, 512]);
    }

    #[test]
    fn storage_at_its_limit_keeps_the_number() {
        let mut depth = Depth::new();
        assert_eq!(run(&mut depth, 2.0, true, |_| 2000.0), [32, 64, 32]);
        assert_eq!(run(&mut depth, 1.0, true, |_| 2000.0), [32], "it rests");
        assert!(run(&mut depth, 30.0, true, |_| 2000.0).ends_with(&[64, 32]), "another trial follows");
        let rate = |readers: usize| (readers as f64 / 0.05).min(3000.0);
        assert_eq!(
            run(&mut Depth::new(), 5.0, true, rate),
            [32, 64, 128, 256, 128],
            "until more readers gain too little"
        );
    }

    /// Returns the numbers of readers that are chosen if the consumer pauses for `pause` seconds
    /// after every `reads` reads.
    fn paused(reads: usize, pause: f64, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut depth = Depth::new();
        let mut all = run(&mut depth, reads as f64 / rate(FIRST_READERS), true, &rate);
        all.extend(depth.read(depth.last + (1e9 * pause) as u64, true));
        all.extend_from_slice(&run(&mut depth, 5.0, true, &rate)[1..]);
        all
    }

    #[test]
    fn a_pause_of_the_consumer_changes_no_decision() {
        for pause in [0.05, 0.5, 5.0, 600.0] {
            for reads in (0..1600).step_by(50) {
                let network = paused(reads, pause, |readers| readers as f64 / 0.05);
                assert_eq!(network, [32, 64, 128, 256, 512], "{pause} s after {reads} reads");
                let disk = paused(reads, pause, |_| 2000.0);
                assert_eq!(disk[..3], [32, 64, 32], "{pause} s after {reads} reads");
            }
        }
    }

    #[test]
    fn nothing_changes_while_no_part_waits() {
        assert_eq!(run(&mut Depth::new(), 10.0, false, |readers| readers as f64 / 0.05), [32]);
    }
}
