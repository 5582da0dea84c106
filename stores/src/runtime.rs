#![allow(unsafe_code)]
//! Per-process state: the threads that transfer bytes, and the clients.
//!
//! A tokio runtime does not survive a `fork`, and a lock that another thread held at that moment is
//! never released in the child. The state is therefore stored with the ID of its process, and
//! looked up without a lock.
//!
//! # Invariants
//! 1. The pointer in a [`PerProcess`] is null or points to a leaked value. The pointer is published
//!    with `Release` and read with `Acquire`, and the value is never freed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use tokio::runtime::{Builder, Runtime};
use warpfeed_sources::{Error, ErrorKind, Result};

/// Minimum and maximum number of threads. Between these limits, there is one thread per four cores.
/// Without TLS, a thread transfers about 1.5 GB/s in large requests, and less in small ones.
const THREADS: (usize, usize) = (2, 4);
/// Stack size of a thread, in bytes. Tokio's default of 2 MiB is too small for the futures of
/// requests in builds without optimization.
const STACK_BYTES: usize = 8 << 20;

/// A value that exists once per process. Threads may use the value until the process ends, so it is
/// never freed.
pub(crate) struct PerProcess<T: Sync + 'static>(AtomicPtr<(u32, T)>);

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns this process's value. The first call creates it with `create`.
    pub(crate) fn get(&self, create: impl Fn() -> Result<T>) -> Result<&'static T> {
        loop {
            let pid = std::process::id();
            let current = self.0.load(Ordering::Acquire);
            // SAFETY: invariant 1.
            if let Some((owner, value)) = unsafe { current.as_ref() }
                && *owner == pid
            {
                return Ok(value);
            }
            let new_value = Box::leak(Box::new((pid, create()?)));
            // If another thread was faster, use its value, and leak the one created here.
            let _ = self.0.compare_exchange(current, new_value, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// A client of one bucket or host. `server` is `None` if the URL determines the server.
/// `extra_requests` is the number of additional requests that divided reads may still send.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) server: Option<Arc<str>>,
    pub(crate) extra_requests: Arc<AtomicU64>,
}

pub(crate) struct Process {
    pub(crate) runtime: Runtime,
    clients: Mutex<HashMap<String, Client>>,
}

impl Process {
    pub(crate) fn current() -> Result<&'static Process> {
        static CURRENT: PerProcess<Process> = PerProcess::new();
        CURRENT.get(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let runtime = Builder::new_multi_thread()
                .worker_threads((cores / 4).clamp(THREADS.0, THREADS.1))
                .thread_stack_size(STACK_BYTES)
                .thread_name("warpfeed-store")
                .enable_all()
                .build()
                .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads for requests: {e}")))?;
            Ok(Process { runtime, clients: Mutex::default() })
        })
    }

    /// Returns the client called `name`. The first call creates it with `create`.
    pub(crate) fn client(&self, name: String, create: impl FnOnce() -> Result<Client>) -> Result<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&name) {
            return Ok(client.clone());
        }
        let client = create()?;
        clients.insert(name, client.clone());
        Ok(client)
    }
}
