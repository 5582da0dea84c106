//! Tests that need a process: one at a time in this one, or in a process of their own.
#![allow(dead_code, unused_macros, unused_imports, unreachable_pub)] // each test uses its part

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test that calls this runs. Otherwise the tests of a binary run in parallel.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed has released whatever it shares with others.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that runs a single test of this binary, ignored or not: `child!(name_of_the_test)`.
macro_rules! child {
    ($test:ident) => {{
        let _: fn() = $test; // A name without a test would run nothing, and succeed.
        $crate::process::command(module_path!(), stringify!($test))
    }};
}
pub(crate) use child;

/// Runs the rest of the test in a process without other tests, because it sets environment variables
/// or watches the whole process: `own_process!(name_of_the_test)`.
macro_rules! own_process {
    ($test:ident) => {
        if std::env::var_os($crate::process::OWN).is_none() {
            let status = $crate::process::child!($test).env($crate::process::OWN, "1").status().unwrap();
            assert!(status.success(), "the test failed in its own process");
            return;
        }
    };
}
pub(crate) use own_process;

/// Set in the process of a test that calls [`own_process`].
pub const OWN: &str = "WARPFEED_TEST_OWN_PROCESS";

/// See [`child`]. `module` is the test's `module_path!()`.
pub fn command(module: &str, test: &str) -> Command {
    let (_, module) = module.split_once("::").expect("tests are in modules of a binary");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}
