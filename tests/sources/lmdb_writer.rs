//! Tests that a database can be opened after a different process has enlarged it, that an open
//! `Lmdb` prevents the writer from reusing pages, and that the next epoch fails after the file has
//! grown by more than the growth limit.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use crate::process::child;
use lmdb::{Environment, EnvironmentFlags, Transaction, WriteFlags};
use warpfeed::source::{Lmdb, Source};
use warpfeed::{ErrorKind, Loader};

const PATH: &str = "WARPFEED_TEST_DATABASE";
const SMALL_MAP: usize = 1 << 20;
const LARGE_MAP: usize = 1 << 28;

fn environment(path: &Path, map: usize) -> Environment {
    Environment::new().set_flags(EnvironmentFlags::NO_SUB_DIR).set_map_size(map).open(path).unwrap()
}

fn image(len: usize) -> Vec<u8> {
    let mut bytes = b"\xff\xd8\xff".to_vec();
    bytes.resize(len, 7);
    bytes
}

fn put_samples(env: &Environment, keys: std::ops::Range<usize>, len: usize) {
    let database = env.open_db(None).unwrap();
    let mut txn = env.begin_rw_txn().unwrap();
    for key in keys {
        txn.put(database, &format!("{key:08}"), &image(len), WriteFlags::empty()).unwrap();
    }
    txn.commit().unwrap();
}

fn database(root: &tempfile::TempDir) -> PathBuf {
    let path = root.path().join("x.mdb");
    put_samples(&environment(&path, SMALL_MAP), 0..8, 3000);
    path
}

/// Runs in the child process. For each line `START END LEN` of its input, stores images of `LEN`
/// bytes under the keys `START..END`, in one transaction.
#[test]
#[ignore = "started by the other tests"]
fn write_on_command() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let env = environment(Path::new(&path), LARGE_MAP);
    println!("\nready");
    for line in std::io::stdin().lines() {
        let numbers: Vec<usize> = line.unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
        put_samples(&env, numbers[0]..numbers[1], numbers[2]);
        println!("done");
    }
}

struct Writer {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Writer {
    fn new(path: &Path) -> Self {
        let mut child =
            child!(write_on_command).env(PATH, path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut writer = Writer { child, out };
        writer.wait_for("ready");
        writer
    }

    fn wait_for(&mut self, word: &str) {
        let reached = self.out.by_ref().lines().any(|line| line.unwrap().ends_with(word));
        assert!(reached, "the writer exited before printing {word:?}");
    }

    fn put(&mut self, keys: std::ops::Range<usize>, len: usize) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{} {} {len}", keys.start, keys.end).unwrap();
        self.wait_for("done");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

fn read_all(source: &Lmdb) -> usize {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| source.read(i, &mut scratch).unwrap().image().unwrap().1.len()).sum()
}

#[test]
fn a_database_grown_by_a_different_process_is_opened() {
    let root = tempfile::tempdir().unwrap();
    let path = database(&root);
    let old = Lmdb::open(&path).unwrap();
    let mut writer = Writer::new(&path);
    writer.put(8..40, 200_000);
    assert!(fs::metadata(&path).unwrap().len() > 4 * SMALL_MAP as u64, "the file must have grown beyond the first map");
    let new = Lmdb::open(&path).unwrap();
    assert_eq!((old.len(), read_all(&old)), (8, 8 * 3000), "an open source must keep its state");
    assert_eq!((new.len(), read_all(&new)), (40, 8 * 3000 + 32 * 200_000), "a new source must read all samples");
    drop(old);
    assert_eq!(read_all(&new), 8 * 3000 + 32 * 200_000, "the newer source must not need the older one");
}

fn rewrite(writer: &mut Writer, times: usize) {
    (0..times).for_each(|_| writer.put(0..8, 3000));
}

#[test]
fn a_writers_file_grows_while_a_source_is_open() {
    let root = tempfile::tempdir().unwrap();
    let path = database(&root);
    let mut writer = Writer::new(&path);
    let file_len = || fs::metadata(&path).unwrap().len();
    rewrite(&mut writer, 10);
    let len_without_source = file_len();
    rewrite(&mut writer, 100);
    assert_eq!(file_len(), len_without_source, "without an open source, the writer must reuse freed pages");

    let source = Lmdb::open(&path).unwrap();
    rewrite(&mut writer, 100);
    let growth = file_len() - len_without_source;
    println!(
        "100 commits of 8 images of 3000 bytes: the file grew by {growth} bytes with an open source, \
         and by 0 without one"
    );
    // Each of the 100 commits writes eight one-page images, and a few pages of the B+ tree.
    assert!((100 * 8 * 3000..100 * 32 * 4096).contains(&growth), "the file grew by {growth}");
    assert_eq!(read_all(&source), 8 * 3000);

    drop(source);
    rewrite(&mut writer, 10);
    let len_after_drop = file_len();
    rewrite(&mut writer, 100);
    assert_eq!(file_len(), len_after_drop, "after the source is dropped, the writer must reuse freed pages");
}

#[test]
fn the_next_epoch_fails_after_growth_beyond_the_limit() {
    let root = tempfile::tempdir().unwrap();
    let path = database(&root);
    let mut writer = Writer::new(&path);
    let (limited, unlimited) = (Lmdb::open(&path).unwrap().growth_limit(1 << 20), Lmdb::open(&path).unwrap());
    rewrite(&mut writer, 5);
    assert!(limited.check().is_ok(), "5 commits of 8 images must stay within the limit of 1 MiB");
    rewrite(&mut writer, 100);
    let error = limited.check().unwrap_err();
    assert!(error.kind() == ErrorKind::Source && error.path() == Some(&path), "{error}");
    assert!(error.cause().contains("in 105 commits") && error.cause().contains("growth_limit is 1048576"), "{error}");
    assert!(unlimited.check().is_ok(), "without a limit, growth must not be an error");
    let first = Loader::source(limited).into_iter().next().unwrap();
    assert!(first.unwrap_err().cause().contains("growth_limit"), "the epoch must report the growth");
    assert!(
        Lmdb::open(&path).unwrap().growth_limit(1 << 20).check().is_ok(),
        "opening the file again must reset the growth"
    );
}
