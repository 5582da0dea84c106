//! Runs the user's per-image function: `transform=f`.
//!
//! A worker thread writes the pixels to a memory file that it shares with a worker process, sends
//! the process a request with the size and the random numbers, and waits for the response. The
//! process calls the function and writes the result to the same file. Therefore pixels are never
//! pickled, and the parent never acquires the GIL. If a process dies, its socket closes, which ends
//! the wait. `warpfeed/_image_transform_process.py` implements the other side. Without processes,
//! the worker thread calls the function itself.
//!
//! The memory of the files is allocated before they are mapped. Otherwise, if the system runs out
//! of memory, a process would be killed when it writes to the mapping.

use std::fs::File;
use std::io::{ErrorKind as Io, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use warpfeed::sampler::Rng;
use warpfeed::transform::{ImageMut, Transform};
use warpfeed::{Error, ErrorKind, Result};

use crate::error::{Raised as _, of_program};
use crate::thread_state::{attached, call};
use crate::traced::{TracedRef, name_of};
use crate::waiting::SLICE;

/// Size of a request in bytes: width, height, and two words of random numbers.
const REQUEST: usize = 24;
/// Size of a response in bytes: status, length of the text that follows, and nanoseconds spent in
/// the function.
const ANSWER: usize = 16;
/// Maximum length of an error text in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// One worker process, as seen by the loader.
struct Process {
    number: usize,
    pid: u32,
    /// Id of the loader's process.
    owner: u32,
    socket: UnixStream,
    shared: File,
    /// Length of the shared file.
    len: u64,
    /// Whether the process has sent a response. Until then, it is still starting.
    answered: bool,
}

/// The idle processes, and the number of processes that have ended.
#[derive(Default)]
struct Pool {
    idle: Vec<Process>,
    alive: usize,
    last_words: Option<Error>,
}

/// How the function is called.
enum Runs {
    /// In worker processes.
    Processes { pool: Mutex<Pool>, returned: Condvar },
    /// In the worker threads.
    Threads(Arc<TracedRef>),
}

/// File descriptors that a process has not received yet.
type Ends = (UnixStream, File);

/// Calls a user's function, and accumulates the cost of the calls.
pub(crate) struct Calls {
    runs: Runs,
    ends: Mutex<Vec<Ends>>,
    stopped: AtomicBool,
    calls: AtomicU64,
    ns_in_function: AtomicU64,
    ns_in_all: AtomicU64,
    ns_waiting: AtomicU64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Creates an anonymous memory file. It does not count toward the size limit of `/dev/shm`.
#[cfg(target_os = "linux")]
fn shared() -> std::io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(File::from(rustix::fs::memfd_create("warpfeed-transform", flags)?))
}

#[cfg(not(target_os = "linux"))]
fn shared() -> std::io::Result<File> {
    tempfile::tempfile()
}

/// Allocates the first `bytes` bytes of a file.
#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> std::io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(mut file: &File, bytes: u64) -> std::io::Result<()> {
    std::io::copy(&mut std::io::repeat(0).take(bytes), &mut file).map(drop)
}

impl Calls {
    fn new(runs: Runs, ends: Vec<Ends>) -> Self {
        Calls {
            runs,
            ends: Mutex::new(ends),
            stopped: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            ns_in_function: AtomicU64::new(0),
            ns_in_all: AtomicU64::new(0),
            ns_waiting: AtomicU64::new(0),
        }
    }

    /// Ends all waits with an error, and ends the processes.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Runs::Processes { pool, returned } = &self.runs {
            // A process exits when its socket is shut down.
            lock(pool).idle.clear();
            returned.notify_all();
        }
    }

    /// Returns the function if it runs in this process, for the garbage collector.
    pub(crate) fn kept(&self) -> Option<Arc<TracedRef>> {
        match &self.runs {
            Runs::Threads(function) => Some(function.clone()),
            Runs::Processes { .. } => None,
        }
    }

    fn check(&self) -> Result<()> {
        if self.stopped.load(Relaxed) { Err(Error::config("the loader is closed")) } else { Ok(()) }
    }

    /// Takes an idle process, waiting until there is one.
    fn take(&self, pool: &Mutex<Pool>, returned: &Condvar) -> Result<Process> {
        let mut pool = lock(pool);
        loop {
            self.check()?;
            if let Some(process) = pool.idle.pop() {
                return Ok(process);
            }
            if pool.alive == 0 {
                return Err(pool
                    .last_words
                    .clone()
                    .unwrap_or_else(|| Error::config("image_transform: no worker process was started")));
            }
            pool = returned.wait_timeout(pool, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn in_process(
        &self,
        (pool, returned): (&Mutex<Pool>, &Condvar),
        image: &mut ImageMut<'_>,
        words: [u64; 2],
    ) -> Result<()> {
        let start = Instant::now();
        let mut process = self.take(pool, returned)?;
        let waited = nanos(start);
        let starts = !process.answered;
        let done = process.call(image, words, || self.check());
        process.answered = true;
        let mut pool = lock(pool);
        let called = match done {
            Ok(called) => {
                if !self.stopped.load(Relaxed) {
                    pool.idle.push(process);
                }
                called
            }
            Err(e) => {
                pool.alive -= 1;
                let e = process.ended(&e);
                pool.last_words = Some(e.clone());
                Err(e)
            }
        };
        drop(pool);
        returned.notify_one();
        let ns = called?;
        self.calls.fetch_add(1, Relaxed);
        self.ns_in_function.fetch_add(ns, Relaxed);
        // The time that a process takes to start is not part of the cost of a call.
        self.ns_in_all.fetch_add(if starts { waited + ns } else { nanos(start) }, Relaxed);
        self.ns_waiting.fetch_add(waited, Relaxed);
        Ok(())
    }

    fn in_thread(&self, f: &TracedRef, image: &mut ImageMut<'_>, words: [u64; 2]) -> Result<()> {
        let start = Instant::now();
        let called = attached(|py| {
            let of = f.get(py).ok_or_else(|| Error::in_source("the loader was garbage-collected"))?;
            let pixels = PyByteArray::new(py, image.data());
            let called = || {
                let function = py.import("warpfeed._image_transform_process")?.getattr("call")?;
                let args = (of, &pixels, image.height(), image.width(), words[0], words[1]).into_pyobject(py)?;
                let _calling = f.calling();
                call(&function, &args)
            };
            called().map_err(|e| failed(py, e))?;
            image.data_mut().copy_from_slice(&pixels.to_vec());
            Ok(())
        });
        called.unwrap_or_else(|| Err(Error::config("the interpreter is shutting down")))?;
        let ns = nanos(start);
        self.calls.fetch_add(1, Relaxed);
        self.ns_in_function.fetch_add(ns, Relaxed);
        self.ns_in_all.fetch_add(ns, Relaxed);
        Ok(())
    }
}

/// Creates the error of a sample for which the function raised `e`.
fn failed(py: Python<'_>, e: PyErr) -> Error {
    of_program(py, ErrorKind::Transform, "", e)
}

impl Process {
    /// Calls the function in the process. Returns the time spent in the function, or the function's
    /// error. The outer error means that the process has ended or that the loader was closed.
    fn call(
        &mut self,
        image: &mut ImageMut<'_>,
        words: [u64; 2],
        go_on: impl Fn() -> Result<()>,
    ) -> std::result::Result<Result<u64>, Ended> {
        let bytes = image.data().len() as u64;
        if self.len < bytes {
            if let Err(e) = allocate(&self.shared, bytes) {
                let cause = format!(
                    "no memory for the {bytes} bytes that worker process {} of image_transform shares: {e}; the \
                     machine or its container has none left, or a limit of the process forbids it",
                    self.number
                );
                return Ok(Err(Error::new(ErrorKind::Memory, cause)));
            }
            self.len = bytes;
        }
        self.shared.write_all_at(image.data(), 0)?;
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&image.width().to_ne_bytes());
        request[4..8].copy_from_slice(&image.height().to_ne_bytes());
        request[8..16].copy_from_slice(&words[0].to_ne_bytes());
        request[16..].copy_from_slice(&words[1].to_ne_bytes());
        self.socket.write_all(&request)?;
        let mut answer = [0; ANSWER];
        self.read(&mut answer, &go_on)?;
        let word = |at: usize| u32::from_ne_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
        let (status, length) = (word(0), word(4));
        let ns = u64::from_ne_bytes(answer[8..].try_into().expect("eight bytes"));
        if status == 0 {
            self.shared.read_exact_at(image.data_mut(), 0)?;
            return Ok(Ok(ns));
        }
        if u64::from(length) > MOST_TEXT {
            return Err(Ended::Io(std::io::Error::other(format!("an answer of {length} bytes"))));
        }
        let mut raised = vec![0; length as usize];
        self.read(&mut raised, &go_on)?;
        let rebuilt = attached(|py| {
            let rebuild = || {
                let rebuild = py.import("warpfeed._image_transform_process")?.getattr("rebuilt")?;
                Ok::<_, PyErr>(PyErr::from_value(rebuild.call1((PyBytes::new(py, &raised),))?))
            };
            failed(py, rebuild().unwrap_or_else(|e| e))
        });
        Ok(Err(rebuilt.unwrap_or_else(|| Error::config("the interpreter is shutting down"))))
    }

    /// Fills `bytes` from the socket, and checks at regular intervals whether to continue.
    fn read(&mut self, bytes: &mut [u8], go_on: &impl Fn() -> Result<()>) -> std::result::Result<(), Ended> {
        let mut read = 0;
        while read < bytes.len() {
            match self.socket.read(&mut bytes[read..]) {
                Ok(0) => return Err(Ended::Io(Io::UnexpectedEof.into())),
                Ok(n) => read += n,
                Err(e) if matches!(e.kind(), Io::WouldBlock | Io::TimedOut) => go_on().map_err(Ended::Stopped)?,
                Err(e) if e.kind() == Io::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Creates the error for a process that does not respond.
    fn ended(&self, why: &Ended) -> Error {
        let why = match why {
            Ended::Stopped(e) => return e.clone(),
            Ended::Io(e) if matches!(e.kind(), Io::UnexpectedEof | Io::BrokenPipe | Io::ConnectionReset) => {
                String::new()
            }
            Ended::Io(e) => format!(" ({e})"),
        };
        Error::new(
            ErrorKind::Transform,
            format!(
                "worker process {} (pid {}) of image_transform ended{why}: it was killed, the system had too little \
                 memory, or it could not start; standard error may say more",
                self.number, self.pid
            ),
        )
    }
}

impl Drop for Process {
    /// Ends the process. Closing the socket is not enough, because a forked child may have a copy
    /// of it.
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Why a process did not send a response.
enum Ended {
    Io(std::io::Error),
    /// The loader was closed.
    Stopped(Error),
}

impl From<std::io::Error> for Ended {
    fn from(e: std::io::Error) -> Self {
        Ended::Io(e)
    }
}

/// A user's per-image function.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Function(pub(crate) Arc<Calls>);

#[pymethods]
impl Function {
    /// Creates the descriptors of `count` processes. With a count of 0, worker threads call
    /// `function`.
    #[new]
    fn make(py: Python<'_>, function: Py<PyAny>, count: usize) -> PyResult<Self> {
        if count == 0 {
            let name = format!("image_transform={}", name_of(function.bind(py)));
            return Ok(Function(Arc::new(Calls::new(Runs::Threads(TracedRef::new(function, name)), Vec::new()))));
        }
        let pair = |number: usize| {
            let (socket, theirs) = UnixStream::pair()?;
            socket.set_read_timeout(Some(SLICE))?;
            let shared = shared()?;
            let end = (theirs, shared.try_clone()?);
            Ok((Process { number, pid: 0, owner: std::process::id(), socket, shared, len: 0, answered: false }, end))
        };
        let made = (0..count).map(pair).collect::<std::io::Result<Vec<_>>>();
        let made = made.map_err(|e| {
            Error::new(ErrorKind::Io, format!("image_transform: no memory to share with {count} processes: {e}"))
        });
        let (idle, ends): (Vec<_>, Vec<_>) = made.raised(py)?.into_iter().unzip();
        let pool = Pool { alive: idle.len(), idle, last_words: None };
        Ok(Function(Arc::new(Calls::new(Runs::Processes { pool: Mutex::new(pool), returned: Condvar::new() }, ends))))
    }

    /// Returns the file descriptors for each process: its socket and the shared file.
    fn ends(&self) -> Vec<(i32, i32)> {
        lock(&self.0.ends).iter().map(|(socket, file)| (socket.as_raw_fd(), file.as_raw_fd())).collect()
    }

    /// Records that the processes with these ids have received their descriptors, and closes the
    /// copies here.
    fn started(&self, pids: Vec<u32>) {
        lock(&self.0.ends).clear();
        if let Runs::Processes { pool, .. } = &self.0.runs {
            let mut pool = lock(pool);
            for process in &mut pool.idle {
                process.pid = pids.get(process.number).copied().unwrap_or_default();
            }
        }
    }

    /// Ends all waits with an error, and ends the processes.
    fn stop(&self) {
        self.0.stop();
    }

    /// Returns the number of calls, and the seconds that they spent in the function, in total, and
    /// waiting for a process.
    fn cost(&self) -> (u64, f64, f64, f64) {
        let seconds = |of: &AtomicU64| of.load(Relaxed) as f64 / 1e9;
        let calls = &self.0;
        let [within, all, waiting] = [&calls.ns_in_function, &calls.ns_in_all, &calls.ns_waiting].map(seconds);
        (calls.calls.load(Relaxed), within, all, waiting)
    }
}

/// The user's function as a [`Transform`](warpfeed::transform::Transform) step of a loader.
pub(crate) struct Called(pub(crate) Arc<Calls>);

impl Transform for Called {
    /// Each process shares memory for one image.
    fn memory(&self, image: usize) -> usize {
        match &self.0.runs {
            Runs::Processes { pool, .. } => lock(pool).alive.saturating_mul(image),
            Runs::Threads(_) => 0,
        }
    }

    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
        let words = [rng.next_u64(), rng.next_u64()];
        self.0.check()?;
        match &self.0.runs {
            Runs::Processes { pool, returned } => self.0.in_process((pool, returned), image, words),
            Runs::Threads(function) => self.0.in_thread(function, image, words),
        }
    }
}
