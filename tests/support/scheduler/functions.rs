//! Replacements for libc functions. Most are scheduling points, at which a thread may pass the
//! baton to another thread. The others simulate the machine or manage stacks.
//!
//! **Invariants**
//! 1. Each definition has the signature of libc's function. It forwards its caller's arguments, for
//!    which the caller guarantees what libc requires, or replaces some with valid ones:
//!    `pthread_create` passes its own attributes, start routine and argument, and `syscall` reduces
//!    the number of waiters to wake.
//! 2. `EXIT_KEY` contains a key that is created before the first scheduled thread, and never
//!    deleted.
//! 3. Except for the first, a scheduled thread runs on a stack of the scheduler. The stack is
//!    reused only after the thread is joined.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use super::baton::{
    DESTRUCTOR_ROUNDS, EXIT_KEY, IS_INSIDE, IS_RUNNING, LockedSchedule, THREAD_INDEX, await_baton, managed_thread,
    pass_baton, pass_baton_to, sleep, step, step_after_waking, wait, without_scheduling,
};
use super::schedule::{MAX_THREADS, PAGE, Stack, State, Step, WaitsFor, next_random};

/// Number of cores that the library sees.
pub(super) const CORE_COUNT: usize = 2;

/// Addresses of the interceptors that a sanitizer defines in place of libc's functions, or 0.
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

/// Calls the sanitizer's interceptor, which calls libc's function, or libc's function directly.
macro_rules! libc_call {
    ($name:ident($($argument:expr),*) as $type:ty) => {{
        static ADDRESS: AtomicUsize = AtomicUsize::new(0);
        let mut address = ADDRESS.load(Relaxed);
        if address == 0 {
            // SAFETY: `sanitizer` defines this symbol for every function.
            address = unsafe { sanitizer::$name };
            if address == 0 {
                let name = concat!(stringify!($name), "\0").as_ptr();
                // SAFETY: `name` is a C string.
                address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.cast()) } as usize;
            }
            ADDRESS.store(address, Relaxed);
        }
        // SAFETY: libc's function of this name has this type.
        let function = unsafe { std::mem::transmute::<usize, $type>(address) };
        // SAFETY: the arguments are valid by invariant 1, or the caller of this macro constructed
        // them.
        unsafe { function($($argument),*) }
    }};
}

pub(super) type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

pub(super) fn real_futex(word: &AtomicU32, operation: c_int, value: u32) {
    let word = ptr::from_ref(word) as usize;
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    libc_call!(syscall(libc::SYS_futex, word, operation, value as usize, 0, 0, 0) as Syscall);
}

pub(super) fn fail_with(error: c_int) -> c_long {
    // SAFETY: `__errno_location` returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Returns the nanoseconds in `time`.
///
/// # Safety
/// `time` must be valid.
pub(super) unsafe fn nanos(time: *const libc::timespec) -> u64 {
    // SAFETY: guaranteed by this function's caller.
    let time = unsafe { &*time };
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

// SAFETY: the definition has the signature and the behavior of libc's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if n == libc::SYS_futex && IS_RUNNING.load(Relaxed) && !IS_INSIDE.get() {
        let operation = b as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
        let bits = match operation {
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => f as u32,
            _ => u32::MAX,
        };
        match (operation, managed_thread()) {
            (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET, Some(me)) => {
                // SAFETY: the caller guarantees that the futex word is valid.
                if unsafe { &*(a as *const AtomicU32) }.load(SeqCst) != c as u32 {
                    return fail_with(libc::EAGAIN);
                }
                // SAFETY: the caller guarantees that the time is valid, if there is one.
                let deadline = (d != 0).then(|| unsafe { nanos(d as *const libc::timespec) });
                let deadline = match operation {
                    libc::FUTEX_WAIT => deadline.map(|time| LockedSchedule::new().now.saturating_add(time)),
                    _ => deadline,
                };
                let timed_out = wait(me, WaitsFor::Futex { address: a, bits }, deadline);
                return if timed_out { fail_with(libc::ETIMEDOUT) } else { 0 };
            }
            (libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET, me) => {
                let is_meant = |on| matches!(on, WaitsFor::Futex { address, bits: wake_bits } if address == a && wake_bits & bits != 0);
                let woken_count = LockedSchedule::new().wake(is_meant, c);
                if let Some(me) = me {
                    step_after_waking(me);
                }
                if woken_count == c {
                    return woken_count as c_long;
                }
                // Some waiters may be threads outside the schedule.
                return woken_count as c_long + libc_call!(syscall(n, a, b, c - woken_count, d, e, f) as Syscall);
            }
            _ => {}
        }
    }
    libc_call!(syscall(n, a, b, c, d, e, f) as Syscall)
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    let Some(me) = managed_thread() else { return libc_call!(sched_yield() as unsafe extern "C" fn() -> c_int) };
    let next = {
        let mut schedule = LockedSchedule::new();
        // Threads often yield just before they wait, so a yield usually keeps the priority. Lower
        // it occasionally, so that two threads do not yield to each other forever.
        if schedule.one_in(16) {
            schedule.lower_priority(me);
        }
        let yield_odds = schedule.yield_odds;
        if schedule.one_in(yield_odds) {
            schedule.count_step(me, Step::Call);
            schedule.choose_next(Some(me)).expect("this thread is ready")
        } else {
            schedule.choose_after(me, Step::Call)
        }
    };
    pass_baton_to(me, next);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const libc::timespec, remaining: *mut libc::timespec) -> c_int {
    type LibcFn = unsafe extern "C" fn(*const libc::timespec, *mut libc::timespec) -> c_int;
    let Some(me) = managed_thread() else { return libc_call!(nanosleep(time, remaining) as LibcFn) };
    // SAFETY: guaranteed by this function's caller.
    let deadline = LockedSchedule::new().now.saturating_add(unsafe { nanos(time) });
    sleep(me, deadline);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    remaining: *mut libc::timespec,
) -> c_int {
    type LibcFn = unsafe extern "C" fn(libc::clockid_t, c_int, *const libc::timespec, *mut libc::timespec) -> c_int;
    let Some(me) = managed_thread() else {
        return libc_call!(clock_nanosleep(clock, flags, time, remaining) as LibcFn);
    };
    let start_time = if flags & libc::TIMER_ABSTIME != 0 { 0 } else { LockedSchedule::new().now };
    // SAFETY: guaranteed by this function's caller.
    sleep(me, start_time.saturating_add(unsafe { nanos(time) }));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    type LibcFn = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;
    if managed_thread().is_none() {
        return libc_call!(clock_gettime(clock, time) as LibcFn);
    }
    step();
    let now = LockedSchedule::new().now;
    let now = libc::timespec { tv_sec: (now / 1_000_000_000) as i64, tv_nsec: (now % 1_000_000_000) as i64 };
    // SAFETY: the caller guarantees that `time` is valid for writes.
    unsafe { time.write(now) };
    0
}

/// Returns simulated CPU time and context switches, from which the library decides whether to start
/// readers.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrusage(who: c_int, usage: *mut libc::rusage) -> c_int {
    type LibcFn = unsafe extern "C" fn(c_int, *mut libc::rusage) -> c_int;
    let Some(me) = managed_thread() else { return libc_call!(getrusage(who, usage) as LibcFn) };
    let (run_nanos, waits) = {
        let schedule = LockedSchedule::new();
        (schedule.threads[me].run_time, schedule.threads[me].waits)
    };
    // SAFETY: a `rusage` consists of integers, and the caller guarantees that it is valid.
    let usage = unsafe {
        usage.write_bytes(0, 1);
        &mut *usage
    };
    let (seconds, micros) = (run_nanos / 1_000_000_000, run_nanos % 1_000_000_000 / 1000);
    usage.ru_utime = libc::timeval { tv_sec: seconds as i64, tv_usec: micros as i64 };
    usage.ru_nvcsw = waits as c_long;
    0
}

/// Writes random bytes that depend only on the schedule's seed. std seeds hash maps with them, so a
/// replayed schedule repeats the maps' iteration order.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(out: *mut c_void, bytes: usize, flags: c_uint) -> isize {
    type LibcFn = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> isize;
    if managed_thread().is_none() {
        return libc_call!(getrandom(out, bytes, flags) as LibcFn);
    }
    let mut schedule = LockedSchedule::new();
    for offset in 0..bytes {
        // SAFETY: the caller guarantees that `bytes` bytes are writable.
        unsafe { out.cast::<u8>().add(offset).write(next_random(&mut schedule.random) as u8) };
    }
    bytes as isize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(process: libc::pid_t, bytes: usize, set: *mut libc::cpu_set_t) -> c_int {
    type LibcFn = unsafe extern "C" fn(libc::pid_t, usize, *mut libc::cpu_set_t) -> c_int;
    if managed_thread().is_none() {
        return libc_call!(sched_getaffinity(process, bytes, set) as LibcFn);
    }
    // SAFETY: the caller guarantees that `bytes` bytes are writable; any bit pattern is a valid
    // `cpu_set_t`.
    unsafe {
        set.cast::<u8>().write_bytes(0, bytes);
        (0..CORE_COUNT).for_each(|n| libc::CPU_SET(n, &mut *set));
    }
    0
}

pub(super) type ThreadMain = extern "C" fn(*mut c_void) -> *mut c_void;
pub(super) type PthreadCreate =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, ThreadMain, *mut c_void) -> c_int;

pub(super) struct ThreadStart {
    pub(super) id: usize,
    pub(super) main: ThreadMain,
    pub(super) argument: *mut c_void,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    main: ThreadMain,
    argument: *mut c_void,
) -> c_int {
    let Some(me) = managed_thread() else {
        return libc_call!(pthread_create(thread, attributes, main, argument) as PthreadCreate);
    };
    let error = without_scheduling(|| {
        let mut bytes = 0;
        // SAFETY: std passes valid attributes.
        assert_eq!(unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut bytes) }, 0);
        let (id, stack) = {
            let mut schedule = LockedSchedule::new();
            let index = schedule.stacks.iter().rposition(|stack| stack.bytes == bytes);
            (schedule.add_thread(), index.map(|index| schedule.stacks.swap_remove(index)))
        };
        let stack = stack.unwrap_or_else(|| Stack::new(bytes));
        let start = Box::into_raw(Box::new(ThreadStart { id, main, argument }));
        // SAFETY: libc initializes the attributes, and the stack belongs to this thread.
        let stack_attributes = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&raw mut attributes);
            libc::pthread_attr_setstack(&raw mut attributes, stack.memory, stack.bytes);
            attributes
        };
        let error =
            libc_call!(pthread_create(thread, &raw const stack_attributes, run_thread, start.cast()) as PthreadCreate);
        let mut schedule = LockedSchedule::new();
        let new_thread = &mut schedule.threads[id];
        if error == 0 {
            // SAFETY: `pthread_create` succeeded, so it has written the handle.
            (new_thread.handle, new_thread.stack) = (Some(unsafe { *thread }), Some(stack));
        } else {
            new_thread.state = State::Ended;
        }
        error
    });
    step_after_waking(me);
    error
}

pub(super) extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    IS_INSIDE.set(true);
    // SAFETY: `start` is the box that our `pthread_create` leaked for this thread alone.
    let ThreadStart { id, main, argument } = *unsafe { Box::from_raw(start.cast::<ThreadStart>()) };
    THREAD_INDEX.set(id);
    await_baton(id);
    // SAFETY: invariant 2.
    unsafe { libc::pthread_setspecific(EXIT_KEY.load(SeqCst), ptr::dangling()) };
    IS_INSIDE.set(false);
    main(argument)
}

/// Ends a scheduled thread. As a key destructor, it re-registers itself until the third round,
/// because std runs thread-local destructors in the first or second.
pub(super) extern "C" fn end_thread(value: *mut c_void) {
    DESTRUCTOR_ROUNDS.set(DESTRUCTOR_ROUNDS.get() + 1);
    if DESTRUCTOR_ROUNDS.get() < 3 {
        // SAFETY: invariant 2.
        unsafe { libc::pthread_setspecific(EXIT_KEY.load(SeqCst), value) };
        return;
    }
    let me = THREAD_INDEX.replace(MAX_THREADS);
    IS_INSIDE.set(true);
    let next = {
        let mut schedule = LockedSchedule::new();
        schedule.threads[me].state = State::Ended;
        schedule.wake(|waits_for| waits_for == WaitsFor::End { thread: me }, usize::MAX);
        if schedule.threads.iter().skip(1).all(|thread| thread.state == State::Ended) {
            schedule.wake(|waits_for| waits_for == WaitsFor::EndOfAll, 1);
        }
        schedule.coverage.switches += 1;
        match schedule.choose_next(None) {
            Some(next) => next,
            None => {
                THREAD_INDEX.set(me);
                schedule.threads[me].state = State::Ready;
                schedule.fail("deadlocks")
            }
        }
    };
    pass_baton(next);
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    type LibcFn = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;
    let thread_ids = managed_thread().and_then(|me| Some((me, find_thread(thread)?)));
    let Some((me, id)) = thread_ids else {
        return without_scheduling(|| libc_call!(pthread_join(thread, result) as LibcFn));
    };
    let state = LockedSchedule::new().threads[id].state;
    if state != State::Ended {
        wait(me, WaitsFor::End { thread: id }, None);
    }
    without_scheduling(|| {
        let error = libc_call!(pthread_join(thread, result) as LibcFn);
        let mut schedule = LockedSchedule::new();
        // Forget the handle, because a new thread may get the same one.
        schedule.threads[id].handle = None;
        let stack = schedule.threads[id].stack.take();
        schedule.stacks.extend(stack);
        error
    })
}

pub(super) fn find_thread(handle: libc::pthread_t) -> Option<usize> {
    LockedSchedule::new().threads.iter().rposition(|thread| thread.handle == Some(handle))
}

/// Does nothing for scheduled threads. They are joined at the end of the schedule, because their
/// stacks are reused.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_detach(thread: libc::pthread_t) -> c_int {
    type LibcFn = unsafe extern "C" fn(libc::pthread_t) -> c_int;
    if managed_thread().is_some() && find_thread(thread).is_some() {
        return 0;
    }
    libc_call!(pthread_detach(thread) as LibcFn)
}

/// Reports the stack's guard page to std. libc does not know about the page, because the scheduler
/// allocated the stack.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_getattr_np(thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int {
    type LibcFn = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;
    let error = libc_call!(pthread_getattr_np(thread, attributes) as LibcFn);
    if error == 0 && managed_thread().is_some_and(|me| me > 0) {
        // SAFETY: libc has initialized the attributes.
        unsafe { libc::pthread_attr_setguardsize(attributes, PAGE) };
    }
    error
}

/// Makes every allocation and deallocation a scheduling point.
pub struct Allocator;

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        step();
        // SAFETY: the caller guarantees what the system's allocator requires of `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        step();
        // SAFETY: the caller guarantees what the system's allocator requires of `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        step();
        // SAFETY: the caller guarantees what the system's allocator requires of `pointer` and
        // `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Whether a branch is being handled. The handler may have branches, too, so this prevents
/// recursion.
pub(super) static IS_AT_BRANCH: AtomicBool = AtomicBool::new(false);

/// LLVM's coverage instrumentation calls this function on every control-flow edge of an
/// instrumented crate.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_guard(_: *mut u32) {
    if !IS_RUNNING.load(Relaxed) || IS_AT_BRANCH.swap(true, Relaxed) {
        return;
    }
    let me = managed_thread();
    IS_INSIDE.set(IS_INSIDE.get() || me.is_some());
    IS_AT_BRANCH.store(false, Relaxed);
    if let Some(me) = me {
        let next = LockedSchedule::new().choose_after(me, Step::Branch);
        pass_baton_to(me, next);
        IS_AT_BRANCH.store(true, Relaxed);
        IS_INSIDE.set(false);
        IS_AT_BRANCH.store(false, Relaxed);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_guard_init(_: *mut u32, _: *mut u32) {}

pub(super) unsafe extern "C" fn end_key(value: *mut c_void) {
    end_thread(value);
}
