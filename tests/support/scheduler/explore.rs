//! Runs schedules in child processes.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;

use super::baton::{EXIT_KEY, IS_RUNNING, LockedSchedule, SCHEDULE, THREAD_INDEX, exit, wait, without_scheduling};
use super::functions::{end_key, pthread_join};
use super::schedule::{Coverage, MAX_THREADS, Schedule, State, WaitsFor};

const SCHEDULES_PER_PROCESS: u64 = 50;
/// Wall-clock limit per schedule, in seconds. A schedule that takes longer probably has a thread
/// that spins without reaching a scheduling point.
const WALL_CLOCK_LIMIT: c_uint = 120;

/// Runs `body` and the threads that it starts under the schedule of `seed`. Returns the coverage
/// when all of them have ended.
fn run(seed: u64, body: impl FnOnce()) -> Coverage {
    // SAFETY: no other scheduled thread exists at this point.
    let schedule = unsafe { &mut *SCHEDULE.schedule.get() };
    let stacks = schedule.take().map(|previous| previous.stacks).unwrap_or_default();
    let schedule = schedule.insert(Schedule { stacks, ..Schedule::new(seed) });
    THREAD_INDEX.set(schedule.add_thread());
    IS_RUNNING.store(true, SeqCst);
    body();
    if running_threads() > 0 {
        wait(0, WaitsFor::EndOfAll, None);
    }
    let handles: Vec<_> =
        without_scheduling(|| LockedSchedule::new().threads.iter().filter_map(|thread| thread.handle).collect());
    for handle in handles {
        // SAFETY: nothing else joins the thread, which is about to end.
        unsafe { pthread_join(handle, ptr::null_mut()) };
    }
    IS_RUNNING.store(false, SeqCst);
    THREAD_INDEX.set(MAX_THREADS);
    LockedSchedule::new().coverage
}

pub fn running_threads() -> usize {
    LockedSchedule::new().threads.iter().skip(1).filter(|thread| thread.state != State::Ended).count()
}

/// A child's report on one schedule: its coverage, and the counters that the test returned.
#[repr(C)]
#[derive(Clone, Copy)]
struct Report<const N: usize> {
    seed: u64,
    coverage: Coverage,
    counts: [u64; N],
}

pub fn are_selected() -> bool {
    std::env::var_os("WARPFEED_SCHEDULES").is_some()
}

/// Returns the seeds in `WARPFEED_SCHEDULES`, for example `0..1000000`, or `default` if the
/// variable is not set.
pub fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("WARPFEED_SCHEDULES") else { return default };
    let parse = || text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parse().unwrap_or_else(|| panic!("WARPFEED_SCHEDULES={text:?}: expected a range of seeds, such as 0..1000"))
}

#[derive(Debug)]
pub struct Explored<const N: usize> {
    /// The test's counters, summed over all schedules.
    pub counts: [u64; N],
    /// Sum of the hashes of the distinct thread interleavings.
    pub order: u64,
    pub summary: String,
}

/// Runs `run_seed` under the schedule of each seed, on all cores that this process may use. After a
/// failure, starts no other process, waits for the running ones, and returns the lowest seed that
/// failed as `Err`. The calling thread must be the only one in the process, except for the test
/// harness's waiting main thread.
pub fn explore<const N: usize>(seeds: Range<u64>, run_seed: impl Fn(u64) -> [u64; N]) -> Result<Explored<N>, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").count();
    assert!(tasks <= 2, "a process with other threads cannot be forked: see `own_process`");
    prepare();
    let mut pipe = [0; 2];
    // SAFETY: the array has room for the descriptors of both ends of the pipe.
    assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    let start = std::time::Instant::now();
    let (mut counts, mut coverage, mut orders) = ([0; N], Coverage::default(), HashSet::new());
    let (mut idle_cores, mut child_processes, mut next, mut failed_seed) = (cores(), HashMap::new(), seeds.start, None);
    loop {
        while next < seeds.end
            && failed_seed.is_none()
            && let Some(core) = idle_cores.pop()
        {
            let process_seeds = next..(next + SCHEDULES_PER_PROCESS).min(seeds.end);
            next = process_seeds.end;
            // SAFETY: no other thread of this process is running, so none holds a lock.
            match unsafe { libc::fork() } {
                0 => child(process_seeds, core, pipe[1], &run_seed),
                -1 => panic!("cannot fork a process: {}", std::io::Error::last_os_error()),
                process => child_processes.insert(process, (process_seeds.start, process_seeds, core)),
            };
        }
        if child_processes.is_empty() {
            break;
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        let process = unsafe { libc::wait(&raw mut status) };
        while let Some(Report { seed, coverage: seed_coverage, counts: report_counts }) = read_report::<N>(pipe[0]) {
            counts.iter_mut().zip(report_counts).for_each(|(sum, count)| *sum += count);
            let Coverage { threads, steps, switches, order } = seed_coverage;
            (coverage.threads, coverage.steps, coverage.switches) =
                (coverage.threads + threads, coverage.steps + steps, coverage.switches + switches);
            orders.insert(order);
            let process = child_processes
                .values_mut()
                .find(|(_, seeds, _)| seeds.contains(&seed))
                .expect("a process runs this seed");
            process.1.start = seed + 1;
        }
        let Some((first, seeds, core)) = child_processes.remove(&process) else { continue };
        idle_cores.push(core);
        if status != 0 || !seeds.is_empty() {
            let seed = seeds.start;
            let hangs = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
            let outcome = if hangs { "spins or hangs" } else { "fails" };
            eprintln!("schedule {seed} {outcome}; reproduce with WARPFEED_SCHEDULES={first}..{}", seed + 1);
            failed_seed = Some(failed_seed.map_or(seed, |previous: u64| previous.min(seed)));
        }
    }
    // SAFETY: both ends of the pipe are open.
    pipe.iter().for_each(|end| assert_eq!(unsafe { libc::close(*end) }, 0));
    if let Some(seed) = failed_seed {
        return Err(seed);
    }
    let count = seeds.end - seeds.start;
    let mean = |n: u64| n / count.max(1);
    let summary = format!(
        "{count} schedules, {} different interleavings, {:.1} s; on average {} threads, {} steps and {} switches",
        orders.len(),
        start.elapsed().as_secs_f64(),
        mean(coverage.threads),
        mean(coverage.steps),
        mean(coverage.switches)
    );
    Ok(Explored { counts, order: orders.iter().fold(0, |sum, order| sum.wrapping_add(*order)), summary })
}

fn read_report<const N: usize>(pipe: c_int) -> Option<Report<N>> {
    let mut report = Report { seed: 0, coverage: Coverage::default(), counts: [0; N] };
    let bytes = size_of::<Report<N>>();
    // SAFETY: a report consists of integers, so any bytes are valid, and a process writes it in one
    // call.
    let read_bytes = unsafe { libc::read(pipe, (&raw mut report).cast(), bytes) };
    (read_bytes == bytes as isize).then_some(report)
}

fn cores() -> Vec<usize> {
    // SAFETY: an all-zero `cpu_set_t` is valid, and the call may write it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&n| libc::CPU_ISSET(n, &set)).collect()
    }
}

fn prepare() {
    if EXIT_KEY.load(SeqCst) != 0 {
        return;
    }
    let mut key = 0;
    // Zero means that there is no key.
    while key == 0 {
        // SAFETY: the arguments are valid.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(end_key)) }, 0);
    }
    EXIT_KEY.store(key, SeqCst);
    // Use a single heap that shrinks only if a gigabyte is free at its end. Threads that run one at
    // a time gain nothing from separate heaps, and mapping new pages is slow.
    for (option, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 1 << 30),
        (libc::M_TRIM_THRESHOLD, 1 << 30),
        (libc::M_TOP_PAD, 1 << 20),
    ] {
        // SAFETY: the call only sets a parameter of the allocator.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Runs schedules in a child process, pinned to one core, which halves the cost of switching
/// between threads.
fn child<const N: usize>(seeds: Range<u64>, core: usize, pipe: c_int, run_seed: impl Fn(u64) -> [u64; N]) -> ! {
    // SAFETY: an all-zero `cpu_set_t` is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
    for seed in seeds {
        // SAFETY: the call only schedules a signal, which ends this process.
        unsafe { libc::alarm(WALL_CLOCK_LIMIT) };
        let mut counts = [0; N];
        let result = catch_unwind(AssertUnwindSafe(|| run(seed, || counts = run_seed(seed))));
        let Ok(coverage) = result else {
            // The panic hook has already printed the message.
            exit(101)
        };
        let report = Report { seed, coverage, counts };
        let bytes = size_of::<Report<N>>();
        // SAFETY: a report consists of integers, so its bytes can be read.
        if unsafe { libc::write(pipe, (&raw const report).cast(), bytes) } != bytes as isize {
            exit(102);
        }
    }
    exit(0)
}
