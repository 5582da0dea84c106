//! Skips tests whose requirements a machine does not meet. A test that cannot run calls
//! [`missing`]. If the requirement is listed in `WARPFEED_REQUIRE`, as in
//! `WARPFEED_REQUIRE=cuda,nvrtc`, the test fails instead of being skipped.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

use std::fmt::Display;

/// One word and its meaning per line. `python/tests/conftest.py` reads the same file.
const WORDS: &str = include_str!("require.txt");

/// Prints why the test is skipped. Panics if `WARPFEED_REQUIRE` names `word`.
#[track_caller]
pub fn missing(word: &str, why: impl Display) {
    match is_required(&std::env::var("WARPFEED_REQUIRE").unwrap_or_default(), word) {
        Ok(false) => eprintln!("skipped, needs {word}: {why}"),
        Ok(true) => panic!("WARPFEED_REQUIRE lists {word}, but it is missing: {why}"),
        Err(e) => panic!("{e}"),
    }
}

/// Returns whether the list `required` contains `word`. Fails if the list contains a word that is
/// not in `require.txt`.
pub fn is_required(required: &str, word: &str) -> Result<bool, String> {
    let required = required.split(',').map(str::trim).filter(|word| !word.is_empty());
    for named in required.clone().chain([word]) {
        if !words().any(|known| known == named) {
            let known: Vec<_> = words().collect();
            return Err(format!("WARPFEED_REQUIRE={named:?}: expected one of {}", known.join(", ")));
        }
    }
    Ok(required.clone().any(|named| named == word))
}

/// Iterates over the valid words of `WARPFEED_REQUIRE`.
pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next())
}
