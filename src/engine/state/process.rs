use crate::error::{Error, Result};

/// An error in a process other than `process`, which opened the `what`: no thread works there, and
/// locks may be held permanently.
pub(crate) fn check_process(what: &str, process: u32) -> Result<()> {
    let here = std::process::id();
    if here == process {
        return Ok(());
    }
    Err(Error::config(format!(
        "the {what} was opened by process {process}, this is {here}: worker threads do not survive fork; open it after forking"
    )))
}
