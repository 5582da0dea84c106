#![allow(unsafe_code)]
//! State of one process: its threads and clients.
//!
//! A runtime does not survive a `fork`, and a lock that another thread held is never released in
//! the child. So the state belongs to one process id, and finding it takes no lock.
//!
//! # Invariants
//! 1. The pointer of a [`PerProcess`] is null or points to a leaked value. It is published with
//!    `Release`, read with `Acquire`, and never freed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use tokio::runtime::{Builder, Runtime};
use warpfeed_sources::{Error, ErrorKind, Result};

/// Numbers of threads that transfer bytes: at least, and at most. There is one for four cores.
/// A thread transfers about 1.5 GB/s without TLS in large requests, and less in small ones.
const THREADS: (usize, usize) = (2, 4);
/// Stack of each thread. The futures of a request are large in a build without optimization, so
/// this is more than tokio's 2 MiB.
const STACK: usize = 8 << 20;

/// A value of each process. It is never freed, because threads use it as long as the process runs.
pub(crate) struct PerProcess<T: Sync + 'static>(AtomicPtr<(u32, T)>);

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value of this process, from `make` on first use.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn get(&self, make: impl Fn() -> Result<T>) -> Result<&'static T> {
        loop {
            let pid = std::process::id();
            let now = self.0.load(Ordering::Acquire);
            // SAFETY: invariant 1.
            if let Some((owner, value)) = unsafe { now.as_ref() }
                && *owner == pid
            {
                return Ok(value);
            }
            let made = Box::leak(Box::new((pid, make()?)));
            // Another thread may have published its own value meanwhile. That one wins, and this
            // one stays unused.
            let _ = self.0.compare_exchange(now, made, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// A client, and its server if the URLs that it reads do not name it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) server: Option<Arc<str>>,
}

pub(crate) struct Process {
    pub(crate) runtime: Runtime,
    clients: Mutex<HashMap<String, Client>>,
}

impl Process {
    /// The state of this process.
    ///
    /// # Errors
    /// If its threads cannot be started.
    pub(crate) fn current() -> Result<&'static Process> {
        static CURRENT: PerProcess<Process> = PerProcess::new();
        CURRENT.get(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let runtime = Builder::new_multi_thread()
                .worker_threads((cores / 4).clamp(THREADS.0, THREADS.1))
                .thread_stack_size(STACK)
                .thread_name("warpfeed-store")
                .enable_all()
                .build()
                .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads for requests: {e}")))?;
            Ok(Process { runtime, clients: Mutex::default() })
        })
    }

    /// The client with this name. `make` creates it on first use.
    pub(crate) fn client(&self, name: String, make: impl FnOnce() -> Result<Client>) -> Result<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&name) {
            return Ok(client.clone());
        }
        let client = make()?;
        clients.insert(name, client.clone());
        Ok(client)
    }
}
