//! Promise: if the disk fills up while a data set is packed, the error names the file, and no
//! partial files remain.
//!
//! The real program runs with a limit on the file size. If mounts are allowed, it also runs on a
//! file system of a few hundred KiB.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

fn pack(target: &Path, most: u64) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mini");
    command.arg("pack").arg("--from").arg(from).arg("--to").arg(target);
    let limited = move || {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: two system calls with plain arguments. The signal is ignored because a full disk
        // gives an error and not a signal.
        let done = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: `limited` only makes system calls.
    unsafe { command.pre_exec(limited) };
    command.output().unwrap()
}

#[test]
fn packing_onto_a_full_disk_is_an_error_and_leaves_nothing_behind() {
    for name in ["x.tar", "x.lmdb"] {
        // LMDB returns EIO for a short write.
        let cause = if name == "x.lmdb" { "is the disk full?" } else { "File too large" };
        // Fails at the beginning, in the middle, and in the last write.
        for most in [0, 100 << 10, 500 << 10] {
            let root = tempfile::tempdir().unwrap();
            let target = root.path().join(name);
            let output = pack(&target, most);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && output.status.code().is_some(), "{name}, {most} bytes: {said}");
            assert!(said.contains(name) && (said.contains(cause) || most == 0), "{name}, {most} bytes: {said}");
            let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{name}, {most} bytes: {left:?}");
        }
        let root = tempfile::tempdir().unwrap();
        assert!(pack(&root.path().join(name), 1 << 30).status.success(), "it is packed if there is room");
    }
}

/// Uses a real file system that is full, mounted in its own namespace if users may create one.
#[test]
fn packing_onto_a_full_file_system_is_an_error_and_leaves_nothing_behind() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mini");
    let root = tempfile::tempdir().unwrap();
    // Runs `script` with $1 = the file system, $2 = the program, $3 = the data set.
    let mounted = |kib: usize, script: &str| {
        let script = format!("mount -t tmpfs -o size={kib}k none \"$1\" || exit 77; {script}");
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
        unshare.arg(root.path()).arg(env!("CARGO_BIN_EXE_warpfeed")).arg(&from).output()
    };
    match mounted(1024, "true") {
        Ok(output) if output.status.success() => {}
        Ok(output) => return eprintln!("skipped: no mount: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(e) => return eprintln!("skipped: no unshare(1): {e}"),
    }
    for name in ["x.tar", "x.lmdb"] {
        for kib in [64, 300, 500] {
            let script = format!("\"$2\" pack --from \"$3\" --to \"$1/{name}\"; echo \"ended $?\"; ls -A \"$1\"");
            let output = mounted(kib, &script).unwrap();
            let (left, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let after = left.split_once("ended ").unwrap_or_else(|| panic!("{left}, {said}")).1;
            assert_eq!(after, "1\n", "{name} on {kib} KiB ended so, and left this behind: {said}");
            // LMDB returns EIO for a short write.
            let cause =
                said.contains("No space left on device") || (name == "x.lmdb" && said.contains("is the disk full?"));
            assert!(said.contains(name) && cause, "{name} on {kib} KiB: {said}");
        }
        let output = mounted(4096, &format!("\"$2\" pack --from \"$3\" --to \"$1/{name}\" && ls \"$1\"")).unwrap();
        assert!(output.status.success(), "it is packed if there is room");
    }
}
