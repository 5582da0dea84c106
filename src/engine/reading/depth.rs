//! Chooses the number of readers while they read.
//!
//! A read over a network takes as long with a thousand others in flight as alone, so more readers
//! read more. A disk answers a bounded number of reads at a time, and more readers only wait
//! longer. So the number doubles while parts wait for a reader. If the rate of reads then rises by
//! less than a quarter, the number is halved again, and stays for some time.
//!
//! Reads also pause while the consumer does, at the end of an epoch or during an evaluation. So the
//! longest time without a read does not count in a rate.

use crate::engine::state::MOST_READERS;

/// Number of readers at first, which saturates disks (`benches/RESULTS.md`).
pub(super) const FIRST_READERS: usize = 32;

/// Minimum length of a window, in ns and in samples for each reader.
const WINDOW_NS: u64 = 100_000_000;
const WINDOW_SAMPLES: usize = 4;

/// Minimum gain in the rate that justifies twice the readers.
const GAIN: f64 = 1.25;

/// Number of windows to rest after a trial without gain.
const REST: u32 = 32;

/// The number of readers, and their counts in the current window.
#[derive(Debug)]
pub(super) struct Depth {
    readers: usize,
    since: u64,
    /// Time of the last read, and the longest time without one.
    last: u64,
    longest: u64,
    samples: usize,
    /// Samples that were read while another part waited for a reader.
    waiting: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Doubles the number after this many windows, if parts wait.
    Rests(u32),
    /// The number has just doubled; the new readers have yet to read. Holds the rate before.
    Begins(f64),
    /// The current window measures the gain over this rate.
    Tries(f64),
}

impl Depth {
    pub(super) fn new() -> Self {
        Depth { readers: FIRST_READERS, since: 0, last: 0, longest: 0, samples: 0, waiting: 0, phase: Phase::Rests(0) }
    }

    /// Counts a sample that was read by `now`, in ns of any clock. `waiting` says whether a part
    /// waits for a reader and has room. Returns the new number of readers, if it changes.
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
            // If parts no longer wait, the readers keep up.
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

    /// Reads for `seconds`, at `rate(readers)` samples per second. Returns each number of readers.
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
        assert!(run(&mut depth, 30.0, true, |_| 2000.0).ends_with(&[64, 32]), "and tries again");
        let rate = |readers: usize| (readers as f64 / 0.05).min(3000.0);
        assert_eq!(run(&mut Depth::new(), 5.0, true, rate), [32, 64, 128, 256, 128], "up to where it gives more");
    }

    /// The numbers of readers if the consumer pauses after `reads` reads, for `pause` seconds.
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
