//! One run in a process of its own, and what was seen of it.
//!
//! **Invariants**
//! 1. The process that forks has no other thread that holds a lock: its test runs alone.
#![allow(unsafe_code)]

use std::backtrace::Backtrace;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::calls::{self, Kind};

/// What is left when nothing of the library lives any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    threads: usize,
    descriptors: usize,
    /// Maps of files.
    maps: usize,
    allocations: i64,
}

impl Left {
    fn now() -> Left {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.lines().filter(|line| line.contains(" /") && !line.contains(" r-xp ") && line.contains("tmp"));
        Left {
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
            maps: maps.count(),
            allocations: calls::LIVE.load(SeqCst),
        }
    }

    /// What is left in addition to `before`, once threads that ended have left the list.
    fn since(before: Left) -> Left {
        let start = Instant::now();
        loop {
            let now = Left::now();
            if now.threads <= before.threads || start.elapsed() > Duration::from_secs(5) {
                return Left {
                    threads: now.threads - before.threads,
                    descriptors: now.descriptors - before.descriptors,
                    maps: now.maps - before.maps,
                    allocations: now.allocations - before.allocations,
                };
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It finished.
    Done(Done),
    /// A signal ended it, by name.
    Killed(i32),
    Hung,
}

/// What a process that finished has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    /// The result, or an error.
    pub(crate) result: Result<String, String>,
    pub(crate) left: Left,
    /// Panics of any thread, with their places.
    pub(crate) panics: String,
    /// Calls of each kind.
    pub(crate) calls: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Where the call failed, as a number. `None` if it was not reached.
    pub(crate) place: Option<String>,
    functions: Option<String>,
    pub(crate) end: End,
}

static PANICS: Mutex<String> = Mutex::new(String::new());
/// The pipe to the parent.
static PARENT: Mutex<Option<File>> = Mutex::new(None);

/// Whether the place of the failed call is told by the names of functions, which takes a while and
/// allocates.
static NAMES: AtomicBool = AtomicBool::new(false);

/// Tells the parent at once: the process may be about to abort.
fn note() {
    let mut parent = PARENT.lock().unwrap();
    let parent = parent.as_mut().expect("the process is a child");
    let mut addresses = [std::ptr::null_mut(); 48];
    // SAFETY: room for as many addresses.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr(), addresses.len() as i32) };
    let hash = addresses[..count as usize].iter().take(14).fold(0xcbf2_9ce4_8422_2325, |hash: u64, address| {
        (hash ^ address.addr() as u64).wrapping_mul(0x0100_0000_01b3)
    });
    let _ = write!(parent, "place\0{hash:x}\0");
    if NAMES.load(SeqCst) {
        let _ = write!(parent, "{}\0", functions(&Backtrace::force_capture().to_string()));
    }
}

/// Loads what a child needs to tell a place.
pub(crate) fn prepare() {
    let mut address = [std::ptr::null_mut(); 1];
    // SAFETY: room for one address.
    unsafe { libc::backtrace(address.as_mut_ptr(), 1) };
}

/// Runs an attempt again to name its place: a number for the addresses, and the functions.
pub(crate) fn named(fails: (Kind, usize), run: impl FnOnce() -> Result<String, String>) -> Option<(String, String)> {
    NAMES.store(true, SeqCst);
    let seen = attempt(Some(fails), run);
    NAMES.store(false, SeqCst);
    seen.place.zip(seen.functions)
}

/// The last functions of `trace` that belong to the library, or else to the crate that calls.
fn functions(trace: &str) -> String {
    let names = trace.lines().filter_map(|line| line.trim_start().split_once(": ").map(|(_, name)| name.trim()));
    let names: Vec<&str> = names.filter(|name| !name.contains("failures::")).collect();
    let own = |name: &&&str| name.contains("warpfeed") && !name.contains("{{closure}}::{{closure}}");
    let mut shown: Vec<&str> = names.iter().filter(own).take(4).copied().collect();
    let below = names.iter().take_while(|name| !name.contains("warpfeed"));
    let other = |name: &&&str| {
        let std = ["std::", "core::", "alloc::", "<alloc", "<std", "<core", "__", "rayon"];
        !std.iter().any(|std| name.starts_with(std))
    };
    if let Some(other) = below.filter(other).last() {
        shown.insert(0, other);
    }
    shown.join(" < ")
}

/// Runs `run` in a process of its own, in which call `fails` fails.
pub(crate) fn attempt(fails: Option<(Kind, usize)>, run: impl FnOnce() -> Result<String, String>) -> Attempt {
    let mut pipe = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: both are open and owned by nothing else.
    let (mut from, to) = unsafe { (File::from_raw_fd(pipe[0]), File::from_raw_fd(pipe[1])) };
    // SAFETY: invariant 1.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process");
    if child == 0 {
        drop(from);
        child_process(to, fails, run);
    }
    drop(to);
    let mut said = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let hung = loop {
        let mut wait = libc::pollfd { fd: pipe[0], events: libc::POLLIN, revents: 0 };
        let left = deadline.saturating_duration_since(Instant::now());
        // SAFETY: one descriptor, which is open.
        if unsafe { libc::poll(&mut wait, 1, left.as_millis() as i32) } == 0 {
            break true;
        }
        let mut bytes = [0; 4096];
        match from.read(&mut bytes).unwrap() {
            0 => break false,
            count => said.extend_from_slice(&bytes[..count]),
        }
    };
    if hung {
        // SAFETY: a child that has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: a child that has not been waited for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let said = String::from_utf8(said).unwrap();
    let mut words = said.split('\0');
    let (mut place, mut functions) = (None, None);
    let mut word = words.next();
    if word == Some("place") {
        place = words.next().map(str::to_owned);
        if NAMES.load(SeqCst) {
            functions = words.next().map(str::to_owned);
        }
        word = words.next();
    }
    let end = match word {
        _ if hung => End::Hung,
        Some("done") => End::Done(parse(&mut words)),
        _ => End::Killed(libc::WTERMSIG(status)),
    };
    Attempt { place, functions, end }
}

fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Done {
    let mut next = || words.next().expect("a whole message").to_owned();
    let (good, text, panics) = (next() == "good", next(), next());
    let numbers: Vec<i64> = next().split_whitespace().map(|number| number.parse().unwrap()).collect();
    let (left, calls) = numbers.split_at(4);
    let usize = |number: i64| number as usize;
    Done {
        result: if good { Ok(text) } else { Err(text) },
        left: Left { threads: usize(left[0]), descriptors: usize(left[1]), maps: usize(left[2]), allocations: left[3] },
        panics,
        calls: calls.iter().copied().map(usize).collect(),
    }
}

fn child_process(to: File, fails: Option<(Kind, usize)>, run: impl FnOnce() -> Result<String, String>) -> ! {
    *PARENT.lock().unwrap() = Some(to);
    std::panic::set_hook(Box::new(|panic| PANICS.lock().unwrap().push_str(&format!("{panic}\n"))));
    // An abort of the allocator prints a line, and a process that dies may write its memory.
    quiet();
    let before = Left::now();
    calls::begin(fails, note);
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()));
    calls::end();
    let Left { threads, descriptors, maps, allocations } = Left::since(before);
    let calls: Vec<String> = Kind::ALL.iter().map(|&kind| calls::counted(kind).to_string()).collect();
    let (word, text) = match result {
        Ok(text) => ("good", text),
        Err(text) => ("bad", text),
    };
    let panics = PANICS.lock().unwrap().clone();
    let message =
        format!("done\0{word}\0{text}\0{panics}\0{threads} {descriptors} {maps} {allocations} {}\0", calls.join(" "));
    let _ = PARENT.lock().unwrap().as_mut().unwrap().write_all(message.as_bytes());
    // SAFETY: ends the process, without what the parent has registered for its own end.
    unsafe { libc::_exit(0) }
}

fn quiet() {
    let none = File::options().write(true).open("/dev/null").unwrap();
    // SAFETY: the descriptors are open, and the limit is one number twice.
    unsafe {
        libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&none), 2);
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    }
}
