//! Files and threads of this machine.
//!
//! 1. `file`: opens and reads whole files. `slashes`: writes paths alike on every system.
//! 2. `bytes`: reads large files, `pages` loads pages of memory maps, and `identity` detects
//!    replaced files.
//! 3. `index_file`: writes and reads the indexes next to datasets, and `hash` is their hash.
//! 4. `attempt`: files under unique names while they are written, beside their targets, and locks.
//! 5. `parallel`: opens many files, with the threads of a `pool`.
//! 6. `retry`: reads again after transient errors. `cancel`: ends reads.

pub mod attempt;
pub(super) mod bytes;
pub(super) mod cancel;
pub(super) mod file;
pub(super) mod hash;
pub(super) mod identity;
pub(super) mod index_file;
pub(super) mod pages;
pub(super) mod parallel;
pub(super) mod pool;
pub(super) mod retry;
pub(super) mod slashes;

pub(crate) use cancel::check as check_stop;
pub use cancel::during;
pub use cancel::{CancelToken, is_stopped};
pub use file::append_file;
pub use file::rename;
pub use file::within;
pub use hash::Hash;
pub use pages::reads_ahead;
pub use pool::Pool;
pub use retry::{RETRIES, check_retries, retried};
