//! Tests that opening a database without a free reader slot fails with advice, and that the slots
//! of dead processes are reused.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::process::child;
use lmdb::{EnvironmentFlags, Transaction};
use warpfeed::pack::{DatasetWriter, LmdbWriter, WriteOptions};
use warpfeed::source::{Lmdb, OwnedSample, Source};

const PATH: &str = "WARPFEED_TEST_DATABASE";
const READERS: &str = "WARPFEED_TEST_READERS";
/// Number of reader slots in the lock file, as set by the first process.
const SLOTS: u32 = 4;

#[test]
#[ignore = "started by the other tests"]
fn hold_readers() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let readers: u32 = std::env::var(READERS).unwrap().parse().unwrap();
    let flags = EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS;
    let env = lmdb::Environment::new().set_flags(flags).set_max_readers(SLOTS).open(Path::new(&path)).unwrap();
    let database = env.open_db(None).unwrap();
    let transactions: Vec<_> = (0..readers).map(|_| env.begin_ro_txn().unwrap()).collect();
    assert!(transactions.iter().all(|txn| txn.get(database, b"0000000000").is_ok()));
    println!("\nready");
    std::io::stdin().lines().next();
}

fn holder(path: &Path, readers: u32) -> Child {
    let mut child = child!(hold_readers)
        .env(PATH, path)
        .env(READERS, readers.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the other process failed");
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn database(root: &tempfile::TempDir) -> std::path::PathBuf {
    let path = root.path().join("x.lmdb");
    let mut writer = Box::new(LmdbWriter::create(&path, &WriteOptions::default()).unwrap());
    writer.put(&OwnedSample::new("a").field("jpg", *b"bytes").as_sample().unwrap()).unwrap();
    writer.finish().unwrap();
    path
}

fn reads(path: &Path) -> bool {
    let source = Lmdb::open(path).unwrap();
    source.read(0, &mut Vec::new()).unwrap().field("jpg").as_deref() == Some(b"bytes")
}

#[test]
fn opening_needs_one_free_reader_slot() {
    let root = tempfile::tempdir().unwrap();
    let path = database(&root);
    let all_readers = holder(&path, SLOTS);
    let error = Lmdb::open(&path).unwrap_err();
    assert!(error.path() == Some(&path) && error.cause().contains("occupy all reader slots"), "{error}");
    kill(all_readers);
    let readers = holder(&path, SLOTS - 1);
    assert!(reads(&path), "one free slot is enough");
    kill(readers);
}

#[test]
fn slots_of_dead_processes_are_reused() {
    let root = tempfile::tempdir().unwrap();
    let path = database(&root);
    // The lock file is not recreated while a process has the database open.
    let alive = holder(&path, 0);
    kill(holder(&path, SLOTS));
    assert!(reads(&path));
    kill(alive);
}
