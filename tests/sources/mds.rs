//! Tests MDS shards that MosaicML's library wrote (see `tests/fixtures/formats/mosaic.py`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpfeed::source::{Concat, Options, Source, TableOptions, open};
use warpfeed::{ErrorKind, Loader};

use crate::formats::{assert_matches_reference, copy, fixture, owned};
use crate::warnings::Warnings;

fn cause(opened: warpfeed::Result<impl Sized>) -> String {
    opened.err().unwrap().to_string()
}

#[test]
fn mds_shards_give_the_batches_of_the_folder() {
    assert_matches_reference(fixture("mds"), |loader| loader);
    assert_matches_reference(fixture("mds/index.json"), |loader| loader);
    assert_matches_reference(fixture("mds"), |loader| loader.mmap(false));
    assert_eq!(open(fixture("mds")).unwrap().kind(), "mds");
}

#[test]
fn a_damaged_mds_shard_differs_from_its_hash_and_is_named() {
    let folder = copy("mds");
    let verify = |samples: std::ops::Range<usize>| {
        let mut errors = Vec::new();
        let source = open(folder.path()).unwrap();
        source.verify(samples, &mut |e| errors.push(e));
        errors
    };
    assert!(verify(0..12).is_empty());
    let shard = folder.path().join("shard.00001.mds");
    let mut bytes = fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let errors = verify(0..12);
    assert!(errors.len() == 1 && errors[0].path() == Some(&*shard), "{errors:?}");
    assert!(errors[0].cause().starts_with("damaged: its xxh64 is "), "{}", errors[0]);
    // A shard is verified only with the range that contains its first sample.
    let error_counts: Vec<usize> = (0..12).map(|sample| verify(sample..sample + 1).len()).collect();
    assert_eq!(error_counts.iter().sum::<usize>(), 1);
    let first = error_counts.iter().position(|&count| count == 1).unwrap();
    let joined = Concat::new(vec![open(fixture("mds")).unwrap(), open(folder.path()).unwrap()]).unwrap();
    let mut errors = Vec::new();
    joined.verify(12 + first..13 + first, &mut |e| errors.push(e));
    joined.verify(first..first + 1, &mut |e| errors.push(e));
    assert!(errors.len() == 1 && errors[0].path() == Some(&*shard), "{errors:?}");
}

#[test]
fn unsupported_hashes_cause_only_a_warning() {
    let folder = copy("mds");
    let index = folder.path().join("index.json");
    let text = fs::read_to_string(&index).unwrap();
    for hashes in [json!({"blake2b": "00"}), json!(null), json!({"sha1": 3})] {
        let mut changed: Value = serde_json::from_str(&text).unwrap();
        for shard in changed["shards"].as_array_mut().unwrap() {
            shard["raw_data"]["hashes"] = hashes.clone();
        }
        fs::write(&index, changed.to_string()).unwrap();
        let (source, warnings) = (open(folder.path()).unwrap(), Warnings::default());
        let mut errors = Vec::new();
        tracing::subscriber::with_default(warnings.clone(), || source.verify(0..12, &mut |e| errors.push(e)));
        assert!(errors.is_empty(), "{errors:?}");
        let warnings = warnings.0.lock().unwrap().concat();
        let logged = warnings.contains("only the unsupported hash blake2b");
        assert_eq!(logged, hashes["blake2b"].is_string(), "{warnings}");
    }
}

#[test]
fn compressed_mds_shards_are_decompressed_once_next_to_them() {
    let folder = copy("mds_zstd");
    assert_matches_reference(folder.path(), |loader| loader);
    let raw = |folder: &Path| -> Vec<PathBuf> {
        let mut raw: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        raw.retain(|path| !path.extension().is_some_and(|end| end == "zstd" || end == "json"));
        raw.sort();
        raw
    };
    let written = raw(folder.path());
    let modified =
        |paths: &[PathBuf]| paths.iter().map(|path| path.metadata().unwrap().modified().unwrap()).collect::<Vec<_>>();
    let times = modified(&written);
    assert!(written.len() > 3 && written.iter().all(|path| path.extension().unwrap() == "mds"), "{written:?}");
    open(folder.path()).unwrap();
    assert_eq!(modified(&raw(folder.path())), times, "a second opening decompresses nothing");
    for compression in ["gz", "snappy"] {
        let folder = copy(&format!("mds_encodings/{compression}"));
        let actual = owned(&*open(folder.path()).unwrap());
        assert!(actual == owned(&*open(fixture("mds_encodings/values")).unwrap()), "{compression}");
    }
    let e = cause(open(copy("mds_encodings/br").path()));
    assert!(e.contains("compression \"br\" is not supported: expected zstd, gz or snappy; decompress"), "{e}");
}

#[test]
fn a_damaged_compressed_mds_shard_fails_and_leaves_no_file() {
    for name in ["mds_zstd", "mds_encodings/gz", "mds_encodings/snappy"] {
        let folder = copy(name);
        let packed = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let packed = packed.filter(|path| path.to_str().unwrap().contains("00000.mds.")).last().unwrap();
        let bytes = fs::read(&packed).unwrap();
        for (what, damaged) in [
            ("truncated", bytes[..bytes.len() / 2].to_vec()),
            ("empty", Vec::new()),
            ("another file", b"not compressed at all".to_vec()),
            ("doubled", [&bytes[..], &bytes[..]].concat()),
        ] {
            fs::write(&packed, damaged).unwrap();
            let e = cause(open(folder.path()));
            assert!(e.contains("shard.00000.mds.") && e.contains("decompress"), "{name} {what}: {e}");
            let paths = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let paths: Vec<_> = paths.filter(|path| path.to_str().unwrap().contains("00000.mds")).collect();
            assert_eq!(paths, [&*packed], "{name} {what}");
        }
    }
}

#[test]
fn mds_columns_have_the_values_that_were_written() {
    let source = open(fixture("mds_encodings/values")).unwrap();
    for (n, sample) in owned(&*source).iter().enumerate() {
        let n = n as f64;
        let sample = sample.as_sample().unwrap();
        assert_eq!((sample.key(), sample.label().unwrap()), (&*n.to_string(), Some(40 + n as i64)));
        let text = |name: &str| String::from_utf8(sample.field(name).unwrap().into_owned()).unwrap();
        assert_eq!(text("text.txt"), format!("gr\u{fc}\u{df} {n}"));
        assert_eq!(text("json.json"), format!("{{\"a\": [1, null, {n}]}}"));
        assert_eq!(&*sample.field("raw.bin").unwrap(), [1, 2, n as u8]);
        assert!(sample.image().unwrap().0 == "png");
        let npy = |name: &str| sample.field(&format!("{name}.npy")).unwrap().into_owned();
        let expect = |name: &str, descr: &str, shape: &str, bytes: Vec<u8>| {
            let npy = npy(name);
            let header = String::from_utf8_lossy(&npy[..npy.len() - bytes.len()]).into_owned();
            assert!(
                header.contains(&format!("'{descr}'")) && header.contains(&format!("({shape})")),
                "{name}: {header}"
            );
            assert!(npy.ends_with(&bytes), "{name}");
        };
        let floats = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        expect("str_int", "<i8", "", (-(10_i64.pow(15)) - n as i64).to_le_bytes().to_vec());
        expect("str_float", "<f8", "", floats(&[0.1 + n]));
        expect("str_decimal", "<f8", "", floats(&[1.25 + n]));
        let any: Vec<f64> = (0..6).map(|i| f64::from(i) + n).collect();
        expect("any", "<f8", "2, 1, 3, ", floats(&any));
        let typed = [300 + n as i16, -2 + n as i16];
        expect("typed", "<i2", "1, 2, ", typed.iter().flat_map(|v| v.to_le_bytes()).collect());
        let half = [0.5_f32, -2.0 + n as f32];
        expect("half", "<f4", "2, ", half.iter().flat_map(|v| v.to_le_bytes()).collect());
        expect("fixed", "|u1", "2, 3, ", (0..6).map(|i| i + n as u8).collect());
    }
    let (numbers, mut scratch) = (open(fixture("mds_encodings/numbers")).unwrap(), Vec::new());
    for n in 0..2 {
        let sample = numbers.read(n, &mut scratch).unwrap();
        assert_eq!(sample.fields().len(), 11);
        for (name, value) in sample.fields() {
            let text = String::from_utf8(value.encoded("x.txt").into_owned()).unwrap();
            assert_eq!(text, (100 + n).to_string(), "{name}");
        }
    }
}

#[test]
fn pillow_images_become_rgb_and_text_becomes_labels() {
    for mapped in [true, false] {
        let source = Options::new().mmap(mapped).open(fixture("mds_pil")).unwrap();
        assert_eq!(source.classes(), ["cat", "dog"]);
        let mut scratch = Vec::new();
        for index in 0..4 {
            let sample = source.read(index, &mut scratch).unwrap();
            assert_eq!(sample.label().unwrap(), Some([1, 0][index % 2]), "{index}");
            let (name, image) = sample.image().unwrap();
            assert_eq!((name, image.len()), ("rgb.npy", 128 + 5 * 7 * 3), "{index}");
            let pixels = &image[128..];
            let value = |place: usize| (place + index) as u8;
            let first: Vec<u8> = match index {
                0 | 3 => vec![value(0), value(1), value(2), value(4), value(5), value(6)],
                // L and LA images become gray: the channels of a pixel are equal.
                _ => vec![pixels[0], pixels[0], pixels[0], pixels[3], pixels[3], pixels[3]],
            };
            assert_eq!(&pixels[..6], first, "{index}");
            assert!(pixels[0].abs_diff(value(1)) <= 1, "{index}");
            assert_eq!(source.label(index, &mut Vec::new()).unwrap(), Some([1, 0][index % 2]));
        }
    }
    let mut batches = Loader::new(fixture("mds_pil")).batch_size(4).host().unwrap();
    assert_eq!(batches.epoch(0).map(Result::unwrap).count(), 1);
}

#[test]
fn a_pickled_mds_column_is_refused_unless_others_are_chosen() {
    let path = fixture("mds_encodings/refused");
    let e = open(&path).err().unwrap();
    assert!(e.kind() == ErrorKind::Source && e.path() == Some(&*path), "{e:?}");
    assert!(e.cause().contains("column \"meta\": encoding \"pkl\" can execute arbitrary code"), "{e}");
    let columns = TableOptions::new().columns(Vec::<String>::new());
    let source = Options::new().table(columns).open(&path).unwrap();
    let mut scratch = Vec::new();
    assert_eq!(source.read(0, &mut scratch).unwrap().fields().iter().map(|field| field.0).collect::<Vec<_>>(), ["jpg"]);
}

#[test]
fn splits_of_mds_shards_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    for split in ["train", "val"] {
        fs::create_dir(folder.path().join(split)).unwrap();
        fs::copy(fixture("mds/index.json"), folder.path().join(split).join("index.json")).unwrap();
    }
    let e = cause(open(folder.path()));
    assert!(e.contains("contains the datasets train, val; open one of them"), "{e}");
}

fn first_shard() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = copy("mds");
    let path = folder.path().join("shard.00000.mds");
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

#[test]
fn damaged_mds_shards_fail_with_their_location() {
    let (folder, path, bytes) = first_shard();
    let number = |offset: usize, number: u32| {
        let mut bytes = bytes.clone();
        bytes[offset..offset + 4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    for (damaged, expected) in [
        (bytes[..bytes.len() - 1].to_vec(), "but index.json claims"),
        (number(0, 2), "the file has 2 samples, but index.json lists"),
        (number(4, 3), "offset 3 of sample 0 is not between"),
        (number(8, u32::MAX), "offset 4294967295 of sample 1 is not between"),
    ] {
        for mapped in [true, false] {
            fs::write(&path, &damaged).unwrap();
            let e = Options::new().mmap(mapped).open(folder.path()).err().unwrap();
            assert!(e.path() == Some(&*path) && e.cause().contains(expected), "{expected}: {e}");
        }
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(open(folder.path()).err().unwrap().kind(), ErrorKind::Io);
    let first = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    fs::write(&path, number(first, 1 << 30)).unwrap();
    let source = open(folder.path()).unwrap();
    let e = source.read(0, &mut Vec::new()).unwrap_err();
    assert!(e.path() == Some(&*path) && e.cause().contains("column \"image\" has 1073741824 bytes at byte 4"), "{e}");
    source.read(1, &mut Vec::new()).unwrap();
}

#[test]
fn a_changed_mds_shard_fails_the_next_read() {
    for mapped in [true, false] {
        let (folder, path, bytes) = first_shard();
        let source = Options::new().mmap(mapped).open(folder.path()).unwrap();
        source.read(0, &mut Vec::new()).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        source.check().unwrap();
        let e = source.read(0, &mut Vec::new()).unwrap_err();
        assert!(e.cause().contains("written to while open") && e.path() == Some(&*path), "{e}");
        source.read(source.len() - 1, &mut Vec::new()).unwrap();
        assert!(!source.is_unchanged());
    }
}

fn shard(columns: &[(&str, &str, usize)], samples: &[Vec<u8>]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut offsets = vec![4 * (samples.len() as u32 + 2)];
    samples.iter().for_each(|sample| offsets.push(offsets[offsets.len() - 1] + sample.len() as u32));
    let head = [&[samples.len() as u32][..], &offsets].concat();
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    samples.iter().for_each(|sample| bytes.extend(sample));
    let list = |item: fn(&(&str, &str, usize)) -> String| columns.iter().map(item).collect::<Vec<_>>().join(", ");
    let index = format!(
        r#"{{"version": 2, "shards": [{{"column_names": [{}], "column_encodings": [{}], "column_sizes": [{}],
        "compression": null, "format": "mds", "version": 2, "samples": {}, "zip_data": null,
        "raw_data": {{"basename": "shard.00000.mds", "bytes": {}, "hashes": {{}}}}}}]}}"#,
        list(|column| format!("{:?}", column.0)),
        list(|column| format!("{:?}", column.1)),
        list(|column| column.2.to_string()),
        samples.len(),
        bytes.len(),
    );
    fs::write(folder.path().join("index.json"), index).unwrap();
    fs::write(folder.path().join("shard.00000.mds"), bytes).unwrap();
    folder
}

#[test]
fn arrays_of_pixels_in_mds_shards_are_images() {
    let pixels = |n: u8| (0..3 * 20).map(|place| place + n).collect::<Vec<u8>>();
    let samples: Vec<_> = (0..3).map(|n| [&pixels(n)[..], &(7 + i64::from(n)).to_le_bytes()].concat()).collect();
    let last = [("data", "ndarray:uint8:5,4,3", 60), ("label", "int", 8)];
    let first = [("data", "ndarray:uint8:3,4,5", 60), ("label", "int", 8)];
    for (columns, is_first) in [(last, false), (first, true)] {
        let folder = shard(&columns, &samples);
        for mapped in [true, false] {
            let source = Options::new().mmap(mapped).open(folder.path()).unwrap();
            let mut scratch = Vec::new();
            for n in 0..3 {
                let sample = source.read(n, &mut scratch).unwrap();
                let (name, image) = sample.image().unwrap();
                let stored = pixels(n as u8);
                let turned = (0..20).flat_map(|place| [0, 20, 40].map(|channel| stored[place + channel])).collect();
                let expected = if is_first { turned } else { stored.clone() };
                assert_eq!((name, &image[128..]), ("rgb.npy", &expected[..]));
                assert_eq!((sample.label().unwrap(), sample.fields().len()), (Some(7 + n as i64), 1));
            }
        }
        let mut batches = Loader::new(folder.path()).batch_size(3).host().unwrap();
        assert_eq!(batches.epoch(0).map(Result::unwrap).count(), 1);
    }
    // An `ndarray` column without a shape stores the shape in each value.
    let gray = |height: u8| [&[8, 8, height, 6][..], &vec![9; 6 * usize::from(height)]].concat();
    let samples: Vec<_> =
        [3, 5].map(|height| [&(gray(height).len() as u32).to_le_bytes()[..], &gray(height)].concat()).into();
    let folder = shard(&[("x", "ndarray", 0)], &samples);
    let source = open(folder.path()).unwrap();
    for (n, height) in [3, 5].into_iter().enumerate() {
        assert_eq!(source.read(n, &mut Vec::new()).unwrap().image().unwrap().1[128..], vec![9; 18 * height]);
    }
}

#[test]
fn ambiguous_mds_columns_need_a_choice() {
    let columns = [("image", "ndarray:float32:4,5,3", 240), ("mask", "ndarray:uint8:4,6", 24)];
    let folder = shard(&columns, &[vec![1; 264]]);
    let e = cause(open(folder.path()));
    assert!(e.contains("may be in \"image\" (arrays of f32, shape [4, 5, 3]) or in \"mask\""), "{e}");
    let source = Options::new().table(TableOptions::new().image("mask")).open(folder.path()).unwrap();
    let mut scratch = Vec::new();
    let sample = source.read(0, &mut scratch).unwrap();
    assert_eq!(sample.fields().iter().map(|field| field.0).collect::<Vec<_>>(), ["rgb.npy", "image.npy"]);
}
