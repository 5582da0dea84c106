//! The running schedule and its baton. Only the thread that has the baton runs, until it passes the
//! baton to the next thread.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::fmt::{self, Write};
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use super::functions::real_futex;
use super::schedule::{MAX_THREADS, Schedule, State, Step, WaitsFor, next_random};

thread_local! {
    /// Index of this thread in the schedule, or `MAX_THREADS` if the schedule does not control it.
    pub(super) static THREAD_INDEX: Cell<usize> = const { Cell::new(MAX_THREADS) };
    /// Whether this thread is executing the scheduler itself.
    pub(super) static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Number of rounds of thread-local destructors that have started on this thread.
    pub(super) static DESTRUCTOR_ROUNDS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the index of the calling thread, or `None` if the schedule does not control it or it is
/// executing the scheduler itself.
pub(super) fn managed_thread() -> Option<usize> {
    Some(THREAD_INDEX.get()).filter(|me| *me < MAX_THREADS && !IS_INSIDE.get())
}

pub(super) fn without_scheduling<R>(body: impl FnOnce() -> R) -> R {
    let was_inside = IS_INSIDE.replace(true);
    let result = body();
    IS_INSIDE.set(was_inside);
    result
}

/// A spin lock that calls no libc function.
pub(super) struct SpinLock {
    pub(super) is_locked: AtomicBool,
    pub(super) schedule: UnsafeCell<Option<Schedule>>,
}

// SAFETY: a thread accesses the schedule only while it holds the lock, before the first thread of
// the schedule starts, or in `print_backtrace`, while no other thread runs.
unsafe impl Sync for SpinLock {}

pub(super) static SCHEDULE: SpinLock = SpinLock { is_locked: AtomicBool::new(false), schedule: UnsafeCell::new(None) };
pub(super) static IS_RUNNING: AtomicBool = AtomicBool::new(false);
/// Whether the schedule has failed. Each thread that then gets the baton prints its backtrace.
pub(super) static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// One futex word per thread: 1 while the thread has been passed the baton but has not taken it
/// yet, `u32::MAX` once it prints its backtrace, and 0 otherwise.
pub(super) static BATONS: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(0) }; MAX_THREADS];
/// Key of the thread-local value whose destructor ends a scheduled thread. This destructor runs
/// after the thread-local destructors of std.
pub(super) static EXIT_KEY: AtomicU32 = AtomicU32::new(0);

pub(super) struct LockedSchedule {
    pub(super) was_inside: bool,
}

impl LockedSchedule {
    pub(super) fn new() -> Self {
        let was_inside = IS_INSIDE.replace(true);
        while SCHEDULE.is_locked.swap(true, SeqCst) {
            spin_loop();
        }
        LockedSchedule { was_inside }
    }
}

impl Deref for LockedSchedule {
    type Target = Schedule;
    fn deref(&self) -> &Schedule {
        // SAFETY: this thread holds the lock.
        unsafe { &*SCHEDULE.schedule.get() }.as_ref().expect("a schedule runs")
    }
}

impl DerefMut for LockedSchedule {
    fn deref_mut(&mut self) -> &mut Schedule {
        // SAFETY: this thread holds the lock.
        unsafe { &mut *SCHEDULE.schedule.get() }.as_mut().expect("a schedule runs")
    }
}

impl Drop for LockedSchedule {
    fn drop(&mut self) {
        SCHEDULE.is_locked.store(false, SeqCst);
        IS_INSIDE.set(self.was_inside);
    }
}

/// Writes to standard error without a lock.
pub(super) struct UnlockedStderr;

impl Write for UnlockedStderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: `text` is valid for reads of its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}

/// Prints the backtrace of this thread. The last thread to do so ends the process.
pub(super) fn print_backtrace(me: usize) -> ! {
    IS_INSIDE.set(true);
    BATONS[me].store(u32::MAX, SeqCst);
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::force_capture();
    let _ = writeln!(UnlockedStderr, "\nthread {me} ({}):\n{backtrace}", thread.name().unwrap_or("unnamed"));
    // SAFETY: only this thread runs. All other threads wait for the baton or have printed.
    let threads =
        &unsafe { &*SCHEDULE.schedule.get() }.as_ref().expect("the schedule exists until the process ends").threads;
    let is_waiting = |id: &usize| threads[*id].state != State::Ended && BATONS[*id].load(SeqCst) != u32::MAX;
    match (0..threads.len()).find(is_waiting) {
        Some(next) => pass_baton(next),
        None => exit(101),
    }
    loop {
        // SAFETY: the call only waits for a signal.
        unsafe { libc::pause() };
    }
}

pub(super) fn pass_baton(next: usize) {
    BATONS[next].store(1, SeqCst);
    real_futex(&BATONS[next], libc::FUTEX_WAKE, 1);
}

pub(super) fn await_baton(me: usize) {
    while BATONS[me].compare_exchange(1, 0, SeqCst, SeqCst).is_err() {
        real_futex(&BATONS[me], libc::FUTEX_WAIT, 0);
    }
    if HAS_FAILED.load(SeqCst) {
        print_backtrace(me);
    }
}

pub(super) fn pass_baton_to(me: usize, next: usize) {
    if me != next {
        {
            let mut schedule = LockedSchedule::new();
            let coverage = &mut schedule.coverage;
            coverage.switches += 1;
            let mut order = coverage.order ^ coverage.steps << 16 ^ next as u64;
            coverage.order = next_random(&mut order);
        }
        without_scheduling(|| {
            pass_baton(next);
            await_baton(me);
        });
    }
}

/// A scheduling point: may pass the baton.
pub(super) fn step() {
    if let Some(me) = managed_thread() {
        let next = LockedSchedule::new().choose_after(me, Step::Call);
        pass_baton_to(me, next);
    }
}

pub(super) fn step_after_waking(me: usize) {
    let next = LockedSchedule::new().choose_after(me, Step::Wake);
    pass_baton_to(me, next);
}

/// Blocks this thread and lets other threads run. Returns whether the wait timed out.
pub(super) fn wait(me: usize, waits_for: WaitsFor, deadline: Option<u64>) -> bool {
    let next = {
        let mut schedule = LockedSchedule::new();
        schedule.count_step(me, Step::Call);
        schedule.threads[me].waits += 1;
        schedule.threads[me].state = State::Waits(waits_for, deadline);
        match schedule.choose_next(None) {
            Some(next) => next,
            None => schedule.fail("deadlocks"),
        }
    };
    pass_baton_to(me, next);
    LockedSchedule::new().threads[me].timed_out
}

pub(super) fn sleep(me: usize, deadline: u64) {
    wait(me, WaitsFor::Time, Some(deadline));
}

pub(super) fn exit(status: c_int) -> ! {
    IS_INSIDE.set(true);
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(status) }
}
