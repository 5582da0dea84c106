//! Promise: what takes long shows a bar on stderr where that is a terminal, and nothing elsewhere.
#![cfg(unix)]
#![allow(unsafe_code)] // a terminal of its own

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

/// A terminal: the end that shows it, and the end that a process writes to.
fn terminal() -> (File, OwnedFd) {
    let (mut shows, mut written) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointers are to live locals or null, which is allowed for the name and the
    // settings.
    let opened = unsafe {
        libc::openpty(&raw mut shows, &raw mut written, null_mut(), null_mut(), (&raw const size).cast_mut())
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `openpty` succeeded, so that both are open descriptors which nobody else owns.
    unsafe { (File::from_raw_fd(shows), OwnedFd::from_raw_fd(written)) }
}

/// What the terminal shows on which the program writes its errors.
fn shown(args: &[&str]) -> String {
    let (mut shows, written) = terminal();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(args).env("TERM", "xterm").env_remove("NO_COLOR").stdout(Stdio::null()).stderr(written);
    let mut process = command.spawn().unwrap();
    // The other end is closed here, so that reading ends with the process: with an error, as
    // terminals do.
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
        let bar = shown(args);
        assert!(words.iter().all(|words| bar.contains(words)), "{args:?}: {bar:?}");
        let elsewhere = Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).output().unwrap();
        let elsewhere = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
        assert!(!elsewhere.contains(words[0]), "{args:?}: {elsewhere:?}");
    }
}
