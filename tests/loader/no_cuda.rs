//! Tests that loaders of host batches do not look for a CUDA driver unless they request page-locked
//! memory, and that only requests for a device fail without a driver. Each test runs a child
//! process, to watch the dynamic linker and to provide a fake driver.
#![cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]

use std::path::Path;
use std::process::{Command, Output};

use crate::process::child;
use warpfeed::{Augment, ErrorKind, HostBatch, Loader};

const MINI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/datasets/mini");
const DRIVER: &str = "libcuda";

fn loader() -> Loader {
    Loader::new(MINI).batch_size(8).shuffle(1).augment(Augment::train(32)).workers(2)
}

fn pixels(batches: impl Iterator<Item = warpfeed::Result<HostBatch>>) -> u64 {
    batches.map(|batch| batch.unwrap().images().bytes().iter().copied().map(u64::from).sum::<u64>()).sum()
}

fn loaded() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let cuda = |line: &&str| ["libcuda", "libcudart", "libnvrtc", "libnvidia"].iter().any(|name| line.contains(name));
    maps.lines().filter(cuda).map(str::to_owned).collect()
}

#[test]
#[ignore = "started by the tests below"]
fn load_on_the_host() {
    println!("pixels {}", pixels(loader().host().unwrap().epoch(0)));
    assert_eq!(loaded(), [""; 0]);
}

#[test]
#[ignore = "started by the tests below"]
fn load_on_a_device() {
    let e = warpfeed::cuda::stream(0).err();
    println!("error {}", e.map_or("none".into(), |e| format!("{:?} {e}", e.kind())));
    println!("pixels {}", pixels(loader().pinned(true).host().unwrap().epoch(0)));
}

/// Runs a child in which the dynamic linker logs every library that it looks for. The linker
/// searches `libraries` first.
fn run(mut child: Command, libraries: Option<&Path>) -> Output {
    child.env("LD_DEBUG", "libs");
    if let Some(libraries) = libraries {
        child.env("LD_LIBRARY_PATH", libraries);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn no_driver() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so.1"), "not a library").unwrap();
    folder
}

#[test]
fn the_host_path_does_not_look_for_a_driver() {
    let expected = format!("pixels {}", pixels(loader().host().unwrap().epoch(0)));
    let host = run(child!(load_on_the_host), None);
    assert!(text(&host.stdout).contains(&expected), "{}", text(&host.stdout));
    let searched = text(&host.stderr);
    assert!(searched.contains("libc.so.6"), "the linker logged nothing: {searched}");
    assert!(!searched.contains(DRIVER), "{searched}");
    // A request for a device looks for the driver, which shows that the log would list the search.
    assert!(text(&run(child!(load_on_a_device), None).stderr).contains(DRIVER));
}

#[test]
fn only_the_device_path_fails_without_a_driver() {
    let expected = format!("pixels {}", pixels(loader().host().unwrap().epoch(0)));
    let folder = no_driver();
    let host = run(child!(load_on_the_host), Some(folder.path()));
    assert!(text(&host.stdout).contains(&expected), "{}", text(&host.stdout));
    // Without page-locked memory, the host loader uses ordinary memory and has the same batches.
    let device = text(&run(child!(load_on_a_device), Some(folder.path())).stdout);
    assert!(device.contains(&expected), "{device}");
    // The error names the fake driver, so no real driver was found.
    let error = format!("error {:?} cuda: no NVIDIA driver found ({}", ErrorKind::Cuda, folder.path().display());
    assert!(device.contains(&error), "{device}");
}
