//! Fuzzes parsers, for a given time, with no tool other than cargo. Each case is generated from a
//! seed and can be replayed. The cases are in `tests/fuzz`, `jpeg/tests/fuzz` and
//! `sources/tests/fuzz`.
//!
//! A file with cases is a child of the module that it tests, so it can call private parsers. Each
//! test runs for a second, or for `WARPFEED_FUZZ_SECONDS` seconds. `tests/README.md` contains the
//! commands.

mod coverage;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use coverage::{Corpus, Coverage};

thread_local! {
    static CORPUS: RefCell<Option<Corpus>> = const { RefCell::new(None) };
}

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Copies one of the files in `from`, and usually changes the copy at up to four places. Some
    /// changes insert a part of a file, or one of `words`, which are tokens of the format. In a
    /// build with edge counters, inputs that reached new edges are replayed and mutated further.
    pub(crate) fn mutated(&mut self, from: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
        // Use a separate generator, so that each call takes exactly one number from `self`.
        let mut random = Random::new(self.next());
        CORPUS.with_borrow_mut(|corpus| {
            let address = from.as_ptr().addr();
            if let Some(input) = corpus.as_mut().and_then(|corpus| corpus.pop_earlier(from)) {
                return corpus.as_mut().map_or(input.clone(), |corpus| corpus.replayed_or(address, input));
            }
            let inputs = corpus.as_ref().map_or(&[][..], |corpus| corpus.inputs_of(address));
            let uses_corpus = !inputs.is_empty() && random.below(4) > 0;
            let files = if uses_corpus { inputs } else { from };
            let mut bytes = files[random.below(files.len())].clone();
            // Leave some inputs unchanged, because valid files must be tested, too.
            let changes = if random.below(16) == 0 { 0 } else { 1 + random.below(4) };
            for _ in 0..changes {
                random.change(&mut bytes, from, words);
            }
            corpus.as_mut().map_or(bytes.clone(), |corpus| corpus.replayed_or(address, bytes))
        })
    }

    fn change(&mut self, bytes: &mut Vec<u8>, from: &[Vec<u8>], words: &[&[u8]]) {
        let offset = self.below(bytes.len() + 1);
        let stretch = 1 + self.below(40);
        let stretch_end = (offset + stretch).min(bytes.len());
        let overwrite = |bytes: &mut Vec<u8>, with: &[u8]| {
            let end = (offset + with.len()).min(bytes.len());
            bytes.splice(offset..end, with.iter().copied());
        };
        match self.below(12) {
            0 => bytes.truncate(offset),
            1 => drop(bytes.drain(offset..stretch_end)),
            2 => drop(bytes.splice(offset..offset, vec![self.pick(&[0, 0x20, 0x55, 0x7f, 0x80, 0xff]); stretch])),
            3 => {
                let copy = bytes[offset..stretch_end].to_vec();
                let dest = self.below(bytes.len() + 1);
                drop(bytes.splice(dest..dest, copy));
            }
            4 => {
                let other = &from[self.below(from.len())];
                let start = self.below(other.len() + 1);
                let piece = &other[start..(start + 16 * stretch).min(other.len())];
                if self.below(2) == 0 {
                    overwrite(bytes, piece)
                } else {
                    drop(bytes.splice(offset..offset, piece.iter().copied()))
                }
            }
            // Overwrite bytes with a number within 2 of a power of two, such as the limit of an
            // integer type. The number has 1, 2, 4 or 8 bytes, in either byte order.
            5 | 6 => {
                let edge = 1u64.checked_shl(self.below(65) as u32).unwrap_or(0);
                let number = edge.wrapping_add(self.below(5) as u64).wrapping_sub(2);
                let width = self.pick(&[1, 2, 4, 8]);
                if self.below(2) == 0 {
                    overwrite(bytes, &number.to_le_bytes()[..width]);
                } else {
                    overwrite(bytes, &number.to_be_bytes()[8 - width..]);
                }
            }
            7 | 8 if !words.is_empty() => {
                let word = self.pick(words);
                if self.below(2) == 0 {
                    overwrite(bytes, word)
                } else {
                    drop(bytes.splice(offset..offset, word.iter().copied()))
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte = match self.below(4) {
                        0 => *byte ^ 1 << self.below(8),
                        1 => byte.wrapping_add(1),
                        2 => byte.wrapping_sub(1),
                        _ => self.next() as u8,
                    };
                }
            }
        }
    }
}

/// Reads the variable at run time, so that the test binary also works on a different machine.
pub(crate) fn fixtures() -> PathBuf {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(root).join("tests/fixtures/formats")
}

/// Parsing a few kilobytes should take less than a thousandth of this time.
const MAX_CASE_TIME: Duration = Duration::from_secs(20);

/// Runs `case` for consecutive seeds, for `WARPFEED_FUZZ_SECONDS` seconds (default 1) and at most
/// `WARPFEED_FUZZ_CASES` cases. `WARPFEED_FUZZ_SEED` is the first seed (default 2^32 with
/// `WARPFEED_FUZZ_SECONDS`, and 0 without). `case` returns whether its input was accepted. A case
/// fails if it panics or takes longer than [`MAX_CASE_TIME`]. The run ends at the 20th failure, and
/// lists the failing seeds at the end.
///
/// If `WARPFEED_FUZZ_LAST` is a file name, the file receives the current seed, because a case may
/// kill the process.
///
/// In a build with edge counters, replaying a case requires its inputs in addition to its seed, so
/// the inputs of a failed case are written to files.
pub(crate) fn run(name: &str, mut case: impl FnMut(u64) -> bool) {
    use std::io::{Seek, Write};
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    let seconds = number("WARPFEED_FUZZ_SECONDS");
    let (length, max_cases) =
        (Duration::from_secs(seconds.unwrap_or(1)), number("WARPFEED_FUZZ_CASES").unwrap_or(u64::MAX));
    let first = number("WARPFEED_FUZZ_SEED").unwrap_or(if seconds.is_some() { 1 << 32 } else { 0 });
    let mut last = std::env::var_os("WARPFEED_FUZZ_LAST")
        .map(|path| std::fs::File::create(path).expect("the file WARPFEED_FUZZ_LAST can be created"));
    let mut coverage = Coverage::new();
    CORPUS.set((coverage.edge_count() > 0).then(|| Corpus::of_harness(&name.replace(' ', "-"))));
    let start = Instant::now();
    let (mut cases, mut accepted, mut failures, mut slowest) = (0, 0u64, Vec::new(), (Duration::ZERO, 0));
    while start.elapsed() < length && cases < max_cases {
        let seed = first.wrapping_add(cases);
        if let Some(file) = &mut last {
            let write = file.rewind().and_then(|()| writeln!(file, "{name} {seed:<20}"));
            write.expect("the file can be written");
        }
        let since = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(is_accepted) => accepted += u64::from(is_accepted),
            Err(_) => failures.push(seed),
        }
        let failed = failures.last() == Some(&seed);
        CORPUS.with_borrow_mut(|corpus| {
            if let Some(corpus) = corpus {
                corpus.end_case(coverage.record(), failed.then(|| format!("{}-{seed}", name.replace(' ', "-"))));
            }
        });
        slowest = slowest.max((since.elapsed(), seed));
        if since.elapsed() > MAX_CASE_TIME {
            failures.push(seed);
        }
        cases += 1;
        if failures.len() == 20 {
            break;
        }
    }
    println!(
        "fuzz {name}: {cases} cases from seed {first}, {accepted} accepted, {} failures {failures:?}, slowest {:.1} ms (seed {})",
        failures.len(),
        slowest.0.as_secs_f64() * 1e3,
        slowest.1
    );
    if let (Some(corpus), all @ 1..) = (CORPUS.take(), coverage.edge_count()) {
        println!("fuzz {name}: {} of {all} edges reached, {} inputs stored", coverage.reached_count, corpus.len());
    }
    assert!(
        failures.is_empty(),
        "{name} fails for the seeds {failures:?}; WARPFEED_FUZZ_SEED={} WARPFEED_FUZZ_CASES=1 replays one",
        failures[0]
    );
    // A test that rejects or accepts every case tests nothing.
    assert!(cases < 1000 || (accepted > 0 && accepted < cases), "{name}: {accepted} of {cases} cases accepted");
}
