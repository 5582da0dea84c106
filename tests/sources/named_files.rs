//! Tests that pipes and devices in a dataset are not read, because they could block a worker or
//! exhaust memory. Paths in automatically detected columns must stay inside the table's folder.
//! Malformed tables and YAML files must be rejected. Warnings must count the files that were left
//! out.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::annotated::{expect_error, write_files};
use crate::changed_files::tar;
use crate::support::exit_on_hang;
use crate::warnings::Warnings;
use warpfeed::source::{Classes, Coco, Folder, Lmdb, Options, Source, TableOptions, Tar, Voc, Yolo, open};
use warpfeed::{Augment, Error, Loader};

fn first(source: &dyn Source) -> Error {
    expect_error(source.read(0, &mut Vec::new()))
}

/// Creates a pipe. Opening it for reading blocks until it has a writer.
fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Creates a link to a device without an end.
#[cfg(unix)]
fn device(path: &Path) {
    let _ = fs::remove_file(path);
    std::os::unix::fs::symlink("/dev/zero", path).unwrap();
}

#[cfg(unix)]
#[test]
fn a_pipe_in_a_dataset_is_rejected() {
    exit_on_hang(|| {
        let is_refused = |e: Error| {
            assert!(e.to_string().contains("a pipe, a socket or a device, not a regular file"), "{e}");
            assert!(!e.is_transient(), "a retry would not help");
        };
        let root = write_files(&[
            ("table.csv", "path,mask\na.png,b.png\n"),
            ("lines.jsonl", "{\"path\": \"pipe.png\"}\n"),
            ("a.png", ""),
            ("b.png", ""),
            ("coco.json", r#"{"images": [{"id": 1, "file_name": "pipe.png", "width": 20, "height": 10}]}"#),
            ("data.yaml", "train: list.txt\nnames: [a]\n"),
            ("list.txt", "pipe.png\n"),
            ("pipe.txt", ""),
            ("voc/JPEGImages/a.png", ""),
            ("voc/Annotations/a.xml", "<annotation/>"),
            ("voc/SegmentationClass/a.png", ""),
        ]);
        let path_of = |name: &str| root.path().join(name);
        let table = open(path_of("table.csv")).unwrap();
        pipe(&path_of("b.png"));
        is_refused(first(&*table));
        pipe(&path_of("pipe.png"));
        is_refused(first(&*open(path_of("lines.jsonl")).unwrap()));
        is_refused(first(&Coco::with_images(path_of("coco.json"), root.path()).unwrap()));
        is_refused(first(&Yolo::open(path_of("data.yaml")).unwrap()));
        let folder = Folder::open(root.path().join("voc/JPEGImages")).unwrap();
        let voc = Voc::open(path_of("voc")).unwrap();
        pipe(&path_of("voc/SegmentationClass/a.png"));
        is_refused(first(&voc));
        pipe(&path_of("voc/JPEGImages/a.png"));
        is_refused(first(&folder));
        fs::remove_file(path_of("pipe.txt")).unwrap();
        pipe(&path_of("pipe.txt"));
        fs::rename(path_of("b.png"), path_of("pipe2.png")).unwrap();
        image::RgbImage::new(20, 10).save(path_of("b.png")).unwrap();
        fs::write(path_of("list.txt"), "b.png\n").unwrap();
        pipe(&path_of("b.txt"));
        is_refused(first(&Yolo::open(path_of("data.yaml")).unwrap()));
        is_refused(expect_error(Classes::read(path_of("pipe.txt"))));
        pipe(&path_of("voc/Annotations/a.xml"));
        image::RgbImage::new(20, 10).save(path_of("voc/JPEGImages/b.png")).unwrap();
        fs::remove_file(path_of("voc/JPEGImages/a.png")).unwrap();
        image::RgbImage::new(20, 10).save(path_of("voc/JPEGImages/a.png")).unwrap();
        is_refused(first(&Voc::open(path_of("voc")).unwrap()));
        pipe(&path_of("list.txt"));
        is_refused(expect_error(Yolo::open(path_of("data.yaml"))));
        for name in ["t.csv", "t.json", "t.yaml"] {
            pipe(&path_of(name));
            is_refused(expect_error(open(path_of(name))));
        }
        fs::create_dir_all(path_of("shards")).unwrap();
        tar(&path_of("shards/a.tar"), 1);
        for other in [pipe, device] {
            other(&path_of("shards/b.tar"));
            is_refused(expect_error(Tar::open(path_of("shards"))));
            is_refused(expect_error(Tar::open_unmapped(path_of("shards/b.tar"))));
            fs::create_dir_all(path_of("lmdb")).unwrap();
            other(&path_of("lmdb/data.mdb"));
            is_refused(expect_error(Lmdb::open(path_of("lmdb"))));
            is_refused(expect_error(open(path_of("lmdb"))));
            // Indexes contain only redundant data, so an unreadable one is ignored.
            other(&path_of("shards/a.tar.index"));
            assert_eq!(Tar::open(path_of("shards/a.tar")).unwrap().len(), 4);
            other(&path_of("voc/JPEGImages.warpfeed-index"));
            assert_eq!(Options::new().cache_listing(true).open(path_of("voc/JPEGImages")).unwrap().len(), 2);
        }
    });
}

#[cfg(unix)]
#[test]
fn an_endless_device_is_rejected() {
    let root =
        write_files(&[("t.csv", "path\n/dev/zero\n"), ("list.txt", "/dev/zero\n"), ("data.yaml", "train: list.txt\n")]);
    let table = TableOptions::new().image("path").open(root.path().join("t.csv")).unwrap();
    assert!(first(&table).to_string().contains("a device, not a regular file"));
    let e = expect_error(Yolo::open(root.path().join("data.yaml")));
    assert!(e.cause().contains("no label files were found for 1 image"), "{e}");
}

#[test]
fn detected_path_columns_stay_inside_the_folder() {
    let elsewhere = write_files(&[("secret.png", "")]);
    let absolute = elsewhere.path().join("secret.png").display().to_string();
    let root = write_files(&[("in/a.png", ""), ("outside.png", "")]);
    let table = |text: &str| {
        fs::write(root.path().join("in/t.csv"), text).unwrap();
        root.path().join("in/t.csv")
    };
    for path in ["../outside.png", &absolute] {
        // The image column is detected by its default name.
        let file = table(&format!("path,x\na.png,1\n{path},2\n"));
        let source = open(&file).unwrap();
        assert!(source.read(0, &mut Vec::new()).is_ok());
        let e = expect_error(source.read(1, &mut Vec::new()));
        assert!(e.cause().contains("line 3") && e.cause().contains("TableOptions::image(\"path\")"), "{e}");
        let named = TableOptions::new().image("path").open(&file).unwrap();
        assert!(named.read(1, &mut Vec::new()).unwrap().field("png").is_some());
        // A column contains files if one of its first values is a file in the folder, and text
        // otherwise.
        let file = table(&format!("path,mask\na.png,a.png\na.png,{path}\n"));
        let e = expect_error(open(&file).unwrap().read(1, &mut Vec::new()));
        assert!(e.cause().contains("TableOptions::file(\"mask\")"), "{e}");
        let named = TableOptions::new().file("mask").open(&file).unwrap();
        assert!(named.read(1, &mut Vec::new()).unwrap().field("mask.png").is_some());
        let file = table(&format!("path,mask\na.png,{path}\n"));
        let source = open(&file).unwrap();
        let mut scratch = Vec::new();
        let sample = source.read(0, &mut scratch).unwrap();
        assert_eq!(sample.field("mask.txt").as_deref(), Some(path.as_bytes()));
    }
}

#[test]
fn an_error_suggests_the_column_that_holds_images() {
    let root = write_files(&[("a.png", ""), ("t.csv", "photo\na.png\n"), ("img.csv", "img\na.png\n")]);
    let load = |name: &str| {
        let loader = Loader::new(root.path().join(name)).augment(Augment::pass_through(20, 10)).drop_field("label");
        loader.into_iter().next().unwrap()
    };
    let e = expect_error(load("t.csv"));
    assert!(
        e.cause().contains("TableOptions::image(\"photo\") for a table, or Image::from_field(\"photo.png\")"),
        "{e}"
    );
    assert_eq!(load("img.csv").unwrap().len(), 1);
}

#[test]
fn an_unclosed_quote_fails_with_its_line() {
    for (text, line) in [
        ("x,y\n1,2\n3,\"4\n5,6\n", 3),
        ("x,y\n1,2\n\"a\",\"b\n5,6\n7,8", 3),
        ("x,y\n1,2\n\"a \"\" b\n c\",\"d \"\" e", 4),
        ("x,\"y\n1,2\n", 1),
        ("x,y\r\n\r\n1,a\"b\r\n\"", 4),
    ] {
        let root = write_files(&[("t.csv", text)]);
        let e = expect_error(open(root.path().join("t.csv")));
        let words = format!("line {line}: a quoted cell is never closed");
        assert!(e.cause().contains(&words) && e.path() == Some(&*root.path().join("t.csv")), "{text:?}: {e}");
    }
}

#[test]
fn a_quote_that_swallows_rows_fails_with_its_line() {
    for (text, line, ends) in [
        ("path,x\na.bmp,\"open\nb.bmp,ok\nc.bmp,ok\nd.bmp,\"closed\"\ne.bmp,x\n", 2, 5),
        ("path,x\r\na.bmp,ok\r\nb.bmp,\"open\r\n\r\nc.bmp,\"closed\"", 3, 5),
        ("path,x\na,b\nc,\"\\\"d\\\"\"\n", 3, 3),
        ("path,x\n\"a\" ,b\n", 2, 2),
        ("path,x\n\"\"a,b\n", 2, 2),
        ("\"path\"s,x\na,b\n", 1, 1),
        ("\"path,x\na,\"b\"\n", 1, 2),
    ] {
        let root = write_files(&[("t.csv", text)]);
        let e = expect_error(open(root.path().join("t.csv")));
        let words = format!("line {line}: a quoted cell starts here and ends on line {ends}, but ");
        assert!(e.cause().contains(&words) && e.path() == Some(&*root.path().join("t.csv")), "{text:?}: {e}");
    }
}

#[test]
fn rows_with_quotes_are_parsed_as_in_python() {
    for (cells, expected) in [
        ("a,\"b\nc\"\nd,e\n", &["b\nc", "e"][..]),
        ("a,b\"c\nd,e\"f\n", &["b\"c", "e\"f"]),
        ("a,5\"\nb,6\"\n", &["5\"", "6\""]),
        ("a,\"b\"\"c\"\n", &["b\"c"]),
        ("a,\"\"\"b\"\"\"\n", &["\"b\""]),
        ("a,\"\"\"\"\nb,c", &["\"", "c"]),
        ("a,\"\"\"\nb,\"\n", &["\"\nb,"]),
        ("a,\"b\r\nc\"\r\nd,e\r\n", &["b\r\nc", "e"]),
        ("a,\"b\"", &["b"]),
        ("a\"b\"c,\"d\"\r", &["d"]),
        ("a, \"x\"\n", &[" \"x\""]),
    ] {
        let root = write_files(&[("t.csv", &format!("y,x\n{cells}"))]);
        let table = open(root.path().join("t.csv")).unwrap();
        let mut scratch = Vec::new();
        let actual = (0..table.len()).map(|row| {
            let sample = table.read(row, &mut scratch).unwrap();
            String::from_utf8(sample.field("x.txt").unwrap().to_vec()).unwrap()
        });
        assert_eq!(actual.collect::<Vec<_>>(), expected, "{cells:?}");
    }
}

#[test]
fn an_excessive_number_of_columns_is_refused_when_opening() {
    exit_on_hang(|| {
        let keys: String = (0..200_000).map(|number| format!("{{\"k{number}\": 1}}\n")).collect();
        let root = write_files(&[("t.jsonl", &keys), ("t.csv", &"a,".repeat(2_000_000))]);
        let e = expect_error(open(root.path().join("t.jsonl")));
        assert!(e.cause().contains("line 4097: the table has at least 4097 different columns or keys"), "{e}");
        let e = expect_error(open(root.path().join("t.csv")));
        assert!(e.cause().contains("line 1: the table has at least 2000001 different columns or keys"), "{e}");
    });
}

#[test]
fn deeply_nested_values_in_a_data_yaml_are_rejected() {
    for deep in ["- ".repeat(400_000), format!("names: {}", "[".repeat(100_000)), "? ".repeat(100_000)] {
        let root = write_files(&[("data.yaml", &deep)]);
        let e = expect_error(open(root.path().join("data.yaml")));
        assert!(e.cause().contains("more than 64 deep") || e.cause().contains("not YAML"), "{e}");
    }
}

#[test]
fn files_of_other_formats_in_a_folder_are_counted() {
    let root = write_files(&[("a/x.png", ""), ("a/y.ppm", "P6"), ("b/z.pgm", "P5"), ("b/x.png", ""), (".hidden", "x")]);
    let warnings = Warnings::default();
    let folder = tracing::subscriber::with_default(warnings.clone(), || Folder::open(root.path()).unwrap());
    assert_eq!(folder.len(), 2);
    let warnings = warnings.0.lock().unwrap().concat();
    assert!(warnings.contains("ignored 2 other files (.pgm, .ppm)"), "{warnings}");
}

#[test]
fn hidden_images_and_folders_are_left_out_with_a_warning() {
    // `._x.png` contains macOS metadata and is not an image.
    let files =
        [("a/x.png", ""), ("a/.y.png", ""), ("a/._x.png", ""), (".git/z.png", ""), (".note", "x"), ("a/b.csv", "x")];
    let (root, warnings) = (write_files(&files), Warnings::default());
    let folder = tracing::subscriber::with_default(warnings.clone(), || Folder::open(root.path()).unwrap());
    assert_eq!((folder.len(), folder.classes()), (1, &["a".to_owned()][..]));
    let warnings = warnings.0.lock().unwrap().join("\n");
    assert!(warnings.contains("ignored 2 hidden images and folders, such as "), "{warnings}");
    assert!(warnings.contains(".git") && warnings.contains("ignored 1 other file (.csv)"), "{warnings}");
}
