//! Divides a run into equal intervals, in constant memory.
//!
//! When the list is full, neighboring intervals are merged in pairs, which doubles their length.
//! The workers' counters are read once per interval, and their increase is distributed evenly over
//! the time since the previous read.

use serde::{Deserialize, Serialize};

use super::StageMap;
use crate::error::{Result, reserve};

/// Maximum number of intervals. A long run has at least half as many.
const MAX_INTERVALS: usize = 240;

/// One interval of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Interval {
    /// Start of the interval, in seconds since the loader was opened.
    pub start: f64,
    /// Length of the interval in seconds. The last interval has the same length and may still be in
    /// progress.
    pub seconds: f64,
    /// Number of batches delivered in the interval.
    pub batches: u64,
    /// Number of samples delivered in the interval.
    pub samples: u64,
    /// Time for which the consumer waited for batches during the interval, in seconds.
    pub waited: f64,
    /// Time that the workers spent in each stage during the interval, in seconds.
    pub busy: StageMap<f64>,
}

pub(super) struct Timeline {
    width: f64,
    intervals: Vec<Interval>,
    /// The workers' total time per stage, in ns, at time `settled`.
    busy: StageMap<u64>,
    settled: f64,
}

impl Timeline {
    pub(super) fn new() -> Result<Self> {
        let mut intervals = Vec::new();
        reserve(&mut intervals, MAX_INTERVALS)?;
        Ok(Timeline { width: 0.05, intervals, busy: StageMap::default(), settled: 0.0 })
    }

    /// Adds a batch that arrived at `now` after a wait of `waited`, both in seconds. `busy` returns
    /// the workers' total time in each stage, in ns, and is called once per interval.
    pub(super) fn delivered(&mut self, now: f64, samples: usize, waited: f64, busy: impl FnOnce() -> StageMap<u64>) {
        while now >= self.width * MAX_INTERVALS as f64 {
            self.halve();
        }
        let index = (now / self.width) as usize;
        if index >= self.intervals.len() {
            while self.intervals.len() <= index {
                let start = self.intervals.len() as f64 * self.width;
                self.intervals.push(Interval { start, seconds: self.width, ..Interval::default() });
            }
            self.settle(now, busy());
        }
        self.intervals[index].batches += 1;
        self.intervals[index].samples += samples as u64;
        self.spread(now - waited, now, |interval, share| interval.waited += waited * share);
    }

    fn settle(&mut self, now: f64, busy: StageMap<u64>) {
        let new = StageMap::from_fn(|stage| busy[stage].saturating_sub(self.busy[stage]) as f64 * 1e-9);
        self.spread(self.settled, now, |interval, share| {
            new.iter().for_each(|(stage, new)| interval.busy[stage] += new * share);
        });
        (self.busy, self.settled) = (busy, now);
    }

    /// Calls `add` for each interval that overlaps the time from `from` to `to`, with the fraction
    /// of this time in the interval. The last interval includes all time after it.
    fn spread(&mut self, from: f64, to: f64, mut add: impl FnMut(&mut Interval, f64)) {
        let Some(last) = self.intervals.len().checked_sub(1) else { return };
        let first = ((from.max(0.0) / self.width) as usize).min(last);
        let mut share_left = 1.0;
        for index in first..last {
            let end = (index + 1) as f64 * self.width;
            if end >= to {
                return add(&mut self.intervals[index], share_left);
            }
            let share = ((end - from.max(index as f64 * self.width)) / (to - from)).clamp(0.0, share_left);
            add(&mut self.intervals[index], share);
            share_left -= share;
        }
        add(&mut self.intervals[last], share_left);
    }

    fn halve(&mut self) {
        self.width *= 2.0;
        for i in 0..self.intervals.len().div_ceil(2) {
            let mut sum = self.intervals[2 * i];
            if let Some(other) = self.intervals.get(2 * i + 1) {
                sum.batches += other.batches;
                sum.samples += other.samples;
                sum.waited += other.waited;
                other.busy.iter().for_each(|(stage, busy)| sum.busy[stage] += busy);
            }
            sum.seconds = self.width;
            self.intervals[i] = sum;
        }
        self.intervals.truncate(self.intervals.len().div_ceil(2));
    }

    pub(super) fn intervals(&mut self, now: f64, busy: StageMap<u64>) -> Vec<Interval> {
        if !self.intervals.is_empty() {
            self.settle(now, busy);
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
        timeline.delivered(0.225, 8, 0.2, || busy(450_000_000, 0));
        let intervals = timeline.intervals(0.225, busy(450_000_000, 0));
        let close = |values: Vec<f64>, expected: [f64; 5]| {
            assert!(values.len() == 5 && values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}");
        };
        close(intervals.iter().map(|i| i.waited).collect(), [0.025, 0.05, 0.05, 0.05, 0.025]);
        close(intervals.iter().map(|i| i.busy[Stage::Read]).collect(), [0.1, 0.1, 0.1, 0.1, 0.05]);
        assert_eq!(intervals.iter().map(|i| i.batches).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_long_run_keeps_its_sums_in_few_intervals() {
        let mut timeline = Timeline::new().unwrap();
        for i in 0..100_000u64 {
            timeline.delivered(i as f64 * 0.01, 8, 0.001, || busy(i * 1000, i));
        }
        let intervals = timeline.intervals(1000.0, busy(100_000_000, 100_000));
        assert!((MAX_INTERVALS / 2..=MAX_INTERVALS).contains(&intervals.len()), "{}", intervals.len());
        assert_eq!(intervals.iter().map(|i| i.batches).sum::<u64>(), 100_000);
        assert_eq!(intervals.iter().map(|i| i.samples).sum::<u64>(), 800_000);
        assert!((intervals.iter().map(|i| i.waited).sum::<f64>() - 100.0).abs() < 1e-6);
        assert!((intervals.iter().map(|i| i.busy[Stage::Read]).sum::<f64>() - 0.1).abs() < 1e-6);
        assert!(intervals.windows(2).all(|w| (w[0].start + w[0].seconds - w[1].start).abs() < 1e-9));
        assert_eq!(timeline.intervals.capacity(), MAX_INTERVALS, "no further memory is allocated");
    }
}
