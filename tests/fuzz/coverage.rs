//! Measures code coverage of the running program, in a build with `-Cpasses=sancov-module`.
//! `tests/README.md` contains the build command.
//!
//! The compiler adds a one-byte counter to each edge between basic blocks, and passes the counters
//! to `__sanitizer_cov_8bit_counters_init` before `main`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// The address ranges of the counters, which are valid as long as the process lives.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *const u8, end: *const u8) {
    let range = (start.addr(), end.addr());
    let mut counters = COUNTERS.lock().expect("no code panics while holding this lock");
    if !counters.contains(&range) {
        counters.push(range);
    }
}

/// A block of 64 one-byte counters. Most counters are 0, so comparing whole blocks with 0 is fast.
type Block = [u64; 8];

pub(super) struct Coverage {
    counters: Vec<(usize, usize)>,
    reached: Vec<bool>,
    pub(super) reached_count: usize,
}

impl Coverage {
    pub(super) fn new() -> Self {
        let counters = COUNTERS.lock().expect("no code panics while holding this lock").clone();
        let reached = vec![false; counters.iter().map(|(start, end)| end - start).sum()];
        let mut coverage = Coverage { counters, reached, reached_count: 0 };
        // Edges that were reached at startup do not belong to a case.
        coverage.record();
        coverage.reached.fill(false);
        coverage.reached_count = 0;
        coverage
    }

    /// Returns the number of edges, or 0 in a build without counters.
    pub(super) fn edge_count(&self) -> usize {
        self.reached.len()
    }

    pub(super) fn record(&mut self) -> bool {
        let Coverage { counters, reached, reached_count } = self;
        let (before, mut first) = (*reached_count, 0);
        for &(start, end) in &*counters {
            for address in (start..end).step_by(size_of::<Block>()) {
                let length = size_of::<Block>().min(end - address);
                // SAFETY: The compiler passes the bounds of its counter array, which is never
                // freed, and nothing else refers to it. Compiled code, including this function,
                // increments the counters without synchronization, so a count may be lost.
                #[allow(unsafe_code)]
                let counts = unsafe { take_counts(address as *mut u8, length) };
                if counts != [0; 8] {
                    *reached_count += mark_reached(&counts, &mut reached[first + address - start..]);
                }
            }
            first += end - start;
        }
        *reached_count > before
    }
}

fn mark_reached(counts: &Block, reached: &mut [bool]) -> usize {
    let counts = counts.iter().flat_map(|word| word.to_ne_bytes());
    let current = reached.iter_mut().zip(counts).filter(|(_, count)| *count != 0);
    current.map(|(reached, _)| usize::from(!std::mem::replace(reached, true))).sum()
}

/// Returns `length` counters, at most one block, and resets them.
///
/// # Safety
/// The counters must be valid for reads and writes.
#[allow(unsafe_code)]
unsafe fn take_counts(counters: *mut u8, length: usize) -> Block {
    let mut counts = Block::default();
    // SAFETY: A block has at least `length` bytes, and the caller guarantees valid counters.
    unsafe {
        if length == size_of::<Block>() {
            counts = counters.cast::<Block>().read_unaligned();
        } else {
            counters.copy_to_nonoverlapping(counts.as_mut_ptr().cast(), length);
        }
        if counts != [0; 8] {
            counters.write_bytes(0, length);
        }
    }
    counts
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

const MAX_INPUTS: usize = 4096;

/// Inputs that reached new edges, at most [`MAX_INPUTS`] per list of files. The key is the address
/// of the list from which the inputs were derived. The folder `WARPFEED_FUZZ_CORPUS`, if set,
/// stores the inputs for later runs.
#[derive(Default)]
pub(super) struct Corpus {
    inputs: HashMap<usize, Vec<Vec<u8>>>,
    current: Vec<(usize, Vec<u8>)>,
    folder: Option<PathBuf>,
    /// For each list of files, its folder, and the inputs of earlier runs that are still to be
    /// replayed.
    earlier: HashMap<usize, (PathBuf, Vec<Vec<u8>>)>,
    last: Vec<File>,
}

impl Corpus {
    pub(super) fn of_harness(name: &str) -> Self {
        let folder = std::env::var_os("WARPFEED_FUZZ_CORPUS").map(|path| PathBuf::from(path).join(name));
        Corpus { folder, ..Corpus::default() }
    }

    pub(super) fn inputs_of(&self, address: usize) -> &[Vec<u8>] {
        self.inputs.get(&address).map_or(&[], Vec::as_slice)
    }

    pub(super) fn len(&self) -> usize {
        self.inputs.values().map(Vec::len).sum()
    }

    pub(super) fn pop_earlier(&mut self, from: &[Vec<u8>]) -> Option<Vec<u8>> {
        let root = self.folder.as_ref()?;
        let read = || {
            // Name the folder after the hash of the files, because addresses differ between runs.
            let folder = root.join(format!("{:016x}", hash(from)));
            fs::create_dir_all(&folder).expect("the folder can be created");
            let files = fs::read_dir(&folder).expect("the folder exists").map(|entry| entry.expect("a file").path());
            let inputs = files.map(|path| fs::read(path).expect("the file can be read")).collect();
            (folder, inputs)
        };
        self.earlier.entry(from.as_ptr().addr()).or_insert_with(read).1.pop()
    }

    /// Returns `input`, or the file that replaces it: if `WARPFEED_FUZZ_INPUT` is set, input N of
    /// the case is the file `$WARPFEED_FUZZ_INPUT.N`. If `WARPFEED_FUZZ_LAST` is set, writes the
    /// input to the file `$WARPFEED_FUZZ_LAST.N`.
    pub(super) fn replayed_or(&mut self, address: usize, input: Vec<u8>) -> Vec<u8> {
        let number = self.current.len();
        let path = |name: &str| Some(format!("{}.{number}", std::env::var(name).ok()?));
        let input = match path("WARPFEED_FUZZ_INPUT") {
            Some(path) => fs::read(path).expect("WARPFEED_FUZZ_INPUT names the inputs of a case"),
            None => input,
        };
        if self.last.len() <= number {
            self.last.extend(path("WARPFEED_FUZZ_LAST").map(|path| File::create(path).expect("a file")));
        }
        if let Some(file) = self.last.get_mut(number) {
            file.set_len(input.len() as u64).expect("the file can be written");
            file.rewind().and_then(|()| file.write_all(&input)).expect("the file can be written");
        }
        self.current.push((address, input.clone()));
        input
    }

    /// Adds the case's inputs to the corpus if the case reached `new` edges. Writes the inputs to
    /// files if the case `failed`.
    pub(super) fn end_case(&mut self, new: bool, failed: Option<String>) {
        if let Some(name) = failed {
            let path = std::env::temp_dir().join(format!("warpfeed-fuzz-{name}"));
            for (number, (_, input)) in self.current.iter().enumerate() {
                fs::write(format!("{}.{number}", path.display()), input).expect("the file can be written");
            }
            println!("set WARPFEED_FUZZ_INPUT={} to replay the inputs of this case", path.display());
        }
        for (address, input) in self.current.drain(..).filter(|_| new) {
            let inputs = self.inputs.entry(address).or_default();
            if inputs.len() == MAX_INPUTS {
                continue;
            }
            if let Some((folder, _)) = self.earlier.get(&address) {
                // A concurrent process may be reading the folder, so only complete files get their
                // name.
                let name = format!("{:016x}", hash(&input));
                let unfinished = folder.with_extension(std::process::id().to_string());
                fs::write(&unfinished, &input).expect("the file can be written");
                fs::rename(&unfinished, folder.join(name)).expect("the file can be renamed");
            }
            inputs.push(input);
        }
    }
}
