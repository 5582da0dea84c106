//! Tests that long commands show a progress bar only if stderr is a terminal.
#![cfg(unix)]
#![allow(unsafe_code)] // for the pseudo-terminal

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

/// Opens a pseudo-terminal. Returns the end that the test reads, and the end that a child process
/// writes to.
fn terminal() -> (File, OwnedFd) {
    let (mut shows, mut written) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: each pointer either refers to a live local or is null, which is allowed for the name
    // and the settings.
    let opened = unsafe {
        libc::openpty(&raw mut shows, &raw mut written, null_mut(), null_mut(), (&raw const size).cast_mut())
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `openpty` succeeded, so both descriptors are open, and nothing else owns them.
    unsafe { (File::from_raw_fd(shows), OwnedFd::from_raw_fd(written)) }
}

fn progress_output(args: &[&str]) -> String {
    let (mut shows, written) = terminal();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(args).env("TERM", "xterm").env_remove("NO_COLOR").stdout(Stdio::null()).stderr(written);
    let mut process = command.spawn().unwrap();
    // Close this process's copy of the written end, so that reading ends when the child exits. On
    // Linux, the last read fails with EIO.
    drop(command);
    let mut text = Vec::new();
    let _ = shows.read_to_end(&mut text);
    assert!(process.wait().unwrap().success(), "{}", String::from_utf8_lossy(&text));
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_progress_bar_is_shown_only_on_a_terminal() {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mini");
    let set = set.to_str().unwrap();
    let bench =
        ["bench", set, "--batch-size", "8", "--size", "32", "--workers", "2", "--warmup", "0.5", "--seconds", "1"];
    let verify = ["verify", set];
    for (args, words) in [(&bench[..], ["/1500 ms", " samples/s"]), (&verify, ["/64 images", " left"])] {
        let bar = progress_output(args);
        assert!(words.iter().all(|words| bar.contains(words)), "{args:?}: {bar:?}");
        let elsewhere = Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).output().unwrap();
        let elsewhere = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
        assert!(!elsewhere.contains(words[0]), "{args:?}: {elsewhere:?}");
    }
}
