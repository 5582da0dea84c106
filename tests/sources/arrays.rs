//! Tests that the images and labels in array files written by NumPy, safetensors and PyTorch are
//! read, and that unusable, truncated and changed files are refused.

use std::fs;
use std::path::{Path, PathBuf};

use warpfeed::Loader;
use warpfeed::source::{Arrays, Memory, Options, OwnedSample, Source, TableOptions, Value, open};

use crate::formats::{fixture, loads_alike};

const COUNT: usize = 12;
const PIXELS: usize = 24 * 32 * 3;

fn path_of(name: &str) -> PathBuf {
    fixture("arrays").join(name)
}

/// Returns the expected samples, read without the crate. The header of `images.npy` has 128 bytes.
fn expected() -> Vec<OwnedSample> {
    let file = fs::read(path_of("npy/images.npy")).unwrap();
    let pixels = &file[128..];
    assert_eq!(pixels.len(), COUNT * PIXELS);
    let sample =
        |(i, pixels): (usize, &[u8])| OwnedSample::new(i.to_string()).field("rgb.npy", pixels).label(i as i64 / 3);
    pixels.chunks(PIXELS).enumerate().map(sample).collect()
}

fn all_samples(source: &dyn Source) -> Vec<OwnedSample> {
    let (mut scratch, mut other) = (Vec::new(), Vec::new());
    (0..source.len())
        .map(|i| {
            let sample = source.read(i, &mut scratch).unwrap();
            assert_eq!(source.label(i, &mut other).unwrap(), sample.label().unwrap());
            OwnedSample::try_from(&sample).unwrap()
        })
        .collect()
}

fn originals(source: &dyn Source) -> Vec<OwnedSample> {
    let only = |sample: OwnedSample| {
        let sample = sample.as_sample().unwrap();
        let plain = OwnedSample::new(sample.key()).field("rgb.npy", &sample.field("rgb.npy").unwrap()[128..]);
        sample.label().unwrap().map_or(plain.clone(), |label| plain.label(label))
    };
    all_samples(source).into_iter().map(only).collect()
}

fn cause(path: &Path) -> String {
    open(path).err().unwrap().to_string()
}

#[test]
fn every_format_has_the_same_images_and_labels() {
    for (name, kind) in [
        ("npy", "npy"),
        ("stored.npz", "npz"),
        ("splits.npz/train", "npz"),
        ("a.safetensors", "safetensors"),
        ("tuple.pt", "torch"),
        ("dict.pth", "torch"),
    ] {
        for mapped in [true, false] {
            let source = Options::new().mmap(mapped).open(path_of(name)).unwrap();
            assert_eq!(source.kind(), kind, "{name}");
            assert!(originals(&*source) == expected(), "{name}, mapped: {mapped}");
        }
    }
    assert_eq!(Arrays::open(path_of("a.safetensors")).unwrap().len(), COUNT);
}

#[test]
fn array_batches_equal_in_memory_batches() {
    let header = warpfeed::decode::raw::npy_header(warpfeed::decode::Size::new(32, 24));
    let with_header = |sample: OwnedSample| {
        let sample = sample.as_sample().unwrap();
        let file = [&header[..], &sample.field("rgb.npy").unwrap()].concat();
        OwnedSample::new(sample.key()).field("rgb.npy", file).label(sample.label().unwrap().unwrap())
    };
    let samples: Vec<_> = expected().into_iter().map(with_header).collect();
    let memory = || Loader::source(Memory::new(samples.clone()));
    for name in ["npy", "stored.npz", "splits.npz/train", "a.safetensors", "tuple.pt", "dict.pth"] {
        loads_alike(name, &|| Loader::new(path_of(name)), &memory);
    }
    loads_alike("npy, not mapped", &|| Loader::new(path_of("npy")).mmap(false), &memory);
}

#[test]
fn other_arrays_become_numeric_fields() {
    let source = open(path_of("a.safetensors")).unwrap();
    let mut scratch = Vec::new();
    let sample = source.read(5, &mut scratch).unwrap();
    let Some(Value::Numbers(half)) = sample.value("embedding.npy") else { panic!("{:?}", sample.fields()) };
    assert_eq!(half.iter::<f32>().unwrap().collect::<Vec<_>>(), [2.5, 2.75], "float16 becomes float32");

    let source = open(path_of("dict.pth")).unwrap();
    let sample = source.read(4, &mut scratch).unwrap();
    let Some(Value::Numbers(mask)) = sample.value("mask.npy") else { panic!("{:?}", sample.fields()) };
    let first: Vec<u8> = expected()[1].as_sample().unwrap().field("rgb.npy").unwrap().to_vec();
    let expected: Vec<u8> = first.chunks(3).map(|pixel| u8::from(pixel[0] > 127)).collect();
    assert_eq!((mask.shape(), mask.iter::<u8>().unwrap().collect::<Vec<_>>()), (vec![24, 32], expected));
}

#[test]
fn arrays_pack_into_tar_shards() {
    for name in ["stored.npz", "a.safetensors", "dict.pth"] {
        crate::lmdb_layouts::assert_packs(&*open(path_of(name)).unwrap());
    }
}

#[test]
fn a_split_is_selected_in_the_path() {
    let shown = cause(&path_of("splits.npz"));
    assert!(shown.contains("found the splits train, validation: append `/` and one of them to the path"), "{shown}");
    assert_eq!(open(path_of("splits.npz/val")).unwrap().len(), 2);
    let shown = cause(&path_of("splits.npz/test"));
    assert!(shown.contains("no split \"test\": expected one of train, validation"), "{shown}");
    assert!(cause(&path_of("stored.npz/test")).contains("some array names do not include one"));
}

#[test]
fn unusable_arrays_are_refused_with_advice() {
    for (name, expected) in [
        ("fortran.npy", "is in Fortran order"),
        ("objects.npy", "pickled Python objects"),
        ("view.pt", "save tensor.contiguous()"),
        ("negated.pt", "a tensor has metadata and may be a negated view: store tensor.clone()"),
        ("module.pt", "is refused"),
    ] {
        let shown = cause(&path_of(name));
        assert!(shown.contains(expected) && shown.contains(name), "{shown}");
    }
    let root = tempfile::tempdir().unwrap();
    for (name, from) in [("images.npy", "npy/images.npy"), ("labels.npy", "fortran.npy")] {
        fs::copy(path_of(from), root.path().join(name)).unwrap();
    }
    let mut labels = fs::read(path_of("npy/labels.npy")).unwrap();
    let place = labels.windows(5).position(|window| window == b"(12,)").unwrap();
    labels[place + 2] = b'1';
    fs::write(root.path().join("labels.npy"), &labels).unwrap();
    let shown = cause(root.path());
    assert!(shown.contains("does not match its 48 bytes of data"), "{shown}");
    fs::write(root.path().join("labels.npy"), &labels[..128 + 44]).unwrap();
    let shown = cause(root.path());
    assert!(shown.contains("\"images\" has shape [12, 24, 32, 3], but \"labels\" has [11]"), "{shown}");
    let columns = TableOptions::new().without_label().columns(["images"]);
    assert_eq!(Options::new().table(columns).open(root.path()).unwrap().len(), COUNT);
}

#[test]
fn damaged_and_changed_files_fail() {
    let root = tempfile::tempdir().unwrap();
    for name in ["stored.npz", "splits.npz", "a.safetensors", "tuple.pt", "npy/images.npy"] {
        let file = fs::read(path_of(name)).unwrap();
        let path = root.path().join(Path::new(name).file_name().unwrap());
        for part in 0..40 {
            fs::write(&path, &file[..file.len() * part / 40]).unwrap();
            let shown = cause(&path);
            assert!(shown.contains(&*path.to_string_lossy()), "{shown}");
        }
    }
    let mut bytes = fs::read(path_of("splits.npz")).unwrap();
    bytes[20_000] ^= 0x10;
    let path = root.path().join("splits.npz");
    fs::write(&path, bytes).unwrap();
    let shown = cause(&path.join("train"));
    assert!(shown.contains("is damaged") || shown.contains("cannot be decompressed"), "{shown}");

    let path = root.path().join("a.safetensors");
    fs::copy(path_of("a.safetensors"), &path).unwrap();
    let source = open(&path).unwrap();
    source.read(0, &mut Vec::new()).unwrap();
    fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(20_000).unwrap();
    source.check().unwrap();
    let e = source.read(0, &mut Vec::new()).err().unwrap();
    assert!(e.to_string().contains("the file was written to while open"), "{e}");
}

#[test]
fn unknown_columns_and_element_types_are_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.safetensors");
    let header = r#"{"scale":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]},"weight":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}"#;
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 6]].concat()).unwrap();
    let e = cause(&path);
    assert!(e.contains("tensor \"scale\" has elements of the type \"F4\", which is not supported"), "{e}");
    let open_columns = |name: &str| Options::new().table(TableOptions::new().columns([name])).open(&path);
    assert_eq!(open_columns("weight").unwrap().len(), 2);
    assert_eq!(open_columns("z").err().unwrap().cause(), "no column \"z\" among [\"scale\", \"weight\"]");
}

#[test]
fn an_ambiguous_image_layout_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.npy");
    fs::write(&path, npy("|u1", "(2, 3, 8, 4)", &[0; 192])).unwrap();
    assert!(cause(&path).contains("may have its channels in the first or in the last axis"), "{}", cause(&path));
}

fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.extend(elements);
    file
}

#[test]
fn float_images_with_byte_masks_need_a_choice() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("images.npy"), npy("<f4", "(2, 3, 8, 9)", &[0; 4 * 432])).unwrap();
    fs::write(root.path().join("masks.npy"), npy("|u1", "(2, 8, 9)", &[1; 144])).unwrap();
    let e = open(root.path()).err().unwrap();
    assert_eq!((e.kind(), e.path()), (warpfeed::ErrorKind::Config, Some(root.path())));
    let message = "the images may be in \"images\" (arrays of f32, shape [3, 8, 9]) or in \"masks\" (arrays of u8, \
         shape [8, 9]); image arrays have the type u8: select the column with TableOptions::image";
    assert_eq!(e.cause(), message);
    let chosen = Options::new().table(TableOptions::new().image("masks")).open(root.path()).unwrap();
    assert_eq!(chosen.read(0, &mut Vec::new()).unwrap().image().unwrap().1[128..], [1; 3 * 72]);
}

#[test]
fn label_array_names_ignore_case() {
    let root = tempfile::tempdir().unwrap();
    for (images, labels) in [("images", "Y"), ("Image", "Targets"), ("X", "LABEL")] {
        let folder = root.path().join(labels);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(format!("{images}.npy")), npy("|u1", "(2, 8, 9)", &[1; 144])).unwrap();
        fs::write(folder.join(format!("{labels}.npy")), npy("|u1", "(2,)", &[5, 6])).unwrap();
        fs::write(folder.join("other.npy"), npy("|u1", "(3,)", &[0; 3])).unwrap();
        let columns = TableOptions::new().columns([images]);
        let source = Options::new().table(columns).open(&folder).unwrap();
        assert_eq!(source.label(1, &mut Vec::new()).unwrap(), Some(6), "{labels}");
    }
}

#[test]
fn text_time_and_empty_arrays_are_refused_with_advice() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.npy");
    for (descr, shape, bytes, expected) in [
        ("<U3", "(2,)", 24, "'U' with 12 bytes; integers, booleans and floats are supported; save integers"),
        ("|S3", "(2,)", 6, "'S' with 3 bytes; integers, booleans and floats are supported; save integers"),
        (
            "<M8[ns]",
            "(2,)",
            16,
            "'M' with 8 bytes; integers, booleans and floats are supported; save times as integers",
        ),
        ("<f4", "(2, 0)", 0, "array \"x\" of shape [2, 0] has samples of zero bytes: leave it out"),
        ("<f4", "(0, 2)", 0, "the arrays contain no samples"),
    ] {
        fs::write(&path, npy(descr, shape, &vec![0; bytes])).unwrap();
        assert!(cause(&path).contains(expected), "{}", cause(&path));
    }
}

#[test]
fn opening_detects_a_changed_byte_in_an_archive() {
    let root = tempfile::tempdir().unwrap();
    for name in ["stored.npz", "tuple.pt", "dict.pth"] {
        let mut bytes = fs::read(path_of(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        for mapped in [true, false] {
            let path = root.path().join(name);
            fs::write(&path, &bytes).unwrap();
            let e = Options::new().mmap(mapped).open(&path).err().unwrap();
            assert!(e.cause().contains("is damaged: its") && e.cause().contains("a wrong checksum"), "{name}: {e}");
            assert_eq!(e.path(), Some(&*path));
        }
    }
}
