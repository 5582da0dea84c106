//! Skips tests that cannot run on this machine. If a requirement of a test is missing, the test
//! calls [`missing`] and returns. If `WARPFEED_REQUIRE` lists the requirement, for example
//! `WARPFEED_REQUIRE=cuda,nvrtc`, the test fails instead.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

use std::fmt::Display;

/// The words that `WARPFEED_REQUIRE` may contain, one per line, each with its meaning. Lines that
/// start with `#` are comments. `python/tests/conftest.py` reads the same file.
const WORDS: &str = include_str!("require.txt");

/// Prints why the test is skipped.
///
/// # Panics
/// `WARPFEED_REQUIRE` lists `word`, or one of the words is not in `require.txt`.
#[track_caller]
pub fn missing(word: &str, why: impl Display) {
    match is_required(&std::env::var("WARPFEED_REQUIRE").unwrap_or_default(), word) {
        Ok(false) => eprintln!("skipped, needs {word}: {why}"),
        Ok(true) => panic!("WARPFEED_REQUIRE lists {word}, which this machine lacks: {why}"),
        Err(e) => panic!("{e}"),
    }
}

/// Returns whether the comma-separated list `required` contains `word`.
///
/// # Errors
/// `word`, or a word in the list, is not in `require.txt`.
pub fn is_required(required: &str, word: &str) -> Result<bool, String> {
    let required = required.split(',').map(str::trim).filter(|word| !word.is_empty());
    for listed_word in required.clone().chain([word]) {
        if !words().any(|word| word == listed_word) {
            let known_words: Vec<_> = words().collect();
            return Err(format!("WARPFEED_REQUIRE={listed_word:?}: expected one of {}", known_words.join(", ")));
        }
    }
    Ok(required.clone().any(|listed_word| listed_word == word))
}

pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next())
}
