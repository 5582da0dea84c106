//! Fuzzes the reader of TFRecord files: record lengths and `tf.train.Example` messages.

use std::collections::BTreeSet;

use super::example;
use super::shard;
use crate::fuzz::{self, Random};

const WORDS: [&[u8]; 8] = [
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x12\x03\x1a\x01\x05",
    b"\x0a\x05\x0a\x01x\x12\0",
    b"\x1a\x0a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x12\x06\x0a\x04\0\0\x80\x3f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"image/encoded",
    b"\x08\x01",
];

fn seeds() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let file = include_bytes!("../fixtures/formats/tfrecord/train-00001-of-00002").to_vec();
    let starts = shard::scan(&&file[..]).expect("the fixture is valid");
    let examples: Vec<_> =
        starts.windows(2).map(|ends| file[ends[0] as usize + 12..ends[1] as usize - 4].to_vec()).collect();
    let small = b"\x0a\x2e\x0a\x0d\x0a\x05label\x12\x04\x1a\x02\x08\x07\x0a\x1d\x0a\x01x\x12\x18\x12\x16\x0a\x14\0\0\x80\x3f\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@".to_vec();
    let mut examples_with_small = vec![small];
    examples_with_small.extend(examples);
    (vec![file[..starts[2] as usize].to_vec()], examples_with_small)
}

fn case((files, examples): &(Vec<Vec<u8>>, Vec<Vec<u8>>), seed: u64) -> bool {
    let random = &mut Random::new(seed);
    match random.below(3) {
        0 => {
            let file = random.mutated(files, &WORDS);
            let Ok(starts) = shard::scan(&&file[..]) else { return false };
            assert!(starts.is_sorted() && starts.last() == Some(&(file.len() as u64)));
            true
        }
        _ => {
            let example = random.mutated(examples, &WORDS);
            let (mut lists, mut page) = (BTreeSet::new(), Vec::new());
            let result = example::find_lists(&example, &mut lists);
            let row = example::read_row(&example, &lists, &mut page);
            assert!(row.is_err() || result.is_ok());
            // A number takes at least one byte in the message, and at most eight in `page`.
            assert!(page.len() <= 8 * example.len() + 64);
            row.is_ok_and(|row| !row.is_empty())
        }
    }
}

#[test]
fn tfrecord_files() {
    let seeds = seeds();
    fuzz::run("tfrecord", |seed| case(&seeds, seed));
}
