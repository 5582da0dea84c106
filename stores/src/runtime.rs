#![allow(unsafe_code)]
//! The threads and clients of this process.
//!
//! A runtime does not survive a `fork`, and a lock that another thread held is never released in
//! the child. So the state belongs to one process id, and finding it takes no lock.
//!
//! # Invariants
//! 1. [`CURRENT`] is null or points to a leaked [`Process`]. It is published with `Release`, read with
//!    `Acquire`, and never freed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use tokio::runtime::{Builder, Runtime};
use warpfeed::{Error, ErrorKind, Result};

/// Number of threads that transfer bytes. One thread transfers about 1.5 GB/s without TLS.
const THREADS: usize = 2;

pub(crate) struct Process {
    pid: u32,
    pub(crate) runtime: Runtime,
    clients: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

/// State of one process. It is never freed, because its threads run as long as the process.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

impl Process {
    /// The state of this process.
    ///
    /// # Errors
    /// If its threads cannot be started.
    pub(crate) fn current() -> Result<&'static Process> {
        let pid = std::process::id();
        let now = CURRENT.load(Ordering::Acquire);
        // SAFETY: invariant 1.
        if let Some(process) = unsafe { now.as_ref() }
            && process.pid == pid
        {
            return Ok(process);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("warpfeed-store")
            .enable_all()
            .build()
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads for requests: {e}")))?;
        let made = Box::leak(Box::new(Process { pid, runtime, clients: Mutex::default() }));
        // Another thread may have published its own state meanwhile. That one wins, and this one
        // stays idle.
        match CURRENT.compare_exchange(now, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(made),
            Err(_) => Process::current(),
        }
    }

    /// The client with this name. `make` creates it on first use.
    pub(crate) fn client(
        &self,
        name: String,
        make: impl FnOnce() -> Result<Arc<dyn ObjectStore>>,
    ) -> Result<Arc<dyn ObjectStore>> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&name) {
            return Ok(client.clone());
        }
        let client = make()?;
        clients.insert(name, client.clone());
        Ok(client)
    }
}
