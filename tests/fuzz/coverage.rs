//! Coverage of the compiled code, in a build with `-Cpasses=sancov-module`. `tests/README.md` has
//! the command.
//!
//! The compiler adds a counter of one byte to each edge between blocks, and passes the counters to
//! `__sanitizer_cov_8bit_counters_init` before `main`. In other builds nothing calls it, and there
//! are no counters.

use std::collections::HashMap;
use std::fs;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// The counters of the process, as addresses. They live as long as the process.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *const u8, end: *const u8) {
    let range = (start.addr(), end.addr());
    let mut counters = COUNTERS.lock().expect("nothing panics while it is locked");
    if !counters.contains(&range) {
        counters.push(range);
    }
}

fn counters() -> Vec<&'static [AtomicU8]> {
    let ranges = COUNTERS.lock().expect("nothing panics while it is locked");
    // SAFETY: The compiler passes the bounds of its array of counters, which is never freed.
    // Compiled code increments them without synchronisation; a count may be lost.
    #[allow(unsafe_code)]
    let of = |&(start, end): &(usize, usize)| unsafe { slice::from_raw_parts(start as *const AtomicU8, end - start) };
    ranges.iter().map(of).collect()
}

/// The edges that cases have reached, and the inputs that reached new ones.
pub(super) struct Coverage {
    counters: Vec<&'static [AtomicU8]>,
    reached: Vec<bool>,
    pub(super) edges: usize,
}

impl Coverage {
    pub(super) fn new() -> Self {
        let counters = counters();
        let reached = vec![false; counters.iter().map(|part| part.len()).sum()];
        let coverage = Coverage { counters, reached, edges: 0 };
        coverage.clear();
        coverage
    }

    /// Number of edges in the program, 0 without counters.
    pub(super) fn all(&self) -> usize {
        self.reached.len()
    }

    fn clear(&self) {
        self.counters.iter().copied().flatten().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Counts the edges since the last call. Returns whether one of them is new.
    pub(super) fn see(&mut self) -> bool {
        let before = self.edges;
        for (counter, reached) in self.counters.iter().copied().flatten().zip(&mut self.reached) {
            if counter.load(Ordering::Relaxed) != 0 {
                counter.store(0, Ordering::Relaxed);
                self.edges += usize::from(!std::mem::replace(reached, true));
            }
        }
        self.edges > before
    }
}

/// Maximum number of inputs that are kept for one list of files.
const MOST: usize = 4096;

/// Inputs that reached new edges, by the address of the list of files from which they are made.
#[derive(Default)]
pub(super) struct Corpus {
    kept: HashMap<usize, Vec<Vec<u8>>>,
    /// The inputs of the current case.
    current: Vec<(usize, Vec<u8>)>,
}

impl Corpus {
    /// The inputs that were made from the files at `place`.
    pub(super) fn of(&self, place: usize) -> &[Vec<u8>] {
        self.kept.get(&place).map_or(&[], Vec::as_slice)
    }

    pub(super) fn len(&self) -> usize {
        self.kept.values().map(Vec::len).sum()
    }

    /// The next input of the current case: that of the files `WARPFEED_FUZZ_INPUT`, or `input`.
    pub(super) fn replayed_or(&mut self, place: usize, input: Vec<u8>) -> Vec<u8> {
        let number = self.current.len();
        let path = |name: &str| Some(format!("{}.{number}", std::env::var(name).ok()?));
        let input = match path("WARPFEED_FUZZ_INPUT") {
            Some(path) => fs::read(path).expect("an input that a run has written"),
            None => input,
        };
        if let Some(path) = path("WARPFEED_FUZZ_LAST") {
            fs::write(path, &input).expect("the file can be written");
        }
        self.current.push((place, input.clone()));
        input
    }

    /// Ends the current case, whose inputs are kept if they reached new edges, and written if the
    /// case `failed`.
    pub(super) fn end_case(&mut self, new: bool, failed: Option<String>) {
        if let Some(name) = failed {
            let path = std::env::temp_dir().join(format!("warpfeed-fuzz-{name}"));
            for (number, (_, input)) in self.current.iter().enumerate() {
                fs::write(format!("{}.{number}", path.display()), input).expect("the file can be written");
            }
            println!("WARPFEED_FUZZ_INPUT={} has the inputs of this case", path.display());
        }
        for (place, input) in self.current.drain(..).filter(|_| new) {
            let kept = self.kept.entry(place).or_default();
            if kept.len() < MOST {
                kept.push(input);
            }
        }
    }
}
