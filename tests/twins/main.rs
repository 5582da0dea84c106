//! Promise: a data set gives the same batches in every format and medium, whatever the options.
//!
//! A seed draws a data set and the options of a loader. The set is written in each format that can
//! hold it, and opened mapped, read, and in a store. Batches, faults and resumed runs must be those of
//! the same samples in memory, bit for bit, and keys must be those that the format promises.
//!
//! The same draws compare two builds of the library: one writes a digest of everything that a program
//! can see (also paths, texts of errors, checkpoints and packed files), the other compares with it.
//! `tests/README.md` has the commands.

// Each user of these files takes its part.
#![allow(dead_code, unreachable_pub)]

mod bytes;
mod drawn;
mod formats;
mod observe;
mod record;
mod store;
mod twins;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use record::{Known, Record};
use twins::{Counts, draw};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn file(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Draws of an ordinary run, from the seed 0.
const DRAWS: u64 = 60;
/// Draws of a recording.
const RECORDED: u64 = 400;

#[test]
fn a_data_set_is_the_same_in_every_format_and_medium() {
    let mut counts = Counts::default();
    if let Some(path) = file("WARPFEED_TWINS_COMPARE") {
        let mut known = Known::read(&path);
        for seed in known.seeds() {
            for (place, seen) in draw(seed, &mut counts) {
                known.compare(seed, &place, &seen);
            }
        }
        println!("{counts}");
        return known.end();
    }
    if let Some(path) = file("WARPFEED_TWINS_RECORD") {
        let mut record = Record::new(&path);
        let first = number("WARPFEED_TWINS_SEED").unwrap_or(0);
        for seed in first..first + number("WARPFEED_TWINS_DRAWS").unwrap_or(RECORDED) {
            for (place, seen) in draw(seed, &mut counts) {
                record.add(seed, &place, &seen);
            }
        }
        println!("{counts}");
        return counts.end();
    }
    let fresh = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64 >> 10;
    match number("WARPFEED_TWINS_SEED") {
        Some(seed) => counts.run(seed..seed + number("WARPFEED_TWINS_DRAWS").unwrap_or(1), Duration::MAX),
        None => {
            counts.run(0..DRAWS, Duration::MAX);
            let seconds = number("WARPFEED_TWINS_SECONDS").unwrap_or(5);
            println!("fresh draws from WARPFEED_TWINS_SEED={fresh}");
            counts.run(fresh..u64::MAX, Duration::from_secs(seconds));
        }
    }
    println!("{counts}");
    counts.end();
}
