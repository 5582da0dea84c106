//! Texts of the repository that tests write from the code with `WARPFEED_BLESS=1`.

use std::path::Path;

/// Fails if the file `path` of the repository is not `text`, or writes it.
pub(crate) fn file(path: &str, text: &str) {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("WARPFEED_BLESS").is_some() {
        std::fs::write(&whole, text).unwrap();
    }
    let found = std::fs::read_to_string(&whole).unwrap_or_default();
    assert!(found == text, "{path} is not what the code gives: run this test with WARPFEED_BLESS=1");
}

/// The same for the part of a file between `begin` and `end`.
pub(crate) fn part(path: &str, [begin, end]: [&str; 2], text: &str) {
    let found = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let parts = found.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let (head, tail) = parts.unwrap_or_else(|| panic!("{path} lacks {begin:?} or {end:?}"));
    file(path, &format!("{head}{begin}{text}{end}{tail}"));
}
