//! What a test needs and a machine may lack. A test that ends early calls [`missing`], so that
//! `WARPFEED_REQUIRE=cuda,nvrtc` turns the silence into a failure on a machine that has to have them.
#![allow(dead_code, unreachable_pub)] // each test uses its part

use std::fmt::Display;

/// A word and its meaning a line. `python/tests/conftest.py` reads the same file.
const WORDS: &str = include_str!("require.txt");

/// Prints why the test ends early. Panics where `WARPFEED_REQUIRE` names `word`.
#[track_caller]
pub fn missing(word: &str, why: impl Display) {
    match is_required(&std::env::var("WARPFEED_REQUIRE").unwrap_or_default(), word) {
        Ok(false) => eprintln!("skipped for want of {word}: {why}"),
        Ok(true) => panic!("WARPFEED_REQUIRE names {word}, which is missing: {why}"),
        Err(e) => panic!("{e}"),
    }
}

/// Whether the list `required` has `word`. Words that `require.txt` lacks are errors.
pub fn is_required(required: &str, word: &str) -> Result<bool, String> {
    let required = required.split(',').map(str::trim).filter(|word| !word.is_empty());
    for named in required.clone().chain([word]) {
        if !words().any(|known| known == named) {
            let known: Vec<_> = words().collect();
            return Err(format!("no test needs {named:?}: WARPFEED_REQUIRE takes {}", known.join(", ")));
        }
    }
    Ok(required.clone().any(|named| named == word))
}

/// The words that `WARPFEED_REQUIRE` may have.
pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next())
}
