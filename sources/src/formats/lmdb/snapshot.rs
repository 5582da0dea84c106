//! Read transactions that all see the same state of a database, and slices of its memory map that
//! live as long as the transactions.
//!
//! # Invariants
//! 1. *One environment per file and process.* LMDB's file locks belong to the process, so closing a
//!    second environment of the same file would release the locks of the first. `ENVIRONMENTS`
//!    therefore lists every open environment, and its mutex is locked while an environment is
//!    opened, shared or closed.
//! 2. *Transactions end before their environment closes.* `Snapshot` declares `slots` before
//!    `environment`, and fields are dropped in the order of their declaration.
//! 3. *Slices live as long as the snapshot, even after the lock is released.* LMDB neither changes
//!    nor reuses a page until all transactions that can see the page have ended. The map never
//!    moves, because nothing resizes the map of an environment that is open for reading. All
//!    transactions of a snapshot live until the snapshot is dropped, so the bytes stay valid until
//!    then.
//! 4. *At most one thread uses a transaction at a time*, because each transaction is behind a
//!    mutex. With `NO_TLS`, a transaction is not tied to the thread that began it.
//!
//! These invariants do not protect against other programs. LMDB has no checksums and trusts its
//! pages, and this module checks the length of the file only on opening. If a program overwrites or
//! truncates an open file, reads may return wrong bytes or cause a bus error, as with any
//! memory-mapped file. Invariant 3 also requires that no program writes to a database that was
//! opened without its lock file.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use lmdb::{Cursor, Database, EnvironmentFlags, RoTransaction, Transaction};

use super::header;
use crate::error::{Error, Result};

/// Maximum number of open read transactions, across all processes. The process that creates the
/// lock file sets this limit.
const MAX_READERS: u32 = 1024;

/// Maximum number of attempts to begin transactions that all see the same state. An attempt fails
/// if another process commits in the meantime, or if the database has outgrown the memory map.
const MAX_ATTEMPTS: usize = 64;

/// Minimum size of a memory map on Unix, in bytes, unless the address space is limited. Other
/// processes may enlarge the database, but the map cannot grow later: it must not move while in use
/// (invariant 3), and the file must not be opened a second time (invariant 1). Address space costs
/// no memory, and an x86-64 process has 128 times this much.
const MIN_MAP_BYTES: u64 = 1 << 40;

pub(super) struct Snapshot {
    /// The transactions: one per core, but at least 2 and at most 64, or fewer if the lock file has
    /// no free reader slots. Threads are assigned to slots in turn, and may share a slot.
    slots: Vec<Mutex<Slot>>,
    /// Number of the last commit that the transactions see.
    commit: usize,
    database: Database,
    path: PathBuf,
    /// Declared last, so that the slots are dropped first (invariant 2).
    environment: SharedEnvironment,
}

/// A read transaction that may move between threads.
struct Slot(RoTransaction<'static>);

// SAFETY: `open_environment` sets NO_TLS, so a transaction may move between threads as long as only
// one thread uses it at a time (invariant 4).
unsafe impl Send for Slot {}

impl Snapshot {
    /// Opens the database `name` in the file or folder at `path`. If `name` is `None`, opens the
    /// only named database if it is the only entry of the main database. If the main database is
    /// empty or has an entry that is not a named database, opens the main database instead. Fails
    /// if the main database contains only named databases, and more than one.
    pub(super) fn open(path: &Path, name: Option<&str>) -> Result<Self> {
        let mut is_outgrown = false;
        for _ in 0..MAX_ATTEMPTS {
            // Reopen in each attempt, because the database may have outgrown the old map. (If
            // another snapshot shares the environment, the old map stays.)
            let environment = SharedEnvironment::open(path)?;
            let Environment { env, .. } = environment.get();
            let database = environment.get().find_database(name).map_err(|e| e.at_path(path))?;
            // SAFETY: the slots are either dropped here, or stored next to the environment, which
            // then outlives them (invariant 2). `SharedEnvironment` keeps the environment at a
            // fixed address in an `Arc`.
            match unsafe { begin_transactions(env) } {
                Ok(Some((slots, commit))) => {
                    return Ok(Snapshot { slots, commit, database, path: path.to_owned(), environment });
                }
                Ok(None) => is_outgrown = false,
                Err(lmdb::Error::MapResized) => is_outgrown = true,
                Err(e) => return Err(lmdb_error(path, e)),
            }
        }
        let cause = if is_outgrown {
            "another process has enlarged the database beyond the memory map of this process: drop all sources of \
             this database before opening it again"
                .to_owned()
        } else {
            format!(
                "could not take a consistent snapshot, because other processes committed during all {MAX_ATTEMPTS} \
                 attempts: try again when fewer processes are writing"
            )
        };
        Err(Error::in_source(cause).at_path(path))
    }

    pub(super) fn get<'a>(&'a self, key: &[u8]) -> Result<Option<&'a [u8]>> {
        thread_local!(static SLOT: Cell<Option<usize>> = const { Cell::new(None) });
        static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);
        let slot = SLOT.get().unwrap_or_else(|| {
            let slot = NEXT_SLOT.fetch_add(1, Ordering::Relaxed);
            SLOT.set(Some(slot));
            slot
        });
        // Ignore poison: code under the lock only reads the database, so a panic cannot leave a
        // transaction in an inconsistent state.
        let txn = self.slots[slot % self.slots.len()].lock().unwrap_or_else(PoisonError::into_inner);
        match txn.0.get(self.database, &key) {
            // SAFETY: the bytes are valid and unchanged for as long as the snapshot lives, even
            // after the lock is released (invariant 3).
            Ok(value) => Ok(Some(unsafe { std::slice::from_raw_parts::<'a>(value.as_ptr(), value.len()) })),
            Err(lmdb::Error::NotFound) => Ok(None),
            Err(e) => Err(lmdb_error(&self.path, e)),
        }
    }

    /// Returns the names of all named databases if this snapshot reads the main database, which
    /// contains them as entries. Returns no names if this snapshot reads a named database.
    pub(super) fn names(&self) -> Vec<&str> {
        let Environment { database, named_databases, .. } = self.environment.get();
        let is_main = self.database.dbi() == database.dbi();
        named_databases.iter().filter(|_| is_main).map(|(name, _)| &**name).collect()
    }

    /// Returns the number of the last commit that this snapshot contains.
    pub(super) fn commit(&self) -> usize {
        self.commit
    }

    /// Returns the number of the last commit by any process, which may be later than the snapshot.
    pub(super) fn last_commit(&self) -> Result<usize> {
        let env = &self.environment.get().env;
        env.info().map(|info| info.last_txnid()).map_err(|e| lmdb_error(&self.path, e))
    }

    pub(super) fn with_transaction<T>(
        &self,
        visit: impl FnOnce(&RoTransaction<'_>, Database) -> lmdb::Result<T>,
    ) -> Result<T> {
        let txn = self.slots[0].lock().unwrap_or_else(PoisonError::into_inner);
        visit(&txn.0, self.database).map_err(|e| lmdb_error(&self.path, e))
    }
}

/// Begins transactions that all see the same state of the database, and returns them with the
/// number of the last commit that they see. Returns `None` if another process committed in the
/// meantime.
///
/// # Safety
/// `env` must stay open, and must not move, for as long as the returned slots live.
unsafe fn begin_transactions(env: &lmdb::Environment) -> lmdb::Result<Option<(Vec<Mutex<Slot>>, usize)>> {
    let slot_count = std::thread::available_parallelism().map_or(4, |n| n.get()).clamp(2, 64);
    let commit = env.info()?.last_txnid();
    let mut slots = Vec::new();
    while slots.len() < slot_count {
        match env.begin_ro_txn() {
            // SAFETY: this only extends the lifetime of the borrow of `env`. The caller guarantees
            // that `env` outlives the transaction.
            Ok(txn) => slots.push(Mutex::new(Slot(unsafe {
                std::mem::transmute::<RoTransaction<'_>, RoTransaction<'static>>(txn)
            }))),
            // This snapshot has taken all free reader slots. Other snapshots or processes occupy
            // the remaining ones.
            Err(lmdb::Error::ReadersFull) if !slots.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    Ok((env.info()?.last_txnid() == commit).then_some((slots, commit)))
}

/// An open file, with handles of its databases. All handles are opened up front, because
/// `mdb_dbi_open` writes to memory that concurrent reads access.
struct Environment {
    env: lmdb::Environment,
    /// The main database.
    database: Database,
    named_databases: Vec<(String, Database)>,
    /// Number of entries in the main database, including one for each named database.
    entries: usize,
}

/// Maximum number of named databases in a file. If the main database has more entries, all of them
/// are assumed to be samples.
const MAX_NAMED_DATABASES: u32 = 128;

/// Size of the value that describes a named database (`MDB_db` on 64-bit systems).
const DESCRIPTOR_BYTES: usize = 48;

impl Environment {
    fn new(env: lmdb::Environment) -> lmdb::Result<Self> {
        let database = env.open_db(None)?;
        let (mut names, entries) = (Vec::new(), {
            let txn = env.begin_ro_txn()?;
            txn.stat(database)?.entries()
        });
        if entries <= MAX_NAMED_DATABASES as usize {
            let txn = env.begin_ro_txn()?;
            for record in txn.open_ro_cursor(database)?.iter_start() {
                let (key, value) = record?;
                if let (DESCRIPTOR_BYTES, Ok(name)) = (value.len(), std::str::from_utf8(key))
                    && !name.contains('\0')
                {
                    names.push(name.to_owned());
                }
            }
        }
        let mut named_databases = Vec::new();
        for name in names {
            match env.open_db(Some(&name)) {
                Ok(database) => named_databases.push((name, database)),
                // This is an ordinary value that has the length of a descriptor.
                Err(lmdb::Error::Incompatible | lmdb::Error::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Environment { env, database, named_databases, entries })
    }

    fn find_database(&self, name: Option<&str>) -> Result<Database> {
        let names: Vec<_> = self.named_databases.iter().map(|(name, _)| format!("{name:?}")).collect();
        match name {
            Some(name) => match self.named_databases.iter().find(|(database, _)| database == name) {
                Some((_, database)) => Ok(*database),
                None if names.is_empty() => Err(Error::config(format!(
                    "no database {name:?}: the file contains one database without a name; remove the name from the path"
                ))),
                None => Err(Error::config(format!("no database {name:?}: the file contains {}", names.join(", ")))),
            },
            None if self.named_databases.len() < self.entries || self.entries == 0 => Ok(self.database),
            None => match &self.named_databases[..] {
                [(_, only)] => Ok(*only),
                _ => Err(Error::config(format!(
                    "the file contains {} databases ({}): add `/` and a name to the path",
                    names.len(),
                    names.join(", ")
                ))),
            },
        }
    }
}

/// A handle to the shared environment of a file. The option is `None` only during `drop`.
struct SharedEnvironment(Option<Arc<Environment>>);

/// A file's device and inode, which distinguish it from a new file at the same path.
#[cfg(unix)]
type FileId = (u64, u64);
#[cfg(not(unix))]
type FileId = std::path::PathBuf;

/// All open environments of this process (invariant 1). They are few, so a list suffices.
static ENVIRONMENTS: Mutex<Vec<(FileId, Arc<Environment>)>> = Mutex::new(Vec::new());

impl SharedEnvironment {
    fn open(path: &Path) -> Result<Self> {
        let is_folder = fs::metadata(path).map_err(|e| Error::io(path, &e))?.is_dir();
        let data = if is_folder { &path.join("data.mdb") } else { path };
        let mut environments = ENVIRONMENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let map_size = header::check_file(data)?;
        let file = file_id(data).map_err(|e| Error::io(data, &e))?;
        let environment = match environments.iter().find(|(id, _)| *id == file) {
            Some((_, environment)) => {
                free_dead_slots(&environment.env);
                environment.clone()
            }
            None => {
                let env = open_environment(path, is_folder, map_size)?;
                // `Environment::new` needs a free reader slot.
                free_dead_slots(&env);
                let environment = Arc::new(Environment::new(env).map_err(|e| lmdb_error(path, e))?);
                environments.push((file, environment.clone()));
                environment
            }
        };
        Ok(SharedEnvironment(Some(environment)))
    }

    fn get(&self) -> &Environment {
        self.0.as_ref().expect("`drop` has not run yet")
    }
}

impl Drop for SharedEnvironment {
    fn drop(&mut self) {
        let mut environments = ENVIRONMENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let environment = self.0.take().expect("`drop` runs once");
        // A count of two means that only the list and this handle refer to the environment. Cloning
        // requires the lock, so no other thread can clone the environment now.
        if Arc::strong_count(&environment) == 2 {
            environments.retain(|(_, other)| !Arc::ptr_eq(other, &environment));
        }
        // Close the environment while the mutex is locked, so that no other thread can open the
        // file at the same time. The guard `environments` is dropped when this function returns.
        drop(environment);
    }
}

/// Frees the reader slots of processes that no longer exist. On failure, the slots stay occupied.
fn free_dead_slots(env: &lmdb::Environment) {
    // SAFETY: the environment is open. LMDB does not change the slots of live processes, including
    // this one.
    unsafe { lmdb_sys::mdb_reader_check(env.env(), &mut 0) };
}

/// Opens the environment at `path`, which is a folder if `is_folder` is true. `map_size` is the map
/// size that the writer requested, in bytes.
fn open_environment(path: &Path, is_folder: bool, map_size: u64) -> Result<lmdb::Environment> {
    let mut flags = EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS | EnvironmentFlags::NO_READAHEAD;
    if !is_folder {
        flags |= EnvironmentFlags::NO_SUB_DIR;
    }
    let mut builder = lmdb::Environment::new();
    builder.set_max_readers(MAX_READERS).set_max_dbs(MAX_NAMED_DATABASES);
    let mut open = |flags| {
        builder.set_flags(flags);
        // On Windows, the map cannot be larger than the file.
        if let (true, Ok(size)) = (cfg!(unix), usize::try_from(map_size.saturating_mul(2).max(MIN_MAP_BYTES))) {
            match builder.set_map_size(size).open(path) {
                // The address space is too small (for example, due to `ulimit -v`), so fall back to
                // the writer's map size.
                Err(lmdb::Error::Other(libc::ENOMEM | libc::EINVAL | libc::EOVERFLOW)) => builder.set_map_size(0),
                result => return result,
            };
        }
        builder.open(path)
    };
    match open(flags) {
        // The lock file cannot be created or written. Without it, writers cannot see this reader,
        // and may reuse pages that it reads.
        Err(lmdb::Error::Other(code)) if is_denied(code) => {
            tracing::info!(
                "{}: the lock file cannot be written, so the database was opened without a lock: do not write to it",
                path.display()
            );
            open(flags | EnvironmentFlags::NO_LOCK)
        }
        result => result,
    }
    .map_err(|e| lmdb_error(path, e))
}

/// Returns whether `code` means that a file cannot be written. Checks the error's `kind`, because
/// Windows does not use `errno` values.
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

/// Links a Windows library that LMDB needs but `lmdb-rkv-sys` does not link.
#[cfg(windows)]
mod advapi32 {
    use std::ffi::c_void;

    #[link(name = "advapi32")]
    unsafe extern "system" {
        fn InitializeSecurityDescriptor(descriptor: *mut c_void, revision: u32) -> i32;
        fn SetSecurityDescriptorDacl(descriptor: *mut c_void, present: i32, acl: *const c_void, defaulted: i32) -> i32;
    }

    /// Forces the library to be linked. GNU's linker takes from a library only the symbols that are
    /// undefined at that point, and may reach this library before LMDB.
    #[used]
    static CALLED: (
        unsafe extern "system" fn(*mut c_void, u32) -> i32,
        unsafe extern "system" fn(*mut c_void, i32, *const c_void, i32) -> i32,
    ) = (InitializeSecurityDescriptor, SetSecurityDescriptorDacl);
}

/// Converts an LMDB error into an [`Error`] about the database at `path`.
pub fn lmdb_error(path: &Path, error: lmdb::Error) -> Error {
    match error {
        lmdb::Error::Other(code) => Error::io(path, &io::Error::from_raw_os_error(code)),
        lmdb::Error::ReadersFull => Error::in_source(
            "lmdb: open sources and other processes occupy all reader slots of the lock file: close the database in \
             all processes, so that LMDB recreates the lock file, or set a higher maximum in the process that opens \
             the database first",
        )
        .at_path(path),
        error => Error::in_source(format!("lmdb: {error}").to_lowercase()).at_path(path),
    }
}

#[cfg(test)]
mod tests {
    use lmdb::WriteFlags;

    use super::*;

    #[test]
    fn later_commits_do_not_change_the_number_of_a_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let writer = lmdb::Environment::new().open(folder.path()).unwrap();
        let database = writer.open_db(None).unwrap();
        let commit = |key: &str| {
            let mut txn = writer.begin_rw_txn().unwrap();
            txn.put(database, &key, &"value", WriteFlags::empty()).unwrap();
            txn.commit().unwrap();
        };
        commit("0");
        let first = Snapshot::open(folder.path(), None).unwrap();
        let number = first.commit();
        assert_eq!(first.last_commit().unwrap(), number);
        commit("1");
        assert_eq!((first.commit(), first.last_commit().unwrap()), (number, number + 1));
        assert!(first.get(b"1").unwrap().is_none());
        let second = Snapshot::open(folder.path(), None).unwrap();
        assert_eq!(second.commit(), number + 1);
        assert!(second.get(b"1").unwrap().is_some());
    }
}
