//! The check against calls in a forked child.

use crate::error::{Error, Result};

/// Returns an error if the current process is not `process`, which opened `what`. A forked child
/// has no worker threads, and locks that other threads of the parent held at `fork` stay locked in
/// the child.
pub(crate) fn check_process(what: &str, process: u32) -> Result<()> {
    let current = std::process::id();
    if current == process {
        return Ok(());
    }
    Err(Error::config(format!(
        "the {what} was opened in process {process} but used in process {current}: worker threads do not survive \
         fork; open it after forking"
    )))
}
