//! Tests HDF5 files that h5py wrote (see `tests/fixtures/formats/hdf5.py`).

use std::fs;
use std::path::PathBuf;

use warpfeed::Loader;
use warpfeed::source::{Options, Source, TableOptions, Value, open};

use crate::formats::{assert_matches_reference, fixture, loads_alike, owned};

fn path_of(name: &str) -> PathBuf {
    fixture("hdf5").join(name)
}

type Fields = (Option<i64>, Vec<(String, Vec<u8>)>);

fn samples(source: &dyn Source) -> Vec<Fields> {
    let samples_of_file = owned(source);
    let rows = samples_of_file.iter().map(|sample| {
        let sample = sample.as_sample().unwrap();
        let fields = sample.fields().iter().map(|(name, value)| ((*name).to_owned(), value.encoded(name).into_owned()));
        (sample.label().unwrap(), fields.collect())
    });
    rows.collect()
}

#[test]
fn encoded_images_in_hdf5_give_the_batches_of_the_folder() {
    assert_matches_reference(path_of("encoded-v114.h5"), |loader| loader);
    assert_matches_reference(path_of("encoded-earliest.h5"), |loader| loader.mmap(false));
    let samples_of = |name: &str| samples(&*open(path_of(name)).unwrap());
    assert!(samples_of("encoded-earliest.h5") == samples_of("encoded-v114.h5"));
    let folder = open(crate::formats::reference()).unwrap();
    let jpeg = |(label, mut fields): Fields| (label, fields.remove(0).1);
    let with_texts: Vec<_> = samples_of("texts.h5").into_iter().map(jpeg).collect();
    assert!(with_texts == samples(&*folder).into_iter().map(jpeg).collect::<Vec<_>>());
    let source = open(path_of("texts.h5")).unwrap();
    assert_eq!((source.kind(), source.len(), source.classes().len()), ("hdf5", 12, 4));
    assert!(source.classes().contains(&"plain-disc".to_owned()), "{:?}", source.classes());
    let mut scratch = Vec::new();
    let mut caption = |row| match source.read(row, &mut scratch).unwrap().value("caption.txt") {
        Some(Value::Text(text)) => text.to_owned(),
        other => format!("{other:?}"),
    };
    assert_eq!((caption(0), caption(7)), (String::new(), "a pictüre 7".to_owned()));
}

#[test]
fn arrays_of_every_layout_and_version_have_the_same_images() {
    let columns = |name: &str, mapped: bool| {
        let table = TableOptions::new().columns(["score"]);
        Options::new().mmap(mapped).table(table).open(path_of(name)).unwrap()
    };
    let npy = samples(&*open(fixture("arrays/npy")).unwrap());
    let mut actual = Vec::new();
    for version in ["earliest", "v114"] {
        for layout in ["contiguous", "gzip", "lzf", "rows", "growing"] {
            for mapped in [true, false] {
                let name = format!("{layout}-{version}.h5");
                let samples_of_columns = samples(&*columns(&name, mapped));
                assert_eq!(samples_of_columns.len(), 12, "{name}");
                for (row, ((label, fields), (expected, image))) in samples_of_columns.iter().zip(&npy).enumerate() {
                    assert!(label == expected && fields[0] == image[0] && label.is_some(), "{name}: row {row}");
                    let score: Vec<f32> = (0..6).map(|place| (6 * row + place) as f32 / 4.0).collect();
                    let bytes: Vec<u8> = score.iter().flat_map(|score| score.to_le_bytes()).collect();
                    assert!(fields[1].0 == "score.npy" && fields[1].1.ends_with(&bytes), "{name}: row {row}");
                }
                actual.push(samples_of_columns);
            }
        }
    }
    assert!(actual.iter().all(|other| *other == actual[0]));
    for name in ["gzip-earliest.h5", "lzf-v114.h5", "rows-v114.h5"] {
        loads_alike(name, &|| Loader::new(path_of(name)), &|| Loader::new(fixture("arrays/npy")));
    }
}

#[test]
fn incompressible_lzf_chunks_are_read() {
    for name in ["lzf-earliest.h5", "lzf-v114.h5"] {
        let table = TableOptions::new().columns(["noise", "noise_as_it_is"]);
        let rows = samples(&*Options::new().table(table).open(path_of(name)).unwrap());
        assert_eq!(rows.len(), 12);
        for (_, fields) in &rows {
            let [stored, plain] = ["noise.npy", "noise_as_it_is.npy"]
                .map(|name| &fields.iter().find(|field| field.0 == name).expect("the sample has this field").1);
            assert!(stored == plain && stored.len() >= 40, "{name}");
        }
    }
}

#[test]
fn groups_may_be_splits() {
    assert_eq!(open(path_of("split.h5/val")).unwrap().len(), 2);
    assert_eq!(open(path_of("split.h5/train")).unwrap().len(), 12);
    let e = open(path_of("split.h5")).err().unwrap();
    assert!(e.cause().contains("found the splits train, validation"), "{e}");
}

#[test]
fn unsupported_arrays_are_named_unless_others_are_chosen() {
    for (column, cause) in [
        ("scaled", "array \"scaled\": unsupported filter 6 (scale-offset): expected gzip, LZF, shuffle or fletcher32"),
        ("unwritten", "array \"unwritten\": only 0 of 12 chunks were written"),
        ("fixed", "array \"fixed\" has elements of type 'S' with 4 bytes"),
        ("pairs", "array \"pairs\" has elements of type 'V' with 8 bytes"),
        ("floats", "array \"floats\""),
    ] {
        let table = TableOptions::new().columns([column]);
        let e = Options::new().table(table).open(path_of("refused.h5")).err().unwrap();
        assert!(e.cause().contains(cause) && e.path() == Some(&*path_of("refused.h5")), "{column}: {e}");
    }
    let none = TableOptions::new().columns(Vec::<String>::new());
    assert_eq!(Options::new().table(none).open(path_of("refused.h5")).unwrap().len(), 12);
    let e = open(path_of("latest.h5")).err().unwrap();
    assert!(e.cause().contains("data layout version: 5") && e.cause().contains("libver=(\"v108\", \"v114\")"), "{e}");
}

#[test]
fn damaged_and_changed_hdf5_files_fail() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.h5");
    let file = fs::read(path_of("growing-v114.h5")).unwrap();
    let options = |mapped| Options::new().mmap(mapped).table(TableOptions::new().columns(["images"]));
    for mapped in [true, false] {
        for len in [0, 7, 48, 500, file.len() / 2, file.len() - 1] {
            fs::write(&path, &file[..len]).unwrap();
            let e = options(mapped).format("hdf5").open(&path).err().unwrap();
            assert_eq!(e.path(), Some(&*path), "{len} bytes: {e}");
        }
        fs::write(&path, &file).unwrap();
        let source = options(mapped).open(&path).unwrap();
        let good = samples(&*source).len();
        let mut damaged = file.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        fs::write(&path, &damaged).unwrap();
        source.check().unwrap();
        assert!(source.read(0, &mut Vec::new()).unwrap_err().cause().contains("written to while open"));
        let source = options(mapped).open(&path).unwrap();
        let errors: Vec<_> = (0..good).filter_map(|row| source.read(row, &mut Vec::new()).err()).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].cause().contains("the chunk at byte") && errors[0].path() == Some(&*path), "{}", errors[0]);
    }
}

#[test]
fn decoded_chunks_are_part_of_the_memory_plan() {
    let bytes =
        |name: &str| Loader::new(path_of(name)).batch_size(4).host().unwrap().memory_plan().source_prefetch_bytes;
    assert_eq!(bytes("contiguous-v114.h5"), 0);
    let total = bytes("gzip-v114.h5");
    assert!(total > 0 && total <= 2 * (32 << 20), "{total}");
}
