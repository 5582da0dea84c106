//! Compares loading an epoch of token windows with copying the same bytes. The copy runs on one
//! thread, and on as many threads as the loader has workers.
//!
//! ```text
//! cargo bench --bench tokens
//! ```
//!
//! The copy knows all addresses in advance. It copies the windows from a memory map of the same file,
//! in the loader's order, to six buffers in turn. "One by one" is the same loader with a source that
//! hides `Source::stored`, so each window goes through the general path. The measurements alternate.
#![allow(missing_docs)]

use std::time::Instant;

use warpfeed::source::{Sample, Source, TokenFile, TokenType};
use warpfeed::{Batches, Dtype, HostBatch, Loader, field};

const TOKENS: usize = 200_000_000;
const WORKERS: usize = 2;
const ROUNDS: usize = 9;
/// Window length in tokens, windows per batch, and whether the windows are shuffled.
const CASES: [(usize, usize, bool); 6] =
    [(2048, 64, true), (2048, 64, false), (2048, 512, true), (8192, 32, true), (1024, 64, true), (512, 256, true)];
const SLOTS: usize = 6;

/// A token file that hides `Source::stored`, to force the slow path.
struct OneByOne(TokenFile);

impl Source for OneByOne {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> warpfeed::Result<Sample<'a>> {
        self.0.read(index, scratch)
    }
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    let mut state = 1_u32;
    let token = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % 50_000) as u16
    };
    let bytes: Vec<u8> = std::iter::repeat_with(token).take(TOKENS).flat_map(u16::to_le_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    for set in CASES {
        let open = || TokenFile::open(&path, TokenType::U16, set.0, set.0).unwrap();
        let mut batches = loader(Loader::source(open()), set);
        let mut one_by_one = loader(Loader::source(OneByOne(open())), set);
        let order: Vec<u64> =
            batches.epoch_from(0, 0).flat_map(|batch| batch.unwrap().ids().collect::<Vec<_>>()).collect();
        let source = open();
        let window = |&index: &u64| source.stored(index as usize, &mut String::new()).unwrap().parts().2;
        let windows: Vec<&[u8]> = order.iter().map(window).collect();
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            times[0].push(time_epoch(&mut batches));
            times[1].push(time_epoch(&mut one_by_one));
            times[2].push(time_copy(&windows, set, WORKERS));
            times[3].push(time_copy(&windows, set, 1));
        }
        let (length, batch, shuffled) = set;
        println!("{length} tokens, batches of {batch}, {}", if shuffled { "shuffled" } else { "in order" });
        for (name, times) in ["loader", "one by one", "copy", "copy, one thread"].iter().zip(&times) {
            print_spread(name, times);
        }
        print_spread("loader / copy", &ratios(&times[0], &times[2]));
        print_spread("one by one / copy", &ratios(&times[1], &times[2]));
        print_spread("loader / one thread", &ratios(&times[0], &times[3]));
    }
}

fn ratios(numerators: &[f64], denominators: &[f64]) -> Vec<f64> {
    numerators.iter().zip(denominators).map(|(numerator, denominator)| numerator / denominator).collect()
}

fn print_spread(name: &str, values: &[f64]) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    println!("  {name:18} {:.3} ({:.3} to {:.3})", values[values.len() / 2], values[0], values[values.len() - 1]);
}

fn loader(loader: Loader, (length, batch, shuffled): (usize, usize, bool)) -> Batches<HostBatch> {
    let loader = loader.drop_field("image").drop_field("label").batch_size(batch).workers(WORKERS);
    let loader = if shuffled { loader.shuffle(1) } else { loader };
    loader.epochs(0).field("tokens", field::Tokens::new(Dtype::U16, length)).host().unwrap()
}

fn time_epoch(batches: &mut Batches<HostBatch>) -> f64 {
    let start = Instant::now();
    for batch in batches.epoch_from(0, 0) {
        std::hint::black_box(batch.unwrap().field("tokens").unwrap().bytes());
    }
    start.elapsed().as_secs_f64()
}

fn time_copy(windows: &[&[u8]], (_, batch, _): (usize, usize, bool), threads: usize) -> f64 {
    let bytes = windows[0].len();
    let mut buffers = vec![vec![1_u8; batch * bytes]; SLOTS];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (thread, buffers) in buffers.chunks_mut(SLOTS / threads).enumerate() {
            scope.spawn(move || {
                for (round, windows) in windows.chunks(batch).skip(thread).step_by(threads).enumerate() {
                    let slot = round % buffers.len();
                    for (row, window) in buffers[slot].chunks_exact_mut(bytes).zip(windows) {
                        row.copy_from_slice(window);
                    }
                    std::hint::black_box(&buffers[slot]);
                }
            });
        }
    });
    start.elapsed().as_secs_f64()
}
