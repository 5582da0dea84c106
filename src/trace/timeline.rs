//! Divides a run into equal intervals, in constant memory.
//!
//! When the list is full, neighboring intervals are merged in pairs, which doubles their length.
//! The workers' counters are read when the first batch of an interval is delivered. Their increase
//! is distributed evenly over the time since the previous read.

use serde::{Deserialize, Serialize};

use super::StageMap;
use crate::error::{Result, reserve};

/// Maximum number of intervals. A long run has at least half of this number.
const MAX_INTERVALS: usize = 240;

/// One interval of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Interval {
    /// Start of the interval, in seconds since the loader was opened.
    pub start_seconds: f64,
    /// Length of the interval in seconds. The last interval has the same length and may still be in
    /// progress.
    pub seconds: f64,
    /// Number of batches delivered in the interval.
    pub batches: u64,
    /// Number of samples delivered in the interval.
    pub samples: u64,
    /// Time for which the consumer waited for batches during the interval, in seconds.
    pub wait_seconds: f64,
    /// Time that the workers spent in each stage during the interval, in seconds.
    pub busy_seconds: StageMap<f64>,
}

pub(super) struct Timeline {
    interval_seconds: f64,
    intervals: Vec<Interval>,
    /// The workers' total time per stage, in ns, at time `last_busy_time`.
    last_busy_ns: StageMap<u64>,
    last_busy_time: f64,
}

impl Timeline {
    pub(super) fn new() -> Result<Self> {
        let mut intervals = Vec::new();
        reserve(&mut intervals, MAX_INTERVALS)?;
        Ok(Timeline { interval_seconds: 0.05, intervals, last_busy_ns: StageMap::default(), last_busy_time: 0.0 })
    }

    /// Adds a batch that was delivered at `now`. `busy_ns` is called only for the first batch of an
    /// interval.
    pub(super) fn add_batch(
        &mut self,
        now: f64,
        samples: usize,
        wait_seconds: f64,
        busy_ns: impl FnOnce() -> StageMap<u64>,
    ) {
        while now >= self.interval_seconds * MAX_INTERVALS as f64 {
            self.merge_pairs();
        }
        let index = (now / self.interval_seconds) as usize;
        if index >= self.intervals.len() {
            while self.intervals.len() <= index {
                let start_seconds = self.intervals.len() as f64 * self.interval_seconds;
                self.intervals.push(Interval { start_seconds, seconds: self.interval_seconds, ..Interval::default() });
            }
            self.add_busy_ns(now, busy_ns());
        }
        self.intervals[index].batches += 1;
        self.intervals[index].samples += samples as u64;
        self.spread(now - wait_seconds, now, |interval, share| interval.wait_seconds += wait_seconds * share);
    }

    fn add_busy_ns(&mut self, now: f64, busy_ns: StageMap<u64>) {
        let new_busy = StageMap::from_fn(|stage| busy_ns[stage].saturating_sub(self.last_busy_ns[stage]) as f64 * 1e-9);
        self.spread(self.last_busy_time, now, |interval, share| {
            new_busy.iter().for_each(|(stage, new_busy)| interval.busy_seconds[stage] += new_busy * share);
        });
        (self.last_busy_ns, self.last_busy_time) = (busy_ns, now);
    }

    /// Calls `add` for each interval that overlaps the time from `start` to `end`, with the
    /// fraction of this time in the interval. The last interval includes all time after it.
    fn spread(&mut self, start: f64, end: f64, mut add: impl FnMut(&mut Interval, f64)) {
        let Some(last) = self.intervals.len().checked_sub(1) else { return };
        let first = ((start.max(0.0) / self.interval_seconds) as usize).min(last);
        let mut remaining_share = 1.0;
        for index in first..last {
            let interval_end = (index + 1) as f64 * self.interval_seconds;
            if interval_end >= end {
                return add(&mut self.intervals[index], remaining_share);
            }
            let share = ((interval_end - start.max(index as f64 * self.interval_seconds)) / (end - start))
                .clamp(0.0, remaining_share);
            add(&mut self.intervals[index], share);
            remaining_share -= share;
        }
        add(&mut self.intervals[last], remaining_share);
    }

    fn merge_pairs(&mut self) {
        self.interval_seconds *= 2.0;
        for i in 0..self.intervals.len().div_ceil(2) {
            let mut sum = self.intervals[2 * i];
            if let Some(other) = self.intervals.get(2 * i + 1) {
                sum.batches += other.batches;
                sum.samples += other.samples;
                sum.wait_seconds += other.wait_seconds;
                other.busy_seconds.iter().for_each(|(stage, busy)| sum.busy_seconds[stage] += busy);
            }
            sum.seconds = self.interval_seconds;
            self.intervals[i] = sum;
        }
        self.intervals.truncate(self.intervals.len().div_ceil(2));
    }

    pub(super) fn intervals(&mut self, now: f64, busy_ns: StageMap<u64>) -> Vec<Interval> {
        if !self.intervals.is_empty() {
            self.add_busy_ns(now, busy_ns);
        }
        self.intervals.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::*;

    fn busy(read: u64, write: u64) -> StageMap<u64> {
        StageMap::from_fn(|stage| match stage {
            Stage::Read => read,
            Stage::Write => write,
            _ => 0,
        })
    }

    #[test]
    fn long_waits_and_work_are_spread_over_their_intervals() {
        let mut timeline = Timeline::new().unwrap();
        timeline.add_batch(0.225, 8, 0.2, || busy(450_000_000, 0));
        let intervals = timeline.intervals(0.225, busy(450_000_000, 0));
        let close = |values: Vec<f64>, expected: [f64; 5]| {
            assert!(values.len() == 5 && values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}");
        };
        close(intervals.iter().map(|i| i.wait_seconds).collect(), [0.025, 0.05, 0.05, 0.05, 0.025]);
        close(intervals.iter().map(|i| i.busy_seconds[Stage::Read]).collect(), [0.1, 0.1, 0.1, 0.1, 0.05]);
        assert_eq!(intervals.iter().map(|i| i.batches).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_long_run_keeps_its_sums_in_few_intervals() {
        let mut timeline = Timeline::new().unwrap();
        for i in 0..100_000u64 {
            timeline.add_batch(i as f64 * 0.01, 8, 0.001, || busy(i * 1000, i));
        }
        let intervals = timeline.intervals(1000.0, busy(100_000_000, 100_000));
        assert!((MAX_INTERVALS / 2..=MAX_INTERVALS).contains(&intervals.len()), "{}", intervals.len());
        assert_eq!(intervals.iter().map(|i| i.batches).sum::<u64>(), 100_000);
        assert_eq!(intervals.iter().map(|i| i.samples).sum::<u64>(), 800_000);
        assert!((intervals.iter().map(|i| i.wait_seconds).sum::<f64>() - 100.0).abs() < 1e-6);
        assert!((intervals.iter().map(|i| i.busy_seconds[Stage::Read]).sum::<f64>() - 0.1).abs() < 1e-6);
        assert!(intervals.windows(2).all(|w| (w[0].start_seconds + w[0].seconds - w[1].start_seconds).abs() < 1e-9));
        assert_eq!(timeline.intervals.capacity(), MAX_INTERVALS, "no further memory is allocated");
    }
}
