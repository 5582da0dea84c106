//! One run in a process of its own, and what was seen of it.
//!
//! **Invariants**
//! 1. The process that forks has no other thread that holds a lock: its test runs alone.
#![allow(unsafe_code)]

use std::backtrace::Backtrace;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, OnceLock};
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

/// Waits until the threads of the loaders in this process have ended.
#[allow(dead_code)] // each user of this file takes its part
pub(crate) fn settled() {
    let start = Instant::now();
    while fs::read_dir("/proc/self/task").unwrap().count() > 1 && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It finished.
    Done(Done),
    /// A signal ended it, by number.
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

#[derive(Debug)]
pub(crate) struct Attempt {
    /// Where the call failed, as a number. `None` if it was not reached.
    pub(crate) place: Option<String>,
    pub(crate) end: End,
    child: Child,
}

impl Attempt {
    /// The functions that led to the call that failed, if the process can still tell.
    pub(crate) fn functions(&mut self) -> Option<String> {
        self.child.stream.get_mut().write_all(&[END]).ok()?;
        self.child.message().ok().flatten()
    }
}

/// Time without a word after which a process hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ends a message. No error has this byte.
const END: u8 = 1;

/// A process. It waits at its end until this is dropped, so that it can be asked for more.
#[derive(Debug)]
struct Child {
    id: libc::pid_t,
    stream: BufReader<UnixStream>,
    has_ended: bool,
}

impl Child {
    /// The next message. `None` if the process has ended.
    fn message(&mut self) -> io::Result<Option<String>> {
        let mut message = Vec::new();
        self.stream.read_until(END, &mut message)?;
        Ok((message.pop() == Some(END)).then(|| String::from_utf8(message).unwrap()))
    }

    fn kill(&self, signal: i32) {
        // SAFETY: a child that has not been waited for.
        unsafe { libc::kill(self.id, signal) };
    }

    /// Waits for the end, and returns the signal that caused it.
    fn wait(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: room for a number, and a child that has not been waited for.
        unsafe { libc::waitpid(self.id, &mut status, 0) };
        self.has_ended = true;
        libc::WTERMSIG(status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill(libc::SIGKILL);
            self.wait();
        }
    }
}

static PANICS: Mutex<String> = Mutex::new(String::new());
/// The stream to the parent.
static PARENT: Mutex<Option<UnixStream>> = Mutex::new(None);
/// The functions that led to the call that failed.
static PLACE: OnceLock<Backtrace> = OnceLock::new();

/// Tells the parent at once that a call fails.
fn note() {
    let mut addresses = [std::ptr::null_mut(); 48];
    // SAFETY: room for as many addresses.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr(), addresses.len() as i32) };
    let hash = addresses[..count as usize].iter().take(14).fold(0xcbf2_9ce4_8422_2325, |hash: u64, address| {
        (hash ^ address.addr() as u64).wrapping_mul(0x0100_0000_01b3)
    });
    let _ = PLACE.set(Backtrace::force_capture());
    let mut parent = PARENT.lock().unwrap();
    let _ = parent.as_mut().expect("the process is a child").write_all(format!("place\0{hash:x}\u{1}").as_bytes());
}

/// Tells the parent how the process ends, and if it asks, the functions that led to the failed call.
fn report(message: &str) {
    calls::ignored(|| {
        let mut parent = PARENT.lock().unwrap();
        let parent = parent.as_mut().expect("the process is a child");
        let _ = parent.write_all(format!("{message}\u{1}").as_bytes());
        if parent.read(&mut [0]).is_ok_and(|count| count == 1) {
            let place = PLACE.get().map(ToString::to_string).unwrap_or_default();
            let _ = parent.write_all(format!("{}\u{1}", functions(&place)).as_bytes());
            let _ = parent.read(&mut [0]);
        }
    });
}

/// Reports that the process ends here, for an allocation that cannot fail, or because it hangs.
extern "C" fn aborted(_: i32) {
    report("aborted");
}

/// Loads what a child needs to tell a place.
pub(crate) fn prepare() {
    let mut address = [std::ptr::null_mut(); 1];
    // SAFETY: room for one address.
    unsafe { libc::backtrace(address.as_mut_ptr(), 1) };
}

/// The last functions of `trace` that belong to the library, or else to the crate that calls.
fn functions(trace: &str) -> String {
    let names = trace.lines().filter_map(|line| line.trim_start().split_once(": ").map(|(_, name)| name.trim()));
    let names: Vec<&str> = names.filter(|name| !name.contains("failures::")).collect();
    let own = |name: &&&str| name.contains("warpfeed") && !name.contains("{{closure}}::{{closure}}");
    let mut shown: Vec<&str> = names.iter().filter(own).take(4).copied().collect();
    let below = names.iter().take_while(|name| !name.contains("warpfeed"));
    let other = |name: &&&str| {
        let std = ["std::", "core::", "alloc::", "<alloc", "<std", "<core", "__", "rayon", "clone", "start_thread"];
        !std.iter().any(|std| name.starts_with(std))
    };
    if let Some(other) = below.filter(other).last() {
        shown.insert(0, other);
    }
    if shown.is_empty() {
        shown = names.into_iter().take(12).collect();
    }
    shown.join(" < ")
}

/// Runs `run` in a process of its own, in which call `fails` fails.
pub(crate) fn attempt(fails: Option<(Kind, usize)>, run: impl FnOnce() -> Result<String, String>) -> Attempt {
    let (stream, to) = UnixStream::pair().unwrap();
    // SAFETY: invariant 1.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "no process");
    if id == 0 {
        drop(stream);
        child_process(to, fails, run);
    }
    drop(to);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = Child { id, stream: BufReader::new(stream), has_ended: false };
    let (mut place, mut end) = (None, None);
    while end.is_none() {
        end = match child.message() {
            Ok(Some(message)) => match message.split_once('\0') {
                Some(("place", number)) => {
                    place = Some(number.to_owned());
                    None
                }
                Some(("done", rest)) => Some(End::Done(parse(&mut rest.split('\0')))),
                _ => Some(End::Killed(libc::SIGABRT)),
            },
            Ok(None) => Some(End::Killed(child.wait())),
            Err(_) => {
                // It reports its end now, and can tell the place.
                child.kill(libc::SIGABRT);
                let _ = child.message();
                Some(End::Hung)
            }
        }
    }
    Attempt { place, end: end.expect("the loop ends with it"), child }
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

fn child_process(to: UnixStream, fails: Option<(Kind, usize)>, run: impl FnOnce() -> Result<String, String>) -> ! {
    *PARENT.lock().unwrap() = Some(to);
    std::panic::set_hook(Box::new(|panic| PANICS.lock().unwrap().push_str(&format!("{panic}\n"))));
    // An abort of the allocator prints a line, and a process that dies may write its memory.
    quiet();
    // SAFETY: the function only talks to the parent, and the process ends after it.
    unsafe { libc::signal(libc::SIGABRT, aborted as *const () as usize) };
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
    report(&format!(
        "done\0{word}\0{text}\0{panics}\0{threads} {descriptors} {maps} {allocations} {}\0",
        calls.join(" ")
    ));
    // SAFETY: ends the process, without what the parent has registered for its own end.
    unsafe { libc::_exit(0) }
}

fn quiet() {
    let none = File::options().write(true).open("/dev/null").unwrap();
    // SAFETY: the descriptors are open, and the limit is one number twice.
    unsafe {
        libc::dup2(none.as_raw_fd(), 2);
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    }
}
