//! Checks that generated files in the repository are up to date. `WARPFEED_BLESS=1` regenerates
//! them.

use std::path::Path;

/// Fails if the file at `path` in the repository differs from `text`.
pub(crate) fn check_file(path: &str, text: &str) {
    let absolute = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("WARPFEED_BLESS").is_some() {
        std::fs::write(&absolute, text).unwrap();
    }
    let current = std::fs::read_to_string(&absolute).unwrap_or_default();
    assert!(current == text, "{path} differs from the generated text: run this test with WARPFEED_BLESS=1");
}

/// Like [`check_file`], but compares only the text between the markers `begin` and `end`.
pub(crate) fn check_part(path: &str, [begin, end]: [&str; 2], text: &str) {
    let current = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let parts = current.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let (head, tail) = parts.unwrap_or_else(|| panic!("{path} lacks {begin:?} or {end:?}"));
    check_file(path, &format!("{head}{begin}{text}{end}{tail}"));
}
