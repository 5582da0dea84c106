//! Runs code in a child process, can make one call in it fail, and records how the process ended.
//!
//! **Invariant 1.** During the fork, no other thread of the parent holds a lock. Each test that
//! uses this file must therefore run alone in its process.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldResources {
    threads: usize,
    descriptors: usize,
    maps: usize,
    allocations: i64,
}

impl HeldResources {
    fn now() -> HeldResources {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.lines().filter(|line| line.contains(" /") && !line.contains(" r-xp ") && line.contains("tmp"));
        HeldResources {
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
            maps: maps.count(),
            allocations: calls::LIVE.load(SeqCst),
        }
    }

    /// Returns the increase since `before`. Waits for exited threads to disappear from /proc first.
    fn since(before: HeldResources) -> HeldResources {
        let start = Instant::now();
        loop {
            let now = HeldResources::now();
            if now.threads <= before.threads || start.elapsed() > Duration::from_secs(5) {
                return HeldResources {
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

#[allow(dead_code)] // not used by every module that includes this file
pub(crate) fn wait_for_loader_threads() {
    let start = Instant::now();
    while fs::read_dir("/proc/self/task").unwrap().count() > 1 && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Done(Done),
    Killed(i32),
    Hung,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) result: Result<String, String>,
    pub(crate) leaked: HeldResources,
    pub(crate) panics: String,
    pub(crate) calls: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    /// Hash of the call stack at the failing call. `None` if the run did not reach the call.
    pub(crate) place: Option<String>,
    pub(crate) end: End,
    child: Child,
}

impl Attempt {
    pub(crate) fn functions(&mut self) -> Option<String> {
        self.child.stream.get_mut().write_all(&[END]).ok()?;
        self.child.message().ok().flatten()
    }
}

const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Byte that ends a message. No error text contains it.
const END: u8 = 1;

/// A child process. After its report, the child waits until this handle is dropped, so that the
/// parent can still ask for the stack of the failed call.
#[derive(Debug)]
struct Child {
    id: libc::pid_t,
    stream: BufReader<UnixStream>,
    has_ended: bool,
}

impl Child {
    fn message(&mut self) -> io::Result<Option<String>> {
        let mut message = Vec::new();
        self.stream.read_until(END, &mut message)?;
        Ok((message.pop() == Some(END)).then(|| String::from_utf8(message).unwrap()))
    }

    fn kill(&self, signal: i32) {
        // SAFETY: `id` is a child of this process that has not been waited for.
        unsafe { libc::kill(self.id, signal) };
    }

    fn wait(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` may be written, and the child has not been waited for.
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
static PARENT: Mutex<Option<UnixStream>> = Mutex::new(None);
static FAILED_STACK: OnceLock<Backtrace> = OnceLock::new();

/// Sends the hash of the call stack to the parent, just before the selected call fails.
fn note() {
    let mut addresses = [std::ptr::null_mut(); 48];
    // SAFETY: `addresses` has space for the number of addresses passed as the size.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr(), addresses.len() as i32) };
    let hash = addresses[..count as usize].iter().take(14).fold(0xcbf2_9ce4_8422_2325, |hash: u64, address| {
        (hash ^ address.addr() as u64).wrapping_mul(0x0100_0000_01b3)
    });
    let _ = FAILED_STACK.set(Backtrace::force_capture());
    let mut parent = PARENT.lock().unwrap();
    let _ = parent.as_mut().expect("the process is a child").write_all(format!("place\0{hash:x}\u{1}").as_bytes());
}

fn report(message: &str) {
    calls::ignored(|| {
        let mut parent = PARENT.lock().unwrap();
        let parent = parent.as_mut().expect("the process is a child");
        let _ = parent.write_all(format!("{message}\u{1}").as_bytes());
        if parent.read(&mut [0]).is_ok_and(|count| count == 1) {
            let place = FAILED_STACK.get().map(ToString::to_string).unwrap_or_default();
            let _ = parent.write_all(format!("{}\u{1}", functions(&place)).as_bytes());
            let _ = parent.read(&mut [0]);
        }
    });
}

/// Handles SIGABRT. A failed infallible allocation raises it, and the parent sends it to a child
/// that hangs.
extern "C" fn aborted(_: i32) {
    report("aborted");
}

pub(crate) fn prepare() {
    let mut address = [std::ptr::null_mut(); 1];
    // SAFETY: the buffer has room for one address.
    unsafe { libc::backtrace(address.as_mut_ptr(), 1) };
}

/// Lists the innermost functions of this library, at most four, after the external function that
/// they called. If there are none, lists the 12 innermost functions of the trace.
fn functions(trace: &str) -> String {
    let names = trace.lines().filter_map(|line| line.trim_start().split_once(": ").map(|(_, name)| name.trim()));
    let names: Vec<&str> = names.filter(|name| !name.contains("failures::")).collect();
    let is_ours = |name: &&&str| name.contains("warpfeed") && !name.contains("{{closure}}::{{closure}}");
    let mut shown: Vec<&str> = names.iter().filter(is_ours).take(4).copied().collect();
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

pub(crate) fn attempt(fails: Option<(Kind, usize)>, run: impl FnOnce() -> Result<String, String>) -> Attempt {
    let (stream, socket) = UnixStream::pair().unwrap();
    // SAFETY: invariant 1.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "fork failed");
    if id == 0 {
        drop(stream);
        child_process(socket, fails, run);
    }
    drop(socket);
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
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
                // SIGABRT makes the hung child send its report. The child can still resolve the
                // stack afterward.
                child.kill(libc::SIGABRT);
                let _ = child.message();
                Some(End::Hung)
            }
        }
    }
    Attempt { place, end: end.expect("the loop ends with `end` set"), child }
}

fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Done {
    let mut next = || words.next().expect("the message is complete").to_owned();
    let (good, text, panics) = (next() == "good", next(), next());
    let numbers: Vec<i64> = next().split_whitespace().map(|number| number.parse().unwrap()).collect();
    let (counts, calls) = numbers.split_at(4);
    let usize = |number: i64| number as usize;
    Done {
        result: if good { Ok(text) } else { Err(text) },
        leaked: HeldResources {
            threads: usize(counts[0]),
            descriptors: usize(counts[1]),
            maps: usize(counts[2]),
            allocations: counts[3],
        },
        panics,
        calls: calls.iter().copied().map(usize).collect(),
    }
}

fn child_process(socket: UnixStream, fails: Option<(Kind, usize)>, run: impl FnOnce() -> Result<String, String>) -> ! {
    *PARENT.lock().unwrap() = Some(socket);
    std::panic::set_hook(Box::new(|panic| PANICS.lock().unwrap().push_str(&format!("{panic}\n"))));
    quiet();
    // SAFETY: the handler only reports to the parent, which then kills this process.
    unsafe { libc::signal(libc::SIGABRT, aborted as *const () as usize) };
    let before = HeldResources::now();
    calls::begin(fails, note);
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()));
    calls::end();
    let HeldResources { threads, descriptors, maps, allocations } = HeldResources::since(before);
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
    // SAFETY: `_exit` has no preconditions. It skips the exit handlers, which belong to the parent.
    unsafe { libc::_exit(0) }
}

fn quiet() {
    let none = File::options().write(true).open("/dev/null").unwrap();
    // SAFETY: the arguments are open descriptors and a valid `rlimit`.
    unsafe {
        libc::dup2(none.as_raw_fd(), 2);
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    }
}
