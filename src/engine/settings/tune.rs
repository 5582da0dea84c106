//! The automatic number of batches ahead, found while batches are delivered.
//!
//! What is done is hill climbing, told by the counters when to try. The time in which batches were
//! delivered is cut into windows. Workers that idle because all slots are taken, while the consumer
//! waits, mean steps or samples of unequal times, or reads of which too few are under way: twice as
//! many batches ahead are tried. Where threads want all processors there is nothing to gain. What
//! they want is the time they ran and the time they were ready to run while others had the
//! processors, be it another program.
//!
//! A try stays if more samples come than before, and is taken back if not; then the next one waits,
//! each time twice as long, until the rate is another one: less than 0.7 or more than 1.4 times
//! what it was.

use std::ops::{AddAssign, Sub};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::slots::Settings;
use crate::recipe::guarded;
use crate::trace::{Counters, ProcessStats};

/// A window is at least so long, in seconds and in batches.
const WINDOW_SECONDS: f64 = 0.15;
const WINDOW_BATCHES: f64 = 16.0;
/// How often the counters are looked at: a call in between costs a comparison.
const LOOK: Duration = Duration::from_millis(10);
/// Windows that are judged together, unless one alone is clear.
const BLOCK: u32 = 4;
/// Windows after which a try is decided in any case.
const LONGEST_TRY: u32 = 12;
/// Below this share of the time there is no wait worth a try.
const STALLED: f64 = 0.03;
/// Processors that are wanted for this share of the time have no more to give.
const SATURATED: f64 = 0.92;
/// Blocks without a try after the first one that was taken back, and at most.
const REST: u32 = 4;
const LONGEST_REST: u32 = 256;

/// What was counted over some time in which batches were delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    seconds: f64,
    batches: f64,
    samples: f64,
    /// The consumer's waits, on the host and on the device.
    waited: f64,
    stalled: f64,
    /// The coordinator's waits for slots.
    blocked: f64,
    /// The workers' time in their stages.
    busy: f64,
    /// Processor time of the process, and the time in which workers were ready to run and had no
    /// processor.
    cpu: f64,
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

    /// Share of the time that the consumer waited.
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

/// A number of batches ahead that is to be used from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    from: usize,
    to: usize,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Try,
    /// The try before was no better.
    Back,
}

/// A try that is being judged.
#[derive(Debug, Clone, Copy)]
struct Trial {
    change: Change,
    /// What was counted before.
    before: Sums,
    /// By how much the rate must have changed for the try to stay.
    wanted: f64,
}

/// Blocks that pass before the next try.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    left: u32,
    next: u32,
}

/// The climber, apart from clocks and threads.
#[derive(Debug)]
struct Climb {
    processors: usize,
    workers: usize,
    prefetch: usize,
    most: usize,
    /// What is judged together, and of how many windows.
    block: Sums,
    windows: u32,
    trial: Option<Trial>,
    rest: Rest,
    /// What was counted since the last change, the older the less of it.
    steady: Sums,
}

impl Climb {
    fn new(settings: &Settings) -> Self {
        Climb {
            processors: settings.processors,
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

    /// Takes the next window, and says what is to change.
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

    /// Ends the try, or goes on with it (`None`): what is to change then.
    fn judge(&mut self, Trial { change, before, wanted }: Trial) -> Option<Option<Change>> {
        let gain = self.block.rate() / before.rate();
        // The longer it is looked at the less is chance: bursts of the consumer's are longer than a
        // window.
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

    /// Looks for something to try; `None` if more windows are needed to say.
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
        let idle = busy < 0.95 && demand < SATURATED * self.processors as f64;
        if !rested || from == to || wait < STALLED || !idle || blocked < STALLED * seconds {
            return Some(None);
        }
        // What can be gained is the wait: a share of that will do.
        let wanted = 1.0 + (0.25 * wait).min(0.03);
        let change = Change { from, to, why: Why::Try };
        self.trial = Some(Trial { change, before: std::mem::take(&mut self.steady), wanted });
        Some(Some(change))
    }
}

/// Watches the counters, and sets what is left to it.
pub(crate) struct Tuner {
    settings: Arc<Settings>,
    state: Mutex<State>,
}

struct State {
    climb: Climb,
    opened: Instant,
    /// The sums when the window began or was taken up again; none between epochs.
    from: Option<Sums>,
    /// What the window has of the epochs before.
    window: Sums,
    /// When to look next.
    due: Instant,
    /// Batches to leave out: those that were begun before the last change.
    skip: f64,
}

impl Tuner {
    /// A tuner of `settings`, if there is something to tune.
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
            due: now,
            skip: 0.0,
        };
        Some(Tuner { settings: settings.clone(), state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }

    /// An epoch begins.
    pub(crate) fn begin(&self, counters: &Counters) {
        let mut state = self.state();
        self.pause(&mut state, counters);
        state.from = Some(self.sums(&state, counters));
        state.skip = 0.0;
    }

    /// An epoch ends: the time until the next one is the program's.
    pub(crate) fn end(&self, counters: &Counters) {
        self.pause(&mut self.state(), counters);
    }

    /// A batch was delivered.
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
        // Batches that are under way were begun with the old numbers.
        state.skip = self.settings.slots() as f64;
        drop(state);
        self.apply(change, window.rate());
    }

    fn sums(&self, state: &State, counters: &Counters) -> Sums {
        Sums::now(state.opened, counters, &self.settings)
    }

    /// Adds what was counted since the window was taken up to it.
    fn pause(&self, state: &mut State, counters: &Counters) {
        if let Some(from) = state.from.take()
            && state.skip == 0.0
        {
            state.window += self.sums(state, counters) - from;
        }
    }

    fn apply(&self, Change { from, to, why }: Change, rate: f64) {
        self.settings.use_prefetch(to);
        let (rate, was) = (rate.round(), from);
        // The batch at hand would be lost with a logger that panics.
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
