//! Tests that clips contain exactly the frames that a brute-force search finds, and that each frame
//! has the same pixels as if it were decoded alone. The start of a clip must depend only on the
//! seed, the epoch and the sample. Short videos must be padded or rejected. Damaged and empty
//! videos must cause errors that name the file. If decoding a frame fails, the error must also name
//! the frame.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpfeed::decode::{Codecs, Pixels, Rect};
use warpfeed::field::{Image, Keypoints, Mask, NdArray};
use warpfeed::pack::Pack;
use warpfeed::source::{
    Clips, ClipsOptions, Concat, Dataset, Frames, Memory, Options, OwnedSample, Source, Value, VideoInfo, Zip, open,
};
use warpfeed::{Augment, Dtype, HostBatch, Layout, Loader, Result};
use warpfeed_video::Track;

use crate::objects::Objects;

fn video(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures").join(name)
}

/// The path and the fixture of each video. The fixtures have constant and variable frame rates,
/// short and long groups of pictures, an edit list that hides frames, and fragments.
const VIDEOS: [(&str, &str); 8] = [
    ("archery/a.mp4", "g2.mp4"),
    ("archery/b.mov", "long.mp4"),
    ("bowling/deep/c.mp4", "vfr.mp4"),
    ("bowling/d.m4v", "cut.mp4"),
    ("bowling/e.MP4", "frag.mp4"),
    ("bowling/f.mp4", "delay.mp4"),
    ("bowling/g.mkv", "vfr.mkv"),
    ("bowling/h.webm", "live.webm"),
];

fn folder(videos: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, from) in videos {
        let dest = folder.path().join(name);
        fs::create_dir_all(dest.parent().unwrap()).unwrap();
        fs::copy(video(from), dest).unwrap();
    }
    folder
}

fn pixels(frame: &[u8]) -> Vec<u8> {
    let (codecs, mut pixels) = (Codecs::new(), Pixels::default());
    let mut image = codecs.open(frame).unwrap();
    image.decode(Rect::full(image.size()), &mut pixels).unwrap();
    pixels.data().to_vec()
}

fn all_frames(path: &Path) -> (Track, Vec<Vec<u8>>) {
    let file = fs::read(path).unwrap();
    let track = warpfeed_video::open(&file).unwrap();
    let frame = |frame| {
        let (needed, mut record) = (track.packets_for(frame), Vec::new());
        warpfeed_video::record::write_header(track.config(), track.orientation(), "", needed.len() as u32, &mut record)
            .unwrap();
        for packet in needed {
            record.extend(packet.size.to_le_bytes());
            record.extend(&file[packet.offset as usize..][..packet.size as usize]);
        }
        pixels(&record)
    };
    let frames = (0..track.len()).map(frame).collect();
    (track, frames)
}

/// An expected clip: its nominal start, and for each possible start the frame indices and the
/// padding flags.
type Expected = (usize, Vec<(Vec<usize>, Vec<u8>)>);

/// Lists the clips of a video of `len` frames by brute force. `position(start, n)` is the index in
/// the video of frame `n` of the clip that starts at frame `start`, or `None` after the end of the
/// video.
fn naive(
    len: usize,
    (frames, clips_per_video, jitter): (usize, usize, usize),
    position: impl Fn(usize, usize) -> Option<usize>,
) -> Vec<Expected> {
    let fits = |start: &usize| (0..frames).all(|place| position(*start, place).is_some());
    let last = (0..len).filter(fits).max().unwrap_or(0);
    let base = |clip: usize| match clips_per_video {
        1 => last / 2,
        _ => (clip as f64 * last as f64 / (clips_per_video - 1) as f64 + 1e-9).round() as usize,
    };
    let choice = |start: usize| {
        let positions: Vec<_> = (0..frames).map(|place| position(start, place)).collect();
        let pads = positions.iter().map(|frame| u8::from(frame.is_none())).collect();
        (positions.into_iter().map(|frame| frame.unwrap_or(len - 1)).collect(), pads)
    };
    let starts = |base: usize| (0..=last).filter(move |start| start.abs_diff(base) <= jitter);
    (0..clips_per_video).map(base).map(|base| (base, starts(base).map(choice).collect())).collect()
}

fn check(set: &Clips, root: &Path, clips_per_video: usize, expected: impl Fn(&Track) -> Vec<Expected>, what: &str) {
    assert_eq!(set.len(), VIDEOS.len() * clips_per_video);
    let mut scratch = Vec::new();
    let mut videos = BTreeMap::new();
    for index in 0..set.len() {
        let path = set.path(index).unwrap();
        let (track, all_of_video) = videos.entry(path.clone()).or_insert_with(|| all_frames(&path));
        let (base, choices) = &expected(track)[index % clips_per_video];
        let what = format!("{what}: sample {index}, {}", path.display());
        let sample = set.read(index, &mut scratch).unwrap();
        let below = path.strip_prefix(root).unwrap().with_extension("");
        let key = format!("{}/frame_{base:06}", below.display());
        assert_eq!(sample.key(), key, "{what}");
        assert_eq!(sample.label().unwrap(), Some(i64::from(key.starts_with("bowling"))), "{what}");
        let Some(Value::Bytes(bytes)) = sample.value("video") else { panic!("{what}: no frames") };
        let Some(Value::Numbers(pad)) = sample.value("video_is_pad.npy") else { panic!("{what}: no padding") };
        let clip = Frames::read(bytes).unwrap();
        assert_eq!(clip.choices(), choices.len(), "{what}");
        for (number, (frames, pads)) in choices.iter().enumerate() {
            let chosen = clip.choose(number);
            assert!(pad.iter::<u8>().unwrap().eq(pads.iter().copied()), "{what} {pads:?}");
            assert_eq!(chosen.len(), frames.len(), "{what}");
            for (position, &frame) in frames.iter().enumerate() {
                assert_eq!(chosen.index(position), Some(frame as u64), "{what}: choice {number}, position {position}");
                assert!(
                    pixels(chosen.get(position).unwrap()) == all_of_video[frame],
                    "{what}: choice {number}, frame {frame}"
                );
            }
            if frames[0] == *base {
                assert!(
                    (0..frames.len()).all(|position| clip.index(position) == chosen.index(position)),
                    "{what}: the default"
                );
            }
        }
        assert_eq!(set.key(index, &mut scratch).unwrap(), key);
    }
}

#[test]
fn clips_with_a_stride_have_the_frames_of_a_naive_list() {
    let folder = folder(&VIDEOS);
    for (frames, stride, clips_per_video, jitter) in
        [(1, 1, 1, 0), (3, 2, 3, 0), (5, 1, 2, 2), (4, 3, 1, usize::MAX), (2, 5, 4, 1), (20, 1, 2, 3), (3, 9, 1, 4)]
    {
        let options = ClipsOptions::new(frames).stride(stride).clips_per_video(clips_per_video).start_jitter(jitter);
        let set = Clips::open(folder.path(), &options).unwrap();
        assert_eq!(set.classes(), ["archery", "bowling"]);
        let expected = |track: &Track| {
            let len = track.len();
            naive(len, (frames, clips_per_video, jitter), |start, position| {
                Some(start + position * stride).filter(|&frame| frame < len)
            })
        };
        check(&set, folder.path(), clips_per_video, expected, &format!("{options:?}"));
    }
}

#[test]
fn clips_with_a_frame_rate_have_the_nearest_frames() {
    let folder = folder(&VIDEOS);
    for (frames, fps, clips_per_video, jitter) in
        [(4, 10.0, 2, 0), (3, 7.3, 1, 2), (6, 30.0, 3, 1), (5, 45.0, 1, usize::MAX), (9, 2.0, 2, 1), (1, 0.5, 2, 1)]
    {
        let options = ClipsOptions::new(frames).fps(fps).clips_per_video(clips_per_video).start_jitter(jitter);
        let set = Clips::open(folder.path(), &options).unwrap();
        let expected = |track: &Track| {
            let times: Vec<f64> = (0..track.len()).map(|frame| track.time(frame).seconds()).collect();
            let position = |start: usize, index: usize| {
                let target = times[start] + index as f64 / fps;
                let distance = |frame: &usize| (times[*frame] - target).abs();
                let nearest = (0..times.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)));
                nearest.filter(|_| target <= times[times.len() - 1] + 1e-6)
            };
            naive(times.len(), (frames, clips_per_video, jitter), position)
        };
        check(&set, folder.path(), clips_per_video, expected, &format!("{options:?}"));
    }
}

fn loader(set: impl Source + 'static) -> Loader {
    Loader::source(set)
        .field("video", Image::from_field("video").frames(3))
        .field("small", Image::from_field("video").frames(3).augment(Augment::resize(16, 16)))
        .field("video_is_pad", NdArray::new(Dtype::U8, [3]))
        .augment(Augment::train(32))
        .batch_size(4)
        .shuffle(7)
        .seed(1)
}

fn rows(batch: Result<HostBatch>) -> Vec<(u64, String, Vec<Vec<u8>>)> {
    let batch = batch.unwrap();
    let row = |(row, (id, key)): (usize, (u64, &str))| {
        let field = |name| {
            let bytes = batch.field(name).unwrap().bytes();
            let each = bytes.len() / batch.len();
            bytes[row * each..][..each].to_vec()
        };
        (id, key.to_owned(), ["video", "small", "video_is_pad"].map(field).to_vec())
    };
    batch.ids().zip(batch.sample_keys()).enumerate().map(row).collect()
}

fn epoch(loader: Loader, epoch: u64) -> Vec<(u64, String, Vec<Vec<u8>>)> {
    loader.host().unwrap().epoch(epoch).flat_map(rows).collect()
}

fn jittered(root: &Path) -> Clips {
    Clips::open(root, &ClipsOptions::new(3).stride(2).clips_per_video(2).start_jitter(3)).unwrap()
}

#[test]
fn a_loader_writes_clips_in_both_layouts() {
    let folder = folder(&VIDEOS);
    for (layout, shape) in [(Layout::Nhwc, [4, 3, 32, 32, 3]), (Layout::Nchw, [4, 3, 3, 32, 32])] {
        let mut batches = loader(jittered(folder.path())).layout(layout).host().unwrap();
        let batch = batches.epoch(0).next().unwrap().unwrap();
        assert_eq!(batch.field("video").unwrap().shape(), shape);
        assert_eq!(batch.field("video_is_pad").unwrap().shape(), [4, 3]);
        let labels: Vec<i64> = batch.sample_keys().map(|key| i64::from(key.starts_with("bowling"))).collect();
        assert_eq!(batch.labels().unwrap(), labels);
    }
}

#[test]
fn clips_depend_only_on_the_seed_the_epoch_and_the_sample() {
    let folder = folder(&VIDEOS);
    let open = || loader(jittered(folder.path()));
    let sequential = epoch(open().workers(1), 0);
    assert_eq!(sequential.len(), 16);
    for workers in [3, 8] {
        assert!(sequential == epoch(open().workers(workers), 0), "{workers} workers");
    }
    assert!(sequential != epoch(open(), 1) && sequential != epoch(open().seed(2), 0));
    let sorted = |mut rows: Vec<(u64, String, Vec<Vec<u8>>)>| {
        rows.sort();
        rows
    };
    let expected = sorted(sequential.clone());
    assert!(expected == sorted(epoch(open().batch_size(5).prefetch(1), 0)));
    let ranks = (0..3).flat_map(|rank| epoch(open().batch_size(2).rank(rank, 3), 0)).collect();
    assert!(expected == sorted(ranks));
    let subset = sorted(epoch(open().subset([9_u64, 2, 4]), 0));
    let of_all: Vec<_> = expected.iter().filter(|row| [2, 4, 9].contains(&row.0)).cloned().collect();
    assert!(subset == of_all);
    let mut first = open().host().unwrap();
    let rows_taken: Vec<_> = first.epoch(0).take(2).flat_map(rows).collect();
    let rest = epoch(open().workers(3).resume(first.checkpoint()), 0);
    assert!([rows_taken, rest].concat() == sequential);
}

#[test]
fn a_loader_draws_all_starts_and_views_show_the_same_frames() {
    let folder = folder(&VIDEOS);
    let set = Arc::new(jittered(folder.path()));
    let mut starts = BTreeSet::new();
    let mut scratch = Vec::new();
    let mut frames_by_video = BTreeMap::new();
    let mut batches = Loader::source(set.clone())
        .field("video", Image::from_field("video").frames(3))
        .field("view", Image::from_field("video").frames(3))
        .augment(Augment::resize(96, 64))
        .shuffle(1)
        .batch_size(4)
        .host()
        .unwrap();
    for number in 0..30 {
        for batch in batches.epoch(number) {
            let batch = batch.unwrap();
            assert!(batch.field("video").unwrap().bytes() == batch.field("view").unwrap().bytes());
            let clips = batch.field("video").unwrap().bytes().chunks(3 * 96 * 64 * 3);
            for (id, clip) in batch.ids().zip(clips) {
                let frames =
                    frames_by_video.entry(id / 2).or_insert_with(|| all_frames(&set.path(id as usize).unwrap()).1);
                let offset = |start: usize| {
                    [0, 2, 4].iter().flat_map(|clip_from| frames[start + clip_from].clone()).collect::<Vec<_>>()
                };
                let start = (0..frames.len() - 4).find(|&start| offset(start) == clip);
                starts.insert((id, start.expect("a clip with stride 2")));
            }
        }
    }
    let choices = |index: usize| {
        let sample = set.read(index, &mut scratch).unwrap();
        let Some(Value::Bytes(bytes)) = sample.value("video") else { panic!("no frames") };
        Frames::read(bytes).unwrap().choices()
    };
    let total: usize = (0..set.len()).map(choices).sum();
    assert_eq!(starts.len(), total);
}

/// Adds a mask and a point for each frame of the video to the clips of `set`, except for the last
/// `lacking` frames. Both contain the index of the frame.
fn with_masks(set: &Arc<Clips>, lacking: usize) -> Zip {
    let sample = |index: usize| {
        let frames = all_frames(&set.path(index).unwrap()).1.len() - lacking;
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (64, 96), }";
        let header = [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes()].concat();
        let mask = |frame: usize| [&header[..], &[frame as u8; 64 * 96]].concat();
        let points = |frame: usize| format!("[[{frame}, 1]]");
        OwnedSample::new("")
            .field("mask", Frames::encode(&(0..frames).map(mask).collect::<Vec<_>>()))
            .field("points.json", format!("[{}]", (0..frames).map(points).collect::<Vec<_>>().join(",")))
    };
    Zip::by_index(vec![set.clone(), Arc::new(Memory::new((0..set.len()).map(sample).collect()))]).unwrap()
}

#[test]
fn masks_and_points_belong_to_the_frames_that_a_clip_shows() {
    let folder = folder(&VIDEOS);
    for options in [
        ClipsOptions::new(3).stride(2).clips_per_video(2).start_jitter(3),
        ClipsOptions::new(3).start_jitter(usize::MAX),
        ClipsOptions::new(3).stride(20),
    ] {
        let set = Arc::new(Clips::open(folder.path(), &options).unwrap());
        let clips_per_video = set.len() / VIDEOS.len();
        let open = |lacking: usize| {
            Loader::source(with_masks(&set, lacking))
                .drop_field("image")
                .field("view", Image::from_field("video").frames(3).augment(Augment::resize(16, 16)))
                .field("video", Image::from_field("video").frames(3))
                .field("mask", Mask::new(Dtype::U8).frames(3))
                .field("points", Keypoints::new(1).frames(3))
                .augment(Augment::resize(96, 64))
                .shuffle(1)
                .batch_size(4)
        };
        let (mut batches, mut frames_by_video, mut starts) =
            (open(0).workers(3).host().unwrap(), BTreeMap::new(), BTreeSet::new());
        for number in 0..4 {
            for batch in batches.epoch(number).map(Result::unwrap) {
                let field = |name| batch.field(name).unwrap().bytes();
                let (shown, masks, points) = (field("video"), field("mask"), field("points"));
                for (row, id) in batch.ids().enumerate() {
                    let path = || set.path(id as usize).unwrap();
                    let frames =
                        frames_by_video.entry(id / clips_per_video as u64).or_insert_with(|| all_frames(&path()).1);
                    starts.insert((id, masks[row * 3 * 64 * 96]));
                    for frame in row * 3..row * 3 + 3 {
                        let mask = &masks[frame * 64 * 96..][..64 * 96];
                        assert!(mask.iter().all(|value| *value == mask[0]));
                        let [x, _]: [f32; 2] = bytemuck::pod_read_unaligned(&points[frame * 8..][..8]);
                        assert_eq!(x, f32::from(mask[0]));
                        let pixels = &shown[frame * 64 * 96 * 3..][..64 * 96 * 3];
                        assert!(pixels == frames[usize::from(mask[0])], "frame {} of sample {id}", mask[0]);
                    }
                }
            }
        }
        assert!(starts.len() > set.len() || options == ClipsOptions::new(3).stride(20), "{starts:?}");
        let text = open(1).workers(1).host().unwrap().epoch(0).find_map(Result::err);
        assert!(text.is_some() || options != ClipsOptions::new(3).stride(20));
        if let Some(text) = text.map(|e| e.to_string()) {
            assert!(
                text.contains("field \"mask\" has values for") && text.contains("a value for each frame of the video"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_folder_of_videos_is_opened_by_its_path() {
    let folder = folder(&VIDEOS);
    fs::write(folder.path().join("archery/notes.txt"), "x").unwrap();
    let set = open(folder.path()).unwrap();
    assert_eq!((set.kind(), set.len()), ("clips", VIDEOS.len()));
    let flat = tempfile::tempdir().unwrap();
    fs::copy(video("g2.mp4"), flat.path().join("b.mp4")).unwrap();
    fs::copy(video("vfr.mp4"), flat.path().join("a.mp4")).unwrap();
    let set = open(flat.path()).unwrap();
    assert_eq!((set.len(), set.classes().len(), set.label(0, &mut Vec::new()).unwrap()), (2, 0, None));
    assert_eq!(set.key(0, &mut Vec::new()).unwrap(), "a/frame_000002");
    let e = Clips::open(tempfile::tempdir().unwrap().path(), &ClipsOptions::new(1)).unwrap_err().to_string();
    assert!(e.contains("no videos: the folder is empty; looked for .mp4, .m4v, .mov, .mkv, .webm"), "{e}");
}

#[test]
fn sources_report_the_size_of_their_video_frames() {
    let folder = folder(&VIDEOS[..1]);
    let clips = || Arc::new(Clips::open(folder.path(), &ClipsOptions::new(2)).unwrap());
    let images = || Arc::new(Memory::new(vec![OwnedSample::new("a").field("jpg", vec![0])]));
    let av1 = Some(VideoInfo { pixels: 96 * 64, needs_gpu: false });
    assert_eq!((clips().video_info(), images().video_info()), (av1, None));
    assert_eq!(Concat::new(vec![images(), clips()]).unwrap().video_info(), av1);
    let without_frames = clips().select_fields(&["video_is_pad".to_owned()]).unwrap();
    assert_eq!(without_frames.video_info(), None);
}

#[test]
fn mixture_yields_the_same_clips_as_each_dataset() {
    let (one, other) = (folder(&VIDEOS[..2]), folder(&VIDEOS[2..]));
    let open = |folder: &tempfile::TempDir| {
        Clips::open(folder.path(), &ClipsOptions::new(3).stride(2).clips_per_video(2)).unwrap()
    };
    let plain = |loader: Loader| {
        let loader = loader.field("video", Image::from_field("video").frames(3)).augment(Augment::resize(24, 16));
        let mut batches = loader.batch_size(4).seed(3).host().unwrap();
        let rows = |batch: Result<HostBatch>| {
            let batch = batch.unwrap();
            let clips = batch.field("video").unwrap().bytes().chunks(3 * 24 * 16 * 3).map(<[u8]>::to_vec);
            batch.sample_keys().map(str::to_owned).zip(clips).collect::<Vec<_>>()
        };
        batches.epoch(0).flat_map(rows).collect::<BTreeMap<_, _>>()
    };
    let mixture = Loader::mixture([(Dataset::from(open(&one)), 0.5), (Dataset::from(open(&other)), 0.5)]);
    let mixed = plain(mixture.keep_labels());
    let mut alone = plain(Loader::source(open(&one)));
    alone.extend(plain(Loader::source(open(&other))));
    assert_eq!(alone.len(), 16);
    assert!(mixed.len() > 8 && mixed.iter().all(|(key, clip)| alone[key] == *clip));
}

#[test]
fn clips_in_a_store_equal_local_ones() {
    let folder = folder(&VIDEOS);
    let store = Objects::default();
    for (name, from) in VIDEOS {
        store.put(&format!("mem://set/{name}"), fs::read(video(from)).unwrap());
    }
    let options = ClipsOptions::new(3).stride(2).clips_per_video(2).start_jitter(3);
    let opening = Options::new().store("mem", Arc::new(store.clone()));
    let stored = || Clips::open_with("mem://set", &options, &opening).unwrap();
    let local = jittered(folder.path());
    for index in 0..local.len() {
        let keys = [&local, &stored()].map(|set| set.key(index, &mut Vec::new()).unwrap());
        assert_eq!(keys[0], keys[1]);
    }
    assert!(epoch(loader(local), 0) == epoch(loader(stored()).workers(3), 0));
    assert_eq!(opening.open("mem://set").unwrap().kind(), "clips");
    assert!(stored().path(0).unwrap().to_str().unwrap().starts_with("mem://set/archery/a.mp4"));
}

#[test]
fn short_videos_are_padded_or_rejected() {
    let folder = folder(&VIDEOS[..2]);
    let options = ClipsOptions::new(3).stride(7).start_jitter(5);
    let padded = epoch(loader(Clips::open(folder.path(), &options).unwrap()), 0);
    assert!(padded.iter().all(|row| row.2[2] == [0, 0, 1]));
    let set = Clips::open(folder.path(), &options.pad_short_videos(false)).unwrap();
    let e = set.read(1, &mut Vec::new()).unwrap_err().to_string();
    assert!(e.contains("b.mov") && e.contains("it has 12 frames") && e.contains("3 frames at stride=7"), "{e}");
}

#[test]
fn damaged_videos_cause_errors_that_name_the_file_and_the_frame() {
    let folder = folder(&VIDEOS[..2]);
    let set = || Clips::open(folder.path(), &ClipsOptions::new(3).stride(2).start_jitter(2)).unwrap();
    let path = folder.path().join("archery/b.mov");
    let file = fs::read(&path).unwrap();
    let read = || set().read(1, &mut Vec::new()).map(drop).unwrap_err().to_string();
    for (bytes, message) in
        [(&file[..0], "b.mov"), (&file[..40], "b.mov"), (&b"<html>not found</html>"[..], "unsupported video file")]
    {
        fs::write(&path, bytes).unwrap();
        let e = read();
        assert!(e.contains(message) && e.contains("b.mov"), "{e}");
        assert!(set().read(0, &mut Vec::new()).is_ok(), "the other videos are not affected");
        assert!(set().key(1, &mut Vec::new()).is_err());
    }
    let track = warpfeed_video::open(&file).unwrap();
    let packet = track.packets()[track.packet_index(6)];
    let mut damaged = file.clone();
    damaged[packet.offset as usize..][..8].fill(0xff);
    fs::write(&path, damaged).unwrap();
    let e = loader(set()).host().unwrap().epoch(0).next().unwrap().unwrap_err().to_string();
    assert!(e.contains("b.mov") && e.contains("of field \"video\", frame ") && e.contains("of the video"), "{e}");
    let truncated = &file[..packet.offset as usize + 3];
    if warpfeed_video::open(&truncated.to_vec()).is_ok() {
        fs::write(&path, truncated).unwrap();
        let e = read();
        assert!(e.contains("b.mov") && e.contains("ends at byte"), "{e}");
    }
}

#[test]
fn invalid_options_fail() {
    let folder = folder(&VIDEOS[..1]);
    for (options, message) in [
        (ClipsOptions::new(0), "frames=0: expected 1 to 65536"),
        (ClipsOptions::new(2).stride(0), "stride=0"),
        (ClipsOptions::new(2).clips_per_video(0), "clips_per_video=0"),
        (ClipsOptions::new(2).fps(-1.0), "fps=-1"),
        (ClipsOptions::new(2).fps(f64::NAN), "fps=NaN"),
        (ClipsOptions::new(2).stride(2).fps(3.0), "set only one of stride and fps"),
        (ClipsOptions::new(2).fps(3.0).stride(2), "set only one of stride and fps"),
    ] {
        let e = Clips::open(folder.path(), &options).unwrap_err().to_string();
        assert!(e.contains(message), "{e}");
    }
    let options = ClipsOptions::new(2).fps(3.0).fps(4.0);
    Clips::open(folder.path(), &options).expect("the later frame rate replaces the earlier one");
    let e = loader(Clips::open(folder.path(), &ClipsOptions::new(2)).unwrap()).host().unwrap().epoch(0).next();
    let e = e.unwrap().unwrap_err().to_string();
    assert!(e.contains("field \"video\" has 2 frames: expected 3"), "{e}");
}

#[test]
fn packed_clips_have_the_same_frames_and_jitter_is_rejected() {
    let folder = folder(&VIDEOS[..2]);
    let dest = tempfile::tempdir().unwrap();
    let set = Clips::open(folder.path(), &ClipsOptions::new(3).stride(2)).unwrap();
    let report = Pack::new(&set).to(dest.path().join("clips.tar")).unwrap();
    let packed = open(dest.path().join("clips.tar")).unwrap();
    assert_eq!(packed.len(), 2);
    let clip = |set: &dyn Source, index: usize| {
        let mut scratch = Vec::new();
        let sample = set.read(index, &mut scratch).unwrap();
        let Some(Value::Bytes(bytes)) = sample.value("video") else { panic!("{:?}", sample.names()) };
        (bytes.len(), Frames::read(bytes).unwrap().iter().map(pixels).collect::<Vec<_>>())
    };
    let mut total_bytes = 0;
    for index in 0..2 {
        let (expected_bytes, expected_frames) = clip(&set, index);
        let (packed_bytes, packed_frames) = clip(&*packed, index);
        assert!(packed_frames == expected_frames, "clip {index} has different frames");
        assert_eq!(packed_bytes, expected_bytes, "each packet of clip {index} must be stored once");
        total_bytes += expected_bytes as u64;
    }
    // The report counts images without the lengths and indices that surround them.
    assert_eq!(report.bytes_in, report.bytes_out);
    assert!((total_bytes * 9 / 10..=total_bytes).contains(&report.bytes_out), "{} of {total_bytes}", report.bytes_out);
    let e = Pack::new(&jittered(folder.path())).to(dest.path().join("other.tar")).unwrap_err().to_string();
    assert!(e.contains("clips with jitter cannot be packed"), "{e}");
}

/// A packed clip states which frames of the video it shows. Without these indices, the annotations
/// of a clip with as many frames as its video would be assigned to the wrong frames.
#[test]
fn packed_clips_keep_the_annotations_of_their_frames() {
    let folder = folder(&VIDEOS[..2]);
    let frames_of_shortest = VIDEOS[..2].iter().map(|(name, _)| all_frames(&folder.path().join(name)).1.len()).min();
    for (count, stride) in [(3, 2), (frames_of_shortest.unwrap(), 2)] {
        let set = Arc::new(Clips::open(folder.path(), &ClipsOptions::new(count).stride(stride)).unwrap());
        let annotated = Arc::new(with_masks(&set, 0));
        let dest = tempfile::tempdir().unwrap();
        Pack::new(&*annotated).to(dest.path().join("clips.tar")).unwrap();
        let packed = open(dest.path().join("clips.tar")).unwrap();
        let annotations = |source: Arc<dyn Source>| {
            let loader = Loader::source(source)
                .drop_field("image")
                .field("video", Image::from_field("video").frames(count))
                .field("mask", Mask::new(Dtype::U8).frames(count))
                .field("points", Keypoints::new(1).frames(count))
                .augment(Augment::resize(96, 64))
                .batch_size(1);
            let batches = loader.host().unwrap().epoch(0).map(Result::unwrap).collect::<Vec<_>>();
            let fields = |batch: &HostBatch| ["mask", "points"].map(|name| batch.field(name).unwrap().bytes().to_vec());
            batches.iter().map(fields).collect::<Vec<_>>()
        };
        let (expected, from_packed) = (annotations(annotated), annotations(packed));
        assert_eq!(expected.len(), 2);
        assert!(expected == from_packed, "{count} frames");
        let masks = &expected[0][0];
        assert_ne!(masks[0], masks[64 * 96], "the first two frames of the clip are different frames of the video");
    }
}
