//! Local file I/O and thread pools.

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
pub use cancel::run_with_token;
pub use cancel::{CancelToken, is_stopped};
pub use file::append_file;
pub use file::rename;
pub use file::within;
pub use hash::Hash;
pub use pages::mark_reader_thread;
pub use pool::Pool;
pub use retry::{RETRIES, check_retries, retried};
