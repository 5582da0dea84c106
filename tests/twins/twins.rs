//! One draw: the set in all formats and media, and their comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpfeed::Loader;
use warpfeed::source::{Options, Source};

use super::drawn::{Choice, Random, Set};
use super::formats::{FORMATS, Format, memory};
use super::observe::{Member, Seen, observe};
use super::store::Objects;

/// Where a set was opened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub format: &'static str,
    pub medium: &'static str,
}

/// Number of combinations, and the differences.
#[derive(Default)]
pub struct Counts {
    draws: u64,
    combinations: u64,
    by_format: BTreeMap<String, u64>,
    by_option: BTreeMap<String, u64>,
    refused: BTreeMap<String, String>,
    differences: Vec<String>,
}

/// Formats that are read from a store by ranges. Others are refused without a cache.
const IN_STORES: [&str; 8] = ["tar", "tar shards", "folder", "csv", "tsv", "json lines", "parquet", "coco"];

fn members(format: &'static Format, path: &Path, name: &'static str) -> Vec<Member> {
    let opened = if name.is_empty() { path.to_owned() } else { path.join(name) };
    let url = if name.is_empty() { "mem://set".to_owned() } else { format!("mem://set/{name}") };
    let objects = Arc::new(Objects::of(path, "mem://set"));
    let member = |medium, open: Box<dyn Fn() -> warpfeed::Result<Arc<dyn Source>>>, load: Box<dyn Fn() -> Loader>| {
        Member { format: format.name, medium, open, load }
    };
    let (here, read) = (opened.clone(), opened.clone());
    let (load, load_read, load_url) = (opened.clone(), opened, url.clone());
    let mut all = vec![member(
        "machine",
        Box::new(move || Options::new().open(&here)),
        Box::new(move || Loader::new(&load)),
    )];
    if format.mapped {
        let load = Box::new(move || Loader::new(&load_read).mmap(false));
        all.push(member("read", Box::new(move || Options::new().mmap(false).open(&read)), load));
    }
    let store = objects.clone();
    all.push(member(
        "store",
        Box::new(move || Options::new().store("mem", store.clone()).open(&url)),
        Box::new(move || Loader::new(&load_url).stores([("mem", objects.clone() as Arc<dyn warpfeed::source::Store>)])),
    ));
    all
}

/// Everything of the draw `seed`, with the differences from the set in memory added to `counts`.
pub fn draw(seed: u64, counts: &mut Counts) -> Vec<(Place, Seen)> {
    let random = &mut Random::new(seed);
    let set = Set::draw(random);
    let choice = Choice::draw(random, &set);
    let packed = random.next();
    // One name, so that paths have one length in every run.
    let root = tempfile::Builder::new().prefix("twins-").rand_bytes(6).tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    counts.draws += 1;
    for word in choice.words(&set) {
        *counts.by_option.entry(word).or_default() += 1;
    }
    let mut all = Vec::new();
    let mut see = |member: &Member, root: &Path| {
        let seen = observe(member, &choice, &mut Random::new(packed), root);
        *counts.by_format.entry(format!("{}, {}", member.format, member.medium)).or_default() += 1;
        counts.combinations += 1;
        seen
    };
    let samples = Arc::new(memory(&set));
    let (open, load) = (samples.clone(), samples);
    let reference = Member {
        format: "memory",
        medium: "machine",
        open: Box::new(move || Ok(open.clone())),
        load: Box::new(move || Loader::source(load.clone())),
    };
    let expected = see(&reference, &root);
    for format in FORMATS.iter().filter(|format| (format.holds)(&set)) {
        let folder = root.join(format.name.replace(' ', "-"));
        fs::create_dir(&folder).unwrap();
        let name = (format.write)(&set, &folder);
        for member in members(format, &folder, name) {
            all.push((format, member));
        }
    }
    let mut seen = Vec::new();
    let mut differences = Vec::new();
    for (format, member) in all {
        let found = see(&member, &root);
        let place = Place { format: member.format, medium: member.medium };
        if found.is_refused && place.medium == "store" && !IN_STORES.contains(&place.format) {
            counts.refused.insert(format!("{}, {}", place.format, place.medium), found.opened[0].clone());
        } else if let Some(difference) = difference(&set, format, &expected, &found) {
            // The first difference of a draw says what it is, the others where else.
            let more = if differences.is_empty() { format!("{difference}\n    {choice:?}") } else { "differs, too".into() };
            differences.push(format!("seed {seed}, {} ({}): {more}", place.format, place.medium));
        }
        seen.push((place, found));
    }
    counts.differences.append(&mut differences);
    seen.push((Place { format: "memory", medium: "machine" }, expected));
    seen
}

/// The first difference from the set in memory, if there is one.
fn difference(set: &Set, format: &Format, expected: &Seen, found: &Seen) -> Option<String> {
    if found.is_refused {
        return Some(format!("refused: {}", found.opened[0]));
    }
    for (part, expected, found) in [
        ("batches", &expected.batches, &found.batches),
        ("resumed batches", &expected.resumed, &found.resumed),
        ("faults", &expected.faults, &found.faults),
    ] {
        let lines = expected.len().max(found.len());
        if let Some(line) = (0..lines).find(|&line| expected.get(line) != found.get(line)) {
            let (expected, found) = (expected.get(line), found.get(line));
            return Some(format!("{part}, line {line}:\n    expected {expected:?}\n    found    {found:?}"));
        }
    }
    let wrong = found.keys.iter().flatten().find(|(id, key)| *key != (format.key)(set, *id as usize));
    wrong.map(|(id, key)| format!("sample {id} has the key {key:?}, not {:?}", (format.key)(set, *id as usize)))
}

impl Counts {
    pub fn run(&mut self, seeds: Range<u64>, length: Duration) {
        let start = Instant::now();
        for seed in seeds {
            if start.elapsed() >= length || self.differences.len() >= 200 {
                return;
            }
            draw(seed, self);
        }
    }

    /// # Panics
    /// If something differs.
    pub fn end(&self) {
        assert!(self.draws > 0 && self.combinations > self.draws);
        let first: Vec<_> = self.differences.iter().take(60).map(String::as_str).collect();
        assert!(
            first.is_empty(),
            "{} differences; WARPFEED_TWINS_SEED=seed repeats one:\n{}",
            self.differences.len(),
            first.join("\n")
        );
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "twins: {} combinations in {} draws", self.combinations, self.draws)?;
        let of = |all: &BTreeMap<String, u64>| {
            all.iter().map(|(word, count)| format!("{word}: {count}")).collect::<Vec<_>>().join("; ")
        };
        writeln!(f, "formats and media: {}", of(&self.by_format))?;
        writeln!(f, "options: {}", of(&self.by_option))?;
        let refused: BTreeSet<_> = self.refused.keys().cloned().collect();
        write!(f, "refused without a cache: {}", refused.into_iter().collect::<Vec<_>>().join("; "))
    }
}

/// The path of a temporary folder, for other users of these files.
pub type Folder = PathBuf;
