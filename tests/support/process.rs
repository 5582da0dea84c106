//! Helpers to run tests one at a time in this process, or in a child process.
#![allow(dead_code, unused_macros, unused_imports, unreachable_pub)] // not every test uses all of it

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a guard that only one test at a time can hold. Tests that do not call this function may
/// run at the same time.
pub fn serial() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    // Ignore poisoning: the lock protects no data, and unwinding has dropped the loaders of the
    // test that panicked.
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a command that runs only the named test of this binary, even if it is ignored:
/// `child!(name_of_the_test)`.
macro_rules! child {
    ($test:ident) => {{
        // A misspelled name must not compile: the command would run no test and succeed.
        let _: fn() = $test;
        $crate::process::command(module_path!(), stringify!($test))
    }};
}
pub(crate) use child;

/// Runs the test again in a child process, and returns from it in this process. The statements
/// after `own_process!(name_of_the_test)` thus run only in the child process. For tests that set
/// environment variables or observe the whole process.
macro_rules! own_process {
    ($test:ident) => {
        if std::env::var_os($crate::process::OWN).is_none() {
            let status = $crate::process::child!($test).env($crate::process::OWN, "1").status().unwrap();
            assert!(status.success(), "the test failed in its child process");
            return;
        }
    };
}
pub(crate) use own_process;

/// The variable that [`own_process`] sets for the child process.
pub const OWN: &str = "WARPFEED_TEST_OWN_PROCESS";

/// Implements [`child`]. `module` is the `module_path!()` of the test.
pub fn command(module: &str, test: &str) -> Command {
    let (_, module) = module.split_once("::").expect("the `module_path!()` of a test contains `::`");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}
