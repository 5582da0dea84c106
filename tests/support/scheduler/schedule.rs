//! Derives all decisions from a seed: which thread runs next, which waiter is woken, and which
//! waits time out.
//!
//! There are two policies ([`Style`]), which find different bugs: switches at uniformly random
//! steps, and random priorities with few preemptions. The seed selects one.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;

use super::baton::{HAS_FAILED, THREAD_INDEX, UnlockedStderr, print_backtrace};

pub(super) const MAX_THREADS: usize = 1024;

/// Virtual time limit in nanoseconds. A schedule fails if a timeout advances the clock beyond the
/// limit: its threads probably wait for each other.
pub(super) const TIME_LIMIT: u64 = 1_000_000_000_000;

/// Maximum number of steps. A schedule with more steps fails: it is probably a livelock.
pub(super) const MAX_STEPS: u64 = 20_000_000;

/// `(n, m)`: at each of the next `n` steps of a thread whose wait timed out, the scheduler chooses
/// a thread again with a probability of at least 1 in `m`. Code that handles a timeout runs rarely,
/// and races with the event for which the thread waited, so threads switch more often there.
pub(super) const AFTER_TIMEOUT: (u32, u64) = (8, 4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsFor {
    Futex { address: usize, bits: u32 },
    End { thread: usize },
    EndOfAll,
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Waits(WaitsFor, Option<u64>),
    Ended,
}

pub(super) struct Thread {
    pub(super) state: State,
    pub(super) timed_out: bool,
    /// Number of upcoming steps of this thread with a higher probability of a switch.
    pub(super) boosted_steps: u32,
    pub(super) handle: Option<libc::pthread_t>,
    /// The thread's stack, until the thread is joined.
    pub(super) stack: Option<Stack>,
    pub(super) priority: u64,
    /// Virtual nanoseconds that the thread has run.
    pub(super) run_time: u64,
    pub(super) waits: u64,
}

/// A thread's stack. Stacks are reused, because mapping the pages of a new one takes longer than
/// most threads run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack {
    pub(super) memory: *mut c_void,
    pub(super) bytes: usize,
}

impl Stack {
    pub(super) fn new(bytes: usize) -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the call maps new memory.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind | libc::MAP_STACK, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED, "cannot map memory for the stack of a thread");
        // SAFETY: the lowest page of the new mapping becomes the guard page.
        assert_eq!(unsafe { libc::mprotect(memory, PAGE, libc::PROT_NONE) }, 0);
        Stack { memory, bytes }
    }
}

pub(super) const PAGE: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// `Uniform(n)`: at each step except branches and yields, the next thread is chosen uniformly
    /// from the ready threads with a probability of at least 1 in `n`, or 1 in 2 for a wake-up.
    Uniform(u64),
    /// `Priorities(n)`: the ready thread with the highest priority runs. At each step except
    /// branches, yields and waits, the running thread gets the lowest priority with a probability
    /// of at least 1 in `n`. A few such preemptions at arbitrary points find bugs that need a
    /// particular order of events ("A randomized scheduler with probabilistic guarantees of finding
    /// bugs", ASPLOS 2010).
    Priorities(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A thread has been woken or started.
    Wake,
    /// A thread reads the clock, allocates or frees memory, yields, or begins to wait.
    Call,
    /// A branch of an instrumented crate.
    Branch,
}

pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) random: u64,
    pub(super) style: Style,
    /// `n`: at each choice, the earliest deadline passes with a probability of 1 in `n`, even if
    /// other threads can run. `u64::MAX` disables this.
    pub(super) early_timeout_odds: u64,
    /// Time in nanoseconds from the earliest deadline until its wait times out. Waits with
    /// deadlines in between time out as well, so several waits end together.
    pub(super) timeout_delay: u64,
    /// `n`: at each yield, a different ready thread, if any, runs with a probability of at least 1
    /// in `n`.
    pub(super) yield_odds: u64,
    pub(super) now: u64,
    /// Virtual duration of a step in nanoseconds.
    pub(super) step_time: u64,
    /// `n`: at each branch, the next thread is chosen again with a probability of at least 1 in
    /// `n`.
    pub(super) branch_odds: u64,
    /// Whether a thread has become ready since the last step that checked this flag. Only
    /// `Priorities` checks it.
    pub(super) has_new_ready_thread: bool,
    pub(super) threads: Vec<Thread>,
    pub(super) stacks: Vec<Stack>,
    pub(super) lowest_priority: u64,
    pub(super) coverage: Coverage,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Coverage {
    pub threads: u64,
    pub steps: u64,
    pub switches: u64,
    pub order: u64,
}

/// Returns the next number of the SplitMix64 generator.
pub(super) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = seed;
        let mut one_of = |values: &[u64]| values[next_random(&mut random) as usize % values.len()];
        let switch_odds = one_of(&[2, 8, 32, 128, 512]);
        Schedule {
            seed,
            style: if one_of(&[0, 1]) == 0 { Style::Uniform(switch_odds) } else { Style::Priorities(switch_odds * 4) },
            early_timeout_odds: one_of(&[u64::MAX, 200, 20]),
            timeout_delay: one_of(&[0, 100_000, 10_000_000, 10_000_000]),
            yield_odds: one_of(&[1, 8, 64]),
            step_time: one_of(&[20, 500, 20_000]),
            branch_odds: one_of(&[50, 500, 5000]),
            has_new_ready_thread: true,
            random,
            now: 1_000_000_000,
            threads: Vec::with_capacity(MAX_THREADS),
            stacks: Vec::new(),
            lowest_priority: u64::MAX / 2,
            coverage: Coverage::default(),
        }
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        next_random(&mut self.random).is_multiple_of(n)
    }

    pub(super) fn add_thread(&mut self) -> usize {
        assert!(self.threads.len() < MAX_THREADS, "a schedule starts more than {MAX_THREADS} threads");
        let priority = u64::MAX / 2 + next_random(&mut self.random) / 2;
        let (state, handle, stack) = (State::Ready, None, None);
        let thread =
            Thread { state, timed_out: false, boosted_steps: 0, handle, stack, priority, run_time: 0, waits: 0 };
        self.threads.push(thread);
        self.coverage.threads += 1;
        self.has_new_ready_thread = true;
        self.threads.len() - 1
    }

    /// Counts a step of thread `me`. Unless the step is a branch, also advances the virtual time.
    pub(super) fn count_step(&mut self, me: usize, step: Step) {
        self.coverage.steps += 1;
        if step != Step::Branch {
            self.now += self.step_time;
            self.threads[me].run_time += self.step_time;
        }
        if self.coverage.steps > MAX_STEPS {
            self.fail(format_args!("exceeds {MAX_STEPS} steps"));
        }
    }

    /// Times out the wait with the earliest deadline, and waits with deadlines up to
    /// `timeout_delay` after it. Returns whether any wait had a deadline.
    pub(super) fn time_out_first_wait(&mut self) -> bool {
        let deadline = |thread: &Thread| match thread.state {
            State::Waits(_, deadline) => deadline,
            _ => None,
        };
        let Some(first_deadline) = self.threads.iter().filter_map(deadline).min() else { return false };
        self.now = self.now.max(first_deadline + self.timeout_delay);
        if self.now > TIME_LIMIT {
            self.fail(format_args!("exceeds {} s of virtual time", TIME_LIMIT / 1_000_000_000));
        }
        let now = self.now;
        for thread in self.threads.iter_mut().filter(|thread| deadline(thread).is_some_and(|end| end <= now)) {
            (thread.state, thread.timed_out, thread.boosted_steps) = (State::Ready, true, AFTER_TIMEOUT.0);
        }
        self.has_new_ready_thread = true;
        true
    }

    /// Chooses a ready thread other than `avoid`. If there is none, first times out the wait with
    /// the earliest deadline. Returns `avoid` if no thread has a deadline, or `None` if `avoid` is
    /// not ready either.
    pub(super) fn choose_next(&mut self, avoid: Option<usize>) -> Option<usize> {
        if self.early_timeout_odds < u64::MAX && self.one_in(self.early_timeout_odds) {
            self.time_out_first_wait();
        }
        let ready_threads = |s: &Self, avoid: Option<usize>| -> Vec<usize> {
            (0..s.threads.len()).filter(|id| s.threads[*id].state == State::Ready && Some(*id) != avoid).collect()
        };
        let mut ids = ready_threads(self, avoid);
        if ids.is_empty() && self.time_out_first_wait() {
            ids = ready_threads(self, avoid);
        }
        if ids.is_empty() {
            return avoid.filter(|me| self.threads[*me].state == State::Ready);
        }
        match self.style {
            Style::Uniform(_) => Some(ids[next_random(&mut self.random) as usize % ids.len()]),
            Style::Priorities(_) => ids.into_iter().max_by_key(|id| self.threads[*id].priority),
        }
    }

    pub(super) fn choose_after(&mut self, me: usize, step: Step) -> usize {
        self.count_step(me, step);
        let switch_odds = match (self.style, step) {
            (_, Step::Branch) => self.branch_odds,
            (Style::Uniform(switch_odds), Step::Wake) => switch_odds.min(2),
            (Style::Uniform(switch_odds) | Style::Priorities(switch_odds), _) => switch_odds,
        };
        let boosted_left = &mut self.threads[me].boosted_steps;
        let is_boosted = *boosted_left > 0;
        *boosted_left = boosted_left.saturating_sub(1);
        let switch_odds = if is_boosted { switch_odds.min(AFTER_TIMEOUT.1) } else { switch_odds };
        if self.one_in(switch_odds) {
            self.lower_priority(me);
            // Half of the time, also let the next deadline pass, as if this thread had not run for
            // a long time.
            if is_boosted && self.one_in(2) {
                self.time_out_first_wait();
            }
        } else if matches!(self.style, Style::Uniform(_)) || !std::mem::take(&mut self.has_new_ready_thread) {
            return me;
        }
        self.choose_next(None).expect("this thread is ready")
    }

    pub(super) fn lower_priority(&mut self, me: usize) {
        self.lowest_priority -= 1;
        self.threads[me].priority = self.lowest_priority;
    }

    /// Wakes at most `count` matching waiters, and returns how many it woke.
    pub(super) fn wake(&mut self, is_meant: impl Fn(WaitsFor) -> bool, count: usize) -> usize {
        for woken in 0..count {
            let waits = |thread: &Thread| matches!(thread.state, State::Waits(on, _) if is_meant(on));
            let ids: Vec<usize> = (0..self.threads.len()).filter(|id| waits(&self.threads[*id])).collect();
            if ids.is_empty() {
                return woken;
            }
            let id = ids[next_random(&mut self.random) as usize % ids.len()];
            (self.threads[id].state, self.threads[id].timed_out) = (State::Ready, false);
            self.has_new_ready_thread = true;
        }
        count
    }

    /// Fails the schedule: every thread that has not ended prints its backtrace, and the last one
    /// ends the process.
    pub(super) fn fail(&mut self, reason: impl std::fmt::Display) -> ! {
        let _ = writeln!(UnlockedStderr, "schedule {} {reason} ({:?}, {:?})", self.seed, self.style, self.coverage);
        for (id, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.state != State::Ended) {
            let _ = writeln!(UnlockedStderr, "thread {id}: {:?}", thread.state);
        }
        HAS_FAILED.store(true, SeqCst);
        print_backtrace(THREAD_INDEX.get())
    }
}
