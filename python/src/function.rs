//! Runs the user's per-image function, the `image_transform` option.
//!
//! A worker thread of the loader writes the pixels to a memfd (a temporary file on systems other
//! than Linux) that it shares with a child process. It then sends the child a request with the
//! image size and two random words, and waits for the response. The child calls the function and
//! writes the result to the same file, so pixels are never pickled. The loader's process needs the
//! GIL only to rebuild an exception. If a child dies, its socket closes, which ends the wait.
//! `warpfeed/_image_transform_process.py` implements the child. With `image_transform_processes=0`,
//! the worker thread calls the function itself.
//!
//! The memory of a memfd is allocated before the memfd is mapped. If memory ran out during a write
//! to the mapping, the system would kill the process that writes.

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

use crate::error::{Raised as _, user_error};
use crate::thread_state::{attached, call};
use crate::traced::{TracedRef, name_of};
use crate::waiting::WAIT_SLICE;

/// Size of a request in bytes: width, height, and two words of random numbers.
const REQUEST_LEN: usize = 24;
/// Size of a response in bytes: status, length of the pickled exception that follows, and
/// nanoseconds spent in the function.
const RESPONSE_LEN: usize = 16;
/// Maximum length of a pickled exception in bytes.
const MAX_EXCEPTION_LEN: u64 = 1 << 20;

struct WorkerProcess {
    index: usize,
    pid: u32,
    owner: u32,
    socket: UnixStream,
    shared_file: File,
    shared_len: u64,
    /// Whether the process has responded to a call. Until then, it may still be starting.
    has_responded: bool,
}

#[derive(Default)]
struct Pool {
    idle: Vec<WorkerProcess>,
    /// Number of processes that have not ended.
    alive_count: usize,
    /// Error of the process that ended most recently.
    last_error: Option<Error>,
}

enum Executor {
    Processes { pool: Mutex<Pool>, process_available: Condvar },
    Threads(Arc<TracedRef>),
}

type ChildFds = (UnixStream, File);

pub(crate) struct FunctionRunner {
    executor: Executor,
    descriptors: Mutex<Vec<ChildFds>>,
    stopped: AtomicBool,
    calls: AtomicU64,
    ns_in_function: AtomicU64,
    ns_total: AtomicU64,
    ns_waiting: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Creates the shared file. Unlike a file in `/dev/shm`, a memfd does not count toward the size
/// limit of that file system.
#[cfg(target_os = "linux")]
fn create_shared_file() -> std::io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(File::from(rustix::fs::memfd_create("warpfeed-transform", flags)?))
}

#[cfg(not(target_os = "linux"))]
fn create_shared_file() -> std::io::Result<File> {
    tempfile::tempfile()
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> std::io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(mut file: &File, bytes: u64) -> std::io::Result<()> {
    std::io::copy(&mut std::io::repeat(0).take(bytes), &mut file).map(drop)
}

impl FunctionRunner {
    fn new(executor: Executor, descriptors: Vec<ChildFds>) -> Self {
        FunctionRunner {
            executor,
            descriptors: Mutex::new(descriptors),
            stopped: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            ns_in_function: AtomicU64::new(0),
            ns_total: AtomicU64::new(0),
            ns_waiting: AtomicU64::new(0),
        }
    }

    /// Stops the processes, and makes calls that wait for a process or for a response fail. Does
    /// not interrupt a function that runs on a thread of this process.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Executor::Processes { pool, process_available } = &self.executor {
            // A process exits when its socket is shut down.
            lock(pool).idle.clear();
            process_available.notify_all();
        }
    }

    pub(crate) fn in_process_function(&self) -> Option<Arc<TracedRef>> {
        match &self.executor {
            Executor::Threads(function) => Some(function.clone()),
            Executor::Processes { .. } => None,
        }
    }

    fn check(&self) -> Result<()> {
        if self.stopped.load(Relaxed) { Err(Error::config("the loader is closed")) } else { Ok(()) }
    }

    fn take_process(&self, pool: &Mutex<Pool>, process_available: &Condvar) -> Result<WorkerProcess> {
        let mut pool = lock(pool);
        loop {
            self.check()?;
            if let Some(process) = pool.idle.pop() {
                return Ok(process);
            }
            if pool.alive_count == 0 {
                return Err(pool
                    .last_error
                    .clone()
                    .unwrap_or_else(|| Error::config("image_transform: no worker process is running")));
            }
            pool = process_available.wait_timeout(pool, WAIT_SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn call_in_process(
        &self,
        pool: &Mutex<Pool>,
        process_available: &Condvar,
        image: &mut ImageMut<'_>,
        words: [u64; 2],
    ) -> Result<()> {
        let start = Instant::now();
        let mut process = self.take_process(pool, process_available)?;
        let waiting_ns = nanos(start);
        let is_starting = !process.has_responded;
        let response = process.call(image, words, || self.check());
        process.has_responded = true;
        let mut pool = lock(pool);
        let result = match response {
            Ok(result) => {
                if !self.stopped.load(Relaxed) {
                    pool.idle.push(process);
                }
                result
            }
            Err(e) => {
                pool.alive_count -= 1;
                let e = process.ended_error(&e);
                pool.last_error = Some(e.clone());
                Err(e)
            }
        };
        drop(pool);
        process_available.notify_one();
        let ns = result?;
        self.calls.fetch_add(1, Relaxed);
        self.ns_in_function.fetch_add(ns, Relaxed);
        // Do not count the time that a process takes to start.
        self.ns_total.fetch_add(if is_starting { waiting_ns + ns } else { nanos(start) }, Relaxed);
        self.ns_waiting.fetch_add(waiting_ns, Relaxed);
        Ok(())
    }

    fn call_in_thread(&self, f: &TracedRef, image: &mut ImageMut<'_>, words: [u64; 2]) -> Result<()> {
        let start = Instant::now();
        let result = attached(|py| {
            let user_function = f.get(py).ok_or_else(|| Error::in_source("the loader was garbage-collected"))?;
            let pixels = PyByteArray::new(py, image.data());
            let called = || {
                let function = py.import("warpfeed._image_transform_process")?.getattr("call")?;
                let (height, width) = (image.height(), image.width());
                let args = (user_function, &pixels, height, width, words[0], words[1]).into_pyobject(py)?;
                let _calling = f.begin_call();
                call(&function, &args)
            };
            called().map_err(|e| function_error(py, e))?;
            image.data_mut().copy_from_slice(&pixels.to_vec());
            Ok(())
        });
        result.unwrap_or_else(|| Err(Error::config("the interpreter is shutting down")))?;
        let ns = nanos(start);
        self.calls.fetch_add(1, Relaxed);
        self.ns_in_function.fetch_add(ns, Relaxed);
        self.ns_total.fetch_add(ns, Relaxed);
        Ok(())
    }
}

fn function_error(py: Python<'_>, e: PyErr) -> Error {
    user_error(py, ErrorKind::Transform, "", e)
}

impl WorkerProcess {
    /// Calls the function on `image` in the process. `words` seed the function's random numbers.
    /// Calls `check_open` regularly while waiting.
    ///
    /// The inner result is the time spent in the function in nanoseconds, or an error after which
    /// the process can still be used, such as the function's exception or a failure to allocate
    /// shared memory.
    ///
    /// # Errors
    /// Fails if the process has ended, if the communication with it fails, or if `check_open` fails
    /// because the loader was closed.
    fn call(
        &mut self,
        image: &mut ImageMut<'_>,
        words: [u64; 2],
        check_open: impl Fn() -> Result<()>,
    ) -> std::result::Result<Result<u64>, NoResponse> {
        let bytes = image.data().len() as u64;
        if self.shared_len < bytes {
            if let Err(e) = allocate(&self.shared_file, bytes) {
                let cause = format!(
                    "cannot allocate {bytes} bytes of shared memory for worker process {} of image_transform: {e}; the \
                     machine or its container is out of memory, or a process limit was reached",
                    self.index
                );
                return Ok(Err(Error::new(ErrorKind::Memory, cause)));
            }
            self.shared_len = bytes;
        }
        self.shared_file.write_all_at(image.data(), 0)?;
        let mut request = [0; REQUEST_LEN];
        request[..4].copy_from_slice(&image.width().to_ne_bytes());
        request[4..8].copy_from_slice(&image.height().to_ne_bytes());
        request[8..16].copy_from_slice(&words[0].to_ne_bytes());
        request[16..].copy_from_slice(&words[1].to_ne_bytes());
        self.socket.write_all(&request)?;
        let mut response = [0; RESPONSE_LEN];
        self.read(&mut response, &check_open)?;
        let word = |word_offset: usize| {
            u32::from_ne_bytes([
                response[word_offset],
                response[word_offset + 1],
                response[word_offset + 2],
                response[word_offset + 3],
            ])
        };
        let (status, length) = (word(0), word(4));
        let ns = u64::from_ne_bytes(response[8..].try_into().expect("eight bytes"));
        if status == 0 {
            self.shared_file.read_exact_at(image.data_mut(), 0)?;
            return Ok(Ok(ns));
        }
        if u64::from(length) > MAX_EXCEPTION_LEN {
            return Err(NoResponse::Io(std::io::Error::other(format!(
                "its response claims a pickled exception of {length} bytes; the limit is {MAX_EXCEPTION_LEN}"
            ))));
        }
        let mut pickled_exception = vec![0; length as usize];
        self.read(&mut pickled_exception, &check_open)?;
        let error = attached(|py| {
            let rebuild = || {
                let rebuild = py.import("warpfeed._image_transform_process")?.getattr("unpack_exception")?;
                Ok::<_, PyErr>(PyErr::from_value(rebuild.call1((PyBytes::new(py, &pickled_exception),))?))
            };
            function_error(py, rebuild().unwrap_or_else(|e| e))
        });
        Ok(Err(error.unwrap_or_else(|| Error::config("the interpreter is shutting down"))))
    }

    fn read(&mut self, bytes: &mut [u8], check_open: &impl Fn() -> Result<()>) -> std::result::Result<(), NoResponse> {
        let mut read_bytes = 0;
        while read_bytes < bytes.len() {
            match self.socket.read(&mut bytes[read_bytes..]) {
                Ok(0) => return Err(NoResponse::Io(Io::UnexpectedEof.into())),
                Ok(n) => read_bytes += n,
                Err(e) if matches!(e.kind(), Io::WouldBlock | Io::TimedOut) => {
                    check_open().map_err(NoResponse::Stopped)?
                }
                Err(e) if e.kind() == Io::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn ended_error(&self, why: &NoResponse) -> Error {
        let what = match why {
            NoResponse::Stopped(e) => return e.clone(),
            NoResponse::Io(e) if matches!(e.kind(), Io::UnexpectedEof | Io::BrokenPipe | Io::ConnectionReset) => {
                "exited: it was killed, ran out of memory, or failed to start; see standard error".to_owned()
            }
            NoResponse::Io(e) => format!("failed: {e}"),
        };
        Error::new(
            ErrorKind::Transform,
            format!("worker process {} (pid {}) of image_transform {what}", self.index, self.pid),
        )
    }
}

impl Drop for WorkerProcess {
    /// Shuts the socket down, which stops the process. Closing the socket does not suffice, because
    /// a forked child may have a copy.
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

enum NoResponse {
    Io(std::io::Error),
    Stopped(Error),
}

impl From<std::io::Error> for NoResponse {
    fn from(e: std::io::Error) -> Self {
        NoResponse::Io(e)
    }
}

#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Function(pub(crate) Arc<FunctionRunner>);

#[pymethods]
impl Function {
    /// Creates the sockets and shared files for `count` processes. If `count` is 0, worker threads
    /// call `function` instead.
    #[new]
    fn new(py: Python<'_>, function: Py<PyAny>, count: usize) -> PyResult<Self> {
        if count == 0 {
            let name = format!("image_transform={}", name_of(function.bind(py)));
            return Ok(Function(Arc::new(FunctionRunner::new(
                Executor::Threads(TracedRef::new(function, name)),
                Vec::new(),
            ))));
        }
        let pair = |index: usize| {
            let (socket, child_socket) = UnixStream::pair()?;
            socket.set_read_timeout(Some(WAIT_SLICE))?;
            let shared_file = create_shared_file()?;
            let child_fds = (child_socket, shared_file.try_clone()?);
            Ok((
                WorkerProcess {
                    index,
                    pid: 0,
                    owner: std::process::id(),
                    socket,
                    shared_file,
                    shared_len: 0,
                    has_responded: false,
                },
                child_fds,
            ))
        };
        let pairs = (0..count).map(pair).collect::<std::io::Result<Vec<_>>>();
        let pairs = pairs.map_err(|e| {
            Error::new(ErrorKind::Io, format!("image_transform: cannot share memory with {count} processes: {e}"))
        });
        let (idle, descriptors): (Vec<_>, Vec<_>) = pairs.raised(py)?.into_iter().unzip();
        let pool = Pool { alive_count: idle.len(), idle, last_error: None };
        Ok(Function(Arc::new(FunctionRunner::new(
            Executor::Processes { pool: Mutex::new(pool), process_available: Condvar::new() },
            descriptors,
        ))))
    }

    /// Returns the file descriptors (socket, shared file) for each process.
    fn descriptors(&self) -> Vec<(i32, i32)> {
        lock(&self.0.descriptors).iter().map(|(socket, file)| (socket.as_raw_fd(), file.as_raw_fd())).collect()
    }

    /// Records the ids of the started processes, `pids`, and closes this process's copies of their
    /// descriptors.
    fn started(&self, pids: Vec<u32>) {
        lock(&self.0.descriptors).clear();
        if let Executor::Processes { pool, .. } = &self.0.executor {
            let mut pool = lock(pool);
            for process in &mut pool.idle {
                process.pid = pids.get(process.index).copied().unwrap_or_default();
            }
        }
    }

    fn stop(&self) {
        self.0.stop();
    }

    /// Returns the number of successful calls, the seconds spent in the function, the total
    /// duration of the calls in seconds, and the seconds spent waiting for an idle process. The
    /// total excludes the time that a process takes to start.
    fn cost(&self) -> (u64, f64, f64, f64) {
        let seconds = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e9;
        let calls = &self.0;
        let [in_function, total, waiting] = [&calls.ns_in_function, &calls.ns_total, &calls.ns_waiting].map(seconds);
        (calls.calls.load(Relaxed), in_function, total, waiting)
    }
}

/// The user's function as a [`Transform`](warpfeed::transform::Transform) step of a loader.
pub(crate) struct UserTransform(pub(crate) Arc<FunctionRunner>);

impl Transform for UserTransform {
    /// Each shared file has space for one image.
    fn retained_bytes(&self, image: usize) -> usize {
        match &self.0.executor {
            Executor::Processes { pool, .. } => lock(pool).alive_count.saturating_mul(image),
            Executor::Threads(_) => 0,
        }
    }

    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
        let words = [rng.next_u64(), rng.next_u64()];
        self.0.check()?;
        match &self.0.executor {
            Executor::Processes { pool, process_available } => {
                self.0.call_in_process(pool, process_available, image, words)
            }
            Executor::Threads(function) => self.0.call_in_thread(function, image, words),
        }
    }
}
