//! Tests that warpfeed reads shards written by Python's `tarfile` and GNU tar, and vice versa.
//!
//! `tests/fixtures/make.py` wrote the shards of Python. Other tests run GNU tar and Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpfeed::pack::{DatasetWriter, TarWriter, WriteOptions};
use warpfeed::source::{OwnedSample, Source, Tar};

fn jpeg(i: usize) -> Vec<u8> {
    let mut bytes = b"\xff\xd8\xff".to_vec();
    bytes.resize(bytes.len() + i * 700 + 1, i as u8);
    bytes
}

fn read_all(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| OwnedSample::try_from(&source.read(i, &mut scratch).unwrap()).unwrap()).collect()
}

fn long_key() -> String {
    format!("ä{}/picture", ["a folder with a rather long name"; 8].join("/"))
}

fn runs(program: &str, args: &[&str]) -> Option<()> {
    let is_installed = Command::new(program).args(args).output().is_ok_and(|output| output.status.success());
    if !is_installed {
        crate::require::missing(program, format_args!("{program} {args:?} does not run"));
    }
    is_installed.then_some(())
}

#[test]
fn every_tar_format_of_python_is_read() {
    for format in ["gnu", "pax", "ustar"] {
        let source =
            Tar::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{format}.tar"))).unwrap();
        let mut expected = vec![
            OwnedSample::new("c0/1").field("jpg", jpeg(1)).label(0),
            OwnedSample::new("c1/2").field("jpg", jpeg(2)).field("seg.png", *b"png").label(1),
        ];
        if format != "ustar" {
            expected.push(OwnedSample::new(long_key()).field("jpg", jpeg(3)));
        }
        expected.push(OwnedSample::new(format!("{}/{}", "p".repeat(155), "n".repeat(96))).field("png", *b"png 4"));
        expected.extend(["c0/link", "c0/hard"].map(|key| OwnedSample::new(key).field("jpg", jpeg(1))));
        assert_eq!(read_all(&source), expected, "{format}");
        assert_eq!(source.classes(), ["zero", "eins"]);
    }
}

#[test]
fn every_tar_format_of_gnu_tar_is_read() {
    let Some(()) = runs("tar", &["--version"]) else { return };
    let root = tempfile::tempdir().unwrap();
    let long = format!("{}/image", ["a folder with a rather long name"; 8].join("/"));
    for key in ["c0/1", "c1/2", &*long] {
        let path = root.path().join("data").join(format!("{key}.jpg"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, key.repeat(300)).unwrap();
    }
    for format in ["gnu", "oldgnu", "pax", "posix"] {
        let path = root.path().join(format!("{format}.tar"));
        let mut command = Command::new("tar");
        command.arg(format!("--format={format}")).arg("--sort=name").arg("-cf").arg(&path);
        assert!(command.arg("-C").arg(root.path().join("data")).arg(".").status().unwrap().success(), "{format}");
        let expected: Vec<_> =
            [&*long, "c0/1", "c1/2"].iter().map(|key| OwnedSample::new(*key).field("jpg", key.repeat(300))).collect();
        assert_eq!(read_all(&Tar::open(path).unwrap()), expected, "{format}");
    }
}

fn written(folder: &Path) -> PathBuf {
    let path = folder.join("x.tar");
    let options = WriteOptions { classes: vec!["null".into(), "eins".into()], ..Default::default() };
    let mut writer = Box::new(TarWriter::create(&path, &options).unwrap());
    for key in ["c0/1", "c0/1", "c0/dots.in.it", &long_key(), &format!("{}/{}", "p".repeat(155), "n".repeat(95))] {
        writer.put(&OwnedSample::new(key).field("jpg", jpeg(3)).label(1).as_sample().unwrap()).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn names() -> Vec<String> {
    let stems = [
        "c0/1".into(),
        "c0/1~".into(),
        "c0/dots_in_it".into(),
        long_key(),
        format!("{}/{}", "p".repeat(155), "n".repeat(95)),
    ];
    stems.iter().flat_map(|stem: &String| [format!("{stem}.jpg"), format!("{stem}.cls")]).collect()
}

#[test]
fn gnu_tar_reads_what_the_writer_wrote() {
    let Some(()) = runs("tar", &["--version"]) else { return };
    let root = tempfile::tempdir().unwrap();
    let path = written(root.path());
    let out = root.path().join("out");
    fs::create_dir(&out).unwrap();
    let output = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in names() {
        let content = if name.ends_with("jpg") { jpeg(3) } else { b"1".to_vec() };
        assert_eq!(fs::read(out.join(&name)).unwrap(), content, "{name}");
    }
}

#[test]
fn python_reads_what_the_writer_wrote() {
    let Some(()) = runs("python3", &["-c", "import tarfile"]) else { return };
    let root = tempfile::tempdir().unwrap();
    let script = "import sys, tarfile
with tarfile.open(sys.argv[1]) as tar:
    for member in tar:
        assert member.isreg() and member.mtime == 0 and member.mode == 0o644
        sys.stdout.buffer.write(member.name.encode() + b' %d\\n' % len(tar.extractfile(member).read()))
";
    let output = Command::new("python3").args(["-c", script]).arg(written(root.path())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected =
        names().into_iter().map(|name| format!("{name} {}\n", if name.ends_with("jpg") { jpeg(3).len() } else { 1 }));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("__classes__ 15\n{}", expected.collect::<String>()));
}
