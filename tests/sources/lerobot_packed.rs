//! Tests LeRobot datasets that were packed with `frames(true)`, as a whole or in parts. The samples
//! must have the indices, windows, padding, numbers, text and keys of the original; only recoded
//! images differ. The packed dataset must open by its path, from a folder or a store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use warpfeed::field::{Image, NdArray};
use warpfeed::pack::{Merge, Pack, Recode, Report};
use warpfeed::source::{LeRobot, LeRobotOptions, Options, Source, open};
use warpfeed::{Augment, Dtype, Loader, Result};

use crate::formats::fixture;
use crate::lerobot::{VERSIONS, answers, check_samples, options, writable};
use crate::objects::Objects;

const TOP: &str = "observation.images.top";

fn packed(version: &str, target: &Path) -> Report {
    let set = LeRobot::open(fixture("lerobot").join(version)).unwrap();
    Pack::new(&set).frames(true).recode(Recode::KeepBytes).to(target).unwrap()
}

fn with(path: &Path, options: &LeRobotOptions) -> Result<LeRobot> {
    LeRobot::open_with(path, options, &Options::new())
}

#[test]
fn packed_frames_are_those_of_the_librarys_dataset_class() {
    for version in VERSIONS {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("packed");
        packed(version, &path);
        for answer in answers(version) {
            let chosen = options(&answer);
            let set = with(&path, &chosen).unwrap();
            check_samples(&set, &answer);
            let original = with(&fixture("lerobot").join(version), &chosen).unwrap();
            assert_eq!(set.stats().unwrap(), original.stats().unwrap());
            assert_eq!(set.fingerprint(), original.fingerprint());
            assert!(set.episodes().eq(original.episodes()));
            assert_eq!(set.tasks().unwrap(), original.tasks().unwrap());
            assert_eq!(set.fps(), original.fps());
        }
        let set = open(&path).unwrap();
        assert_eq!(
            (set.kind(), set.len(), set.key(5, &mut Vec::new()).unwrap().as_str()),
            ("lerobot", 15, "episode_000001/frame_000000")
        );
        assert_eq!(open(path.join("train")).unwrap().len(), 15);
    }
}

#[test]
fn tasks_of_an_episode_are_listed_once() {
    for version in VERSIONS {
        let set = LeRobot::open(fixture("lerobot").join(version)).unwrap();
        let tasks = set.tasks().unwrap();
        for ((_, samples), tasks) in set.episodes().zip(tasks) {
            let (view, mut scratch) = (set.select_fields(&["task".to_owned()]).unwrap(), Vec::new());
            let mut expected: Vec<String> = Vec::new();
            for index in samples {
                let text = view.read(index, &mut scratch).unwrap().field("task.txt").unwrap().into_owned();
                let text = String::from_utf8(text).unwrap();
                if !expected.contains(&text) {
                    expected.push(text);
                }
            }
            assert_eq!(tasks, expected);
        }
        let e = with(&fixture("lerobot").join(version), &LeRobotOptions::new().features(["action"])).unwrap().tasks();
        assert!(e.unwrap_err().to_string().contains("no feature \"task\""));
    }
}

#[test]
fn chosen_episodes_and_features_are_packed_with_their_indices() {
    for version in VERSIONS {
        let root = tempfile::tempdir().unwrap();
        let original = fixture("lerobot").join(version);
        let chosen =
            LeRobotOptions::new().episodes([0, 2]).features([TOP, "action", "task", "task_index", "timestamp"]);
        let set = with(&original, &chosen).unwrap();
        Pack::new(&set).frames(true).recode(Recode::KeepBytes).to(root.path()).unwrap();
        let again = with(root.path(), &LeRobotOptions::new()).unwrap();
        assert_eq!(again.episodes().collect::<Vec<_>>(), set.episodes().collect::<Vec<_>>());
        let read = |set: &dyn Source, index| {
            let mut scratch = Vec::new();
            let sample = set.read(index, &mut scratch).unwrap();
            let fields =
                sample.fields().iter().map(|(name, value)| ((*name).to_owned(), value.encoded(name).into_owned()));
            let fields: BTreeMap<String, Vec<u8>> = fields.collect();
            (sample.key().to_owned(), fields)
        };
        for options in [
            LeRobotOptions::new(),
            LeRobotOptions::new().delta_indices(TOP, [-1, 0, 0, 3]).delta_indices("action", -2..5),
        ] {
            let (again, original) =
                (with(root.path(), &options).unwrap(), with(&original, &options.clone().episodes([0, 2])).unwrap());
            let fields: Vec<String> = again.fields().unwrap();
            let original = original.select_fields(&fields).unwrap();
            for index in 0..again.len() {
                assert_eq!(read(&again, index), read(&*original, index));
            }
        }
        let e = with(root.path(), &LeRobotOptions::new().episodes([1])).unwrap_err().to_string();
        assert!(e.contains("there is no episode 1"), "{e}");
        let e = with(root.path(), &LeRobotOptions::new().features(["observation.state"])).unwrap_err().to_string();
        assert!(e.contains("no feature \"observation.state\""), "{e}");
    }
}

#[test]
fn cameras_become_jpegs_of_the_given_quality() {
    let root = tempfile::tempdir().unwrap();
    let set = LeRobot::open(fixture("lerobot/v30")).unwrap();
    let pack = |name: &str, quality: Option<u8>| {
        let pack = Pack::new(&set).frames(true);
        let pack = match quality {
            Some(quality) => pack.recode(Recode::Quality { quality, max_side: None }),
            None => pack,
        };
        pack.to(root.path().join(name)).unwrap()
    };
    let (standard, high, low) = (pack("standard", None), pack("high", Some(95)), pack("low", Some(10)));
    let psnr = |report: &Report| report.psnr.clone().unwrap();
    assert_eq!(psnr(&standard), psnr(&high));
    assert!(psnr(&high).mean > psnr(&low).mean && psnr(&low).mean >= psnr(&low).lowest);
    assert_eq!((high.samples, high.reencoded % 15, high.not_recoded_count), (15, 0, 0));
    let opened = open(root.path().join("high")).unwrap();
    let sample = opened.select_fields(&[TOP.to_owned()]).unwrap();
    let mut scratch = Vec::new();
    assert!(sample.read(3, &mut scratch).unwrap().field(TOP).unwrap().starts_with(b"\xff\xd8"));
}

#[test]
fn parts_of_frames_are_merged_to_the_same_files() {
    let root = tempfile::tempdir().unwrap();
    let set = LeRobot::open(fixture("lerobot/v30")).unwrap();
    let packed = root.path().join("whole");
    Pack::new(&set).frames(true).shard_samples(4).to(&packed).unwrap();
    let parts = root.path().join("parts");
    let pack = |part| Pack::new(&set).frames(true).shard_samples(4).part(part, 2).to(&parts).unwrap();
    pack(1);
    let e = LeRobot::open(&parts).unwrap_err().to_string();
    assert!(e.contains("frames.tar"), "an unfinished dataset does not open: {e}");
    pack(0);
    pack(1);
    Merge::new(parts.join("frames.tar")).run().unwrap();
    let files = |path: &Path| -> Vec<(String, Vec<u8>)> {
        let mut contents = Vec::new();
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.extension().is_some_and(|end| end == "tar" || end == "json") {
                contents.push((entry.file_name().unwrap().to_string_lossy().into_owned(), fs::read(entry).unwrap()));
            }
        }
        contents.sort();
        contents
    };
    assert_eq!(files(&packed), files(&parts));
    assert_eq!(files(&packed).len(), 5);
    assert_eq!(open(&parts).unwrap().len(), 15);
}

#[test]
fn an_interrupted_pack_of_frames_continues() {
    let root = tempfile::tempdir().unwrap();
    let set = LeRobot::open(fixture("lerobot/v21")).unwrap();
    let pack = || Pack::new(&set).frames(true).shard_samples(2).workers(1);
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pack().progress(|progress| assert!(progress.samples < 9, "stop")).to(root.path())
    }));
    assert!(stopped.is_err() && LeRobot::open(root.path()).is_err());
    let mut reported = Vec::new();
    let report = pack().progress(|progress| reported.push(progress.samples)).to(root.path()).unwrap();
    assert_eq!(reported, [2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!((report.samples, open(root.path()).unwrap().len()), (15, 15));
}

#[cfg(feature = "video")]
#[test]
fn videos_are_packed_as_jpegs() {
    let root = tempfile::tempdir().unwrap();
    let set = LeRobot::open(fixture("lerobot/v30_video")).unwrap();
    let cameras = set.images();
    assert!(!cameras.is_empty());
    let report = Pack::new(&set).frames(true).to(root.path()).unwrap();
    assert_eq!((report.reencoded, report.not_recoded_count), (15 * cameras.len() as u64, 0));
    assert!(report.psnr.unwrap().lowest > 20.0);
    let packed = open(root.path()).unwrap();
    let mut scratch = Vec::new();
    for index in 0..15 {
        let sample = packed.read(index, &mut scratch).unwrap();
        for camera in &cameras {
            assert!(sample.field(camera).unwrap().starts_with(b"\xff\xd8"), "{camera}");
        }
    }
}

#[test]
fn a_packed_dataset_in_a_store_has_the_same_batches() {
    let root = tempfile::tempdir().unwrap();
    packed("v30", root.path());
    let objects = Objects::of(root.path(), "mem://robots/packed");
    let options = LeRobotOptions::new().delta_indices(TOP, [-1, 0, 1]).delta_indices("action", 0..4);
    let batches = |set: LeRobot| -> Vec<Vec<u8>> {
        let loader = Loader::source(set)
            .drop_field("label")
            .field("top", Image::from_field(TOP).frames(3))
            .field("action", NdArray::new(Dtype::F32, [4, 4]))
            .augment(Augment::resize(8, 8))
            .batch_size(4)
            .shuffle(3)
            .workers(2);
        let mut batches = loader.host().unwrap();
        let mut contents = Vec::new();
        for epoch in 0..2 {
            for batch in batches.epoch(epoch) {
                let batch = batch.unwrap();
                contents.push([batch.field("top").unwrap().bytes(), batch.field("action").unwrap().bytes()].concat());
            }
        }
        contents
    };
    let local = batches(with(root.path(), &options).unwrap());
    let original = batches(with(&fixture("lerobot/v30"), &options).unwrap());
    assert_eq!(local, original);
    let opening = Options::new().store("mem", Arc::new(objects.clone()));
    let stored = LeRobot::open_with("mem://robots/packed", &options, &opening).unwrap();
    assert_eq!(batches(stored), original);
}

#[test]
fn options_that_a_packed_dataset_cannot_have_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let cause = |set: &LeRobot, change: &dyn Fn(Pack<'_>) -> Pack<'_>, dest: &Path| {
        change(Pack::new(set).frames(true)).to(dest).unwrap_err().to_string()
    };
    let set = LeRobot::open(fixture("lerobot/v30")).unwrap();
    let same: fn(Pack<'_>) -> Pack<'_> = |pack| pack;
    let e = cause(&set, &|pack| pack.samples([0]), root.path());
    assert!(e.contains("frames(true) packs whole episodes"), "{e}");
    let e = cause(&set, &same, &root.path().join("a.lmdb"));
    assert!(e.contains("frames are packed to tar files"), "{e}");
    let deltas = with(&fixture("lerobot/v30"), &LeRobotOptions::new().delta_indices("action", [0])).unwrap();
    let e = cause(&deltas, &same, root.path());
    assert!(e.contains("feature \"action\" has deltas"), "{e}");
    let e = Pack::new(&*open("datasets/mini").unwrap()).frames(true).to(root.path()).unwrap_err().to_string();
    assert!(e.contains("requires a LeRobot dataset, but this is a dataset of the kind \"folder\""), "{e}");
    packed("v30", root.path());
    let e = cause(&set, &|pack| pack.shard_samples(4).force(true), root.path());
    assert!(e.contains("frames.tar") && e.contains("already has its frames here"), "{e}");
    let e = cause(&set, &|pack| pack.shard_size(0), root.path());
    assert!(e.contains("already exists: use force(true) to replace it"), "{e}");
    let other = LeRobot::open(fixture("lerobot/v21")).unwrap();
    let e = cause(&other, &|pack| pack.force(true), root.path());
    assert!(e.contains("the file exists and belongs to a different dataset"), "{e}");
    assert_eq!(open(root.path()).unwrap().len(), 15);
}

#[test]
fn damaged_files_of_a_packed_dataset_are_named() {
    let root = tempfile::tempdir().unwrap();
    let fresh = |name: &str| {
        let path = root.path().join(name);
        packed("v30", &path);
        path
    };
    let cause = |path: &Path| LeRobot::open(path).unwrap_err().to_string();
    let path = fresh("short");
    let numbers = path.join("numbers/action.npy");
    let bytes = fs::read(&numbers).unwrap();
    fs::write(&numbers, &bytes[..bytes.len() - 1]).unwrap();
    let e = cause(&path);
    assert!(e.contains("numbers/action.npy") && e.contains("367 bytes, which does not match its header"), "{e}");
    fs::remove_file(&numbers).unwrap();
    assert!(cause(&path).contains("numbers/action.npy"));
    let path = fresh("version");
    fs::write(
        path.join("meta/packed.json"),
        r#"{"warpfeed_frames": 2, "frames": "frames.tar", "episodes": [], "features": []}"#,
    )
    .unwrap();
    assert!(cause(&path).contains("warpfeed_frames=2"), "{}", cause(&path));
    let (path, other) = (fresh("mixed"), root.path().join("other"));
    let copy = writable("v30");
    let set = LeRobot::open_with(copy.path(), &LeRobotOptions::new().episodes([1, 2]), &Options::new()).unwrap();
    Pack::new(&set).frames(true).to(&other).unwrap();
    fs::remove_file(path.join("frames.tar")).unwrap();
    fs::copy(other.join("frames.tar"), path.join("frames.tar")).unwrap();
    assert!(cause(&path).contains("has 10 frames, but meta/packed.json lists 15"), "{}", cause(&path));
}
