#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

pub(crate) fn warpfeed(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpfeed")).current_dir(dir).args(args).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn ok(dir: &Path, args: &[&str]) -> String {
    let output = warpfeed(dir, args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &*err), (Some(0), ""), "{args:?}\n{out}");
    out
}

pub(crate) fn fails(dir: &Path, code: i32, args: &[&str]) -> String {
    let output = warpfeed(dir, args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &*out), (Some(code), ""), "{args:?}\n{err}");
    err
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}
