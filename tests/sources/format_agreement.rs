//! Tests that a dataset has the same samples in every format that can be written, what the writers
//! refuse and replace, and that `open` detects formats.

use std::fs;
use std::path::Path;

use warpfeed::pack::{DatasetWriter, LmdbWriter, TarWriter, WriteOptions, Written};
use warpfeed::source::{Folder, Lmdb, Memory, OwnedSample, Source, Tar, open};
use warpfeed::{ErrorKind, Result};

fn read_all(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    let read = |i| {
        let label = source.label(i, &mut scratch).unwrap();
        let sample = source.read(i, &mut scratch).unwrap();
        assert_eq!(sample.label().unwrap(), label, "the batch has the sample's label");
        OwnedSample::try_from(&sample).unwrap()
    };
    (0..source.len()).map(read).collect()
}

fn write(mut writer: Box<dyn DatasetWriter>, source: &dyn Source) -> Result<Written> {
    let mut scratch = Vec::new();
    for i in 0..source.len() {
        writer.put(&source.read(i, &mut scratch)?)?;
    }
    writer.finish()
}

fn options(source: &dyn Source) -> WriteOptions {
    WriteOptions { classes: source.classes().to_vec(), ..Default::default() }
}

fn assert_formats_agree(source: &dyn Source, folder: &Path) {
    let expected = read_all(source);
    let options = options(source);
    let bytes = expected.iter().map(|s| format!("{s:?}").len() as u64).sum::<u64>();
    let sharded = WriteOptions { shard_size: Some(bytes.min(20_000)), ..options.clone() };
    let (lmdb, tar, shards) = (folder.join("set.lmdb"), folder.join("set.tar"), folder.join("shards/set.tar"));
    write(Box::new(LmdbWriter::create(&lmdb, &options).unwrap()), source).unwrap();
    write(Box::new(TarWriter::create(&tar, &options).unwrap()), source).unwrap();
    let written = write(Box::new(TarWriter::create(&shards, &sharded).unwrap()), source).unwrap();
    assert!(written.paths.len() > 1, "{written:?}");
    for path in [lmdb, tar, folder.join("shards")] {
        let source = open(&path).unwrap();
        assert_eq!(read_all(&*source), expected, "{}", path.display());
        assert_eq!(source.classes(), options.classes, "{}", path.display());
    }
    let pattern = folder.join(format!("shards/set-{{000000..{:06}}}.tar", written.paths.len() - 1));
    assert_eq!(read_all(&*open(pattern).unwrap()), expected);
}

fn image(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + seed * 17 + i / 251) as u8).collect()
}

#[test]
fn a_folder_and_its_packed_datasets_have_the_same_samples() {
    let root = tempfile::tempdir().unwrap();
    let images = root.path().join("images");
    let names = [
        "cat/0.jpg",
        "cat/1.JPEG",
        "cat/deep/er/2.png",
        "cat/dots.in.name.webp",
        "cat/same.jpg",
        "cat/same.png",
        "cat/same.webp",
        "dög/ü ber.jpg",
        "empty class/readme.txt",
    ];
    for (i, name) in names.iter().enumerate() {
        let path = images.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, image(i, i * i * 997)).unwrap();
    }
    let folder = open(&images).unwrap();
    assert_eq!((folder.kind(), folder.len()), ("folder", 8));
    assert_formats_agree(&*folder, root.path());
    let memory = Memory::new(read_all(&*folder)).with_classes(folder.classes().to_vec());
    assert_eq!(read_all(&memory), read_all(&*folder));
    assert_eq!(memory.classes(), folder.classes());
}

#[test]
fn many_fields_and_hostile_keys_are_equal_in_every_source() {
    let long = "a long folder name/".repeat(20);
    let keys = [
        "plain",
        "plain",
        "plain~",
        "plain",
        "",
        "/",
        "../../etc/passwd",
        "a//b",
        "a/./b",
        ".hidden",
        "a/.b.c",
        "trailing/",
        "nul\0byte",
        "line\nfeed",
        "ünïcödé/日本",
        &long,
        "__meta__",
    ];
    let samples = keys.iter().enumerate().map(|(i, key)| {
        let sample =
            OwnedSample::new(*key).field("jpg", image(i, 3000)).field("seg.png", image(i, i)).field("json", *b"{}");
        match i % 3 {
            0 => sample,
            1 => sample.label(i as i64),
            _ => sample.label(i64::MIN + i as i64),
        }
    });
    let root = tempfile::tempdir().unwrap();
    assert_formats_agree(&Memory::new(samples.collect()).with_classes(["one", "zwei ü"]), root.path());
}

#[test]
fn a_full_lmdb_map_grows() {
    let root = tempfile::tempdir().unwrap();
    let samples = (0..90).map(|i| OwnedSample::new(i.to_string()).field("jpg", image(i, 1 << 20)));
    let memory = Memory::new(samples.collect());
    let path = root.path().join("large.lmdb");
    let written = write(Box::new(LmdbWriter::create(&path, &WriteOptions::default()).unwrap()), &memory).unwrap();
    assert!(written.bytes > 90 << 20 && written.samples == 90);
    assert_eq!(read_all(&Lmdb::open(path).unwrap()), read_all(&memory));
}

#[test]
fn one_database_can_be_open_several_times() {
    let root = tempfile::tempdir().unwrap();
    let memory = Memory::new((0..40).map(|i| OwnedSample::new(i.to_string()).field("jpg", image(i, 5000))).collect());
    let path = root.path().join("x.lmdb");
    write(Box::new(LmdbWriter::create(&path, &WriteOptions::default()).unwrap()), &memory).unwrap();
    let expected = read_all(&memory);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let (a, b) = (Lmdb::open(&path).unwrap(), Lmdb::open(path.join("../x.lmdb")).unwrap());
                    assert_eq!(read_all(&a), expected);
                    drop(a);
                    assert_eq!(read_all(&b), expected);
                }
            });
        }
    });
}

#[test]
fn nothing_is_overwritten_unless_forced() {
    let root = tempfile::tempdir().unwrap();
    let set =
        |n: usize| Memory::new((0..n).map(|i| OwnedSample::new(i.to_string()).field("jpg", image(n, 4000))).collect());
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let plain = WriteOptions::default();
    let sharded = WriteOptions { shard_size: Some(12_000), ..plain.clone() };
    type Create<'a> = &'a dyn Fn(&WriteOptions) -> Result<Box<dyn DatasetWriter>>;
    let (lmdb, tar, shards) = (root.path().join("a.lmdb"), root.path().join("b.tar"), root.path().join("c.tar"));
    // Shell completion appends a slash.
    let with_slash = root.path().join("a.lmdb/");
    let create_lmdb: Create = &|o| Ok(Box::new(LmdbWriter::create(&with_slash, o)?));
    let create_tar: Create = &|o| Ok(Box::new(TarWriter::create(&tar, o)?));
    let create_shards: Create = &|o| Ok(Box::new(TarWriter::create(&shards, o)?));

    let mut expected_names = Vec::new();
    for (create, options, created) in [
        (create_lmdb, &plain, vec!["a.lmdb"]),
        (create_tar, &plain, vec!["b.tar"]),
        (create_shards, &sharded, vec!["c-000000.tar", "c-000001.tar", "c-000002.tar", "c-000003.tar"]),
    ] {
        let mut dropped = create(options).unwrap();
        dropped.put(&OwnedSample::new("k").field("jpg", [1; 20_000]).as_sample().unwrap()).unwrap();
        assert!(names().len() > expected_names.len(), "the temporary file is next to the target");
        drop(dropped);
        assert_eq!(names(), expected_names, "a writer that is dropped without `finish` leaves no file");
        assert_eq!(create(options).unwrap().finish().unwrap_err().kind(), ErrorKind::Source, "no samples");
        assert_eq!(names(), expected_names, "a failed `finish` leaves no file");

        write(create(options).unwrap(), &set(8)).unwrap();
        expected_names.extend(created.iter().map(|name| (*name).to_owned()));
        assert_eq!(names(), expected_names);
        let error = create(options).err().unwrap();
        assert!(error.kind() == ErrorKind::Config && error.cause().contains("already exists"), "{error}");
        let open_before = open(root.path().join(created[0])).unwrap();
        let before = read_all(&*open_before);
        write(create(&WriteOptions { force: true, ..options.clone() }).unwrap(), &set(3)).unwrap();
        assert_eq!(read_all(&*open_before), before, "an open loader still reads the old dataset");
        expected_names.truncate(expected_names.len() - created.len().saturating_sub(2));
        assert_eq!(names(), expected_names, "the shards of the longer dataset are removed");
    }
    assert_eq!(read_all(&*open(&lmdb).unwrap()), read_all(&set(3)));
    assert_eq!(read_all(&*open(&tar).unwrap()), read_all(&set(3)));
    assert_eq!(read_all(&*open(root.path().join("c-{000000..000001}.tar")).unwrap()), read_all(&set(3)));

    fs::create_dir(root.path().join("precious")).unwrap();
    let force = WriteOptions { force: true, ..plain };
    assert!(
        LmdbWriter::create(root.path().join("precious"), &force)
            .err()
            .unwrap()
            .cause()
            .contains("force does not replace")
    );
    assert!(TarWriter::create(root.path().join("precious"), &force).err().unwrap().cause().contains("is not a file"));
}

#[test]
fn packing_the_same_samples_gives_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let memory =
        Memory::new((0..9).map(|i| OwnedSample::new(format!("k.{i}")).field("jpg", image(i, 999)).label(1)).collect());
    let bytes = |name: &str| {
        let path = root.path().join(name);
        write(Box::new(TarWriter::create(&path, &WriteOptions::default()).unwrap()), &memory).unwrap();
        fs::read(path).unwrap()
    };
    assert_eq!(bytes("a.tar"), bytes("b.tar"));
}

#[test]
fn samples_that_a_format_cannot_store_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let options = WriteOptions::default();
    let mut tar = TarWriter::create(root.path().join("x.tar"), &options).unwrap();
    let mut lmdb = LmdbWriter::create(root.path().join("x.lmdb"), &options).unwrap();
    for name in ["", "JPG", "a/b"] {
        assert!(tar.put(&OwnedSample::new("k").field(name, *b"").as_sample().unwrap()).is_err(), "{name}");
    }
    assert!(tar.put(&OwnedSample::new("k").as_sample().unwrap()).is_err());
    assert!(lmdb.put(&OwnedSample::new("k").field("__key__", *b"").as_sample().unwrap()).is_err());
    for writer in [&mut tar as &mut dyn DatasetWriter, &mut lmdb] {
        assert!(writer.put(&OwnedSample::new("k").field("cls", *b"cat").as_sample().unwrap()).is_err());
    }
}

#[test]
fn open_detects_the_format_by_content() {
    let root = tempfile::tempdir().unwrap();
    let path_of = |name: &str| root.path().join(name);
    let memory = Memory::new(vec![OwnedSample::new("a/1").field("png", *b"x").label(0)]);
    write(Box::new(LmdbWriter::create(path_of("folder"), &WriteOptions::default()).unwrap()), &memory).unwrap();
    write(Box::new(TarWriter::create(path_of("shards/a.tar"), &WriteOptions::default()).unwrap()), &memory).unwrap();
    fs::copy(path_of("folder/data.mdb"), path_of("a file")).unwrap();
    fs::copy(path_of("shards/a.tar"), path_of("another file")).unwrap();
    fs::create_dir_all(path_of("images/a")).unwrap();
    fs::write(path_of("images/a/1.png"), "x").unwrap();
    for (path, kind) in [
        ("folder", "lmdb"),
        ("a file", "lmdb"),
        ("shards", "tar"),
        ("another file", "tar"),
        ("images", "folder"),
        ("shards/{a,a}.tar", "tar"),
    ] {
        let source = open(path_of(path)).unwrap();
        assert_eq!(source.kind(), kind, "{path}");
        assert_eq!(read_all(&*source)[0], read_all(&memory)[0], "{path}");
    }
    let cause = |path: &str| open(path_of(path)).err().unwrap().cause().to_owned();
    fs::copy(path_of("shards/a.tar"), path_of("images/b.tar")).unwrap();
    assert!(cause("images").contains("1 .tar file and 1 image"), "{}", cause("images"));
    assert_eq!((Folder::open(path_of("images")).unwrap().len(), Tar::open(path_of("images")).unwrap().len()), (1, 1));
    fs::write(path_of("text"), "hello").unwrap();
    assert!(cause("text").contains("not a dataset in a known format: lmdb ("), "{}", cause("text"));
    assert!(cause("text").contains("the file begins with the text \"hello\""), "{}", cause("text"));
    fs::write(path_of("binary"), [0, 1, 0xfe]).unwrap();
    assert!(cause("binary").contains("the file begins with [00, 01, fe]"), "{}", cause("binary"));
    fs::write(path_of("one.jpg"), b"\xff\xd8\xff\xe0and more").unwrap();
    assert!(cause("one.jpg").contains("a single image (jpg); open its folder instead"), "{}", cause("one.jpg"));
    fs::write(path_of("empty"), b"").unwrap();
    assert!(cause("empty").contains("the file is empty"), "{}", cause("empty"));
    fs::create_dir(path_of("others")).unwrap();
    for name in ["a.jxl", "b.HEIC", "c.jxl", "README"] {
        fs::write(path_of("others").join(name), b"x").unwrap();
    }
    assert!(cause("others").contains("found 4 other files (.heic, .jxl), 0 subfolders"), "{}", cause("others"));
    fs::create_dir(path_of("nothing")).unwrap();
    assert!(
        cause("nothing").contains("the folder is empty") && cause("nothing").contains("no data.mdb"),
        "{}",
        cause("nothing")
    );
    assert_eq!(open(path_of("absent")).err().unwrap().kind(), ErrorKind::Io);
    let relative = open("absent/set").err().unwrap();
    assert_eq!(
        relative.path(),
        Some(&*std::env::current_dir().unwrap().join("absent/set")),
        "relative to the current directory"
    );
    let pattern = open("hub/train-{0..1}.parquet").err().unwrap();
    let expected = "these files have the format parquet: open their folder, or a split in it";
    assert!(pattern.kind() == ErrorKind::Config && pattern.cause().contains(expected), "{pattern}");
    let slash = open("s3:/bucket/train").err().unwrap();
    let expected = "no such path; a URL begins with two slashes: s3://bucket/train";
    assert_eq!((slash.kind(), slash.cause()), (ErrorKind::Config, expected));
    let empty = open("").err().unwrap();
    assert!(empty.kind() == ErrorKind::Config && empty.cause() == "the path of the dataset is empty", "{empty}");
    assert_eq!(open(path_of("absent-{0..3}.tar")).err().unwrap().path(), Some(&*path_of("absent-0.tar")));
}

#[test]
fn a_loader_accepts_a_shared_source() {
    let root = tempfile::tempdir().unwrap();
    for class in ["cat", "dog"] {
        fs::create_dir(root.path().join(class)).unwrap();
        image::RgbImage::new(8, 8).save(root.path().join(class).join("x.png")).unwrap();
    }
    let shared = open(root.path()).unwrap();
    let other: &dyn Source = &shared.clone();
    assert_eq!((other.len(), other.is_empty(), other.kind(), other.dataset_index(1)), (2, false, "folder", 0));
    assert_eq!((other.classes(), other.path(1)), (shared.classes(), Some(root.path().join("dog/x.png"))));
    assert_eq!(other.label(1, &mut Vec::new()).unwrap(), Some(1));
    assert!(other.check().is_ok());
    let loader = warpfeed::Loader::source(shared).augment(warpfeed::Augment::pass_through(8, 8)).batch_size(2);
    let mut batches = loader.host().unwrap();
    assert_eq!(batches.classes(), ["cat", "dog"]);
    assert_eq!(batches.epoch(0).next().unwrap().unwrap().labels().unwrap(), [0, 1]);
}
