//! Read transactions that all see one state of a database, and slices of its map that live as long
//! as they do.
//!
//! # Invariants
//! 1. *One environment per file and process.* LMDB's locks belong to the process: closing a second
//!    environment of the same file would release the first one's locks. `ENVIRONMENTS` holds every
//!    open environment; its mutex is held while one is opened, shared or closed.
//! 2. *Transactions end before their environment closes.* `Snapshot` declares `slots` before
//!    `environment`, and fields drop in that order.
//! 3. *Slices outlive the lock, not the snapshot.* A page that a transaction can see is neither
//!    changed nor reused before the last transaction that began at or before that state has ended,
//!    and the map stays where it is, since nothing resizes the map of an environment opened for
//!    reading here. All transactions of a snapshot live until it is dropped; so do the bytes.
//! 4. *A transaction is used by one thread at a time*, through its mutex. `NO_TLS` unties it from
//!    the thread that began it.
//!
//! Not covered: LMDB has no checksums and trusts its pages. If another program damages or truncates
//! an open file, reads may return wrong bytes or cause a bus error, as with any memory-mapped file.
//! Only opening checks the length.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use lmdb::{Cursor, Database, EnvironmentFlags, RoTransaction, Transaction};

use super::header;
use crate::error::{Error, Result};

/// Maximum number of open transactions of all processes together. The first process to open a
/// database sets the size of its lock file.
const MAX_READERS: u32 = 1024;

/// Maximum number of attempts at a snapshot while other processes commit.
const TRIES: usize = 64;

/// Minimum address space of a database, so that another process can enlarge it while it is open. It
/// costs no memory; an x86-64 process has 128 times as much. The map of an environment in use
/// cannot be moved (invariant 3), and a second environment of the same file is not allowed
/// (invariant 1).
const ROOM: u64 = 1 << 40;

pub(super) struct Snapshot {
    /// One per worker that reads at the same time. If there are more workers than cores, they
    /// share.
    slots: Vec<Mutex<Slot>>,
    database: Database,
    path: PathBuf,
    /// Declared last: it is dropped, and perhaps closed, after the slots.
    environment: Shared,
}

struct Slot(RoTransaction<'static>);

// SAFETY: with NO_TLS, set in `open_environment`, a transaction may move between threads as long as
// only one uses it (invariant 4).
unsafe impl Send for Slot {}

impl Snapshot {
    /// Opens `path`, a folder with `data.mdb` or a single file, or the database `name` in it.
    pub(super) fn open(path: &Path, name: Option<&str>) -> Result<Self> {
        let mut outgrown = false;
        for _ in 0..TRIES {
            // Opened again on each attempt: if no other snapshot shares the environment, it was
            // closed after the last attempt, and now gets a larger map.
            let environment = Shared::open(path)?;
            let Environment { env, .. } = environment.get();
            let database = environment.get().database_of(name).map_err(|e| e.at_path(path))?;
            // SAFETY: the slots are dropped here, or stored with the environment, which outlives
            // them by invariant 2: `Shared` keeps it at a fixed address in an `Arc`.
            match unsafe { begin(env) } {
                Ok(Some(slots)) => {
                    return Ok(Snapshot { slots, database, path: path.to_owned(), environment });
                }
                Ok(None) => outgrown = false,
                Err(lmdb::Error::MapResized) => outgrown = true,
                Err(e) => return Err(lmdb_error(path, e)),
            }
        }
        let cause = if outgrown {
            "another process has made the database larger than the map of those that have it open in this process; drop \
             them before opening it again"
                .to_owned()
        } else {
            format!("could not take a consistent snapshot: another process committed during all {TRIES} attempts")
        };
        Err(Error::in_source(cause).at_path(path))
    }

    /// The value under `key`.
    pub(super) fn get<'a>(&'a self, key: &[u8]) -> Result<Option<&'a [u8]>> {
        thread_local!(static SLOT: Cell<Option<usize>> = const { Cell::new(None) });
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let slot = SLOT.get().unwrap_or_else(|| {
            let slot = NEXT.fetch_add(1, Ordering::Relaxed);
            SLOT.set(Some(slot));
            slot
        });
        // A panic cannot leave a transaction half used: no foreign code runs under the lock.
        let txn = self.slots[slot % self.slots.len()].lock().unwrap_or_else(PoisonError::into_inner);
        match txn.0.get(self.database, &key) {
            // SAFETY: the bytes live as long as the snapshot and never change (invariant 3), not
            // only while the lock is held.
            Ok(value) => Ok(Some(unsafe { std::slice::from_raw_parts::<'a>(value.as_ptr(), value.len()) })),
            Err(lmdb::Error::NotFound) => Ok(None),
            Err(e) => Err(lmdb_error(&self.path, e)),
        }
    }

    /// Names of the databases in the main database, if that is open.
    pub(super) fn names(&self) -> Vec<&str> {
        let Environment { database, named, .. } = self.environment.get();
        let is_main = self.database.dbi() == database.dbi();
        named.iter().filter(|_| is_main).map(|(name, _)| &**name).collect()
    }

    /// Number of the last transaction committed to the database, by any process.
    pub(super) fn last_commit(&self) -> Result<usize> {
        let env = &self.environment.get().env;
        env.info().map(|info| info.last_txnid()).map_err(|e| lmdb_error(&self.path, e))
    }

    /// Calls `visit` with the first transaction and the database.
    pub(super) fn with_transaction<T>(
        &self,
        visit: impl FnOnce(&RoTransaction<'_>, Database) -> lmdb::Result<T>,
    ) -> Result<T> {
        let txn = self.slots[0].lock().unwrap_or_else(PoisonError::into_inner);
        visit(&txn.0, self.database).map_err(|e| lmdb_error(&self.path, e))
    }
}

/// Transactions that all see one state. `None` if another process committed between them.
///
/// # Safety
/// `env` stays open, at its address, for as long as the slots live.
unsafe fn begin(env: &lmdb::Environment) -> lmdb::Result<Option<Vec<Mutex<Slot>>>> {
    let want = std::thread::available_parallelism().map_or(4, |n| n.get()).clamp(2, 64);
    let before = env.info()?.last_txnid();
    let mut slots = Vec::new();
    while slots.len() < want {
        match env.begin_ro_txn() {
            // SAFETY: lengthens the borrow of the environment, which outlives the transaction by
            // the caller's promise.
            Ok(txn) => slots.push(Mutex::new(Slot(unsafe {
                std::mem::transmute::<RoTransaction<'_>, RoTransaction<'static>>(txn)
            }))),
            // Other processes hold the rest of the table. Fewer slots suffice.
            Err(lmdb::Error::ReadersFull) if !slots.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    Ok((env.info()?.last_txnid() == before).then_some(slots))
}

/// An environment with the handles of its databases. The handles are opened once, before any reads,
/// because `mdb_dbi_open` writes to memory that readers use.
struct Environment {
    env: lmdb::Environment,
    database: Database,
    /// The databases in the main database.
    named: Vec<(String, Database)>,
    /// Number of entries of the main database.
    entries: usize,
}

/// Maximum number of named databases in a file. A main database with more entries holds samples.
const MOST_NAMED: u32 = 128;

/// Size of the entry of a named database: `MDB_db` of 64-bit systems.
const NAMED_BYTES: usize = 48;

impl Environment {
    /// Opens the handles of all databases in `env`.
    fn new(env: lmdb::Environment) -> lmdb::Result<Self> {
        let database = env.open_db(None)?;
        let (mut names, entries) = (Vec::new(), {
            let txn = env.begin_ro_txn()?;
            txn.stat(database)?.entries()
        });
        if entries <= MOST_NAMED as usize {
            let txn = env.begin_ro_txn()?;
            for record in txn.open_ro_cursor(database)?.iter_start() {
                let (key, value) = record?;
                if let (NAMED_BYTES, Ok(name)) = (value.len(), std::str::from_utf8(key))
                    && !name.contains('\0')
                {
                    names.push(name.to_owned());
                }
            }
        }
        let mut named = Vec::new();
        for name in names {
            match env.open_db(Some(&name)) {
                Ok(database) => named.push((name, database)),
                // A value of this length that is not a database.
                Err(lmdb::Error::Incompatible | lmdb::Error::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Environment { env, database, named, entries })
    }

    /// The database `name`. Without a name: the main database, or the only one in it.
    fn database_of(&self, name: Option<&str>) -> Result<Database> {
        let names: Vec<_> = self.named.iter().map(|(name, _)| format!("{name:?}")).collect();
        match name {
            Some(name) => match self.named.iter().find(|(known, _)| known == name) {
                Some((_, database)) => Ok(*database),
                None if names.is_empty() => {
                    Err(Error::config(format!("no database {name:?}: the file has one without a name")))
                }
                None => Err(Error::config(format!("no database {name:?} among {}", names.join(", ")))),
            },
            None if self.named.len() < self.entries || self.entries == 0 => Ok(self.database),
            None => match &self.named[..] {
                [(_, only)] => Ok(*only),
                _ => Err(Error::config(format!(
                    "the file holds {} databases, {}; add `/` and a name to the path",
                    names.len(),
                    names.join(", ")
                ))),
            },
        }
    }
}

/// An environment shared by all users of one file. `None` only during drop.
struct Shared(Option<Arc<Environment>>);

/// Identity of a file: device and inode, so that a database that replaces another under its name is
/// a different one.
#[cfg(unix)]
type FileId = (u64, u64);
#[cfg(not(unix))]
type FileId = std::path::PathBuf;

/// All open environments of this process (invariant 1). There are few, so a list suffices.
static ENVIRONMENTS: Mutex<Vec<(FileId, Arc<Environment>)>> = Mutex::new(Vec::new());

impl Shared {
    fn open(path: &Path) -> Result<Self> {
        let is_folder = fs::metadata(path).map_err(|e| Error::io(path, &e))?.is_dir();
        let data = if is_folder { &path.join("data.mdb") } else { path };
        let mut open = ENVIRONMENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let map = header::check(data)?;
        let file = file_id(data).map_err(|e| Error::io(data, &e))?;
        let environment = match open.iter().find(|(id, _)| *id == file) {
            Some((_, environment)) => {
                free_dead_slots(&environment.env);
                environment.clone()
            }
            None => {
                let env = open_environment(path, is_folder, map)?;
                // Opening the handle needs a slot itself.
                free_dead_slots(&env);
                let environment = Arc::new(Environment::new(env).map_err(|e| lmdb_error(path, e))?);
                open.push((file, environment.clone()));
                environment
            }
        };
        Ok(Shared(Some(environment)))
    }

    fn get(&self) -> &Environment {
        self.0.as_ref().expect("present until dropped")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut open = ENVIRONMENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let environment = self.0.take().expect("dropped once");
        // Clones are made and dropped only under the lock, so these two are the list's and this
        // one.
        if Arc::strong_count(&environment) == 2 {
            open.retain(|(_, other)| !Arc::ptr_eq(other, &environment));
        }
        // Closes while no other thread can open the file: `open` was declared first, so it is
        // unlocked last.
        drop(environment);
    }
}

/// Frees the reader slots of dead processes. If that fails, they just stay taken.
fn free_dead_slots(env: &lmdb::Environment) {
    // SAFETY: the environment is open. Slots of living processes, including this one, are not
    // touched.
    unsafe { lmdb_sys::mdb_reader_check(env.env(), &mut 0) };
}

/// Opens `path`, whose writer requested a map of `map` bytes.
fn open_environment(path: &Path, is_folder: bool, map: u64) -> Result<lmdb::Environment> {
    let mut flags = EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS | EnvironmentFlags::NO_READAHEAD;
    if !is_folder {
        flags |= EnvironmentFlags::NO_SUB_DIR;
    }
    let mut builder = lmdb::Environment::new();
    builder.set_max_readers(MAX_READERS).set_max_dbs(MOST_NAMED);
    let mut open = |flags| {
        builder.set_flags(flags);
        // Windows cannot map more than the file has.
        if let (true, Ok(room)) = (cfg!(unix), usize::try_from(map.saturating_mul(2).max(ROOM))) {
            match builder.set_map_size(room).open(path) {
                // The address space is limited (`ulimit -v`): LMDB then takes as much as the writer
                // requested.
                Err(lmdb::Error::Other(libc::ENOMEM | libc::EINVAL | libc::EOVERFLOW)) => builder.set_map_size(0),
                result => return result,
            };
        }
        builder.open(path)
    };
    match open(flags) {
        // The lock file cannot be created or written. Without it, other processes do not see this
        // reader.
        Err(lmdb::Error::Other(code)) if is_denied(code) => {
            tracing::info!(
                "{}: read-only, opened without LMDB's lock; it must not be written meanwhile",
                path.display()
            );
            open(flags | EnvironmentFlags::NO_LOCK)
        }
        result => result,
    }
    .map_err(|e| lmdb_error(path, e))
}

/// Whether the system's error `code` says that a file cannot be written. The kind is compared,
/// because Windows has other numbers than C.
fn is_denied(code: i32) -> bool {
    let kind = io::Error::from_raw_os_error(code).kind();
    matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

#[cfg(unix)]
fn file_id(data: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(data).map(|m| (m.dev(), m.ino()))
}
#[cfg(not(unix))]
fn file_id(data: &Path) -> io::Result<FileId> {
    fs::canonicalize(data)
}

/// Links the library of Windows whose functions LMDB calls: `lmdb-rkv-sys` does not.
#[cfg(windows)]
mod advapi32 {
    use std::ffi::c_void;

    #[link(name = "advapi32")]
    unsafe extern "system" {
        fn InitializeSecurityDescriptor(descriptor: *mut c_void, revision: u32) -> i32;
        fn SetSecurityDescriptorDacl(descriptor: *mut c_void, present: i32, acl: *const c_void, defaulted: i32) -> i32;
    }

    /// GNU's linker resolves only symbols that are undefined when it reaches a library, and may reach
    /// this one before LMDB.
    #[used]
    static CALLED: (
        unsafe extern "system" fn(*mut c_void, u32) -> i32,
        unsafe extern "system" fn(*mut c_void, i32, *const c_void, i32) -> i32,
    ) = (InitializeSecurityDescriptor, SetSecurityDescriptorDacl);
}

/// LMDB's error in the crate's terms; shared with the writer.
pub fn lmdb_error(path: &Path, error: lmdb::Error) -> Error {
    match error {
        lmdb::Error::Other(code) => Error::io(path, &io::Error::from_raw_os_error(code)),
        lmdb::Error::ReadersFull => Error::in_source(
            "lmdb: no free reader slot: other processes hold all slots of the lock file, whose number the first of them set; \
             LMDB recreates the file once all have closed the database",
        )
        .at_path(path),
        error => Error::in_source(format!("lmdb: {error}").to_lowercase()).at_path(path),
    }
}
