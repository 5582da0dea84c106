//! Tunes the prefetch depth while batches are delivered, unless the user has set it.
//!
//! Suppose that the consumer waits for one batch while all batches prefetched after it are
//! complete. Then a slow sample is blocking delivery, and the other workers are idle only because
//! no slot is free. With more slots, they could continue, so the tuner doubles the prefetch depth
//! without a trial if such waits take at least a tenth of the time.
//!
//! In all other cases, the tuner uses hill climbing. As a trial, it doubles the prefetch depth if
//! workers are sometimes idle because all slots are full, but the consumer still waits at other
//! times. This happens if training steps vary in duration, if samples vary in cost, or if too few
//! reads are in flight. The tuner starts no trial while the cores are saturated, that is, while the
//! CPU demand is high. CPU demand is the CPU time of the process, plus the time that workers waited
//! for a core.
//!
//! The tuner compares counters over time windows in which batches were delivered. The tuner keeps
//! the new depth if the trial increases the sample rate enough, and reverts any other trial. Each
//! reverted trial doubles the pause before the next trial, up to a maximum. The pause is reset if a
//! trial succeeds, if the depth is raised without a trial, or if the rate is no longer between 0.7
//! and 1.4 times its recent average.

use std::ops::{AddAssign, Sub};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::slots::Settings;
use crate::error::guarded;
use crate::trace::{Counters, ProcessStats};

/// Minimum length of a window, in seconds.
const WINDOW_SECONDS: f64 = 0.15;
/// Minimum length of a window, in batches.
const WINDOW_BATCHES: f64 = 16.0;
/// Minimum time between two reads of the counters during an epoch. In between, only the clock is
/// read.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// If an epoch begins within this time after the previous one, the counters from the end of the
/// previous epoch are reused.
const MAX_EPOCH_GAP: Duration = Duration::from_micros(200);
/// Number of windows per block, which is the minimum before the tuner starts or reverts a trial.
const BLOCK_WINDOWS: u32 = 4;
const MAX_TRIAL_WINDOWS: u32 = 12;
/// Minimum fraction of time that consumer and coordinator must each wait before a trial.
const MIN_WAIT: f64 = 0.03;
/// Minimum CPU demand of saturated cores, as a fraction of the available CPU time.
const SATURATED_DEMAND: f64 = 0.92;
/// The depth is raised without a trial if, for at least this fraction of the time, the consumer
/// waits for a single batch while all batches prefetched after it are complete.
const MIN_STRAGGLER_WAIT: f64 = 0.1;
/// Pause after the first reverted trial, in blocks.
const FIRST_PAUSE: u32 = 4;
/// Maximum pause after a reverted trial, in blocks.
const MAX_PAUSE: u32 = 256;

/// Counters of a period in which batches were delivered. All times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    seconds: f64,
    batches: f64,
    samples: f64,
    wait_seconds: f64,
    stall_seconds: f64,
    /// Time in which the requested batch was missing while all batches prefetched after it were
    /// complete.
    straggler_wait_seconds: f64,
    /// Time that the coordinator waited for free slots.
    slot_wait_seconds: f64,
    /// Time that the workers spent in their stages.
    busy_seconds: f64,
    cpu_seconds: f64,
    /// Time that workers were runnable but not scheduled.
    delayed_seconds: f64,
}

impl Sums {
    fn now(open_time: Instant, counters: &Counters, settings: &Settings) -> Self {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        Sums {
            seconds: open_time.elapsed().as_secs_f64(),
            batches: counters.batches() as f64,
            samples: counters.samples() as f64,
            wait_seconds: seconds(counters.wait.ns()),
            stall_seconds: seconds(counters.stall.ns()),
            straggler_wait_seconds: seconds(counters.straggler_wait.ns()),
            slot_wait_seconds: seconds(counters.slot_wait.ns()),
            busy_seconds: seconds(counters.busy_ns().values().sum()),
            cpu_seconds: ProcessStats::cpu_now(),
            delayed_seconds: settings.delayed_seconds(),
        }
    }

    fn zip_with(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Sums {
            seconds: f(self.seconds, other.seconds),
            batches: f(self.batches, other.batches),
            samples: f(self.samples, other.samples),
            wait_seconds: f(self.wait_seconds, other.wait_seconds),
            stall_seconds: f(self.stall_seconds, other.stall_seconds),
            straggler_wait_seconds: f(self.straggler_wait_seconds, other.straggler_wait_seconds),
            slot_wait_seconds: f(self.slot_wait_seconds, other.slot_wait_seconds),
            busy_seconds: f(self.busy_seconds, other.busy_seconds),
            cpu_seconds: f(self.cpu_seconds, other.cpu_seconds),
            delayed_seconds: f(self.delayed_seconds, other.delayed_seconds),
        }
    }

    fn rate(&self) -> f64 {
        self.samples / self.seconds
    }

    fn wait_fraction(&self) -> f64 {
        self.wait_seconds.max(self.stall_seconds) / self.seconds
    }
}

impl Sub for Sums {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip_with(other, |a, b| a - b)
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        *self = self.zip_with(other, |a, b| a + b);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    old: usize,
    new: usize,
    kind: ChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeKind {
    Trial,
    /// A trial did not increase the rate enough, so the depth is restored.
    Revert,
    /// A slow sample blocks delivery of complete batches, so no trial is needed.
    Behind,
}

#[derive(Debug, Clone, Copy)]
struct Trial {
    change: Change,
    baseline: Sums,
    /// Minimum factor by which the rate must grow to keep the trial.
    min_gain: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    remaining: u32,
    /// Length of the last pause. The next pause is twice as long, within the limits. Both fields
    /// are in blocks.
    duration: u32,
}

#[derive(Debug)]
struct HillClimber {
    cores: usize,
    workers: usize,
    prefetch: usize,
    max_prefetch: usize,
    block_sums: Sums,
    window_count: u32,
    trial: Option<Trial>,
    pause: Pause,
    /// Counters of recent blocks at the current depth. Older blocks have less weight.
    baseline: Sums,
}

impl HillClimber {
    fn new(settings: &Settings) -> Self {
        HillClimber {
            cores: settings.cores,
            workers: settings.workers,
            prefetch: settings.prefetch(),
            max_prefetch: settings.prefetch.max,
            block_sums: Sums::default(),
            window_count: 0,
            trial: None,
            pause: Pause::default(),
            baseline: Sums::default(),
        }
    }

    fn add_window(&mut self, window: Sums) -> Option<Change> {
        let (old_prefetch, new_prefetch) = (self.prefetch, (2 * self.prefetch).min(self.max_prefetch));
        // On a device, a late batch does not delay a consumer that still has uploaded batches, so
        // count only time in which the consumer really waited.
        if old_prefetch < new_prefetch
            && window.straggler_wait_seconds.min(window.wait_fraction() * window.seconds)
                >= MIN_STRAGGLER_WAIT * window.seconds
        {
            (self.prefetch, self.block_sums, self.window_count) = (new_prefetch, Sums::default(), 0);
            (self.trial, self.pause, self.baseline) = (None, Pause::default(), Sums::default());
            return Some(Change { old: old_prefetch, new: new_prefetch, kind: ChangeKind::Behind });
        }
        self.block_sums += window;
        self.window_count += 1;
        let change = match self.trial {
            Some(trial) => self.decide_trial(trial)?,
            None => self.consider_trial()?,
        };
        if let Some(change) = change {
            self.prefetch = change.new;
        }
        (self.block_sums, self.window_count) = (Sums::default(), 0);
        change
    }

    /// Returns `None` if the block needs more windows, `Some(None)` to keep the depth at the end of
    /// the block, and `Some(Some(change))` to change it.
    fn decide_trial(&mut self, Trial { change, baseline, min_gain }: Trial) -> Option<Option<Change>> {
        let gain = self.block_sums.rate() / baseline.rate();
        // Before the last window, accept only a clear result, because the consumer may work in
        // bursts that are longer than a window.
        let (keep_at, revert_below) = match self.window_count {
            ..BLOCK_WINDOWS => (1.3, 0.0),
            BLOCK_WINDOWS..MAX_TRIAL_WINDOWS => (min_gain + 0.1, min_gain - 0.1),
            _ => (min_gain, min_gain),
        };
        if gain >= keep_at {
            self.trial = None;
            self.pause = Pause::default();
            self.baseline = self.block_sums;
            return self.consider_trial();
        }
        if gain >= revert_below {
            return None;
        }
        self.trial = None;
        self.baseline = baseline;
        let duration = (2 * self.pause.duration).clamp(FIRST_PAUSE, MAX_PAUSE);
        self.pause = Pause { remaining: duration, duration };
        Some(Some(Change { old: change.new, new: change.old, kind: ChangeKind::Revert }))
    }

    /// Returns `None` if the block needs more windows, `Some(None)` to keep the depth, and
    /// `Some(Some(change))` to change it.
    fn consider_trial(&mut self) -> Option<Option<Change>> {
        if self.window_count < BLOCK_WINDOWS {
            return None;
        }
        let Sums { seconds, slot_wait_seconds, busy_seconds, cpu_seconds, delayed_seconds, .. } = self.block_sums;
        let (wait_fraction, demand) =
            (self.block_sums.wait_fraction(), (cpu_seconds + delayed_seconds.max(0.0)) / seconds);
        let busy_fraction = busy_seconds / (self.workers as f64 * seconds);
        if (0.7..=1.4).contains(&(self.block_sums.rate() / self.baseline.rate())) {
            if self.baseline.seconds > 8.0 * seconds {
                self.baseline = self.baseline.zip_with(self.baseline, |sum, _| sum / 2.0);
            }
            self.baseline += self.block_sums;
        } else {
            (self.baseline, self.pause) = (self.block_sums, Pause::default());
        }
        let is_pause_over = self.pause.remaining == 0;
        self.pause.remaining = self.pause.remaining.saturating_sub(1);
        let (old_prefetch, new_prefetch) = (self.prefetch, (2 * self.prefetch).min(self.max_prefetch));
        let is_idle = busy_fraction < 0.95 && demand < SATURATED_DEMAND * self.cores as f64;
        if !is_pause_over
            || old_prefetch == new_prefetch
            || wait_fraction < MIN_WAIT
            || !is_idle
            || slot_wait_seconds < MIN_WAIT * seconds
        {
            return Some(None);
        }
        // At best, the trial ends all waiting. Require a quarter of that gain, at most 3 percent.
        let min_gain = 1.0 + (0.25 * wait_fraction).min(0.03);
        let change = Change { old: old_prefetch, new: new_prefetch, kind: ChangeKind::Trial };
        self.trial = Some(Trial { change, baseline: std::mem::take(&mut self.baseline), min_gain });
        Some(Some(change))
    }
}

pub(crate) struct Tuner {
    settings: Arc<Settings>,
    state: Mutex<State>,
}

struct State {
    climber: HillClimber,
    open_time: Instant,
    /// Counters when this epoch began to contribute to the window. `None` between epochs.
    start_sums: Option<Sums>,
    /// Counters of the part of the window that lies in earlier epochs.
    window: Sums,
    /// When the last epoch ended, and the counters at that time.
    last_end: Option<(Instant, Sums)>,
    next_read_time: Instant,
    /// Number of batches to ignore, because they were begun before the last change to the depth.
    skipped_batches: f64,
}

impl Tuner {
    /// Returns `None` if the prefetch depth is fixed.
    pub(crate) fn new(settings: &Arc<Settings>) -> Option<Self> {
        if !settings.prefetch.is_range() {
            return None;
        }
        let now = Instant::now();
        let state = State {
            climber: HillClimber::new(settings),
            open_time: now,
            start_sums: None,
            window: Sums::default(),
            last_end: None,
            next_read_time: now,
            skipped_batches: 0.0,
        };
        Some(Tuner { settings: settings.clone(), state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn begin(&self, counters: &Counters) {
        let mut state = self.state();
        self.stop_measuring(&mut state, counters);
        // Reuse the counters if possible: reading them would delay the first batch.
        let last_end = state.last_end.take().filter(|(time, _)| time.elapsed() < MAX_EPOCH_GAP);
        state.start_sums = Some(last_end.map_or_else(|| self.sums(&state, counters), |(_, sums)| sums));
        state.skipped_batches = 0.0;
    }

    pub(crate) fn end(&self, counters: &Counters) {
        self.stop_measuring(&mut self.state(), counters);
    }

    pub(crate) fn record_delivery(&self, counters: &Counters) {
        let mut state = self.state();
        let now = Instant::now();
        let Some(start_sums) = state.start_sums.filter(|_| now >= state.next_read_time) else { return };
        state.next_read_time = now + READ_INTERVAL;
        let batches = counters.batches() as f64 - start_sums.batches;
        if state.skipped_batches > 0.0 {
            if batches >= state.skipped_batches {
                (state.start_sums, state.skipped_batches) = (Some(self.sums(&state, counters)), 0.0);
            }
            return;
        }
        let seconds = now.duration_since(state.open_time).as_secs_f64() - start_sums.seconds;
        if state.window.seconds + seconds < WINDOW_SECONDS || state.window.batches + batches < WINDOW_BATCHES {
            return;
        }
        let sums = self.sums(&state, counters);
        let mut window = state.window;
        window += sums - start_sums;
        (state.window, state.start_sums) = (Sums::default(), Some(sums));
        let Some(change) = state.climber.add_window(window) else { return };
        // Do not measure the batches in flight, because they were begun with the old depth.
        state.skipped_batches = self.settings.slots() as f64;
        drop(state);
        self.apply(change, window.rate());
    }

    fn sums(&self, state: &State, counters: &Counters) -> Sums {
        Sums::now(state.open_time, counters, &self.settings)
    }

    fn stop_measuring(&self, state: &mut State, counters: &Counters) {
        if let Some(start_sums) = state.start_sums.take()
            && state.skipped_batches == 0.0
        {
            let sums = self.sums(state, counters);
            state.window += sums - start_sums;
            state.last_end = Some((Instant::now(), sums));
        }
    }

    fn apply(&self, Change { old, new, kind }: Change, rate: f64) {
        self.settings.set_prefetch(new);
        let (rate, was) = (rate.round(), old);
        // A panic in the user's logger would lose the batch that is being delivered.
        let _ = guarded(|| {
            match kind {
                ChangeKind::Behind => {
                    tracing::info!(prefetch = new, was, samples_per_second = rate, "raising prefetch for slow samples");
                }
                ChangeKind::Trial => tracing::info!(prefetch = new, was, samples_per_second = rate, "trying prefetch"),
                ChangeKind::Revert => {
                    tracing::info!(prefetch = new, was, samples_per_second = rate, "reverting prefetch")
                }
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests;
