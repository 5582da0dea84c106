//! Tests that, if the disk fills up while a dataset, a sheet, a report or a plot is written, the
//! command fails, no partial file remains, and an existing sheet, report or plot is kept. If some
//! windows of a trace do not fit, the command succeeds, and the trace lacks them. If not even an
//! empty trace fits, the command fails. The tests limit the file size. If mounting is allowed,
//! packing also runs on a file system of at most 500 KiB.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn mini() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mini")
}

fn pack(target: &Path, max_bytes: u64) -> Output {
    run(
        Command::new(env!("CARGO_BIN_EXE_warpfeed")).arg("pack").arg("--from").arg(mini()).arg("--to").arg(target),
        max_bytes,
    )
}

fn run(command: &mut Command, max_bytes: u64) -> Output {
    let limited = move || {
        let limit = libc::rlimit { rlim_cur: max_bytes, rlim_max: max_bytes };
        // SAFETY: both system calls get valid arguments and are async-signal-safe. The signal is
        // ignored, because a full disk causes an error and not a signal.
        let done = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: `limited` only makes async-signal-safe system calls.
    unsafe { command.pre_exec(limited) };
    command.output().unwrap()
}

#[test]
fn packing_onto_a_full_disk_fails_and_leaves_no_files() {
    for name in ["x.tar", "x.lmdb"] {
        // LMDB returns EIO for a short write.
        let cause = if name == "x.lmdb" { "is the disk full?" } else { "File too large" };
        // With these limits, the first write or a later write fails.
        for max_bytes in [0, 100 << 10, 500 << 10] {
            let root = tempfile::tempdir().unwrap();
            let target = root.path().join(name);
            let output = pack(&target, max_bytes);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && output.status.code().is_some(), "{name}, {max_bytes} bytes: {stderr}");
            assert!(
                stderr.contains(name) && (stderr.contains(cause) || max_bytes == 0),
                "{name}, {max_bytes} bytes: {stderr}"
            );
            let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(names.is_empty(), "{name}, {max_bytes} bytes: {names:?}");
        }
        let root = tempfile::tempdir().unwrap();
        assert!(pack(&root.path().join(name), 1 << 30).status.success(), "packing succeeds with enough space");
    }
}

#[test]
fn failed_writes_keep_the_existing_file() {
    let root = tempfile::tempdir().unwrap();
    let program = |args: &[&str], max_bytes: u64| {
        run(Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(args).current_dir(root.path()), max_bytes)
    };
    let set = mini().display().to_string();
    let stats = program(&["bench", &set, "--seconds", "0.1", "--warmup", "0", "--json"], 1 << 30).stdout;
    fs::write(root.path().join("stats.json"), stats).unwrap();
    fs::write(root.path().join("target"), "before").unwrap();
    std::os::unix::fs::symlink("target", root.path().join("link.html")).unwrap();
    let commands: [&[&str]; 3] = [
        &["preview", &set, "--out", "x.png", "--images", "9", "--size", "64"],
        &["report", "stats.json", "--out", "link.html"],
        &["occupancy", "--cc", "9.0", "--regs", "32", "--out", "x.svg"],
    ];
    for args in commands {
        let name = args.iter().skip_while(|arg| **arg != "--out").nth(1).unwrap();
        for before in [false, true] {
            if before && *name != "link.html" {
                fs::write(root.path().join(name), "before").unwrap();
            }
            let output = program(args, 500);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && stderr.contains("File too large"), "{args:?}: {stderr}");
            let content = fs::read(root.path().join(name)).ok();
            assert_eq!(content.as_deref(), (before || *name == "link.html").then_some(&b"before"[..]), "{args:?}");
        }
        let output = program(args, 1 << 30);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(root.path().join(name)).unwrap().len() > 500, "{args:?}");
    }
    assert!(fs::symlink_metadata(root.path().join("link.html")).unwrap().is_symlink());
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("partial")), "{names:?}");
}

#[test]
fn a_trace_that_does_not_fit_stays_readable() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("trace.json");
    let traced = |max_bytes: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command
            .arg("bench")
            .arg(mini())
            .args(["--batch-size", "2", "--seconds", "1", "--warmup", "0", "--trace"])
            .arg(&path);
        run(&mut command, max_bytes)
    };
    let events = || {
        let trace: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        trace["traceEvents"].as_array().unwrap().len()
    };
    let output = traced(3000);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(events(), 0, "the only window exceeded the limit, so no event was written");
    assert!(traced(1 << 30).status.success() && events() > 20);
    let output = traced(50);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("trace.json") && stderr.contains("File too large"), "{stderr}");
    assert!(!path.exists());
}

#[test]
fn packing_onto_a_full_file_system_fails_and_leaves_no_files() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mini");
    let root = tempfile::tempdir().unwrap();
    // $1 is the mount point, $2 is the binary and $3 is the dataset.
    let mounted = |kib: usize, script: &str| {
        let script = format!("mount -t tmpfs -o size={kib}k none \"$1\" || exit 77; {script}");
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
        unshare.arg(root.path()).arg(env!("CARGO_BIN_EXE_warpfeed")).arg(&from).output()
    };
    match mounted(1024, "true") {
        Ok(output) if output.status.success() => {}
        Ok(output) => return crate::require::missing("mount", String::from_utf8_lossy(&output.stderr).trim()),
        Err(e) => return crate::require::missing("mount", format_args!("no unshare(1): {e}")),
    }
    for name in ["x.tar", "x.lmdb"] {
        for kib in [64, 300, 500] {
            let script = format!("\"$2\" pack --from \"$3\" --to \"$1/{name}\"; echo \"ended $?\"; ls -A \"$1\"");
            let output = mounted(kib, &script).unwrap();
            let (listed, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let after = listed.split_once("ended ").unwrap_or_else(|| panic!("{listed}, {stderr}")).1;
            assert_eq!(after, "1\n", "{name} on {kib} KiB: exit code and remaining files; {stderr}");
            // LMDB returns EIO for a short write.
            let cause = stderr.contains("No space left on device")
                || (name == "x.lmdb" && stderr.contains("is the disk full?"));
            assert!(stderr.contains(name) && cause, "{name} on {kib} KiB: {stderr}");
        }
        let output = mounted(4096, &format!("\"$2\" pack --from \"$3\" --to \"$1/{name}\" && ls \"$1\"")).unwrap();
        assert!(output.status.success(), "packing succeeds with enough space");
    }
}
