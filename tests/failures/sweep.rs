//! Runs a case repeatedly, and makes a different call fail each time.

use std::collections::BTreeMap;
use std::path::Path;

use warpfeed::sampler::Rng;

use crate::calls::Kind;
use crate::child::{Attempt, Done, End, attempt, prepare};

/// Maximum number of calls per case and kind that fail by default.
const MAX_CALLS: usize = 12;

/// Prefixes of the names of functions in other crates that abort the process if an allocation
/// fails.
const ABORTING_CRATES: &[&str] = &["png::", "flate2::", "fdeflate::", "roxmltree::", "serde_json::"];

pub(crate) struct Case<'a> {
    pub(crate) name: String,
    pub(crate) prepare: Box<dyn Fn(&Path) + 'a>,
    /// Performs the operation, and describes what must be equal in all runs. Later runs receive the
    /// first run's description. After an error, the function may check the remaining files, and
    /// reports a problem with a message that starts with `wrong`.
    pub(crate) run: Box<Run<'a>>,
    pub(crate) kinds: &'static [Kind],
}

pub(crate) type Run<'a> = dyn Fn(&Path, Option<&str>) -> Result<String, String> + 'a;

#[derive(Default)]
pub(crate) struct Table {
    /// Number of failed calls and how the runs ended, per case and kind.
    rows: BTreeMap<(String, Kind), Row>,
    aborts: BTreeMap<String, usize>,
    failures: Vec<String>,
    places: BTreeMap<String, String>,
}

#[derive(Default)]
struct Row {
    calls: usize,
    failed: usize,
    same: usize,
    errors: usize,
    aborts: usize,
}

fn fails_every_call() -> bool {
    std::env::var_os("WARPFEED_SWEEP_ALL").is_some()
}

impl Table {
    pub(crate) fn sweep(&mut self, case: &Case<'_>) {
        let run = |fails, expected: Option<&str>| {
            let folder = tempfile::tempdir().unwrap();
            (case.prepare)(folder.path());
            attempt(fails, || (case.run)(folder.path(), expected))
        };
        prepare();
        let clean = run(None, None);
        let End::Done(clean) = clean.end else { panic!("{}: {:?}", case.name, clean.end) };
        let expected = clean.result.clone().unwrap_or_else(|e| panic!("{}: {e}\n{}", case.name, clean.panics));
        assert_eq!(clean.panics, "", "{}", case.name);
        for (index, &kind) in Kind::ALL.iter().enumerate() {
            let calls = clean.calls[index];
            if !case.kinds.contains(&kind) {
                continue;
            }
            for number in numbers(calls, &case.name, index) {
                let mut seen = run(Some((kind, number)), Some(&expected));
                // Threads divide the calls differently in each run, so a run may not reach the
                // selected call.
                if seen.place.is_some() {
                    self.note(case, (kind, number), &mut seen, (&expected, &clean));
                }
            }
            self.rows.entry((case.name.clone(), kind)).or_default().calls = calls;
        }
    }

    fn note(
        &mut self,
        case: &Case<'_>,
        (kind, number): (Kind, usize),
        seen: &mut Attempt,
        (expected, clean): (&str, &Done),
    ) {
        let places = &mut self.places;
        let end = seen.end.clone();
        let mut place = || {
            let number = seen.place.clone().unwrap_or_default();
            let functions = || seen.functions().unwrap_or_else(|| "an unknown stack".into());
            places.entry(number).or_insert_with(functions).clone()
        };
        let row = self.rows.entry((case.name.clone(), kind)).or_default();
        row.failed += 1;
        let mut failures: Vec<String> = Vec::new();
        match &end {
            End::Hung => failures.push("the process hangs".into()),
            End::Killed(libc::SIGABRT) if kind == Kind::Allocation => {
                row.aborts += 1;
                let place = place();
                if !ABORTING_CRATES.iter().any(|other| place.starts_with(other)) {
                    failures.push("a failed allocation aborted the process instead of causing an error".into());
                }
                *self.aborts.entry(place).or_default() += 1;
            }
            End::Killed(signal) => failures.push(format!("signal {signal}")),
            End::Done(done) => {
                match &done.result {
                    Ok(_) if kind == Kind::Sync => failures.push("an unreported error".into()),
                    Ok(text) if text == expected => row.same += 1,
                    Ok(text) => failures.push(format!("a different result: {}", difference(text, expected))),
                    // The LMDB library treats a short write as a full disk, and a short read as a
                    // damaged file.
                    Err(_) if kind.is_short() && case.name.contains("LMDB") => row.errors += 1,
                    Err(e) if kind.is_short() => failures.push(format!("a partial transfer caused an error: {e}")),
                    Err(e) if e.starts_with("wrong") || e == "panic" => failures.push(e.clone()),
                    Err(_) => row.errors += 1,
                }
                if !done.panics.is_empty() {
                    failures.push(format!("a panic: {}", done.panics));
                }
                if done.leaked != clean.leaked {
                    let error = done.result.as_ref().err();
                    failures.push(format!(
                        "leaked {:?}, but {:?} without a failed call; {error:?}",
                        done.leaked, clean.leaked
                    ));
                }
            }
        }
        if !failures.is_empty() {
            self.failures.push(format!(
                "{}: {kind:?} {number}: {}\n    at {}",
                case.name,
                failures.join("; "),
                place()
            ));
        }
    }

    pub(crate) fn finish(self) {
        let mut sums: BTreeMap<Kind, [usize; 5]> = BTreeMap::new();
        for ((name, kind), Row { calls, failed, same, errors, aborts }) in &self.rows {
            let row = [*calls, *failed, *errors, *same, *aborts];
            if *calls > 0 {
                println!("{name}, {kind:?}: {}", row_text(row));
            }
            sums.entry(*kind).or_default().iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
        }
        for (kind, row) in sums {
            println!("all, {kind:?}: {}", row_text(row));
        }
        for (place, count) in &self.aborts {
            println!("abort ({count}): {place}");
        }
        for failure in &self.failures {
            println!("WRONG {failure}");
        }
        assert!(self.failures.is_empty(), "{} runs ended in an unacceptable way", self.failures.len());
    }
}

fn numbers(calls: usize, name: &str, kind: usize) -> Vec<usize> {
    if calls <= MAX_CALLS || fails_every_call() {
        return (1..=calls).collect();
    }
    let seed = name.bytes().fold(kind as u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
    let mut rng = Rng::new(seed, 0, 0);
    let mut numbers: Vec<usize> = (1..=4).chain(calls - 1..=calls).collect();
    numbers.extend((0..MAX_CALLS - 6).map(|_| 5 + rng.below(calls as u64 - 6) as usize));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn row_text([calls, failed, errors, same, aborts]: [usize; 5]) -> String {
    format!("{calls} calls, {failed} failed: {errors} errors, {same} the same, {aborts} ended the process")
}

fn difference(text: &str, expected: &str) -> String {
    let length = text.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
    let start = length.saturating_sub(60);
    let part = |text: &str| text.get(start..text.len().min(length + 200)).unwrap_or("?").to_owned();
    format!("{:?} instead of {:?}", part(text), part(expected))
}
