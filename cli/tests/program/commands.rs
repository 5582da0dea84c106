//! Runs the real binary in a temporary folder, and checks its output and exit codes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{fails, json, ok, text, warpfeed};

fn tree() -> TempDir {
    let dir = TempDir::new().unwrap();
    ok(dir.path(), &["synth", "--out", "set", "--images", "12", "--classes", "3", "--side", "64"]);
    dir
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

const COMMANDS: [&str; 10] =
    ["synth", "inspect", "verify", "preview", "pack", "bench", "report", "doctor", "occupancy", "cache"];

#[test]
fn a_folder_of_two_formats_opens_in_the_chosen_format() {
    let dir = tree();
    ok(dir.path(), &["pack", "set", "set/all.tar", "--keep-bytes"]);
    let refused = fails(dir.path(), 1, &["inspect", "set"]);
    assert!(refused.contains("choose with --format tar or --format folder, or move them apart"), "{refused}");
    for format in ["tar", "folder"] {
        let report = json(&text(&warpfeed(dir.path(), &["inspect", "set", "--json", "--format", format]).stdout));
        assert_eq!((report["source"].as_str(), report["samples"].as_u64()), (Some(format), Some(12)));
    }
    let unknown = fails(dir.path(), 2, &["inspect", "set", "--format", "unknown"]);
    let formats: Vec<_> = warpfeed::source::DATA_FORMATS.iter().map(|format| format.name).collect();
    assert!(unknown.contains(&format!("[possible values: {}]", formats.join(", "))), "{unknown}");
}

#[test]
fn every_help_text_has_examples() {
    let dir = TempDir::new().unwrap();
    let help = ok(dir.path(), &["--help"]);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    for input in ["one folder per class", "LMDB", "tar shard", "COCO", "YOLO", "Pascal VOC", "table: .csv"] {
        assert!(help.contains(input), "no {input} in {help}");
    }
    let examples = help.split_once("Examples:\n").unwrap().1;
    assert!(examples.lines().all(|line| line.len() < 80), "{help}");
    for command in COMMANDS {
        assert!(help.contains(&format!("  {command} ")), "{help}");
        let help = ok(dir.path(), &[command, "--help"]);
        assert!(help.contains("Examples:\n") && help.contains(&format!("warpfeed {command} ")), "{help}");
        // Users must be able to paste the examples. A wrapped line would break, and trailing words
        // would become arguments.
        let (_, examples) = help.split_once("Examples:\n").unwrap();
        for line in examples.lines().take_while(|line| !line.is_empty()) {
            assert!(line.len() < 80 && line.starts_with("  "), "{line:?} of {command}");
            let pasted = line.trim_start();
            assert!(pasted.starts_with("warpfeed ") || pasted.starts_with('#'), "{line:?} of {command}");
            assert!(!line.split('#').next().unwrap().trim().contains("   "), "{line:?} of {command}");
        }
    }
    assert_eq!(ok(dir.path(), &["--version"]), format!("warpfeed {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn cache_commands_report_blocks_and_refuse_other_folders() {
    use warpfeed::source::{BatchIndex, Lookahead, Object, Store};
    struct Zeros;
    impl Store for Zeros {
        fn list(&self, prefix: &str) -> warpfeed::Result<Vec<Object>> {
            Ok(vec![self.object(&format!("{prefix}x.jpg"))?])
        }
        fn object(&self, url: &str) -> warpfeed::Result<Object> {
            Ok(Object { url: url.to_owned(), len: 1 << 30, tag: Some("1".to_owned()), server: None })
        }
        fn read(&self, _: &Object, _: u64, out: &mut [u8]) -> warpfeed::Result<()> {
            out.fill(0);
            Ok(())
        }
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("cache");
    let store = warpfeed_stores::Cache::open(&path, 1 << 20).unwrap().store(std::sync::Arc::new(Zeros));
    let keep = store.object_cache(1, &Lookahead::new(0, |_| 1, |_| Some(vec![0]))).unwrap();
    for url in ["s3://b/one/x.tar", "s3://b/one/y.tar", "s3://b/two/x.tar"] {
        keep.offer(&store.object(url).unwrap(), 0, &[1; 5000], 0, BatchIndex::default());
    }
    let shown = "cache: 3 blocks, 24.6 kB\n  s3://b/one: 2 blocks, 16.4 kB\n  s3://b/two: 1 block, 8.2 kB\n";
    assert_eq!(ok(dir.path(), &["cache", "show", "cache"]), shown);
    assert_eq!(
        ok(dir.path(), &["cache", "check", "cache"]),
        "cache: 3 valid blocks, 0 damaged blocks, listings and files deleted\n"
    );
    let part = fs::read_dir(path.join("blocks")).unwrap().next().unwrap().unwrap().path();
    let block = fs::read_dir(part).unwrap().next().unwrap().unwrap().path();
    fs::write(block, "damaged").unwrap();
    let checked = warpfeed(dir.path(), &["cache", "check", "cache"]);
    let outcome = (checked.status.code(), text(&checked.stdout));
    assert_eq!(outcome, (Some(1), "cache: 2 valid blocks, 1 damaged blocks, listings and files deleted\n".to_owned()));
    store.list("s3://b/three/").unwrap();
    assert!(ok(dir.path(), &["cache", "show", "cache"]).contains("s3://b/three/: a listing of 1 object, "));
    for (url, shown) in [("s3://b/one", "cache: deleted 0 listings\n"), ("s3://b/", "cache: deleted 1 listing\n")] {
        assert_eq!(ok(dir.path(), &["cache", "refresh", "cache", "--url", url]), shown);
    }
    assert_eq!(
        ok(dir.path(), &["cache", "empty", "cache"]),
        "cache: deleted 2 blocks, 0 listings and 0 whole files, 16.4 kB\n"
    );
    assert_eq!(ok(dir.path(), &["cache", "show", "cache"]), "cache: 0 blocks, 0 B\n");
    fs::create_dir(dir.path().join("photos")).unwrap();
    fs::write(dir.path().join("photos/x.jpg"), "x").unwrap();
    for action in ["show", "check", "refresh", "empty"] {
        let refused = fails(dir.path(), 1, &["cache", action, "photos"]);
        assert!(refused.contains("a cache needs its own folder, but this one contains \"x.jpg\""), "{refused}");
    }
    assert!(dir.path().join("photos/x.jpg").exists());
}

#[test]
fn an_invalid_command_line_exits_with_code_2() {
    let dir = TempDir::new().unwrap();
    for args in [
        &[][..],
        &["fly"],
        &["inspect"],
        &["bench", "set", "--dtype", "f64"],
        &["bench", "set", "--seconds", "-1"],
        &["synth", "--out", "set", "--images", "many"],
        &["preview", "set", "--out", "grid.png", "--images", "0"],
        &["pack", "--from", "set"],
        &["pack", "set"],
        &["pack", "set", "out.tar", "--to", "out.lmdb"],
        &["pack", "set", "out.tar", "--strict", "--keep-undecodable"],
        &["pack", "--from", "set", "--to", "out.tar", "--shard-size", "1 elephant"],
        &["pack", "--from", "set", "--to", "out.lmdb", "--keep-bytes", "--quality", "80"],
        &["pack", "--from", "set", "--to", "out.lmdb", "--raw", "0x9"],
        &["occupancy", "--regs", "40", "--cc", "nine"],
    ] {
        let err = fails(dir.path(), 2, args);
        assert!(err.contains("--help") || err.contains("Usage: warpfeed"), "{args:?}: {err}");
    }
}

#[test]
fn a_missing_or_empty_dataset_is_named() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    for command in ["inspect", "verify", "bench", "doctor"] {
        let err = fails(dir.path(), 1, &[command, "nowhere"]);
        // A relative path does not reveal where the tool looked.
        let nowhere = format!("warpfeed: {}: io: ", dir.path().join("nowhere").display());
        assert!(err.starts_with(&nowhere), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        let err = fails(dir.path(), 1, &[command, "empty"]);
        assert!(err.starts_with("warpfeed: empty: source: "), "{err}");
    }
    let err = fails(dir.path(), 1, &["preview", "empty", "--out", "grid.png"]);
    assert!(err.starts_with("warpfeed: empty: source: "), "{err}");
    assert!(!dir.path().join("grid.png").exists());
}

#[test]
fn synth_gives_the_same_bytes_for_the_same_options() {
    let dir = tree();
    ok(dir.path(), &["synth", "--out", "again", "--images", "12", "--classes", "3", "--side", "64", "--seed", "0"]);
    ok(dir.path(), &["synth", "--out", "other", "--images", "12", "--classes", "3", "--side", "64", "--seed", "1"]);
    let set = files(&dir.path().join("set"));
    assert_eq!(set.len(), 12);
    assert!(set == files(&dir.path().join("again")), "the same options must produce the same files");
    assert!(set != files(&dir.path().join("other")), "a different seed must produce different files");
}

#[test]
fn synth_draws_the_set_in_the_repository() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mini");
    let dir = TempDir::new().unwrap();
    ok(dir.path(), &["synth", "--seed", "0", "--images", "64", "--classes", "4", "--out", "mini"]);
    assert!(files(&shipped) == files(&dir.path().join("mini")));
}

#[test]
fn synth_rejects_a_nonempty_folder() {
    let dir = tree();
    let before = files(dir.path());
    let err = fails(dir.path(), 1, &["synth", "--out", "set", "--images", "3", "--classes", "3"]);
    assert!(err.starts_with("warpfeed: set: "), "{err}");
    assert!(before == files(dir.path()), "a file was changed");
    let err = fails(dir.path(), 1, &["synth", "--out", "new", "--images", "1", "--classes", "3"]);
    assert_eq!(err, "warpfeed: config: synth: 1 images for 3 classes; each class needs at least one image\n");
    assert!(!dir.path().join("new").exists());
}

#[test]
fn inspect_prints_counts() {
    let dir = tree();
    let shown = ok(dir.path(), &["inspect", "set"]);
    for part in ["set (folder)\n", "samples      12, ", "classes      3, each with 4 samples\n", "shorter side, from\n"]
    {
        assert!(shown.contains(part), "{part:?} in\n{shown}");
    }
    let report = json(&ok(dir.path(), &["inspect", "set", "--json"]));
    assert_eq!(report["source"], "folder");
    assert_eq!(report["samples"], 12);
    assert_eq!(report["labels"], serde_json::json!({"0": 4, "1": 4, "2": 4}));
    assert_eq!(report["classes"][0], "dotted-triangle");
    let bytes: usize = files(&dir.path().join("set")).values().map(Vec::len).sum();
    assert_eq!(report["bytes"]["sum"], bytes);
    assert_eq!(report["unreadable"], 0);
}

#[test]
fn inspect_says_how_many_samples_each_class_has() {
    let dir = tree();
    let each = |images: &str, classes: &str| {
        ok(dir.path(), &["synth", "--out", images, "--images", images, "--classes", classes]);
        ok(dir.path(), &["inspect", images])
    };
    for (images, classes, line) in [
        ("2", "2", "classes      2, each with 1 sample\n"),
        ("3", "2", "classes      2, each with 1 to 2 samples\n"),
        ("6", "3", "classes      3, each with 2 samples\n"),
    ] {
        let shown = each(images, classes);
        assert!(shown.contains(line), "{line:?} in\n{shown}");
    }
}

/// Adds a text file with the `.jpg` extension and a truncated JPEG. Returns their keys.
fn spoil(set: &Path) -> [&'static str; 2] {
    fs::write(set.join("dotted-triangle/text.jpg"), "I am no image").unwrap();
    let original = files(set).into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "jpg")).unwrap();
    fs::write(set.join("plain-disc/cut.jpg"), &original.1[..original.1.len() / 2]).unwrap();
    ["dotted-triangle/text", "plain-disc/cut"]
}

#[test]
fn verify_counts_images_deeper_than_8_bits() {
    let dir = tree();
    let deep = image::ImageBuffer::from_pixel(4, 4, image::Luma([40_000_u16]));
    deep.save(dir.path().join("set/plain-disc/deep.png")).unwrap();
    let verified = warpfeed(dir.path(), &["verify", "set"]);
    assert_eq!((verified.status.code(), text(&verified.stdout)), (Some(0), String::new()));
    let counted = "set: 13 samples, 0 bad, 1 with more than 8 bits per channel (to load them, set convert_to_u8 or use \
                   a DenseMap)\n";
    assert_eq!(text(&verified.stderr), counted);
}

#[test]
fn verify_checks_the_cameras_of_robot_episodes() {
    let dir = tempfile::tempdir().unwrap();
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/formats/lerobot/v30");
    let verified = warpfeed(dir.path(), &["verify", set.to_str().unwrap()]);
    assert_eq!((verified.status.code(), text(&verified.stdout)), (Some(0), String::new()));
    assert!(text(&verified.stderr).ends_with("15 samples, 0 bad\n"), "{verified:?}");
    let inspected = warpfeed(dir.path(), &["inspect", set.to_str().unwrap()]);
    assert!(!text(&inspected.stdout).contains("unreadable"), "{inspected:?}");
}

#[test]
fn inspect_counts_the_frames_of_cameras_and_videos() {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (set, camera, format) in [("v30", "top", "png"), ("v30_video", "front", "video")] {
        let set = fixtures.join("tests/fixtures/formats/lerobot").join(set);
        let shown = ok(dir.path(), &["inspect", set.to_str().unwrap()]);
        let front = format!("cameras      observation.images.{camera}: 15 frames ({format} 15), ");
        let wrist = format!("             observation.images.wrist: 15 frames ({format} 15), ");
        assert!(shown.contains(&front) && shown.contains(&wrist), "{shown}");
        assert!(shown.contains(&format!("formats      {format} 30\n")) && !shown.contains(" 0 B of images"), "{shown}");
        let report = json(&ok(dir.path(), &["inspect", set.to_str().unwrap(), "--json"]));
        let sizes = report["cameras"]["observation.images.wrist"]["sizes"].as_object().unwrap();
        assert_eq!(sizes.values().map(|samples| samples.as_u64().unwrap()).sum::<u64>(), 15);
    }
    let class = dir.path().join("videos/archery");
    fs::create_dir_all(&class).unwrap();
    fs::copy(fixtures.join("video/tests/fixtures/g2.mp4"), class.join("a.mp4")).unwrap();
    let shown = ok(dir.path(), &["inspect", "videos"]);
    assert!(shown.contains("cameras      video: 8 frames (video 8), 96x64\n"), "{shown}");
    assert!(shown.contains("classes      1, each with 1 sample\n"), "{shown}");
}

#[test]
fn verify_lists_each_bad_sample_with_its_file() {
    let dir = tree();
    let good = warpfeed(dir.path(), &["verify", "set"]);
    assert_eq!((good.status.code(), text(&good.stdout)), (Some(0), String::new()));
    assert_eq!(text(&good.stderr), "set: 12 samples, 0 bad\n");

    let keys = spoil(&dir.path().join("set"));
    let verified = warpfeed(dir.path(), &["verify", "set", "--workers", "2"]);
    assert_eq!((verified.status.code(), &*text(&verified.stderr)), (Some(1), "set: 14 samples, 2 bad\n"));
    let out = text(&verified.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    for (line, key) in lines.iter().zip(keys) {
        assert!(line.starts_with("sample ") && line.contains(&format!(" ({key}): ")), "{out}");
        assert!(line.contains(&format!("set/{key}.jpg: decode: ")), "{out}");
    }

    let verified = warpfeed(dir.path(), &["verify", "set", "--json"]);
    assert_eq!(verified.status.code(), Some(1));
    let keys_again: Vec<_> = text(&verified.stdout).lines().map(|line| json(line)["key"].clone()).collect();
    assert_eq!(keys_again, keys);
    for (line, key) in text(&verified.stdout).lines().zip(keys) {
        assert_eq!(json(line)["path"], format!("set/{key}.jpg"));
    }

    let shown = ok(dir.path(), &["inspect", "set", "--headers-only"]);
    assert!(shown.contains("unreadable   1; "), "the header of the truncated image is complete: {shown}");
}

/// Overwrites 200 bytes in the largest JPEG with zeros. Returns the key of the JPEG.
fn zero(set: &Path) -> String {
    let largest = files(set).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "jpg"));
    let (path, mut bytes) = largest.max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let middle = bytes.len() * 3 / 5;
    bytes[middle..middle + 200].fill(0);
    fs::write(set.join(&path), bytes).unwrap();
    path.with_extension("").to_str().unwrap().to_owned()
}

#[test]
fn verify_inspect_and_pack_agree_on_what_is_damaged() {
    let dir = tree();
    let zeroed = zero(&dir.path().join("set"));
    let run = |args: &[&str]| {
        let output = warpfeed(dir.path(), args);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, err) = run(&["verify", "set"]);
    assert_eq!((code, &*err), (Some(0), "set: 12 samples, 0 bad, 1 damaged but decodable\n"));
    assert!(
        out.contains(&format!(" ({zeroed}): ")) && out.contains("decode: damaged: jpeg data is damaged in MCU "),
        "{out}"
    );
    let cause = out.trim_end().split_once("decode: damaged: ").unwrap().1.to_owned();
    let shown = ok(dir.path(), &["inspect", "set"]);
    assert!(shown.contains("damaged      1; ") && shown.contains(&cause) && !shown.contains("unreadable"), "{shown}");
    let (code, out, err) = run(&["pack", "set", "loose.lmdb"]);
    assert_eq!(code, Some(0));
    let named = "1 image is damaged but can be decoded:\n  sample ";
    assert!(err.contains(named) && err.contains(&format!(" ({zeroed}): {cause}\n")), "{err}");
    assert!(out.contains(": 10 repacked, 1 unchanged, 1 unchanged (not recodable)\n"), "{out}");

    assert_eq!(run(&["verify", "set", "--strict"]).0, Some(1));
    assert_eq!(run(&["inspect", "set", "--strict"]).0, Some(1));
    let (code, out, err) = run(&["pack", "set", "strict.lmdb", "--strict"]);
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(err.contains("1 of 12 images are damaged, so the pack was not finished: sample "), "{err}");
    assert!(err.contains(&format!(" ({zeroed}): {cause}")), "{err}");

    let keys = spoil(&dir.path().join("set"));
    let (code, out, err) = run(&["verify", "set"]);
    assert_eq!((code, &*err), (Some(1), "set: 14 samples, 2 bad, 1 damaged but decodable\n"));
    let causes: Vec<&str> = out.lines().filter(|line| !line.contains("damaged: ")).collect();
    let causes = causes.iter().map(|line| line.split_once(": decode: ").unwrap().1);
    let named: Vec<(&str, &str)> = keys.into_iter().zip(causes).collect();
    let report = json(&ok(dir.path(), &["inspect", "set", "--json"]));
    assert_eq!((&report["unreadable"], &report["damaged"]), (&2.into(), &1.into()));
    assert_eq!(report["findings"].as_array().unwrap().len(), 3);
    let (code, out, err) = run(&["pack", "set", "out.tar"]);
    assert_eq!((code, &*out), (Some(1), ""));
    for (key, cause) in &named {
        assert!(report["findings"].to_string().contains(key), "{report}");
        assert!(err.contains(&format!(" ({key}): {cause}")), "{err}");
    }
    assert!(
        err.contains("2 of 14 images cannot be decoded, so the pack was not finished: ")
            && err.contains("--keep-undecodable"),
        "{err}"
    );
    let names: Vec<_> = files(dir.path()).into_keys().filter(|path| !path.starts_with("set")).collect();
    assert!(names.iter().all(|path| path.starts_with("loose.lmdb")), "an incomplete file remains: {names:?}");
}

#[test]
fn preview_draws_the_batch_on_a_sheet() {
    let dir = tree();
    let args = ["preview", "set", "--out", "grid.png", "--images", "9", "--size", "64"];
    assert_eq!(ok(dir.path(), &args), "grid.png: 9 of 12 samples, 216 x 276 pixels\n");
    let sheet = image::open(dir.path().join("grid.png")).unwrap().to_rgb8();
    assert_eq!(sheet.dimensions(), (216, 276));
    let ink = |rows: std::ops::Range<u32>| {
        rows.flat_map(|y| (0..216).map(move |x| (x, y)))
            .filter(|&(x, y)| sheet.get_pixel(x, y).0 == [30, 30, 30])
            .count()
    };
    assert!(ink(70..90) > 100, "expected names below the first row of images");
    assert_eq!(ink(0..6), 0, "expected an empty margin");

    spoil(&dir.path().join("set"));
    let output = warpfeed(dir.path(), &["preview", "set", "--out", "all.png", "--images", "99", "--size", "64"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("all.png: 14 of 14 samples"));
    assert!(text(&output.stderr).contains("warpfeed: warning: "), "{}", text(&output.stderr));
    let err = fails(dir.path(), 1, &["preview", "set", "--out", "grid.jpg"]);
    assert_eq!(err, "warpfeed: grid.jpg: config: the sheet is a PNG file: its name must end in .png\n");
    let err = fails(dir.path(), 1, &["preview", "set", "--out", "no/such/folder.png", "--images", "1"]);
    assert!(err.contains("no/such/folder.png: io: "), "{err}");
}

/// Returns the key, the label and the image of every sample.
fn samples(path: &Path) -> Vec<(String, Option<i64>, Vec<u8>)> {
    let (source, mut scratch) = (warpfeed::source::open(path).unwrap(), Vec::new());
    let mut read = |i| {
        let sample = source.read(i, &mut scratch).unwrap();
        (sample.key().to_owned(), sample.label().unwrap(), sample.image().unwrap().1.to_owned())
    };
    (0..source.len()).map(&mut read).collect()
}

#[test]
fn pack_converts_between_all_formats() {
    let dir = tree();
    let shown = ok(dir.path(), &["pack", "--from", "set", "--to", "set.lmdb", "--keep-bytes"]);
    assert!(shown.starts_with("set.lmdb: 12 samples, ") && shown.contains(": 12 unchanged"), "{shown}");
    ok(dir.path(), &["pack", "set.lmdb", "one.tar", "--keep-bytes"]);
    let shown =
        ok(dir.path(), &["pack", "--from", "one.tar", "--to", "many.tar", "--keep-bytes", "--shard-size", "20KB"]);
    assert!(shown.starts_with("many-000000.tar to many-00000"), "{shown}");
    let pattern = shown.trim_end().split_once("\nopen as '").unwrap().1.trim_end_matches('\'');
    assert!(samples(&dir.path().join(pattern)) == samples(&dir.path().join("one.tar")), "{pattern}");
    fs::create_dir(dir.path().join("shards")).unwrap();
    for name in files(dir.path()).keys().filter(|name| name.to_string_lossy().starts_with("many-")) {
        fs::rename(dir.path().join(name), dir.path().join("shards").join(name)).unwrap();
    }
    ok(dir.path(), &["pack", "--from", "shards", "--to", "back.lmdb", "--keep-bytes"]);

    let set = samples(&dir.path().join("set"));
    for dataset in ["set.lmdb", "one.tar", "shards", "back.lmdb"] {
        assert!(set == samples(&dir.path().join(dataset)), "{dataset}");
        assert_eq!(warpfeed(dir.path(), &["verify", dataset]).status.code(), Some(0), "{dataset}");
        let report = json(&ok(dir.path(), &["inspect", dataset, "--json"]));
        assert_eq!(report["classes"][0], "dotted-triangle", "{dataset}");
    }
}

#[test]
fn pack_recodes_images_as_requested() {
    let dir = tree();
    ok(dir.path(), &["pack", "--from", "set", "--to", "fast.lmdb"]);
    ok(dir.path(), &["pack", "--from", "set", "--to", "small.lmdb", "--max-side", "40"]);
    ok(dir.path(), &["pack", "--from", "set", "--to", "anew.tar", "--quality", "50"]);
    ok(dir.path(), &["pack", "--from", "set", "--to", "raw.lmdb", "--raw", "24x16"]);
    let report = |name: &str| json(&ok(dir.path(), &["inspect", name, "--json"]));
    assert!(report("fast.lmdb")["restart_markers"].as_u64() > Some(0), "{}", report("fast.lmdb"));
    let longest = |r: &serde_json::Value| r["width"]["max"].as_u64().max(r["height"]["max"].as_u64());
    assert_eq!(longest(&report("small.lmdb")), Some(40));
    assert_eq!(report("anew.tar")["formats"], serde_json::json!({"jpeg": 12}));
    let raw = report("raw.lmdb");
    assert_eq!(raw["formats"], serde_json::json!({"npy": 12}));
    assert_eq!((&raw["width"]["min"], &raw["height"]["max"]), (&24.into(), &16.into()));
}

#[test]
fn pack_converts_deep_images_when_asked() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("set/scan")).unwrap();
    let deep = image::ImageBuffer::from_fn(80, 60, |x, y| image::Luma([(x + y) as u16 * 257]));
    image::DynamicImage::ImageLuma16(deep).save(dir.path().join("set/scan/a.png")).unwrap();
    let pack = ["pack", "set", "small.tar", "--max-side", "40", "--force"];
    let output = warpfeed(dir.path(), &pack);
    let err = text(&output.stderr);
    assert!(
        err.contains("1 image could not be recoded and was stored unchanged")
            && err.contains("--convert-to-u8 keeps the upper 8"),
        "{err}"
    );
    let output = ok(dir.path(), &[&pack[..], &["--convert-to-u8"]].concat());
    assert!(output.contains("1 re-encoded\npsnr of re-encoded images: "), "{output}");
    ok(
        dir.path(),
        &[
            "pack",
            "set",
            "clear.tar",
            "--quality",
            "90",
            "--max-side",
            "40",
            "--convert-to-u8",
            "--background",
            "0, 9,255",
        ],
    );
    for (options, expected) in [
        (&["--convert-to-u8"][..], "<--quality <Q>|--max-side <PIXELS>|--raw <SIZE>>"),
        (&["--max-side", "40", "--background", "1,2"], "expected red, green and blue from 0 to 255"),
    ] {
        let err = fails(dir.path(), 2, &[&["pack", "set", "more.tar"], options].concat());
        assert!(err.contains(expected), "{err}");
    }
}

#[test]
fn pack_refuses_to_lose_data() {
    let dir = tree();
    ok(dir.path(), &["pack", "--from", "set", "--to", "set.lmdb"]);
    let before = files(&dir.path().join("set.lmdb"));
    let err = fails(dir.path(), 1, &["pack", "--from", "set", "--to", "set.lmdb", "--keep-bytes"]);
    assert!(err.starts_with("warpfeed: set.lmdb: ") && err.contains("already exists"), "{err}");
    assert!(before == files(&dir.path().join("set.lmdb")), "a file was changed");
    ok(dir.path(), &["pack", "--from", "set", "--to", "set.lmdb", "--keep-bytes", "--force"]);
    assert!(before != files(&dir.path().join("set.lmdb")), "--force must replace the database");

    let err = fails(dir.path(), 1, &["pack", "--from", "set", "--to", "set.zip"]);
    assert!(err.starts_with("warpfeed: set.zip: ") && err.contains(".lmdb or .tar"), "{err}");
    let err = fails(dir.path(), 1, &["pack", "--from", "nowhere", "--to", "out.tar"]);
    assert!(err.starts_with(&format!("warpfeed: {}: io: ", dir.path().join("nowhere").display())), "{err}");
    // The folder of the target is a file.
    fs::write(dir.path().join("taken"), "").unwrap();
    let err = fails(dir.path(), 1, &["pack", "--from", "set", "--to", "taken/x.tar"]);
    assert!(err.starts_with("warpfeed: taken: io: "), "{err}");
    fs::remove_file(dir.path().join("taken")).unwrap();
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "unexpected files: {names:?}");
}

#[test]
fn parts_are_packed_merged_and_verified() {
    let dir = tree();
    fn part_args(part: &str) -> [&str; 7] {
        ["pack", "set", "parts/x.tar", "--shard-samples", "2", "--part", part]
    }
    let progress = || ok(dir.path(), &["pack", "--progress", "parts/x.tar"]);
    let err = fails(dir.path(), 1, &["pack", "--progress", "parts/x.tar"]);
    assert!(err.contains("there are neither parts nor a dataset with this name"), "{err}");
    ok(dir.path(), &part_args("1/2"));
    assert_eq!(progress(), "6 of 12 samples (50.0%); part 0 of 2 is not complete\n");
    let err = fails(dir.path(), 1, &["pack", "--merge", "parts/x.tar"]);
    assert!(err.contains("part 0 of 2 is missing"), "{err}");
    ok(dir.path(), &part_args("0/2"));
    assert_eq!(progress(), "12 of 12 samples (100.0%); all parts are complete; merge them\n");
    let out = ok(dir.path(), &["pack", "--merge", "parts/x.tar"]);
    assert!(out.contains("12 samples") && out.contains("open as 'parts/x-{000000..000005}.tar'"), "{out}");
    assert_eq!(progress(), "12 of 12 samples (100.0%); the dataset is complete\n");
    ok(dir.path(), &["pack", "set", "whole/x.tar", "--shard-samples", "2"]);
    assert!(files(&dir.path().join("parts")) == files(&dir.path().join("whole")));
    let output = warpfeed(dir.path(), &["verify", "parts", "--part", "2/3"]);
    assert!(output.status.success() && text(&output.stderr).contains("4 samples, 0 bad"), "{output:?}");
    for part in ["2/2", "x", "1", "auto/0", "-1/2"] {
        let err = fails(dir.path(), 2, &["verify", "set", &format!("--part={part}")]);
        assert!(err.contains("such as 3/64"), "{err}");
    }
    fs::write(dir.path().join("keys.txt"), "typo\n").unwrap();
    let err = fails(dir.path(), 1, &["pack", "set", "few.tar", "--keys", "keys.txt"]);
    assert!(err.contains("no sample has the key \"typo\""), "{err}");
}

#[test]
fn pack_lists_images_that_it_could_not_recode() {
    let dir = tree();
    let [_, cut] = spoil(&dir.path().join("set"));
    let output = warpfeed(dir.path(), &["pack", "--from", "set", "--to", "set.tar", "--keep-undecodable"]);
    assert_eq!(output.status.code(), Some(0));
    let err = text(&output.stderr);
    assert!(err.contains("were stored unchanged:\n") && err.contains(&format!(" ({cut}): ")), "{err}");
    let out = text(&output.stdout);
    assert!(out.starts_with("set.tar: 14 samples, "), "{out}");
    assert!(out.contains(": 11 repacked, 1 unchanged, 2 unchanged (undecodable)\n"), "the counts must add up: {out}");
}

#[test]
fn occupancy_prints_a_table_and_draws_a_plot() {
    let dir = TempDir::new().unwrap();
    let table = ok(dir.path(), &["occupancy", "--regs", "40", "--smem", "4KiB", "--cc", "9.0", "--out", "plot.svg"]);
    assert!(
        table.contains("40 registers") && table.contains("4096 bytes") && table.contains("* highest occupancy"),
        "{table}"
    );
    assert!(fs::read_to_string(dir.path().join("plot.svg")).unwrap().starts_with("<svg "));
    let err = fails(dir.path(), 1, &["occupancy", "--regs", "40", "--cc", "3.5"]);
    assert!(err.starts_with("warpfeed: config: compute capability 3.5 is not supported: "), "{err}");
}

#[test]
fn bench_reports_as_text_and_as_json() {
    let dir = tree();
    let quick = ["bench", "set", "--batch-size", "4", "--size", "32", "--seconds", "0.2", "--warmup", "0.1"];
    let shown = ok(dir.path(), &quick);
    assert!(shown.starts_with("set (folder, 12 samples)\n") && shown.contains(" samples/s"), "{shown}");

    let more =
        ["--json", "--dtype", "f16", "--layout", "nchw", "--augment", "eval", "--workers", "2", "--prefetch", "3"];
    let report = json(&ok(dir.path(), &[&quick[..], &more].concat()));
    assert_eq!((&report["source"], &report["workers"], &report["batch"]), (&"folder".into(), &2.into(), &4.into()));
    assert_eq!((&report["dtype"], &report["layout"]), (&"f16".into(), &"nchw".into()));
    assert_eq!(report["memory"]["slots"], 5, "{report}");
    assert!(report["samples_per_second"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["bytes_per_second"].as_f64().unwrap() > 0.0, "{report}");
    assert!((0.0..=1.0).contains(&report["stall_fraction"].as_f64().unwrap()), "{report}");

    assert_eq!(
        fails(dir.path(), 1, &["bench", "set", "--batch-size", "0"]),
        "warpfeed: config: --batch-size 0: expected at least 1\n"
    );
    spoil(&dir.path().join("set"));
    let err = fails(dir.path(), 1, &quick);
    assert!(err.starts_with("warpfeed: sample ") && err.contains("decode: "), "{err}");
}

#[test]
fn a_report_is_one_file_that_needs_no_network() {
    let dir = tree();
    let bench =
        ["bench", "set", "--batch-size", "2", "--size", "32", "--seconds", "0.4", "--warmup", "0.1", "--workers", "2"];
    let straight = ["--report", "straight.html", "--trace", "trace.json", "--json"];
    let stats = ok(dir.path(), &[&bench[..], &straight].concat());
    assert!(json(&stats)["verdict"]["text"].as_str().unwrap().contains("waited"), "{stats}");
    fs::write(dir.path().join("stats.json"), stats).unwrap();
    ok(dir.path(), &["report", "stats.json", "--trace", "trace.json", "--out", "report.html"]);
    for page in ["straight.html", "report.html"] {
        let page = fs::read_to_string(dir.path().join(page)).unwrap();
        let (before, rest) = page.split_once("id=\"data\">").unwrap();
        let (data, after) = rest.split_once("</script>").unwrap();
        let data = json(data);
        assert!(data["stats"]["decode"]["count"].as_u64().unwrap() > 0);
        let options = data["stats"]["options"].as_str().unwrap();
        assert!(
            options.contains(".batch_size(2)") && options.contains(".augment(Augment.train(side=32))"),
            "{options}"
        );
        assert!(after.contains("stats.options"), "the page must show the options");
        let rows = data["spans"]["rows"].as_array().unwrap();
        let rows: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        // In such a short run, one worker may have done all the work.
        let workers = rows.strip_prefix(&["consumer", "coordinator"]).unwrap_or_else(|| panic!("{rows:?}"));
        assert!([&["worker 0"][..], &["worker 1"], &["worker 0", "worker 1"]].contains(&workers), "{rows:?}");
        // The data between the two parts may contain `prefetch(4)`.
        let page = [before, after].concat();
        assert!(page.contains("prefers-color-scheme: dark"));
        for load in ["src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(load), "{load}");
        }
    }
    fs::write(dir.path().join("evil.json"), r#"{"workers": 1, "slowest": [{"key": "</script><b>"}]}"#).unwrap();
    ok(dir.path(), &["report", "evil.json", "--out", "evil.html"]);
    assert!(!fs::read_to_string(dir.path().join("evil.html")).unwrap().contains("</script><b>"));

    for (text, error) in
        [("{}", "source: the file does not contain loader statistics: "), ("[", "source: the file is not JSON: ")]
    {
        fs::write(dir.path().join("bad.json"), text).unwrap();
        let err = fails(dir.path(), 1, &["report", "bad.json", "--out", "bad.html"]);
        assert!(err.starts_with(&format!("warpfeed: bad.json: {error}")), "{err}");
    }
}

#[test]
#[ignore = "takes 15 s: cargo test --test program -- --ignored doctor"]
fn doctor_ends_with_a_line_of_rust_and_one_of_python() {
    let dir = tree();
    let args = ["doctor", "set", "--batch-size", "4", "--size", "32"];
    let shown = ok(dir.path(), &args);
    for word in ["one thread alone, 12 samples", "from memory", "decode", "resize", "GB/s copied by", "samples/s with"]
    {
        assert!(shown.contains(word), "no {word:?} in {shown}");
    }
    let mut lines = shown.trim_end().lines().rev();
    let (python, last) = (lines.next().unwrap(), lines.next().unwrap());
    let begin = "warpfeed.Loader(\"set\", batch_size=4, shuffle=True, seed=42, augment=warpfeed.Augment.train(32), num_workers=";
    assert!(python.starts_with(begin) && python.ends_with(')'), "{python}");
    assert!(
        last.starts_with("Loader::new(\"set\").batch_size(4).shuffle(42).augment(Augment::train(32)).workers("),
        "{last}"
    );
    let report = json(&ok(dir.path(), &[&args[..], &["--json", "--step-ms", "5"]].concat()));
    assert!(report["alone"]["decode_seconds_per_sample"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["verdict"]["text"].is_string() && report["runs"].as_array().unwrap().len() >= 2, "{report}");
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let dir = tree();
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpfeed"))
        .current_dir(dir.path())
        .args(["inspect", "set"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
