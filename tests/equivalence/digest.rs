//! Digests of everything a run observes, to find out whether a new build behaves differently.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::observe::{Observations, hash};
use super::seed::Opened;

pub struct Record(fs::File);

fn digests(observations: &Observations) -> Vec<(String, String)> {
    let digest =
        |(part, lines): (&str, Vec<String>)| (part.to_owned(), format!("{:016x}", hash(lines.join("\n").as_bytes())));
    observations.parts().into_iter().map(digest).collect()
}

fn line(seed: u64, place: &Opened, observations: &Observations) -> String {
    let parts: Vec<_> = digests(observations).iter().map(|(part, digest)| format!("{part}={digest}")).collect();
    let state = if observations.is_refused { "refused" } else { "opened" };
    format!("{seed}\t{}\t{}\t{state}\t{}", place.format, place.storage, parts.join(" "))
}

fn show(seed: u64, place: &Opened, observations: &Observations) {
    let Some(path) = std::env::var_os("WARPFEED_EQUIVALENCE_SHOW") else { return };
    let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
    for (part, lines) in observations.parts() {
        for line in lines {
            writeln!(file, "{seed} {}, {} {part}: {line}", place.format, place.storage).unwrap();
        }
    }
}

impl Record {
    pub fn new(path: &Path) -> Record {
        Record(fs::File::create(path).unwrap())
    }

    pub fn add(&mut self, seed: u64, place: &Opened, observations: &Observations) {
        show(seed, place, observations);
        writeln!(self.0, "{}", line(seed, place, observations)).unwrap();
    }
}

pub struct Recording {
    lines: BTreeMap<(u64, String, String), String>,
    same: u64,
    /// Number of combinations that the earlier build rejected and this build accepts.
    new: u64,
    differences: Vec<String>,
}

impl Recording {
    pub fn read(path: &Path) -> Recording {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let place = |line: &str| {
            let mut words = line.split('\t').map(str::to_owned);
            let seed = words.next().unwrap().parse().unwrap();
            ((seed, words.next().unwrap(), words.next().unwrap()), line.to_owned())
        };
        Recording { lines: text.lines().map(place).collect(), same: 0, new: 0, differences: Vec::new() }
    }

    pub fn seeds(&self) -> Vec<u64> {
        let mut seeds: Vec<_> = self.lines.keys().map(|(seed, ..)| *seed).collect();
        seeds.dedup();
        seeds
    }

    pub fn compare(&mut self, seed: u64, place: &Opened, observations: &Observations) {
        show(seed, place, observations);
        let Some(before) = self.lines.remove(&(seed, place.format.to_owned(), place.storage.to_owned())) else {
            return self.differences.push(format!("seed {seed}, {} ({}): not recorded", place.format, place.storage));
        };
        let now = line(seed, place, observations);
        if before == now {
            self.same += 1;
        } else if before.contains("\trefused\t") && !observations.is_refused {
            self.new += 1;
        } else {
            let parts = |line: &str| line.split(['\t', ' ']).map(str::to_owned).collect::<Vec<_>>();
            let (before, now) = (parts(&before), parts(&now));
            let other = before
                .iter()
                .zip(&now)
                .filter(|(before, now)| before != now)
                .map(|(before, now)| format!("{before}, now {}", now.rsplit('=').next().unwrap_or_default()));
            let other = other.collect::<Vec<_>>().join("; ");
            self.differences.push(format!("seed {seed}, {} ({}): {other}", place.format, place.storage));
        }
    }

    pub fn end(mut self) {
        for (seed, format, storage) in self.lines.keys() {
            self.differences.push(format!("seed {seed}, {format} ({storage}): recorded, but no longer present"));
        }
        println!(
            "equivalence: {} combinations are unchanged, {} could not be opened before, {} differ",
            self.same,
            self.new,
            self.differences.len()
        );
        let first: Vec<_> = self.differences.iter().take(20).map(String::as_str).collect();
        assert!(
            first.is_empty(),
            "the first of {} differences; to see more, run both builds with WARPFEED_EQUIVALENCE_SHOW=FILE:\n{}",
            self.differences.len(),
            first.join("\n")
        );
    }
}
