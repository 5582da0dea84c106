//! Tests that the samples of LeRobot datasets equal the samples of the `LeRobotDataset` class of
//! the `lerobot` library, including padding, tasks and pixels. Requests for missing episodes,
//! features and videos, invalid deltas, and damaged files must cause errors that say what is wrong.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use warpfeed::decode::{Codecs, Pixels, Rect};
use warpfeed::field::{Image, Keypoints, NdArray, Text};
use warpfeed::source::{Frames, LeRobot, LeRobotOptions, Options, OwnedSample, Sample, Source, Value, open};
use warpfeed::{Augment, Dtype, Loader};

use crate::formats::fixture;
use crate::objects::Objects;

pub(crate) const VERSIONS: [&str; 2] = ["v21", "v30"];

pub(crate) fn answers(version: &str) -> Vec<Json> {
    let file = fs::read(fixture("lerobot").join(format!("{version}.json"))).unwrap();
    serde_json::from_slice(&file).unwrap()
}

pub(crate) fn options(answer: &Json) -> LeRobotOptions {
    let mut options = LeRobotOptions::new();
    for (feature, deltas) in answer["delta_timestamps"].as_object().into_iter().flatten() {
        let seconds: Vec<f64> = deltas.as_array().unwrap().iter().map(|delta| delta.as_f64().unwrap()).collect();
        options = options.delta_timestamps(feature, seconds);
    }
    match answer["episodes"].as_array() {
        Some(episodes) => options.episodes(episodes.iter().map(|episode| episode.as_u64().unwrap())),
        None => options,
    }
}

fn opened(version: &str, options: &LeRobotOptions) -> LeRobot {
    LeRobot::open_with(fixture("lerobot").join(version), options, &Options::new()).unwrap()
}

fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0_u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
}

fn pixels(image: &[u8]) -> u32 {
    let codecs = Codecs::new();
    let (mut image, mut pixels) = (codecs.open(image).unwrap(), Pixels::default());
    image.decode(Rect::full(image.size()), &mut pixels).unwrap();
    crc32(pixels.data())
}

fn described(name: &str, value: Value<'_>, expected: &Json) -> Json {
    match value {
        Value::Text(text) => text.into(),
        Value::Bytes(bytes) if expected.is_array() => {
            Frames::read(bytes).unwrap().iter().map(pixels).collect::<Vec<_>>().into()
        }
        Value::Bytes(bytes) => pixels(bytes).into(),
        Value::Numbers(numbers) => {
            let shape: Vec<usize> = numbers.shape();
            let mut flat: Vec<Json> = Vec::new();
            flat.extend(numbers.iter::<f32>().into_iter().flatten().map(|number| f64::from(number).into()));
            flat.extend(numbers.iter::<i64>().into_iter().flatten().map(Json::from));
            let is_flag = |json: &Json| json.as_array().map_or(json, |items| &items[0]).is_boolean();
            let flags = numbers.iter::<u8>().into_iter().flatten();
            flat.extend(flags.map(|flag| if is_flag(expected) { Json::from(flag == 1) } else { Json::from(flag) }));
            nested(&mut flat.into_iter(), &shape)
        }
        other => panic!("{name}: {other:?}"),
    }
}

fn nested(flat: &mut impl Iterator<Item = Json>, shape: &[usize]) -> Json {
    match shape.split_first() {
        None => flat.next().unwrap(),
        Some((&len, inside)) => (0..len).map(|_| nested(flat, inside)).collect::<Vec<_>>().into(),
    }
}

fn check(sample: &Sample<'_>, item: &Json) {
    let item = item.as_object().unwrap();
    let stem = |name: &str| name.trim_end_matches(".npy").trim_end_matches(".txt").to_owned();
    let names: BTreeSet<String> = sample.names().iter().map(|name| stem(name)).collect();
    assert_eq!(names, item.keys().cloned().collect(), "{}", sample.key());
    for (name, value) in sample.fields() {
        let expected = &item[&stem(name)];
        assert_eq!(described(name, *value, expected), *expected, "{}: {name}", sample.key());
    }
}

/// Checks all samples. A sample has at most 16 fields, so the fields are read in two halves.
pub(crate) fn check_samples(source: &dyn Source, answer: &Json) {
    let items = answer["items"].as_array().unwrap();
    assert_eq!(source.len(), items.len());
    let names: Vec<String> = items[0].as_object().unwrap().keys().cloned().collect();
    for half in names.chunks(names.len().div_ceil(2)) {
        let selection = source.select_fields(half).unwrap();
        let mut scratch = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let item: Json = half.iter().map(|name| (name.clone(), item[name].clone())).collect();
            check(&selection.read(index, &mut scratch).unwrap(), &item);
        }
    }
}

#[test]
fn samples_are_those_of_the_librarys_dataset_class() {
    for version in VERSIONS {
        for answer in answers(version) {
            let set = opened(version, &options(&answer));
            check_samples(&set, &answer);
        }
    }
}

#[test]
fn the_path_alone_opens_all_episodes() {
    for version in VERSIONS {
        let set = open(fixture("lerobot").join(version)).unwrap();
        assert_eq!((set.kind(), set.len(), set.has_images()), ("lerobot", 15, Some(false)));
        check_samples(&*set, &answers(version)[0]);
        let train = open(fixture("lerobot").join(version).join("train")).unwrap();
        assert_eq!((train.kind(), train.len()), ("lerobot", 15));
        let e = open(fixture("lerobot").join(version).join("test")).err().unwrap().to_string();
        assert!(e.contains("split=\"test\": expected one of the splits in meta/info.json: [\"train\"]"), "{e}");
        let mut scratch = Vec::new();
        assert_eq!(set.key(5, &mut scratch).unwrap(), "episode_000001/frame_000000");
        assert_eq!(set.read(14, &mut scratch).unwrap().key(), "episode_000002/frame_000006");
        assert_eq!(set.label(3, &mut scratch).unwrap(), None);
        assert!(set.path(14).unwrap().ends_with(match version {
            "v21" => "data/chunk-000/episode_000002.parquet",
            _ => "data/chunk-000/file-001.parquet",
        }));
    }
}

#[test]
fn version_2_0_is_read_with_statistics_of_the_whole_dataset() {
    let copy = writable("v21");
    edit(copy.path(), "meta/info.json", "v2.1", "v2.0");
    fs::remove_file(copy.path().join("meta/episodes_stats.jsonl")).unwrap();
    let e = LeRobot::open(copy.path()).unwrap().stats().unwrap_err().to_string();
    assert!(e.contains("meta/stats.json"), "{e}");
    fs::copy(fixture("lerobot/v30/meta/stats.json"), copy.path().join("meta/stats.json")).unwrap();
    let set = LeRobot::open(copy.path()).unwrap();
    check_samples(&set, &answers("v21")[0]);
    assert_eq!(set.stats().unwrap(), LeRobot::open(fixture("lerobot/v30")).unwrap().stats().unwrap());
}

#[test]
fn statistics_are_those_of_the_library() {
    let numbers = |json: &Json| -> Vec<f64> {
        fn flat(json: &Json, out: &mut Vec<f64>) {
            match json.as_array() {
                Some(items) => items.iter().for_each(|item| flat(item, out)),
                None => out.push(json.as_f64().unwrap_or_else(|| f64::from(u8::from(json.as_bool().unwrap())))),
            }
        }
        let mut numbers = Vec::new();
        flat(json, &mut numbers);
        numbers
    };
    for version in VERSIONS {
        for answer in answers(version) {
            let chosen = options(&answer);
            let stats = opened(version, &chosen).stats().unwrap();
            let expected = answer["stats"].as_object().unwrap();
            assert!(stats.keys().eq(expected.keys()), "{version}");
            for (name, actual) in &stats {
                let both = [("min", &actual.min), ("max", &actual.max), ("mean", &actual.mean), ("std", &actual.std)];
                for (key, actual) in both {
                    let expected = numbers(&expected[name][key]);
                    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
                    assert!(actual.len() == expected.len() && actual.iter().zip(&expected).all(near), "{name}: {key}");
                }
                assert_eq!(actual.count.unwrap() as f64, numbers(&expected[name]["count"])[0], "{name}");
            }
            let path = fixture("lerobot").join(version);
            assert_eq!(LeRobot::stats_at(path, &chosen, &Options::new()).unwrap(), stats);
        }
    }
}

#[test]
fn episodes_and_splits_choose_the_samples() {
    for version in VERSIONS {
        let cases = answers(version);
        let items = cases[0]["items"].as_array().unwrap();
        for (episodes, expected) in [(vec![2, 0], vec![(0, 5), (8, 15)]), (vec![1], vec![(5, 8)])] {
            let set = opened(version, &LeRobotOptions::new().episodes(episodes.clone()));
            let expected: Vec<Json> = expected.iter().flat_map(|&(start, end)| items[start..end].to_vec()).collect();
            check_samples(&set, &serde_json::json!({ "items": expected }));
            let listed: Vec<_> = set.episodes().map(|(index, _)| index).collect();
            assert_eq!(listed, {
                let mut sorted = episodes;
                sorted.sort_unstable();
                sorted
            });
            assert_eq!(set.episodes().last().unwrap().1.end, set.len());
        }
        let copy = writable(version);
        edit(copy.path(), "meta/info.json", "\"train\": \"0:3\"", "\"train\": \"0:2\", \"test\": \"2:3\"");
        let with = |options: LeRobotOptions| LeRobot::open_with(copy.path(), &options, &Options::new());
        let test = with(LeRobotOptions::new().split("test")).unwrap();
        check_samples(&test, &serde_json::json!({ "items": items[8..] }));
        let cause = |options: LeRobotOptions| with(options).unwrap_err().to_string();
        let e = cause(LeRobotOptions::new().split("train").episodes([0, 2]));
        assert!(e.contains("episodes: 2 is not in the split \"train\", which contains the episodes 0 to 1"), "{e}");
        let e = cause(LeRobotOptions::new().episodes([3]));
        assert!(e.contains("there is no episode 3; the dataset has 3 episodes, with indices from 0 to 2"), "{e}");
        let e = cause(LeRobotOptions::new().episodes([1, 1]));
        assert!(e.contains("episodes: 1 is listed twice"), "{e}");
    }
}

#[test]
fn deltas_must_be_multiples_of_the_duration_of_a_frame() {
    let cause = |options: LeRobotOptions| {
        LeRobot::open_with(fixture("lerobot/v30"), &options, &Options::new()).unwrap_err().to_string()
    };
    let new = LeRobotOptions::new;
    let e = cause(new().delta_timestamps("action", [0.0, 0.16]));
    let message = "delta_timestamps: feature \"action\": 0.16 s is not a multiple of 1/10 s, the duration of a frame \
         at fps=10, within tolerance_s=0.0001; the nearest is 0.2 s";
    assert!(e.contains(message), "{e}");
    for (offset, tolerance, valid) in [(0.00009, 1e-4, true), (0.00011, 1e-4, false), (0.04, 0.05, true)] {
        let options = new().delta_timestamps("action", [0.1 + offset]).tolerance_s(tolerance);
        assert_eq!(LeRobot::open_with(fixture("lerobot/v30"), &options, &Options::new()).is_ok(), valid, "{offset}");
    }
    for (options, message) in [
        (new().delta_timestamps("action", [f64::NAN]), "NaN s is not a multiple"),
        (new().delta_indices("action", []), "feature \"action\" has 0 deltas: expected from 1 to 4096"),
        (new().delta_indices("action", [i64::MIN]), "expected at most 2147483647"),
        (new().delta_indices("motion", [0]), "deltas: no feature \"motion\" among [\"action\""),
        (new().delta_indices("task", [0]), "feature \"task\" is text, which cannot be stacked"),
        (new().features(["task"]).delta_indices("action", [0]), "\"action\" is not selected"),
        (new().delta_indices("action", [0]).delta_timestamps("action", [0.0]), "are set more than once"),
        (new().tolerance_s(-1.0), "tolerance_s=-1: expected 0 or more seconds"),
        (new().features(["action", "action"]), "features: \"action\" is listed twice"),
        (new().features(["motion"]), "features: no feature \"motion\" among [\"action\""),
        (new().features([""; 0]), "features: expected at least one of"),
    ] {
        let e = cause(options);
        assert!(e.contains(message), "{e}");
    }
}

#[test]
fn frames_and_seconds_are_the_same_deltas() {
    let seconds = opened("v21", &LeRobotOptions::new().delta_timestamps("action", [-0.2, 0.0, 0.7]));
    let frames = opened("v21", &LeRobotOptions::new().delta_indices("action", [-2, 0, 7]));
    for index in 0..seconds.len() {
        let [one, other] =
            [&seconds, &frames].map(|set| OwnedSample::try_from(&set.read(index, &mut Vec::new()).unwrap()));
        assert_eq!(one.unwrap(), other.unwrap());
    }
}

fn with_videos(version: &str) -> tempfile::TempDir {
    let copy = writable(version);
    let path = copy.path().join("meta/info.json");
    let mut info: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for camera in ["top", "wrist"] {
        info["features"][format!("observation.images.{camera}")]["dtype"] = "video".into();
    }
    fs::write(path, info.to_string()).unwrap();
    copy
}

#[test]
fn videos_without_files_are_left_out_unless_they_are_asked_for() {
    for version in VERSIONS {
        let copy = with_videos(version);
        let set = LeRobot::open(copy.path()).unwrap();
        assert!(set.fields().unwrap().iter().all(|field| !field.contains("images")), "{:?}", set.fields());
        let mut scratch = Vec::new();
        assert!((0..15).all(|index| set.read(index, &mut scratch).is_ok()));
        let top = "observation.images.top";
        for options in [LeRobotOptions::new().features([top]), LeRobotOptions::new().delta_indices(top, [0])] {
            let e = LeRobot::open_with(copy.path(), &options, &Options::new()).unwrap_err().to_string();
            let message = match (cfg!(feature = "video"), version) {
                (true, "v21") => "video_path is missing",
                (true, _) => "no column \"videos/observation.images.top/chunk_index\"",
                (false, _) => {
                    "feature \"observation.images.top\" is a video, and this build of warpfeed lacks the Cargo feature"
                }
            };
            assert!(e.contains(message), "{e}");
        }
        let e = Loader::source(set)
            .drop_field("label")
            .field("top", Image::from_field(top))
            .host()
            .err()
            .unwrap()
            .to_string();
        assert!(e.contains("no field \"observation.images.top\""), "{e}");
    }
}

pub(crate) fn writable(version: &str) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let dest = to.join(entry.file_name());
            if entry.path().is_dir() { copy(&entry.path(), &dest) } else { _ = fs::copy(entry.path(), dest).unwrap() }
        }
    }
    let root = tempfile::tempdir().unwrap();
    copy(&fixture("lerobot").join(version), root.path());
    root
}

fn edit(root: &Path, file: &str, from: &str, to: &str) {
    let path = root.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_damaged_or_missing_file_is_named() {
    let (info, lines) = ("meta/info.json", "meta/episodes.jsonl");
    for (version, file, from, to, message) in [
        ("v21", info, "{", "", "damaged:"),
        ("v21", info, "\"v2.1\"", "\"v1.6\"", "codebase_version=\"v1.6\": expected \"v2.0\", \"v2.1\" or \"v3.0\""),
        ("v30", info, "\"fps\": 10", "\"fps\": 0", "fps=0: expected a positive number"),
        ("v30", info, "\"fps\": 10", "\"fbs\": 10", "missing field `fps`"),
        ("v30", info, "{chunk_index:03d}", "{chunk:03d}", "data_path=\"data/chunk-{chunk:03d}"),
        ("v30", info, "data/chunk-", "../chunk-", "expected a relative path inside the dataset"),
        ("v21", info, "\"total_episodes\": 3", "\"total_episodes\": 4", "this list contains 3 episodes, but meta/info"),
        ("v21", info, "\"action\"", "\"actions\"", "no column \"actions\", but meta/info.json lists this feature"),
        ("v21", lines, "\"episode_index\": 1", "\"episode_index\": 0", "episode 0 is listed twice"),
        ("v21", lines, "\"length\": 3", "\"length\": 4", "the file has 3 rows, but the metadata lists 4 frames"),
        ("v21", lines, "\"length\": 3", "\"len\": 3", "missing field `length`"),
        ("v21", "meta/tasks.jsonl", "\"task_index\": 1", "\"task_index\": 0", "task 0 is listed twice"),
    ] {
        let copy = writable(version);
        edit(copy.path(), file, from, to);
        let e = open(copy.path()).err().unwrap();
        let text = e.to_string();
        assert!(text.contains(message) && e.path().is_some(), "{file}: {text}");
    }
    let data = ["data/chunk-000/episode_000001.parquet", "data/chunk-000/file-001.parquet"];
    let tables = ["meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"];
    let files = [("v21", data[0]), ("v21", lines), ("v30", data[1]), ("v30", tables[0]), ("v30", tables[1])];
    for (version, file) in files.into_iter().chain([("v21", "meta/tasks.jsonl")]) {
        let copy = writable(version);
        let path = copy.path().join(file);
        if file.ends_with("parquet") {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
            let e = LeRobot::open(copy.path()).unwrap_err().to_string();
            assert!(e.contains(Path::new(file).file_name().unwrap().to_str().unwrap()), "{file}: {e}");
        }
        fs::remove_file(&path).unwrap();
        let e = LeRobot::open(copy.path()).unwrap_err().to_string();
        let named = Path::new(file).file_stem().unwrap().to_str().unwrap();
        assert!(e.contains(named) || e.contains("meta/episodes"), "{file}: {e}");
    }
}

#[test]
fn rows_that_contradict_the_metadata_fail() {
    let copy = writable("v21");
    let file = |episode: u64| copy.path().join(format!("data/chunk-000/episode_00000{episode}.parquet"));
    fs::copy(file(0), copy.path().join("other")).unwrap();
    fs::rename(file(2), file(0)).unwrap();
    fs::rename(copy.path().join("other"), file(2)).unwrap();
    edit(copy.path(), "meta/episodes.jsonl", "\"length\": 5", "\"length\": 9");
    edit(copy.path(), "meta/episodes.jsonl", "\"length\": 7", "\"length\": 5");
    edit(copy.path(), "meta/episodes.jsonl", "\"length\": 9", "\"length\": 7");
    let set = LeRobot::open(copy.path()).unwrap();
    let e = set.read(0, &mut Vec::new()).unwrap_err().to_string();
    let message =
        "column \"episode_index\" holds 2 in the row of episode_000000/frame_000000, but the metadata lists 0";
    assert!(e.contains(message) && e.contains("episode_000000.parquet"), "{e}");
    assert!(set.read(7, &mut Vec::new()).is_ok());
    // A doubled frame rate contradicts the timestamps.
    let copy = writable("v30");
    edit(copy.path(), "meta/info.json", "\"fps\": 10", "\"fps\": 20");
    let set = LeRobot::open_with(copy.path(), &LeRobotOptions::new().delta_indices("action", [0, 2]), &Options::new())
        .unwrap();
    let e = set.select_fields(&["action".to_owned()]).unwrap().read(0, &mut Vec::new()).unwrap_err().to_string();
    assert!(
        e.contains("says that frames 0 and 2 of episode 0 are 0.2") && e.contains("expected 0.1 s at fps=20"),
        "{e}"
    );
    let loose = LeRobotOptions::new().delta_indices("action", [0, 2]).tolerance_s(0.06);
    assert!(LeRobot::open_with(copy.path(), &loose, &Options::new()).unwrap().read(0, &mut Vec::new()).is_ok());
    let copy = writable("v21");
    edit(copy.path(), "meta/tasks.jsonl", "\"task_index\": 1", "\"task_index\": 9");
    let set = LeRobot::open(copy.path()).unwrap();
    let e = (0..15).find_map(|index| set.read(index, &mut Vec::new()).err()).unwrap().to_string();
    assert!(e.contains("column \"task_index\" holds 1, which is not among the tasks"), "{e}");
}

fn loader(set: impl Source + 'static) -> Loader {
    Loader::source(set)
        .drop_field("label")
        .field("observation.state", NdArray::new(Dtype::F32, [3]))
        .field("action", NdArray::new(Dtype::F32, [3, 4]))
        .field("action_is_pad", NdArray::new(Dtype::U8, [3]))
        .field("task", Text::new())
        .field("top", Image::from_field("observation.images.top"))
        .augment(Augment::resize(8, 6))
        .batch_size(4)
}

type Contents = (Vec<f32>, Vec<f32>, Vec<u8>, Vec<String>, Vec<u8>);

fn epoch(loader: Loader) -> Vec<Contents> {
    let mut batches = loader.host().unwrap();
    let read = |batch: warpfeed::Result<warpfeed::HostBatch>| {
        let batch = batch.unwrap();
        let bytes = |name: &str| batch.field(name).unwrap().bytes().to_vec();
        let float = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap());
        let floats = |name: &str| bytes(name).chunks(4).map(float).collect();
        let tasks = batch.texts("task").unwrap().map(str::to_owned).collect();
        (floats("observation.state"), floats("action"), bytes("action_is_pad"), tasks, bytes("top"))
    };
    batches.epoch(0).map(read).collect()
}

#[test]
fn a_loader_reads_the_same_batches_from_files_and_from_a_store() {
    for version in VERSIONS {
        let store = Objects::of(&fixture("lerobot").join(version), "mem://set");
        let stored = Options::new().store("mem", Arc::new(store.clone()));
        check_samples(&*stored.open("mem://set").unwrap(), &answers(version)[0]);
        let options = || LeRobotOptions::new().delta_indices("action", -1..2);
        let local = |with: fn(Loader) -> Loader| epoch(with(loader(opened(version, &options()))));
        let there = |with: fn(Loader) -> Loader| {
            epoch(with(loader(LeRobot::open_with("mem://set", &options(), &stored).unwrap())))
        };
        let ways: [fn(Loader) -> Loader; 3] =
            [|loader| loader, |loader| loader.shuffle(7), |loader| loader.shuffle(7).rank(1, 2).workers(3)];
        for with in ways {
            let batches = local(with);
            assert!(!batches.is_empty() && batches == there(with), "{version}");
        }
        let first = &local(|loader| loader)[0];
        let item = &answers(version)[0]["items"];
        let states: Vec<Json> = first.0.iter().map(|&number| f64::from(number).into()).collect();
        let expected = (0..4).flat_map(|index| item[index]["observation.state"].as_array().unwrap().clone());
        assert_eq!(states, expected.collect::<Vec<_>>());
        assert_eq!(first.2, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(first.3[0], item[0]["task"].as_str().unwrap());
        assert_eq!(u64::from(crc32(&first.4[..8 * 6 * 3])), item[0]["observation.images.top"].as_u64().unwrap());
    }
}

#[test]
fn points_of_each_frame_are_the_values_of_a_feature() {
    for version in VERSIONS {
        let options = LeRobotOptions::new().delta_indices("action", -1..2);
        let set = Arc::new(opened(version, &options.delta_indices("observation.images.top", -1..2)));
        let read = |loader: Loader, name: &str| {
            let batches = loader.augment(Augment::resize(8, 6)).batch_size(4).drop_field("label").shuffle(2).host();
            let rows =
                |batch: warpfeed::Result<warpfeed::HostBatch>| batch.unwrap().field(name).unwrap().bytes().to_vec();
            batches.unwrap().epoch(0).map(rows).collect::<Vec<_>>()
        };
        let stored = read(Loader::source(set.clone()).field("action", NdArray::new(Dtype::F32, [3, 4])), "action");
        let image = Image::from_field("observation.images.top").frames(3);
        let points = Loader::source(set).field("top", image).field("action", Keypoints::new(2).frames(3));
        assert!(!stored.is_empty() && read(points, "action") == stored, "{version}");
    }
}

#[test]
fn the_error_for_too_many_fields_names_the_option_that_helps() {
    let deltas = ["action", "next.reward", "next.done", "observation.state"];
    let options = deltas.iter().fold(LeRobotOptions::new(), |options, name| options.delta_indices(*name, [0]));
    let set = opened("v30", &options);
    assert_eq!(set.fields().unwrap().len(), 17);
    let e = set.read(0, &mut Vec::new()).unwrap_err().to_string();
    assert!(e.contains("the features have 17 fields, but a sample has at most 16: select features with"), "{e}");
    let few = opened("v30", &options.features(["action", "next.reward", "next.done", "observation.state"]));
    assert_eq!(few.read(0, &mut Vec::new()).unwrap().fields().len(), 8);
}
