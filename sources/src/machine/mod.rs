//! Local file I/O and thread pools.
//!
//! 1. `file`: opens and reads whole files. `slashes`: converts path separators to `/`.
//! 2. `bytes`: reads ranges of large files. `pages`: loads pages of memory maps. `identity`:
//!    detects that a file was replaced or modified.
//! 3. `index_file`: reads and writes index files next to datasets. `hash`: a 64-bit hash, used for
//!    index files, for example.
//! 4. `temp_files`: temporary files with unique names, and file locks.
//! 5. `parallel`: runs work on several threads. `pool`: a thread pool that joins its threads.
//! 6. `retry`: retries after transient errors. `cancel`: cancels reads.

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
pub mod temp_files;

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
