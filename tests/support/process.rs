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

/// See [`child`]. `module` is the test's `module_path!()`.
pub fn command(module: &str, test: &str) -> Command {
    let (_, module) = module.split_once("::").expect("tests are in modules of a binary");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}
