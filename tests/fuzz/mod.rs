//! The fuzzing of parsers, with nothing but cargo: cases made from seeds, run for as long as is
//! wanted, each replayable alone.
//!
//! 1. `jpeg`: the crate's JPEG decoder, against libjpeg.
//! 2. `repack`: JPEGs rewritten, against libjpeg.
//! 3. `images`: every other picture: the general decoder, `.npy` arrays.
//! 4. `tar`: a shard's headers, and the index beside it.
//! 5. `lmdb`: the meta pages, MessagePack values, class names.
//! 6. `resume`: the state of a run.
//!
//! Each file is a child of the module that it tests, whose private parsers it can so call; this one
//! has what they share. A parser has two tests: one of a second that always runs, and
//! `..._for_long`, ignored, which runs for `WARPFEED_FUZZ_SECONDS`. `tests/README.md` has the
//! commands.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A small generator, so that a case is named by its seed alone (splitmix64).
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

    /// One of `from` with a few changes, some of which bring in what `words` a format has or parts
    /// of other files.
    pub(crate) fn mutated(&mut self, from: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = from[self.below(from.len())].clone();
        // One case in sixteen is sound, so that what is accepted stays tested too.
        let changes = if self.below(16) == 0 { 0 } else { 1 + self.below(4) };
        for _ in 0..changes {
            self.change(&mut bytes, from, words);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, from: &[Vec<u8>], words: &[&[u8]]) {
        let at = self.below(bytes.len() + 1);
        let stretch = 1 + self.below(40);
        let until = (at + stretch).min(bytes.len());
        let over = |bytes: &mut Vec<u8>, with: &[u8]| {
            let end = (at + with.len()).min(bytes.len());
            bytes.splice(at..end, with.iter().copied());
        };
        match self.below(12) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..until)),
            2 => drop(bytes.splice(at..at, vec![self.pick(&[0, 0x20, 0x55, 0x7f, 0x80, 0xff]); stretch])),
            3 => {
                let copy = bytes[at..until].to_vec();
                let to = self.below(bytes.len() + 1);
                drop(bytes.splice(to..to, copy));
            }
            4 => {
                let other = &from[self.below(from.len())];
                let start = self.below(other.len() + 1);
                let piece = &other[start..(start + 16 * stretch).min(other.len())];
                if self.below(2) == 0 { over(bytes, piece) } else { drop(bytes.splice(at..at, piece.iter().copied())) }
            }
            // Numbers at the edges of their types, of 1, 2, 4 and 8 bytes in either order.
            5 | 6 => {
                let edge = 1u64.checked_shl(self.below(65) as u32).unwrap_or(0);
                let number = edge.wrapping_add(self.below(5) as u64).wrapping_sub(2);
                let width = self.pick(&[1, 2, 4, 8]);
                if self.below(2) == 0 {
                    over(bytes, &number.to_le_bytes()[..width]);
                } else {
                    over(bytes, &number.to_be_bytes()[8 - width..]);
                }
            }
            7 | 8 if !words.is_empty() => {
                let word = self.pick(words);
                if self.below(2) == 0 { over(bytes, word) } else { drop(bytes.splice(at..at, word.iter().copied())) }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
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

/// How long one case may take. Nothing that is a few kilobytes long should take a thousandth of it.
const SLOW: Duration = Duration::from_secs(20);

/// Runs `case` with the seeds from 0 on for a second: what an ordinary test run does.
pub(crate) fn briefly(name: &str, case: impl FnMut(u64) -> bool) {
    run(name, 0, Duration::from_secs(1), u64::MAX, case);
}

/// Runs `case` for `WARPFEED_FUZZ_SECONDS` (60) with the seeds from `WARPFEED_FUZZ_SEED` (2^32) on,
/// at most `WARPFEED_FUZZ_CASES` of them.
pub(crate) fn for_long(name: &str, case: impl FnMut(u64) -> bool) {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let seconds = Duration::from_secs(number("WARPFEED_FUZZ_SECONDS", 60));
    run(name, number("WARPFEED_FUZZ_SEED", 1 << 32), seconds, number("WARPFEED_FUZZ_CASES", u64::MAX), case);
}

/// Runs `case`, which says whether its input was accepted, seed after seed. A panic is counted and
/// the next seed tried; at the end they all are named in one panic.
///
/// With `WARPFEED_FUZZ_LAST` the seed at hand is kept in that file, for cases that end the process
/// instead of panicking.
fn run(name: &str, first: u64, length: Duration, most: u64, mut case: impl FnMut(u64) -> bool) {
    use std::os::unix::fs::FileExt;
    let last = std::env::var_os("WARPFEED_FUZZ_LAST").map(|path| std::fs::File::create(path).expect("it can be made"));
    let start = Instant::now();
    let (mut cases, mut accepted, mut failures, mut slowest) = (0, 0u64, Vec::new(), (Duration::ZERO, 0));
    while start.elapsed() < length && cases < most {
        let seed = first.wrapping_add(cases);
        if let Some(file) = &last {
            file.write_all_at(format!("{name} {seed:<20}\n").as_bytes(), 0).expect("it can be written");
        }
        let since = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(sound) => accepted += u64::from(sound),
            Err(_) => failures.push(seed),
        }
        slowest = slowest.max((since.elapsed(), seed));
        if since.elapsed() > SLOW {
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
    assert!(
        failures.is_empty(),
        "{name} fails for the seeds {failures:?}; WARPFEED_FUZZ_SEED={} WARPFEED_FUZZ_CASES=1 replays one",
        failures[0]
    );
    // A harness whose every case is refused at the door, or none, tests nothing.
    assert!(cases < 1000 || (accepted > 0 && accepted < cases), "{name}: {accepted} of {cases} cases accepted");
}
