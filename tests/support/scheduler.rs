//! Runs the threads of a test one at a time, in an order that a seed chooses.
//!
//! The threads of the library and of its crates block in few functions of libc: `syscall` for
//! futexes, `pthread_join`, sleeps and `sched_yield`. The executable of the test defines these
//! itself, so the linker prefers them, and the library is tested as it is. While a schedule runs,
//! its threads hand a baton to each other. A thread hands it on when it blocks, and may have to
//! whenever it wakes, starts or yields to others, reads the clock or allocates ([`Allocator`]).
//! Time is virtual: it passes with every such step, and jumps to the next deadline when every thread
//! waits. Threads that were not started by a schedule keep the functions of libc.
//!
//! If the library is compiled by `branches`, each of its branches is a step, too.
//!
//! [`explore`] runs [`TOGETHER`] schedules in a process, one after the other. Later ones find what
//! the library has initialized, so a seed is repeated together with those before it.
#![allow(unsafe_code)] // it replaces functions of libc
#![allow(dead_code, unreachable_pub)] // each test uses its part

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::fmt::{self, Write};
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Threads that a schedule may start.
const MOST: usize = 1024;
/// Schedules that a process runs.
const TOGETHER: u64 = 50;
/// A schedule fails if its threads still wait for each other after this time, in virtual ns.
const PATIENCE: u64 = 1_000_000_000_000;
/// A schedule that takes more steps than this does not end.
const STEPS: u64 = 20_000_000;
/// Real seconds after which a schedule fails: a thread spins without a step.
const REAL_PATIENCE: c_uint = 120;
/// So many steps after a wait that ended by time, a different thread may run after one step in so
/// many: these steps are rare, and what the thread waited for may happen meanwhile.
const RARE: (u32, u64) = (8, 4);
/// Processors that the library sees.
const PROCESSORS: usize = 2;

thread_local! {
    /// Number of this thread in the schedule, or `MOST`.
    static ME: Cell<usize> = const { Cell::new(MOST) };
    /// Whether the scheduler itself runs on this thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Rounds of destructors of thread-local values that have begun.
    static ROUNDS: Cell<usize> = const { Cell::new(0) };
}

/// The number of this thread, if the schedule decides when it runs.
fn managed() -> Option<usize> {
    Some(ME.get()).filter(|me| *me < MOST && !INSIDE.get())
}

/// Runs `body` without steps.
fn inside<R>(body: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(true);
    let result = body();
    INSIDE.set(before);
    result
}

/// The functions of a sanitizer in the place of libc's, or 0.
mod sanitizer {
    macro_rules! functions {
        ($($name:ident $sanitizers:literal $label:literal)*) => {
            $(std::arch::global_asm!(
                concat!(".weak ", $sanitizers),
                ".pushsection .data.rel.ro.scheduler,\"aw\"",
                ".balign 8",
                concat!($label, ": .8byte ", $sanitizers),
                concat!(".globl ", $label),
                ".popsection"
            );)*
            unsafe extern "C" {
                $(#[link_name = $label] pub(super) static $name: usize;)*
            }
        };
    }
    functions! {
        syscall "__interceptor_syscall" "scheduler_syscall"
        sched_yield "__interceptor_sched_yield" "scheduler_sched_yield"
        nanosleep "__interceptor_nanosleep" "scheduler_nanosleep"
        clock_nanosleep "__interceptor_clock_nanosleep" "scheduler_clock_nanosleep"
        clock_gettime "__interceptor_clock_gettime" "scheduler_clock_gettime"
        getrusage "__interceptor_getrusage" "scheduler_getrusage"
        getrandom "__interceptor_getrandom" "scheduler_getrandom"
        sched_getaffinity "__interceptor_sched_getaffinity" "scheduler_sched_getaffinity"
        pthread_create "__interceptor_pthread_create" "scheduler_pthread_create"
        pthread_join "__interceptor_pthread_join" "scheduler_pthread_join"
        pthread_detach "__interceptor_pthread_detach" "scheduler_pthread_detach"
        pthread_getattr_np "__interceptor_pthread_getattr_np" "scheduler_pthread_getattr_np"
    }
}

/// Calls libc's function, or that of a sanitizer, which calls libc's.
macro_rules! libc_call {
    ($name:ident($($argument:expr),*) as $type:ty) => {{
        static FOUND: AtomicUsize = AtomicUsize::new(0);
        let mut at = FOUND.load(Relaxed);
        if at == 0 {
            // SAFETY: it is a constant, defined above.
            at = unsafe { sanitizer::$name };
            if at == 0 {
                let name = concat!(stringify!($name), "\0").as_ptr();
                // SAFETY: `name` is a C string.
                at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.cast()) } as usize;
            }
            FOUND.store(at, Relaxed);
        }
        // SAFETY: libc's function of this name has this type.
        let function = unsafe { std::mem::transmute::<usize, $type>(at) };
        // SAFETY: the caller's arguments are passed on.
        unsafe { function($($argument),*) }
    }};
}

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

fn real_futex(word: &AtomicU32, operation: c_int, value: u32) {
    let word = ptr::from_ref(word) as usize;
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    libc_call!(syscall(libc::SYS_futex, word, operation, value as usize, 0, 0, 0) as Syscall);
}

fn fails(error: c_int) -> c_long {
    // SAFETY: it is this thread's `errno`.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Futex { address: usize, bits: u32 },
    End { thread: usize },
    EndOfAll,
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Waits(On, Option<u64>),
    Ended,
}

struct Thread {
    state: State,
    timed_out: bool,
    /// Number of its next steps that are likely to be interrupted.
    rare: u32,
    /// Its handle and its stack, until it has been joined.
    handle: Option<libc::pthread_t>,
    stack: Option<Stack>,
    priority: u64,
    /// Virtual time for which it ran, and how often it waited.
    ran: u64,
    waits: u64,
}

/// Memory of a thread's stack. It is reused, because new pages take longer than all that a short
/// thread does.
#[derive(Debug, Clone, Copy)]
struct Stack {
    at: *mut c_void,
    bytes: usize,
}

impl Stack {
    fn new(bytes: usize) -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: it maps new memory.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind | libc::MAP_STACK, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "no memory for the stack of a thread");
        // SAFETY: the lowest page guards what lies below.
        assert_eq!(unsafe { libc::mprotect(at, PAGE, libc::PROT_NONE) }, 0);
        Stack { at, bytes }
    }
}

const PAGE: usize = 4096;

/// How the next thread is chosen.
#[derive(Debug, Clone, Copy)]
enum Style {
    /// Any thread, after one step in so many.
    Uniform(u64),
    /// The thread with the highest priority, which becomes the lowest after one step in so many:
    /// few preemptions at arbitrary places find what needs a particular order ("A randomized
    /// scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).
    Priorities(u64),
}

/// Where a different thread may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Where a thread has been woken or started.
    Wake,
    /// Where the clock is read, or memory is allocated.
    Call,
    /// At a branch of an instrumented crate.
    Branch,
}

struct Schedule {
    seed: u64,
    random: u64,
    style: Style,
    /// A wait ends by time in one choice of so many, although others could run.
    hurry: u64,
    /// Time in ns by which a wait may end too late, so that waits end at once.
    late: u64,
    /// A thread that yields lets others run once in so many times.
    yields: u64,
    now: u64,
    /// Virtual time of a step.
    step: u64,
    /// A different thread may run after one branch in so many.
    branches: u64,
    /// Whether threads have become ready since the last choice by priorities.
    more: bool,
    threads: Vec<Thread>,
    /// Stacks that no thread uses.
    stacks: Vec<Stack>,
    lowest: u64,
    covered: Covered,
}

/// What a schedule did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Covered {
    pub threads: u64,
    pub steps: u64,
    pub switches: u64,
    /// Hash of the order of the threads.
    pub order: u64,
}

/// A lock without functions of libc.
struct Spin {
    taken: AtomicBool,
    schedule: UnsafeCell<Option<Schedule>>,
}

// SAFETY: only the holder of `taken` uses the schedule.
unsafe impl Sync for Spin {}

static SCHEDULE: Spin = Spin { taken: AtomicBool::new(false), schedule: UnsafeCell::new(None) };
/// Whether a schedule runs.
static ON: AtomicBool = AtomicBool::new(false);
/// Whether a schedule has failed, so that its threads print where they are.
static FAILED: AtomicBool = AtomicBool::new(false);
/// One for each thread that may run.
static BATONS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// The value of a thread with this key is destroyed after its other values.
static LAST: AtomicU32 = AtomicU32::new(0);

struct Held {
    before: bool,
}

impl Held {
    fn new() -> Self {
        let before = INSIDE.replace(true);
        while SCHEDULE.taken.swap(true, SeqCst) {
            spin_loop();
        }
        Held { before }
    }
}

impl Deref for Held {
    type Target = Schedule;
    fn deref(&self) -> &Schedule {
        // SAFETY: this thread has taken the lock.
        unsafe { &*SCHEDULE.schedule.get() }.as_ref().expect("a schedule runs")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Schedule {
        // SAFETY: this thread has taken the lock.
        unsafe { &mut *SCHEDULE.schedule.get() }.as_mut().expect("a schedule runs")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        SCHEDULE.taken.store(false, SeqCst);
        INSIDE.set(self.before);
    }
}

/// SplitMix64.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = seed;
        let mut one_of = |values: &[u64]| values[next_random(&mut random) as usize % values.len()];
        let every = one_of(&[2, 8, 32, 128, 512]);
        Schedule {
            seed,
            style: if one_of(&[0, 1]) == 0 { Style::Uniform(every) } else { Style::Priorities(every * 4) },
            hurry: one_of(&[u64::MAX, 200, 20]),
            late: one_of(&[0, 100_000, 10_000_000, 10_000_000]),
            yields: one_of(&[1, 8, 64]),
            step: one_of(&[20, 500, 20_000]),
            branches: one_of(&[50, 500, 5000]),
            more: true,
            random,
            now: 1_000_000_000,
            threads: Vec::with_capacity(MOST),
            stacks: Vec::new(),
            lowest: u64::MAX / 2,
            covered: Covered::default(),
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        next_random(&mut self.random).is_multiple_of(n)
    }

    fn add(&mut self) -> usize {
        assert!(self.threads.len() < MOST, "a schedule starts more than {MOST} threads");
        let priority = u64::MAX / 2 + next_random(&mut self.random) / 2;
        let (state, handle, stack) = (State::Ready, None, None);
        let thread = Thread { state, timed_out: false, rare: 0, handle, stack, priority, ran: 0, waits: 0 };
        self.threads.push(thread);
        self.covered.threads += 1;
        self.more = true;
        self.threads.len() - 1
    }

    /// Passes the time of a step of `me`.
    fn pass(&mut self, me: usize, step: Step) {
        self.covered.steps += 1;
        if step != Step::Branch {
            self.now += self.step;
            self.threads[me].ran += self.step;
        }
        if self.covered.steps > STEPS {
            self.fail("takes too many steps");
        }
    }

    /// Lets the wait with the first deadline end, and those that end soon after. Returns whether there
    /// is one.
    fn end_first_wait(&mut self) -> bool {
        let deadline = |thread: &Thread| match thread.state {
            State::Waits(_, deadline) => deadline,
            _ => None,
        };
        let Some(first) = self.threads.iter().filter_map(deadline).min() else { return false };
        self.now = self.now.max(first + self.late);
        if self.now > PATIENCE {
            self.fail("waits in vain");
        }
        let now = self.now;
        for thread in self.threads.iter_mut().filter(|thread| deadline(thread).is_some_and(|end| end <= now)) {
            (thread.state, thread.timed_out, thread.rare) = (State::Ready, true, RARE.0);
        }
        self.more = true;
        true
    }

    /// Chooses a thread. `None` if every thread waits without a deadline. `but` is not chosen if there
    /// is a choice.
    fn choose(&mut self, but: Option<usize>) -> Option<usize> {
        if self.hurry < u64::MAX && self.one_in(self.hurry) {
            self.end_first_wait();
        }
        let ready = |s: &Self, but: Option<usize>| -> Vec<usize> {
            (0..s.threads.len()).filter(|id| s.threads[*id].state == State::Ready && Some(*id) != but).collect()
        };
        let mut ids = ready(self, but);
        if ids.is_empty() && self.end_first_wait() {
            ids = ready(self, but);
        }
        if ids.is_empty() {
            return but.filter(|me| self.threads[*me].state == State::Ready);
        }
        match self.style {
            Style::Uniform(_) => Some(ids[next_random(&mut self.random) as usize % ids.len()]),
            Style::Priorities(_) => ids.into_iter().max_by_key(|id| self.threads[*id].priority),
        }
    }

    /// Chooses the thread that runs after a step of `me`.
    fn after(&mut self, me: usize, step: Step) -> usize {
        self.pass(me, step);
        let every = match (self.style, step) {
            (_, Step::Branch) => self.branches,
            (Style::Uniform(every), Step::Wake) => every.min(2),
            (Style::Uniform(every) | Style::Priorities(every), _) => every,
        };
        let left = &mut self.threads[me].rare;
        let is_rare = *left > 0;
        *left = left.saturating_sub(1);
        let every = if is_rare { every.min(RARE.1) } else { every };
        if self.one_in(every) {
            self.demote(me);
            // The thread may be away for long.
            if is_rare && self.one_in(2) {
                self.end_first_wait();
            }
        } else if matches!(self.style, Style::Uniform(_)) || !std::mem::take(&mut self.more) {
            return me;
        }
        self.choose(None).expect("this thread is ready")
    }

    fn demote(&mut self, me: usize) {
        self.lowest -= 1;
        self.threads[me].priority = self.lowest;
    }

    /// Ends up to `count` waits, and returns their number.
    fn wake(&mut self, is_meant: impl Fn(On) -> bool, count: usize) -> usize {
        for woken in 0..count {
            let waits = |thread: &Thread| matches!(thread.state, State::Waits(on, _) if is_meant(on));
            let ids: Vec<usize> = (0..self.threads.len()).filter(|id| waits(&self.threads[*id])).collect();
            if ids.is_empty() {
                return woken;
            }
            let id = ids[next_random(&mut self.random) as usize % ids.len()];
            (self.threads[id].state, self.threads[id].timed_out) = (State::Ready, false);
            self.more = true;
        }
        count
    }

    /// Ends the process, after every thread has printed where it is.
    fn fail(&mut self, why: &str) -> ! {
        let _ = writeln!(Raw, "schedule {} {why} ({:?}, {:?})", self.seed, self.style, self.covered);
        for (id, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.state != State::Ended) {
            let _ = writeln!(Raw, "thread {id}: {:?}", thread.state);
        }
        FAILED.store(true, SeqCst);
        report(ME.get())
    }
}

/// Standard error without a lock.
struct Raw;

impl Write for Raw {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the bytes are valid.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}

/// Prints where this thread is. The last thread ends the process.
fn report(me: usize) -> ! {
    INSIDE.set(true);
    BATONS[me].store(u32::MAX, SeqCst);
    let thread = std::thread::current();
    let place = std::backtrace::Backtrace::force_capture();
    let _ = writeln!(Raw, "\nthread {me} ({}):\n{place}", thread.name().unwrap_or("unnamed"));
    // SAFETY: only the thread that prints reads the schedule; its threads are stopped.
    let threads = &unsafe { &*SCHEDULE.schedule.get() }.as_ref().expect("it failed").threads;
    let left = |id: &usize| threads[*id].state != State::Ended && BATONS[*id].load(SeqCst) != u32::MAX;
    match (0..threads.len()).find(left) {
        Some(next) => pass_baton(next),
        None => exit(101),
    }
    loop {
        // SAFETY: it only waits.
        unsafe { libc::pause() };
    }
}

fn pass_baton(next: usize) {
    BATONS[next].store(1, SeqCst);
    real_futex(&BATONS[next], libc::FUTEX_WAKE, 1);
}

fn await_baton(me: usize) {
    while BATONS[me].compare_exchange(1, 0, SeqCst, SeqCst).is_err() {
        real_futex(&BATONS[me], libc::FUTEX_WAIT, 0);
    }
    if FAILED.load(SeqCst) {
        report(me);
    }
}

/// Lets `next` run in place of `me`.
fn hand_over(me: usize, next: usize) {
    if me != next {
        {
            let mut schedule = Held::new();
            let covered = &mut schedule.covered;
            covered.switches += 1;
            let mut order = covered.order ^ covered.steps << 16 ^ next as u64;
            covered.order = next_random(&mut order);
        }
        inside(|| {
            pass_baton(next);
            await_baton(me);
        });
    }
}

/// A step: lets another thread run, or not.
pub fn step() {
    if let Some(me) = managed() {
        let next = Held::new().after(me, Step::Call);
        hand_over(me, next);
    }
}

fn step_after_waking(me: usize) {
    let next = Held::new().after(me, Step::Wake);
    hand_over(me, next);
}

/// Waits while others run. Returns whether the wait ended by time.
fn wait(me: usize, on: On, deadline: Option<u64>) -> bool {
    let next = {
        let mut schedule = Held::new();
        schedule.pass(me, Step::Call);
        schedule.threads[me].waits += 1;
        schedule.threads[me].state = State::Waits(on, deadline);
        match schedule.choose(None) {
            Some(next) => next,
            None => schedule.fail("is a deadlock"),
        }
    };
    hand_over(me, next);
    Held::new().threads[me].timed_out
}

/// Waits until the virtual time `deadline`.
fn sleep(me: usize, deadline: u64) {
    wait(me, On::Time, Some(deadline));
}

/// # Safety
/// `time` is valid.
unsafe fn nanos(time: *const libc::timespec) -> u64 {
    // SAFETY: passed on.
    let time = unsafe { &*time };
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

// SAFETY: it does what libc's function does, which has this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if n == libc::SYS_futex && ON.load(Relaxed) && !INSIDE.get() {
        let operation = b as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
        let bits = match operation {
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => f as u32,
            _ => u32::MAX,
        };
        match (operation, managed()) {
            (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET, Some(me)) => {
                // SAFETY: the caller guarantees that the word exists.
                if unsafe { &*(a as *const AtomicU32) }.load(SeqCst) != c as u32 {
                    return fails(libc::EAGAIN);
                }
                // SAFETY: the caller guarantees that the time is valid, if there is one.
                let deadline = (d != 0).then(|| unsafe { nanos(d as *const libc::timespec) });
                let deadline = match operation {
                    libc::FUTEX_WAIT => deadline.map(|time| Held::new().now.saturating_add(time)),
                    _ => deadline,
                };
                let timed_out = wait(me, On::Futex { address: a, bits }, deadline);
                return if timed_out { fails(libc::ETIMEDOUT) } else { 0 };
            }
            (libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET, me) => {
                let meant = |on| matches!(on, On::Futex { address, bits: of } if address == a && of & bits != 0);
                let woken = Held::new().wake(meant, c);
                if let Some(me) = me {
                    step_after_waking(me);
                }
                if woken == c {
                    return woken as c_long;
                }
                // Others may be threads that no schedule manages.
                return woken as c_long + libc_call!(syscall(n, a, b, c - woken, d, e, f) as Syscall);
            }
            _ => {}
        }
    }
    libc_call!(syscall(n, a, b, c, d, e, f) as Syscall)
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    let Some(me) = managed() else { return libc_call!(sched_yield() as unsafe extern "C" fn() -> c_int) };
    let next = {
        let mut schedule = Held::new();
        // Threads yield before they wait, which says nothing about their priority. But two threads
        // must not yield to each other for ever.
        if schedule.one_in(16) {
            schedule.demote(me);
        }
        let yields = schedule.yields;
        if schedule.one_in(yields) {
            schedule.pass(me, Step::Call);
            schedule.choose(Some(me)).expect("this thread is ready")
        } else {
            schedule.after(me, Step::Call)
        }
    };
    hand_over(me, next);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
    type Of = unsafe extern "C" fn(*const libc::timespec, *mut libc::timespec) -> c_int;
    let Some(me) = managed() else { return libc_call!(nanosleep(time, left) as Of) };
    // SAFETY: passed on.
    let deadline = Held::new().now.saturating_add(unsafe { nanos(time) });
    sleep(me, deadline);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    type Of = unsafe extern "C" fn(libc::clockid_t, c_int, *const libc::timespec, *mut libc::timespec) -> c_int;
    let Some(me) = managed() else { return libc_call!(clock_nanosleep(clock, flags, time, left) as Of) };
    let from = if flags & libc::TIMER_ABSTIME != 0 { 0 } else { Held::new().now };
    // SAFETY: passed on.
    sleep(me, from.saturating_add(unsafe { nanos(time) }));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    type Of = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;
    if managed().is_none() {
        return libc_call!(clock_gettime(clock, time) as Of);
    }
    step();
    let now = Held::new().now;
    let now = libc::timespec { tv_sec: (now / 1_000_000_000) as i64, tv_nsec: (now % 1_000_000_000) as i64 };
    // SAFETY: the caller guarantees that `time` is valid for writes.
    unsafe { time.write(now) };
    0
}

/// The time for which a thread ran and the number of its waits decide whether readers start.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrusage(who: c_int, usage: *mut libc::rusage) -> c_int {
    type Of = unsafe extern "C" fn(c_int, *mut libc::rusage) -> c_int;
    let Some(me) = managed() else { return libc_call!(getrusage(who, usage) as Of) };
    let (ran, waits) = {
        let schedule = Held::new();
        (schedule.threads[me].ran, schedule.threads[me].waits)
    };
    // SAFETY: a `rusage` consists of integers, and the caller guarantees that it is valid.
    let usage = unsafe {
        usage.write_bytes(0, 1);
        &mut *usage
    };
    let (seconds, micros) = (ran / 1_000_000_000, ran % 1_000_000_000 / 1000);
    usage.ru_utime = libc::timeval { tv_sec: seconds as i64, tv_usec: micros as i64 };
    usage.ru_nvcsw = waits as c_long;
    0
}

/// The order of hash maps is part of a schedule.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(to: *mut c_void, bytes: usize, flags: c_uint) -> isize {
    type Of = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> isize;
    if managed().is_none() {
        return libc_call!(getrandom(to, bytes, flags) as Of);
    }
    let mut schedule = Held::new();
    for at in 0..bytes {
        // SAFETY: the caller guarantees that `bytes` bytes are valid for writes.
        unsafe { to.cast::<u8>().add(at).write(next_random(&mut schedule.random) as u8) };
    }
    bytes as isize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(of: libc::pid_t, bytes: usize, set: *mut libc::cpu_set_t) -> c_int {
    type Of = unsafe extern "C" fn(libc::pid_t, usize, *mut libc::cpu_set_t) -> c_int;
    if managed().is_none() {
        return libc_call!(sched_getaffinity(of, bytes, set) as Of);
    }
    // SAFETY: the caller guarantees that `bytes` bytes are valid for writes; a set consists of bits.
    unsafe {
        set.cast::<u8>().write_bytes(0, bytes);
        (0..PROCESSORS).for_each(|n| libc::CPU_SET(n, &mut *set));
    }
    0
}

type Main = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Main, *mut c_void) -> c_int;

/// A thread that begins.
struct Start {
    id: usize,
    main: Main,
    argument: *mut c_void,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    main: Main,
    argument: *mut c_void,
) -> c_int {
    let Some(me) = managed() else {
        return libc_call!(pthread_create(thread, attributes, main, argument) as Create);
    };
    let failed = inside(|| {
        let mut bytes = 0;
        // SAFETY: the caller guarantees that the attributes are valid, which std sets.
        assert_eq!(unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut bytes) }, 0);
        let (id, stack) = {
            let mut schedule = Held::new();
            let found = schedule.stacks.iter().rposition(|stack| stack.bytes == bytes);
            (schedule.add(), found.map(|at| schedule.stacks.swap_remove(at)))
        };
        let stack = stack.unwrap_or_else(|| Stack::new(bytes));
        let start = Box::into_raw(Box::new(Start { id, main, argument }));
        // SAFETY: libc initializes the attributes, and the stack belongs to this thread.
        let own = unsafe {
            let mut own: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&raw mut own);
            libc::pthread_attr_setstack(&raw mut own, stack.at, stack.bytes);
            own
        };
        let failed = libc_call!(pthread_create(thread, &raw const own, begin, start.cast()) as Create);
        let mut schedule = Held::new();
        let started = &mut schedule.threads[id];
        if failed == 0 {
            // SAFETY: a thread that has started has a handle.
            (started.handle, started.stack) = (Some(unsafe { *thread }), Some(stack));
        } else {
            started.state = State::Ended;
        }
        failed
    });
    step_after_waking(me);
    failed
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    INSIDE.set(true);
    // SAFETY: `pthread_create` made it for this thread.
    let Start { id, main, argument } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    ME.set(id);
    await_baton(id);
    // SAFETY: the key exists.
    unsafe { libc::pthread_setspecific(LAST.load(SeqCst), ptr::dangling()) };
    INSIDE.set(false);
    main(argument)
}

/// Ends a thread of the schedule, after the destructors of its thread-local values, which std runs
/// in the second round at the latest.
extern "C" fn end(value: *mut c_void) {
    ROUNDS.set(ROUNDS.get() + 1);
    if ROUNDS.get() < 3 {
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(LAST.load(SeqCst), value) };
        return;
    }
    let me = ME.replace(MOST);
    INSIDE.set(true);
    let next = {
        let mut schedule = Held::new();
        schedule.threads[me].state = State::Ended;
        schedule.wake(|on| on == On::End { thread: me }, usize::MAX);
        if schedule.threads.iter().skip(1).all(|thread| thread.state == State::Ended) {
            schedule.wake(|on| on == On::EndOfAll, 1);
        }
        schedule.covered.switches += 1;
        match schedule.choose(None) {
            Some(next) => next,
            None => {
                ME.set(me);
                schedule.threads[me].state = State::Ready;
                schedule.fail("is a deadlock")
            }
        }
    };
    pass_baton(next);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    type Of = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;
    let found = managed().and_then(|me| Some((me, thread_of(thread)?)));
    let Some((me, id)) = found else { return inside(|| libc_call!(pthread_join(thread, result) as Of)) };
    let state = Held::new().threads[id].state;
    if state != State::Ended {
        wait(me, On::End { thread: id }, None);
    }
    inside(|| {
        let failed = libc_call!(pthread_join(thread, result) as Of);
        let mut schedule = Held::new();
        // Another thread may get the same handle.
        schedule.threads[id].handle = None;
        let stack = schedule.threads[id].stack.take();
        schedule.stacks.extend(stack);
        failed
    })
}

fn thread_of(handle: libc::pthread_t) -> Option<usize> {
    Held::new().threads.iter().rposition(|of| of.handle == Some(handle))
}

/// A thread of a schedule is joined at the end of the schedule, because its stack is reused.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_detach(thread: libc::pthread_t) -> c_int {
    type Of = unsafe extern "C" fn(libc::pthread_t) -> c_int;
    if managed().is_some() && thread_of(thread).is_some() {
        return 0;
    }
    libc_call!(pthread_detach(thread) as Of)
}

/// The standard library looks for the guard of its thread's stack, which libc does not know.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int {
    type Of = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;
    let failed = libc_call!(pthread_getattr_np(thread, attributes) as Of);
    if failed == 0 && managed().is_some_and(|me| me > 0) {
        // SAFETY: libc has initialized the attributes.
        unsafe { libc::pthread_attr_setguardsize(attributes, PAGE) };
    }
    failed
}

/// Makes every allocation a step.
pub struct Allocator;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        step();
        // SAFETY: the caller's guarantee for `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        step();
        // SAFETY: the caller's guarantee for `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        step();
        // SAFETY: the caller's guarantee for `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Whether a branch is being examined. What examines it may itself have branches.
static AT_BRANCH: AtomicBool = AtomicBool::new(false);

/// LLVM's coverage calls this at every branch of a crate that is built with it.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_guard(_: *mut u32) {
    if !ON.load(Relaxed) || AT_BRANCH.swap(true, Relaxed) {
        return;
    }
    let me = managed();
    INSIDE.set(INSIDE.get() || me.is_some());
    AT_BRANCH.store(false, Relaxed);
    if let Some(me) = me {
        let next = Held::new().after(me, Step::Branch);
        hand_over(me, next);
        AT_BRANCH.store(true, Relaxed);
        INSIDE.set(false);
        AT_BRANCH.store(false, Relaxed);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_guard_init(_: *mut u32, _: *mut u32) {}

/// Runs `body` and the threads that it starts in the order of `seed`. Returns when all of them have
/// ended.
fn run(seed: u64, body: impl FnOnce()) -> Covered {
    // SAFETY: no other thread of a schedule exists.
    let schedule = unsafe { &mut *SCHEDULE.schedule.get() };
    let stacks = schedule.take().map(|before| before.stacks).unwrap_or_default();
    let schedule = schedule.insert(Schedule { stacks, ..Schedule::new(seed) });
    ME.set(schedule.add());
    ON.store(true, SeqCst);
    body();
    if running() > 0 {
        wait(0, On::EndOfAll, None);
    }
    let left: Vec<_> = inside(|| Held::new().threads.iter().filter_map(|thread| thread.handle).collect());
    for handle in left {
        // SAFETY: nothing else joins the thread, whose end is near.
        unsafe { pthread_join(handle, ptr::null_mut()) };
    }
    ON.store(false, SeqCst);
    ME.set(MOST);
    Held::new().covered
}

/// Number of threads of the schedule that run, in addition to the first.
pub fn running() -> usize {
    Held::new().threads.iter().skip(1).filter(|thread| thread.state != State::Ended).count()
}

unsafe extern "C" fn end_key(value: *mut c_void) {
    end(value);
}

/// What a process reports of a schedule: what it did, and the test's own counts.
#[repr(C)]
#[derive(Clone, Copy)]
struct Report<const N: usize> {
    seed: u64,
    covered: Covered,
    counts: [u64; N],
}

/// Whether the environment asks for seeds.
pub fn are_asked() -> bool {
    std::env::var_os("WARPFEED_SCHEDULES").is_some()
}

/// Seeds that the environment asks for: `WARPFEED_SCHEDULES=0..1000000`.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("WARPFEED_SCHEDULES") else { return usual };
    let parse = || text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parse().unwrap_or_else(|| panic!("WARPFEED_SCHEDULES={text:?} is no range of seeds, such as 0..1000"))
}

/// What schedules did.
#[derive(Debug)]
pub struct Explored<const N: usize> {
    /// Sums of the counts of the schedules.
    pub counts: [u64; N],
    /// Sum of the hashes of their orders.
    pub order: u64,
    pub covered: String,
}

/// Runs `one` in the order of each seed, on all processors. The process must have no thread except
/// this one and that of the test harness, which waits. The error is the seed of a schedule that
/// failed.
pub fn explore<const N: usize>(seeds: Range<u64>, one: impl Fn(u64) -> [u64; N]) -> Result<Explored<N>, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").count();
    assert!(tasks <= 2, "a process with other threads cannot be copied: see `own_process`");
    prepare();
    let mut pipe = [0; 2];
    // SAFETY: the array has room for both ends.
    assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    let begun = std::time::Instant::now();
    let (mut counts, mut all, mut orders) = ([0; N], Covered::default(), HashSet::new());
    let (mut idle, mut running, mut next, mut failed) = (processors(), HashMap::new(), seeds.start, None);
    loop {
        while next < seeds.end
            && failed.is_none()
            && let Some(processor) = idle.pop()
        {
            let some = next..(next + TOGETHER).min(seeds.end);
            next = some.end;
            // SAFETY: this process has one thread.
            match unsafe { libc::fork() } {
                0 => child(some, processor, pipe[1], &one),
                -1 => panic!("cannot start a process: {}", std::io::Error::last_os_error()),
                process => running.insert(process, (some.start, some, processor)),
            };
        }
        if running.is_empty() {
            break;
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        let process = unsafe { libc::wait(&raw mut status) };
        while let Some(Report { seed, covered, counts: own }) = report_from::<N>(pipe[0]) {
            counts.iter_mut().zip(own).for_each(|(sum, count)| *sum += count);
            let Covered { threads, steps, switches, order } = covered;
            (all.threads, all.steps, all.switches) =
                (all.threads + threads, all.steps + steps, all.switches + switches);
            orders.insert(order);
            let of = running.values_mut().find(|(_, left, _)| left.contains(&seed)).expect("a process runs it");
            of.1.start = seed + 1;
        }
        let Some((first, left, processor)) = running.remove(&process) else { continue };
        idle.push(processor);
        if status != 0 || !left.is_empty() {
            let seed = left.start;
            let hangs = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
            let how = if hangs { "spins or hangs" } else { "failed" };
            eprintln!("schedule {seed} {how}; WARPFEED_SCHEDULES={first}..{} repeats it", seed + 1);
            failed = Some(failed.map_or(seed, |before: u64| before.min(seed)));
        }
    }
    // SAFETY: both ends are open.
    pipe.iter().for_each(|end| assert_eq!(unsafe { libc::close(*end) }, 0));
    if let Some(seed) = failed {
        return Err(seed);
    }
    let count = seeds.end - seeds.start;
    let each = |n: u64| n / count.max(1);
    let covered = format!(
        "{count} schedules in {} different orders, {:.1} s: each {} threads, {} steps and {} switches",
        orders.len(),
        begun.elapsed().as_secs_f64(),
        each(all.threads),
        each(all.steps),
        each(all.switches)
    );
    Ok(Explored { counts, order: orders.iter().fold(0, |sum, order| sum.wrapping_add(*order)), covered })
}

/// The next report of a process, if one has come.
fn report_from<const N: usize>(pipe: c_int) -> Option<Report<N>> {
    let mut report = Report { seed: 0, covered: Covered::default(), counts: [0; N] };
    let bytes = size_of::<Report<N>>();
    // SAFETY: a report consists of integers, and a process writes one at once.
    let read = unsafe { libc::read(pipe, (&raw mut report).cast(), bytes) };
    (read == bytes as isize).then_some(report)
}

/// Processors of this process.
fn processors() -> Vec<usize> {
    // SAFETY: a set consists of bits, and has room for the answer.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&n| libc::CPU_ISSET(n, &set)).collect()
    }
}

/// Prepares a process for schedules.
fn prepare() {
    if LAST.load(SeqCst) != 0 {
        return;
    }
    let mut key = 0;
    // Zero stands for no key.
    while key == 0 {
        // SAFETY: the arguments are valid.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(end_key)) }, 0);
    }
    LAST.store(key, SeqCst);
    // All threads allocate from one heap, which does not shrink. Threads that run one at a time gain
    // nothing from more of them, and new pages take time.
    for (option, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 1 << 30),
        (libc::M_TRIM_THRESHOLD, 1 << 30),
        (libc::M_TOP_PAD, 1 << 20),
    ] {
        // SAFETY: it sets a number.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Runs schedules in a process of their own, on one processor, because a thread then hands over the
/// baton in half the time.
fn child<const N: usize>(seeds: Range<u64>, processor: usize, to: c_int, one: impl Fn(u64) -> [u64; N]) -> ! {
    // SAFETY: a set consists of bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
    for seed in seeds {
        // SAFETY: the signal ends this process.
        unsafe { libc::alarm(REAL_PATIENCE) };
        let mut counts = [0; N];
        let result = catch_unwind(AssertUnwindSafe(|| run(seed, || counts = one(seed))));
        let Ok(covered) = result else {
            // The hook has printed the panic.
            exit(101)
        };
        let report = Report { seed, covered, counts };
        let bytes = size_of::<Report<N>>();
        // SAFETY: a report consists of integers.
        if unsafe { libc::write(to, (&raw const report).cast(), bytes) } != bytes as isize {
            exit(102);
        }
    }
    exit(0)
}

/// Ends the process, without destructors.
fn exit(status: c_int) -> ! {
    INSIDE.set(true);
    // SAFETY: it ends the process.
    unsafe { libc::_exit(status) }
}
