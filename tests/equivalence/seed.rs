//! Compares the dataset of a seed, in every format and storage, with the same dataset in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpfeed::Loader;
use warpfeed::source::{Options, Store};

use super::formats::{FOLDER_WITH_MASKS, Format, MASKS, memory};
use super::observe::{Member, Observations, observe};
use super::random_dataset::{Choice, Random, RandomDataset};

#[derive(Debug, Clone)]
pub struct Opened {
    pub format: &'static str,
    pub storage: &'static str,
}

pub struct Combinations<'a> {
    pub formats: Vec<&'static Format>,
    pub storages: &'a dyn Fn(&'static Format, &Path, &str) -> Vec<Member>,
    pub may_refuse: fn(&Opened) -> bool,
}

#[derive(Default)]
pub struct Counts {
    draws: u64,
    combinations: u64,
    by_format: BTreeMap<String, u64>,
    by_option: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    differences: Vec<String>,
}

pub fn member(
    format: &'static Format,
    storage: &'static str,
    path: String,
    store: Option<Arc<dyn Store>>,
    mapped: bool,
) -> Member {
    let masks = (format.name == FOLDER_WITH_MASKS).then_some(MASKS);
    let (url, of_loader) = (path.clone(), store.clone());
    let open = move || {
        let options = Options::new().mmap(mapped).stores(scheme(&path).zip(store.clone()));
        masks.into_iter().fold(options, Options::masks).open(&path)
    };
    let load = move || {
        let loader = Loader::new(&url).stores(scheme(&url).zip(of_loader.clone()));
        let loader = if mapped { loader } else { loader.mmap(false) };
        masks.into_iter().fold(loader, Loader::masks)
    };
    Member { format: format.name, storage, open: Box::new(open), load: Box::new(load) }
}

fn scheme(url: &str) -> Option<String> {
    Some(url.split_once("://")?.0.to_owned())
}

/// Observes the dataset of `seed` in memory and in each combination of format and storage. Adds the
/// first difference of each combination from the dataset in memory to `counts`, with details only
/// for the first combination that differs.
pub fn run_seed(seed: u64, combinations: &Combinations<'_>, counts: &mut Counts) -> Vec<(Opened, Observations)> {
    let random = &mut Random::new(seed);
    let dataset = RandomDataset::draw(random);
    let choice = Choice::draw(random, &dataset);
    let packed = random.next();
    let folder = tempfile::Builder::new().prefix("equivalence-").tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    counts.draws += 1;
    for word in choice.words(&dataset) {
        *counts.by_option.entry(word).or_default() += 1;
    }
    let see = |member: &Member| observe(member, &choice, &mut Random::new(packed), &root);
    let samples = Arc::new(memory(&dataset));
    let (open, load) = (samples.clone(), samples);
    let expected = see(&Member {
        format: "memory",
        storage: "machine",
        open: Box::new(move || Ok(open.clone())),
        load: Box::new(move || Loader::source(load.clone())),
    });
    let mut results = vec![];
    if let Some(difference) = resumed_difference(&expected) {
        counts.differences.push(format!("seed {seed}: {difference}\n    {choice:?}"));
    }
    let mut reported = false;
    for format in combinations.formats.iter().filter(|format| (format.holds)(&dataset)) {
        let folder = root.join(format.name.replace(' ', "-"));
        fs::create_dir(&folder).unwrap();
        let name = (format.write)(&dataset, &folder);
        for member in (combinations.storages)(format, &folder, &name) {
            let actual = see(&member);
            let place = Opened { format: member.format, storage: member.storage };
            let words = format!("{}, {}", place.format, place.storage);
            counts.combinations += 1;
            if actual.is_refused && (combinations.may_refuse)(&place) {
                *counts.refused.entry(words).or_default() += 1;
            } else {
                *counts.by_format.entry(words).or_default() += 1;
                if let Some(difference) = difference(&dataset, format, &expected, &actual) {
                    let what = if reported { "differs, too".into() } else { format!("{difference}\n    {choice:?}") };
                    reported = true;
                    counts.differences.push(format!("seed {seed}, {} ({}): {what}", place.format, place.storage));
                }
            }
            results.push((place, actual));
        }
    }
    results.push((Opened { format: "memory", storage: "machine" }, expected));
    results
}

/// Skips failed runs, because a resumed run counts its faults from zero.
fn resumed_difference(observations: &Observations) -> Option<String> {
    let batches = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.starts_with("epoch ")).cloned().collect()
    };
    let (unbroken, resumed) = (batches(&observations.batches), batches(&observations.resumed));
    let failed = unbroken.iter().chain(&resumed).any(|line| line.starts_with("error "));
    (!failed && unbroken != resumed).then(|| format!("the resumed run differs:\n    {unbroken:?}\n    {resumed:?}"))
}

fn difference(
    dataset: &RandomDataset,
    format: &Format,
    expected: &Observations,
    actual: &Observations,
) -> Option<String> {
    if actual.is_refused {
        return Some(format!("refused: {}", actual.opened[0]));
    }
    for (part, expected, actual) in [
        ("batches", &expected.batches, &actual.batches),
        ("resumed batches", &expected.resumed, &actual.resumed),
        ("faults", &expected.faults, &actual.faults),
    ] {
        let lines = expected.len().max(actual.len());
        if let Some(line) = (0..lines).find(|&line| expected.get(line) != actual.get(line)) {
            let (expected, actual) = (expected.get(line), actual.get(line));
            return Some(format!("{part}, line {line}:\n    expected {expected:?}\n    found    {actual:?}"));
        }
    }
    if dataset.has_class_names && actual.classes != dataset.classes {
        return Some(format!("the classes are {:?}, not {:?}", actual.classes, dataset.classes));
    }
    let differing = actual.keys.iter().flatten().find(|(id, key)| *key != (format.key)(dataset, *id as usize));
    differing.map(|(id, key)| format!("sample {id} has the key {key:?}, not {:?}", (format.key)(dataset, *id as usize)))
}

impl Counts {
    pub fn run(&mut self, combinations: &Combinations<'_>, seeds: Range<u64>, length: Duration) {
        let start = Instant::now();
        for seed in seeds {
            if start.elapsed() >= length || self.differences.len() >= 200 {
                return;
            }
            run_seed(seed, combinations, self);
        }
    }

    pub fn found(&self) -> usize {
        self.differences.len()
    }

    pub fn end(&self) {
        println!("{self}");
        assert!(self.draws > 0 && self.combinations > self.draws, "hardly any format can represent the datasets");
        let first: Vec<_> = self.differences.iter().take(60).map(String::as_str).collect();
        assert!(
            first.is_empty(),
            "{} differences; to reproduce one, set WARPFEED_EQUIVALENCE_SEED to its seed:\n{}",
            self.differences.len(),
            first.join("\n")
        );
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "equivalence: {} combinations in {} draws", self.combinations, self.draws)?;
        let counts_in = |counts: &BTreeMap<String, u64>| {
            counts.iter().map(|(word, count)| format!("{word}: {count}")).collect::<Vec<_>>().join("; ")
        };
        writeln!(f, "formats and storage: {}", counts_in(&self.by_format))?;
        writeln!(f, "options: {}", counts_in(&self.by_option))?;
        write!(f, "refused without a cache: {}", counts_in(&self.refused))
    }
}
