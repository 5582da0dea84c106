//! Tests LeRobot datasets with video cameras. The frames must match the frames of LeRobot's own
//! dataset class within [`TOLERANCE`], and be identical in both file layouts and any sample order.
//! Frames at wrong times and damaged files must cause errors that name the file and the frame.
//! Cameras that cannot be read are left out unless they are requested.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;
use warpfeed::decode::{Codecs, Pixels, Rect};
use warpfeed::field::{Image, Ragged};
use warpfeed::source::{Frames, LeRobot, LeRobotOptions, Options, Source, Value};
use warpfeed::{Augment, Dtype, Loader};
use warpfeed_video::Codec;

use crate::formats::fixture;
use crate::lerobot::writable;

const FRONT: &str = "observation.images.front";
const WRIST: &str = "observation.images.wrist";

/// Maximum difference from LeRobot's pixels. LeRobot converts colors with swscale, which is less
/// precise.
const TOLERANCE: u8 = 3;

/// The expected values contain every sixteenth pixel of every sixteenth row.
const STEP: usize = 16;

fn open_v30_video() -> LeRobot {
    LeRobot::open(fixture("lerobot").join("v30_video")).unwrap()
}

/// Returns a copy of the version 2.1 dataset, with videos that show the frames of `v30_video`.
fn copy_v21_with_videos() -> tempfile::TempDir {
    let folder = writable("v21");
    let videos = fixture("lerobot").join("v21_video/videos/chunk-000");
    for camera in [FRONT, WRIST] {
        let dest = folder.path().join("videos/chunk-000").join(camera);
        fs::create_dir_all(&dest).unwrap();
        for file in fs::read_dir(videos.join(camera)).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), dest.join(file.file_name())).unwrap();
        }
    }
    let path = folder.path().join("meta/info.json");
    let mut info: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4".into();
    for (camera, width) in [(FRONT, 96), (WRIST, 64)] {
        info["features"][camera] = serde_json::json!({"dtype": "video", "shape": [64, width, 3]});
    }
    fs::write(path, info.to_string()).unwrap();
    folder
}

fn pixels(frame: &[u8]) -> Pixels {
    let (codecs, mut pixels) = (Codecs::new(), Pixels::default());
    let mut image = codecs.open(frame).unwrap();
    image.decode(Rect::full(image.size()), &mut pixels).unwrap();
    pixels
}

fn frames(set: &dyn Source, index: usize, camera: &str) -> Vec<Vec<u8>> {
    let mut scratch = Vec::new();
    let sample = set.read(index, &mut scratch).unwrap();
    let Some(Value::Bytes(bytes)) = sample.value(camera) else { panic!("{index}: no bytes in {camera}") };
    match bytes.starts_with(b"WFvideo") {
        true => vec![bytes.to_vec()],
        false => Frames::read(bytes).unwrap().iter().map(<[u8]>::to_vec).collect(),
    }
}

fn check(frame: &[u8], expected: &Json, what: &str) {
    let actual = pixels(frame);
    let width = actual.size().width as usize;
    let rows = expected.as_array().unwrap();
    assert_eq!(rows.len(), (actual.size().height as usize).div_ceil(STEP), "{what}");
    for (y, row) in rows.iter().enumerate() {
        for (x, pixel) in row.as_array().unwrap().iter().enumerate() {
            let offset = (y * STEP * width + x * STEP) * 3;
            for (channel, value) in pixel.as_array().unwrap().iter().enumerate() {
                let (actual, expected) = (actual.data()[offset + channel], value.as_u64().unwrap() as u8);
                assert!(actual.abs_diff(expected) <= TOLERANCE, "{what} {x} {y} {channel}: {actual}, not {expected}");
            }
        }
    }
}

#[test]
fn frames_of_videos_are_those_of_the_librarys_dataset_class() {
    let answers: Vec<Json> =
        serde_json::from_slice(&fs::read(fixture("lerobot").join("v30_video.json")).unwrap()).unwrap();
    let items = answers[0]["items"].as_array().unwrap();
    let set = open_v30_video();
    assert_eq!((set.len(), items.len()), (15, 15));
    for (index, item) in items.iter().enumerate() {
        for camera in [FRONT, WRIST] {
            check(&frames(&set, index, camera)[0], &item[camera], &format!("{camera} {index}"));
        }
    }
    let deltas = answers[1]["delta_timestamps"][FRONT].as_array().unwrap();
    let options = LeRobotOptions::new().delta_timestamps(FRONT, deltas.iter().map(|delta| delta.as_f64().unwrap()));
    let set = LeRobot::open_with(fixture("lerobot").join("v30_video"), &options, &Options::new()).unwrap();
    for (index, item) in answers[1]["items"].as_array().unwrap().iter().enumerate() {
        let actual = frames(&set, index, FRONT);
        let expected = item[FRONT].as_array().unwrap();
        assert_eq!(actual.len(), expected.len());
        for (position, (frame, expected)) in actual.iter().zip(expected).enumerate() {
            check(frame, expected, &format!("{index} frame {position}"));
        }
        let mut scratch = Vec::new();
        let sample = set.read(index, &mut scratch).unwrap();
        let Some(Value::Numbers(pad)) = sample.value(&format!("{FRONT}_is_pad.npy")) else { panic!("{index}") };
        let pad: Vec<bool> = pad.iter::<u8>().unwrap().map(|pad| pad == 1).collect();
        let expected = item[format!("{FRONT}_is_pad")].as_array().unwrap();
        assert!(pad.iter().copied().eq(expected.iter().map(|pad| pad.as_bool().unwrap())), "{index}");
    }
}

#[test]
fn a_file_for_each_episode_has_the_same_frames_as_a_shared_file() {
    let folder = copy_v21_with_videos();
    let (shared, each) = (open_v30_video(), LeRobot::open(folder.path()).unwrap());
    assert_eq!(shared.len(), each.len());
    for index in 0..each.len() {
        for camera in [FRONT, WRIST] {
            let [one, other] = [&shared as &dyn Source, &each].map(|set| pixels(&frames(set, index, camera)[0]));
            assert_eq!(one.data(), other.data(), "{camera} {index}");
        }
    }
}

fn batches(loader: Loader, threads: usize, epoch: u64, skip: usize) -> Vec<Vec<u8>> {
    let mut batches = loader
        .drop_field("label")
        .field(FRONT, Image::from_field(FRONT).frames(4))
        .field("wrist", Image::from_field(WRIST).augment(Augment::resize(32, 32)))
        .field("action", Ragged::new(Dtype::F32, [], 4))
        .augment(Augment::train(48))
        .batch_size(3)
        .shuffle(7)
        .workers(threads)
        .host()
        .unwrap();
    let content_of = |batch: warpfeed::Result<warpfeed::HostBatch>| {
        let batch = batch.unwrap();
        [FRONT, "wrist", "action"].iter().flat_map(|name| batch.field(name).unwrap().bytes().to_vec()).collect()
    };
    batches.epoch(epoch).map(content_of).skip(skip).collect()
}

#[test]
fn batches_do_not_depend_on_workers_and_resumption() {
    let options = || LeRobotOptions::new().delta_indices(FRONT, -2..2);
    let open = || {
        let set = LeRobot::open_with(fixture("lerobot").join("v30_video"), &options(), &Options::new()).unwrap();
        Loader::source(set)
    };
    let single_worker = batches(open(), 1, 0, 0);
    assert_eq!(single_worker.len(), 5);
    assert!(single_worker.iter().all(|batch| batch.len() == 3 * (4 * 48 * 48 * 3 + 32 * 32 * 3 + 16)));
    assert_eq!(single_worker, batches(open(), 3, 0, 0));
    assert_eq!(single_worker[2..], batches(open(), 2, 0, 2));
    assert_ne!(single_worker, batches(open(), 2, 1, 0));
}

#[test]
#[cfg(feature = "nvdec")]
fn batches_of_gpu_decoded_videos_are_equal_for_any_threads() {
    if let Err(e) = warpfeed_video::check(Codec::H264) {
        return crate::require::missing("cuda", e);
    }
    for name in ["gpu-h264", "gpu-hevc", "gpu-vp9"] {
        let folder = copy_v21_with_videos();
        let video = Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures").join(name).with_extension("mp4");
        for episode in 0..3 {
            let dest = format!("videos/chunk-000/{FRONT}/episode_{episode:06}.mp4");
            fs::copy(&video, folder.path().join(dest)).unwrap();
        }
        let options = LeRobotOptions::new().delta_indices(FRONT, -2..2);
        let open = || LeRobot::open_with(folder.path(), &options, &Options::new()).unwrap();
        let single_worker = batches(Loader::source(open()), 1, 0, 0);
        assert_eq!(single_worker.len(), 5);
        assert_eq!(single_worker, batches(Loader::source(open()), 8, 0, 0), "{name}");
        assert_eq!(single_worker[2..], batches(Loader::source(open()), 3, 0, 2), "{name}");
        let expected: Vec<_> = (0..15).flat_map(|index| frames(&open(), index, FRONT)).collect();
        let forward: Vec<_> = expected.iter().map(|frame| pixels(frame).data().to_vec()).collect();
        let mut backward: Vec<_> = expected.iter().rev().map(|frame| pixels(frame).data().to_vec()).collect();
        backward.reverse();
        assert!(forward == backward && forward[3] != forward[7], "{name}");
    }
}

#[test]
fn the_size_of_the_largest_camera_is_reported() {
    assert_eq!(open_v30_video().video_info().map(|video| video.pixels), Some(96 * 64));
    assert_eq!(
        open_v30_video().select_fields(&[WRIST.to_owned()]).unwrap().video_info().map(|video| video.pixels),
        Some(64 * 64)
    );
}

#[test]
fn frames_at_a_different_time_fail() {
    let folder = copy_v21_with_videos();
    // The frames of this video have different durations.
    let vfr = Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures/vfr.mp4");
    fs::copy(vfr, folder.path().join("videos/chunk-000").join(FRONT).join("episode_000000.mp4")).unwrap();
    let set = LeRobot::open(folder.path()).unwrap();
    let mut scratch = Vec::new();
    // The dataset declares 10 frames per second, but the video starts with 30.
    let frame = frames(&set, 1, FRONT).remove(0);
    assert!(String::from_utf8_lossy(&frame).contains("episode_000000.mp4: frame 3 at 0.1 s"));
    // The nearest frames are at 0.267 s and 0.333 s.
    let e = set.read(3, &mut scratch).unwrap_err().to_string();
    assert!(e.contains("episode_000000.mp4") && e.contains("no frame at 0.3"), "{e}");
    assert!(e.contains("the nearest is frame") && e.contains("tolerance_s=0.0001"), "{e}");
    assert!(set.read(6, &mut scratch).is_ok());
    let loose = LeRobotOptions::new().tolerance_s(0.05);
    let set = LeRobot::open_with(folder.path(), &loose, &Options::new()).unwrap();
    assert!(set.read(3, &mut scratch).is_ok());
}

#[test]
fn errors_name_the_damaged_video_and_its_frame() {
    let folder = writable("v30_video");
    // In the file of the first two episodes, the moov box precedes the packets, so truncating the
    // file removes only packets.
    let path = folder.path().join("videos").join(WRIST).join("chunk-000/file-000.mp4");
    let file = fs::read(&path).unwrap();
    let track = warpfeed_video::open(&file).unwrap();
    let last = *track.packets().last().unwrap();
    fs::write(&path, &file[..file.len() - 20]).unwrap();
    let set = LeRobot::open(folder.path()).unwrap();
    let mut scratch = Vec::new();
    assert!(set.read(6, &mut scratch).is_ok());
    let e = set.read(7, &mut scratch).unwrap_err().to_string();
    assert!(e.contains("file-000.mp4") && e.contains("frame 7 ends at byte") && e.contains("truncated"), "{e}");

    let mut damaged = file;
    damaged[last.offset as usize..][..8].fill(0xff);
    fs::write(&path, damaged).unwrap();
    let set = LeRobot::open(folder.path()).unwrap();
    let codecs = Codecs::new();
    let frame = frames(&set, 7, WRIST).remove(0);
    let mut image = codecs.open(&frame).unwrap();
    let area = Rect::full(image.size());
    let e = image.decode(area, &mut Pixels::new()).unwrap_err().to_string();
    assert!(e.contains("file-000.mp4: frame 7 at 0.7 s: packet ") && e.contains("AV1"), "{e}");

    // Opening the dataset opens only the first file of each camera.
    let folder = copy_v21_with_videos();
    let path = folder.path().join("videos/chunk-000").join(WRIST).join("episode_000001.mp4");
    let file = fs::read(&path).unwrap();
    fs::write(&path, &file[..40]).unwrap();
    let set = LeRobot::open(folder.path()).unwrap();
    assert!(set.read(0, &mut scratch).is_ok());
    let e = set.read(5, &mut scratch).unwrap_err().to_string();
    assert!(e.contains("episode_000001.mp4") && e.contains("moov"), "{e}");
}

#[test]
fn unreadable_videos_are_left_out_unless_requested() {
    let folder = copy_v21_with_videos();
    let first = folder.path().join("videos/chunk-000").join(FRONT).join("episode_000000.mp4");
    let h264 = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures/h264.mp4")).unwrap();
    // No decoder supports this codec, with any Cargo feature.
    let mut mpeg4 = h264.clone();
    let name = mpeg4.windows(8).position(|bytes| bytes[4..] == *b"avc1" && bytes[..3] == [0; 3]).unwrap();
    mpeg4[name + 4..name + 8].copy_from_slice(b"mp4v");
    let front_only = LeRobotOptions::new().features([FRONT]);
    let has_driver = warpfeed_video::check(Codec::H264).is_ok();
    let cases = [
        (Some(h264).filter(|_| !has_driver), "encoded with H.264"),
        (Some(mpeg4), "encoded with \"mp4v\""),
        (None, "episode_000000.mp4"),
    ];
    for (bytes, message) in cases {
        match bytes {
            Some(bytes) => fs::write(&first, &bytes).unwrap(),
            None => drop(fs::remove_file(&first)),
        }
        let set = LeRobot::open(folder.path()).unwrap();
        let fields = set.fields().unwrap();
        assert!(fields.contains(&WRIST.to_owned()) && !fields.contains(&FRONT.to_owned()), "{fields:?}");
        let e = LeRobot::open_with(folder.path(), &front_only, &Options::new()).unwrap_err().to_string();
        assert!(e.contains(message), "{e}");
    }
}
