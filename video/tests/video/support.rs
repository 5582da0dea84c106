//! The fixtures that several tests use. `fixtures/make.sh` creates them.

use std::path::{Path, PathBuf};

/// Returns the path of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Returns the content of a fixture.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let path = fixture(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the names of all videos, without their extension.
pub(crate) fn videos() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(fixture(""))
        .expect("the folder of fixtures exists")
        .filter_map(|entry| Some(entry.ok()?.file_name().into_string().ok()?.strip_suffix(".mp4")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() > 15, "{names:?}");
    names
}

/// Pseudorandom numbers that are the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}
