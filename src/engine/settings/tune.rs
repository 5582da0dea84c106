//! Chooses the prefetch depth automatically while batches are delivered.
//!
//! The tuner is a hill climber. It doubles the prefetch depth if workers are idle because all slots
//! are full, and the consumer also waits. This combination points to uneven steps, uneven samples,
//! or too few concurrent reads. The tuner does nothing while the cores are saturated. CPU demand is
//! the time in which threads ran or were runnable but waited for a core, possibly because a
//! different program used it.
//!
//! The counters are compared over time windows in which batches were delivered. A trial that
//! increases the sample rate is kept; any other trial is reverted. After each reverted trial the
//! tuner pauses twice as long, until the rate leaves the range from 0.7 to 1.4 times its value.

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
/// Interval between reads of the counters. Calls in between cost one comparison.
const LOOK: Duration = Duration::from_millis(10);
/// Epochs that are less than this apart are measured together.
const AT_ONCE: Duration = Duration::from_micros(200);
/// Number of windows that are judged together, unless a single window is decisive.
const BLOCK: u32 = 4;
/// Maximum number of windows before a trial is decided.
const LONGEST_TRY: u32 = 12;
/// Minimum fraction of time spent waiting before the tuner acts.
const STALLED: f64 = 0.03;
/// CPU demand, as a fraction of the available CPU time, above which the cores count as saturated.
const SATURATED: f64 = 0.92;
/// Waiting period after the first reverted trial, in blocks.
const REST: u32 = 4;
/// Maximum waiting period after a reverted trial, in blocks.
const LONGEST_REST: u32 = 256;

/// Counters over a period in which batches were delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    seconds: f64,
    batches: f64,
    samples: f64,
    /// Time that the consumer waited on the host.
    waited: f64,
    /// Time that the consumer waited on the device.
    stalled: f64,
    /// Time that the coordinator waited for slots.
    blocked: f64,
    /// Time that the workers spent in their stages.
    busy: f64,
    /// CPU time of the process.
    cpu: f64,
    /// Time in which workers were runnable but not scheduled.
    delayed: f64,
}

impl Sums {
    fn now(since: Instant, counters: &Counters, settings: &Settings) -> Self {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        Sums {
            seconds: since.elapsed().as_secs_f64(),
            batches: counters.batches() as f64,
            samples: counters.samples() as f64,
            waited: seconds(counters.wait.ns()),
            stalled: seconds(counters.stall.ns()),
            blocked: seconds(counters.slot.ns()),
            busy: seconds(counters.busy().values().sum()),
            cpu: ProcessStats::cpu_now(),
            delayed: settings.delayed(),
        }
    }

    fn each(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Sums {
            seconds: f(self.seconds, other.seconds),
            batches: f(self.batches, other.batches),
            samples: f(self.samples, other.samples),
            waited: f(self.waited, other.waited),
            stalled: f(self.stalled, other.stalled),
            blocked: f(self.blocked, other.blocked),
            busy: f(self.busy, other.busy),
            cpu: f(self.cpu, other.cpu),
            delayed: f(self.delayed, other.delayed),
        }
    }

    fn rate(&self) -> f64 {
        self.samples / self.seconds
    }

    /// Returns the fraction of time in which the consumer waited.
    fn wait(&self) -> f64 {
        self.waited.max(self.stalled) / self.seconds
    }
}

impl Sub for Sums {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| a - b)
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        *self = self.each(other, |a, b| a + b);
    }
}

/// A change of the prefetch depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    from: usize,
    to: usize,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Try,
    /// The trial did not increase the rate, so it is reverted.
    Back,
}

/// A trial in progress.
#[derive(Debug, Clone, Copy)]
struct Trial {
    change: Change,
    /// Counters before the trial.
    before: Sums,
    /// Factor by which the rate must increase for the trial to be kept.
    wanted: f64,
}

/// Waiting period between trials, in blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    left: u32,
    next: u32,
}

/// The hill climber itself. It uses neither clocks nor threads.
#[derive(Debug)]
struct Climb {
    cores: usize,
    workers: usize,
    prefetch: usize,
    most: usize,
    /// Counters of the current block of windows.
    block: Sums,
    /// Number of windows in the current block.
    windows: u32,
    trial: Option<Trial>,
    rest: Rest,
    /// Counters since the last change, with exponential decay.
    steady: Sums,
}

impl Climb {
    fn new(settings: &Settings) -> Self {
        Climb {
            cores: settings.cores,
            workers: settings.workers,
            prefetch: settings.prefetch(),
            most: settings.prefetch.most,
            block: Sums::default(),
            windows: 0,
            trial: None,
            rest: Rest::default(),
            steady: Sums::default(),
        }
    }

    /// Adds a window. Returns the change to make to the depth, if any.
    fn window(&mut self, window: Sums) -> Option<Change> {
        self.block += window;
        self.windows += 1;
        let change = match self.trial {
            Some(trial) => self.judge(trial)?,
            None => self.look()?,
        };
        if let Some(change) = change {
            self.prefetch = change.to;
        }
        (self.block, self.windows) = (Sums::default(), 0);
        change
    }

    /// Decides whether to keep or revert the trial. Returns `None` to continue the trial, and
    /// otherwise `Some` with the change to make, if any.
    fn judge(&mut self, Trial { change, before, wanted }: Trial) -> Option<Option<Change>> {
        let gain = self.block.rate() / before.rate();
        // The consumer may work in bursts that are longer than a window, so an early decision
        // requires a clear result.
        let (stays, goes) = match self.windows {
            ..BLOCK => (1.3, 0.0),
            BLOCK..LONGEST_TRY => (wanted + 0.1, wanted - 0.1),
            _ => (wanted, wanted),
        };
        if gain >= stays {
            self.trial = None;
            self.rest = Rest::default();
            self.steady = self.block;
            return self.look();
        }
        if gain >= goes {
            return None;
        }
        self.trial = None;
        self.steady = before;
        let next = (2 * self.rest.next).clamp(REST, LONGEST_REST);
        self.rest = Rest { left: next, next };
        Some(Some(Change { from: change.to, to: change.from, why: Why::Back }))
    }

    /// Decides whether to start a trial. Returns `None` if more windows are needed, and otherwise
    /// `Some` with the change to make, if any.
    fn look(&mut self) -> Option<Option<Change>> {
        if self.windows < BLOCK {
            return None;
        }
        let Sums { seconds, blocked, busy, cpu, delayed, .. } = self.block;
        let (wait, demand) = (self.block.wait(), (cpu + delayed.max(0.0)) / seconds);
        let busy = busy / (self.workers as f64 * seconds);
        if (0.7..=1.4).contains(&(self.block.rate() / self.steady.rate())) {
            if self.steady.seconds > 8.0 * seconds {
                self.steady = self.steady.each(self.steady, |sum, _| sum / 2.0);
            }
            self.steady += self.block;
        } else {
            (self.steady, self.rest) = (self.block, Rest::default());
        }
        let rested = self.rest.left == 0;
        self.rest.left = self.rest.left.saturating_sub(1);
        let (from, to) = (self.prefetch, (2 * self.prefetch).min(self.most));
        let idle = busy < 0.95 && demand < SATURATED * self.cores as f64;
        if !rested || from == to || wait < STALLED || !idle || blocked < STALLED * seconds {
            return Some(None);
        }
        // At best, the trial eliminates the whole wait. Require a quarter of that gain, but not
        // more than 3 %.
        let wanted = 1.0 + (0.25 * wait).min(0.03);
        let change = Change { from, to, why: Why::Try };
        self.trial = Some(Trial { change, before: std::mem::take(&mut self.steady), wanted });
        Some(Some(change))
    }
}

/// Reads the counters and changes the prefetch depth.
pub(crate) struct Tuner {
    settings: Arc<Settings>,
    state: Mutex<State>,
}

struct State {
    climb: Climb,
    opened: Instant,
    /// Counters at the start of the current stretch of the window. `None` between epochs.
    from: Option<Sums>,
    /// Sum of the earlier stretches of the window.
    window: Sums,
    /// Time when the last epoch ended, with the counters at that time.
    ended: Option<(Instant, Sums)>,
    /// Time of the next read of the counters.
    due: Instant,
    /// Number of batches to ignore because they were begun before the last change.
    skip: f64,
}

impl Tuner {
    /// Creates a tuner for `settings`, if the prefetch depth is automatic.
    pub(crate) fn new(settings: &Arc<Settings>) -> Option<Self> {
        if !settings.prefetch.are_open() {
            return None;
        }
        let now = Instant::now();
        let state = State {
            climb: Climb::new(settings),
            opened: now,
            from: None,
            window: Sums::default(),
            ended: None,
            due: now,
            skip: 0.0,
        };
        Some(Tuner { settings: settings.clone(), state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }

    /// Records that an epoch begins.
    pub(crate) fn begin(&self, counters: &Counters) {
        let mut state = self.state();
        self.pause(&mut state, counters);
        // Reading the counters takes some system calls, which would delay the first batch.
        let ended = state.ended.take().filter(|(at, _)| at.elapsed() < AT_ONCE);
        state.from = Some(ended.map_or_else(|| self.sums(&state, counters), |(_, sums)| sums));
        state.skip = 0.0;
    }

    /// Records that an epoch ends. The time until the next epoch is not measured.
    pub(crate) fn end(&self, counters: &Counters) {
        self.pause(&mut self.state(), counters);
    }

    /// Records that a batch was delivered.
    pub(crate) fn delivered(&self, counters: &Counters) {
        let mut state = self.state();
        let now = Instant::now();
        let Some(from) = state.from.filter(|_| now >= state.due) else { return };
        state.due = now + LOOK;
        let batches = counters.batches() as f64 - from.batches;
        if state.skip > 0.0 {
            if batches >= state.skip {
                (state.from, state.skip) = (Some(self.sums(&state, counters)), 0.0);
            }
            return;
        }
        let seconds = now.duration_since(state.opened).as_secs_f64() - from.seconds;
        if state.window.seconds + seconds < WINDOW_SECONDS || state.window.batches + batches < WINDOW_BATCHES {
            return;
        }
        let sums = self.sums(&state, counters);
        let mut window = state.window;
        window += sums - from;
        (state.window, state.from) = (Sums::default(), Some(sums));
        let Some(change) = state.climb.window(window) else { return };
        // Batches in flight were begun with the old depth.
        state.skip = self.settings.slots() as f64;
        drop(state);
        self.apply(change, window.rate());
    }

    fn sums(&self, state: &State, counters: &Counters) -> Sums {
        Sums::now(state.opened, counters, &self.settings)
    }

    /// Adds the counters of the current stretch to the window.
    fn pause(&self, state: &mut State, counters: &Counters) {
        if let Some(from) = state.from.take()
            && state.skip == 0.0
        {
            let sums = self.sums(state, counters);
            state.window += sums - from;
            state.ended = Some((Instant::now(), sums));
        }
    }

    fn apply(&self, Change { from, to, why }: Change, rate: f64) {
        self.settings.use_prefetch(to);
        let (rate, was) = (rate.round(), from);
        // Without the guard, a panic in the user's logger would lose the current batch.
        let _ = guarded(|| {
            match why {
                Why::Try => tracing::info!(prefetch = to, was, samples_per_second = rate, "trying prefetch"),
                Why::Back => tracing::info!(prefetch = to, was, samples_per_second = rate, "reverting prefetch"),
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests;
