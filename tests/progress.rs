//! Promise: `progress(true)` shows a bar on a terminal for each epoch, and for a loader that goes
//! straight into `for`; without it there is none.
#![cfg(all(feature = "progress", unix))]
#![allow(unsafe_code)] // a terminal of its own

mod support;

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use support::{Numbers, loader, no_hang};

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

/// Loads as `HOW` says, in a process whose standard error is a terminal.
#[test]
#[ignore = "started by another test"]
fn a_process_that_loads() {
    let Ok(how) = std::env::var("HOW") else { return };
    let loader = loader(Numbers::new(60)).progress(how != "off");
    if how == "epochs" {
        let mut batches = loader.host().unwrap();
        for epoch in [3, 4] {
            assert!(batches.epoch(epoch).all(|batch| batch.is_ok()));
        }
    } else {
        assert!(loader.into_iter().all(|batch| batch.is_ok()));
    }
}

/// What the terminal of such a process shows.
fn shown(how: &str) -> String {
    let (mut shows, written) = terminal();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_process_that_loads", "--ignored", "--nocapture"]);
    command.env("HOW", how).env("TERM", "xterm").env_remove("NO_COLOR").stdout(Stdio::null()).stderr(written);
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
fn a_bar_is_shown_for_each_epoch_and_straight_in_for() {
    no_hang(|| {
        let epochs = shown("epochs");
        assert!(["epoch 3", "epoch 4", "/9 batches"].iter().all(|words| epochs.contains(words)), "{epochs:?}");
        let straight = shown("for");
        assert!(["epoch 0", "/9 batches"].iter().all(|words| straight.contains(words)), "{straight:?}");
        let off = shown("off");
        assert!(!off.contains("batches"), "{off:?}");
    });
}
