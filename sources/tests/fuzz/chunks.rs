//! Fuzzes the readers of MDS shards, LitData chunks, and FFCV and RecordIO files. Each case mutates
//! one file of a fixture, and then opens and reads the dataset with and without memory mapping.

use std::fs;
use std::path::Path;

use crate::Options;
use crate::error::Result;
use crate::fuzz::{self, Random};

const WORDS: [&[u8]; 22] = [
    b"\"ndarray\"",
    b"\"ndarray:uint8:2,3\"",
    b"\"pil\"",
    b"\"str_int\"",
    b"\"json\"",
    b"\"samples\": 4294967295",
    b"\"column_sizes\": [null]",
    b"null",
    b"\"zstd\"",
    b"\"../x\"",
    b"18446744073709551615",
    b"\"no_header_tensor:18\"",
    b"\"tensor\"",
    b"{\\\"type\\\": null, \\\"context\\\": null, \\\"children_spec\\\": []}",
    b"\\\"builtins.tuple\\\"",
    b"0\t0\n",
    &0xced7_230a_u32.to_le_bytes(),
    &(1_u32 << 29 | 4).to_le_bytes(),
    &(3_u32 << 29 | 4).to_le_bytes(),
    b"[[\"\", \"<f4\"]]",
    &[0xff; 8],
    &[0; 8],
];

/// A fixture: the folder of the dataset, the path to open in this folder, and the file names.
type Set = (&'static str, &'static str, &'static [&'static str]);
const MDS: [Set; 7] = [
    ("mds_encodings/values", "", &["index.json", "shard.00000.mds"]),
    ("mds_encodings/numbers", "", &["index.json", "shard.00000.mds"]),
    ("mds_encodings/gz", "", &["index.json", "shard.00000.mds.gz"]),
    ("mds_encodings/snappy", "", &["index.json", "shard.00000.mds.snappy"]),
    ("mds_encodings/br", "", &["index.json", "shard.00000.mds.br"]),
    ("mds_encodings/refused", "", &["index.json", "shard.00000.mds"]),
    ("mds_pil", "", &["index.json", "shard.00000.mds"]),
];
const LITDATA: [Set; 6] = [
    ("litdata_rows", "", &["index.json", "chunk-0-0.bin", "chunk-0-1.bin"]),
    ("litdata_refused/json", "", &["index.json", "chunk-0-0.bin"]),
    ("litdata_values", "", &["index.json", "chunk-0-0.bin"]),
    ("litdata_refused/pickle", "", &["index.json", "chunk-0-0.bin"]),
    ("litdata_refused/arrow", "", &["index.json", "chunk-0-0.bin"]),
    ("litdata_refused/framed", "", &["index.json", "chunk-0-0.bin"]),
];
const BETON: [Set; 1] = [("beton_values", "values.beton", &["values.beton"])];
const RECORDIO: [Set; 3] = [
    ("recordio_values", "parts.rec", &["parts.rec"]),
    ("recordio_values", "labels.rec", &["labels.rec", "labels.idx"]),
    ("recordio_values", "faces.rec", &["faces.rec", "faces.idx"]),
];

type Samples = Vec<Result<(Vec<(String, Vec<u8>)>, Option<i64>)>>;

fn read(path: &Path, mapped: bool) -> Result<Samples> {
    let source = Options::new().mmap(mapped).open(path)?;
    let mut scratch = Vec::new();
    let sample = |index: usize| {
        let label = source.label(index, &mut Vec::new());
        let sample = source.read(index, &mut scratch)?;
        assert_eq!(sample.label()?, label?, "sample {index}");
        let fields = sample.fields().iter().map(|(name, value)| ((*name).to_owned(), value.encoded(name).into_owned()));
        Ok((fields.collect(), sample.label()?))
    };
    Ok((0..source.len()).map(sample).collect())
}

/// Returns a function that mutates one file of a random dataset, and returns whether the dataset
/// can be read.
fn chunk_files(datasets: &'static [Set]) -> impl FnMut(u64) -> bool {
    let root = fuzz::fixtures();
    let bytes = |(folder, _, files): &Set| -> Vec<Vec<u8>> {
        files.iter().map(|file| fs::read(root.join(folder).join(file)).expect("a fixture")).collect()
    };
    let sets: Vec<_> = datasets.iter().map(bytes).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let mut case = 0_u64;
    move |seed| {
        let mut random = Random::new(seed);
        let set = random.below(datasets.len());
        let ((_, opened, names), files) = (&datasets[set], &sets[set]);
        let changed = random.below(files.len());
        // Opening a dataset leaves decompressed files and indexes behind, so each case has its own
        // folder.
        case += 1;
        let target = folder.path().join(case.to_string());
        fs::create_dir(&target).expect("a folder");
        for (file, (name, bytes)) in names.iter().zip(files).enumerate() {
            let bytes = if file == changed { random.mutated(&files[file..=file], &WORDS) } else { bytes.clone() };
            fs::write(target.join(name), bytes).expect("a file");
        }
        let path = if opened.is_empty() { target.clone() } else { target.join(opened) };
        let (mapped, unmapped) = (read(&path, true), read(&path, false));
        let accepted = match (&mapped, &unmapped) {
            (Ok(mapped), Ok(unmapped)) => {
                assert_eq!(mapped.len(), unmapped.len());
                for (mapped, unmapped) in mapped.iter().zip(unmapped) {
                    match (mapped, unmapped) {
                        (Ok(mapped), Ok(unmapped)) => assert!(mapped == unmapped, "mapped and unmapped samples differ"),
                        (Err(mapped), Err(unmapped)) => assert_eq!(mapped.cause(), unmapped.cause()),
                        (mapped, unmapped) => panic!("{mapped:?} but {unmapped:?}"),
                    }
                }
                mapped.iter().all(Result::is_ok)
            }
            (Err(mapped), Err(unmapped)) => {
                assert_eq!(mapped.cause(), unmapped.cause());
                false
            }
            (mapped, unmapped) => panic!("{:?} but {:?}", mapped.is_ok(), unmapped.is_ok()),
        };
        fs::remove_dir_all(&target).expect("its files are closed");
        accepted
    }
}

#[test]
fn mds_files() {
    fuzz::run("mds", chunk_files(&MDS));
}

#[test]
fn litdata_files() {
    fuzz::run("litdata", chunk_files(&LITDATA));
}

#[test]
fn beton_files() {
    fuzz::run("beton", chunk_files(&BETON));
}

#[test]
fn recordio_files() {
    fuzz::run("recordio", chunk_files(&RECORDIO));
}
