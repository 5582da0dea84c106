//! The frames of videos in a store need one request for each group of pictures, after the sample
//! table, and upcoming samples are requested at the same time. A clip that may start anywhere in a
//! long video reads only the frames that were drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use warpfeed::field::Image;
use warpfeed::source::{
    Clips, ClipsOptions, Frames, LeRobot, LeRobotOptions, Object, Options, ReadCompletion, Source, Store, Value,
};
use warpfeed::{Augment, Loader, Result};
use warpfeed_video::Track;

use crate::formats::fixture;
use crate::stores::Objects;
use crate::support::no_hang;

const LATENCY: Duration = Duration::from_millis(30);
/// Number of bytes between two groups of pictures of [`one_hour`]. Requests are not merged across
/// such a gap.
const GAP: usize = 8 << 10;

/// A store with latency that records its requests.
#[derive(Clone, Default)]
struct Distant {
    objects: Objects,
    /// The prefetches, and the reads that a thread waited for.
    fetched: Arc<Mutex<Vec<(String, Range<u64>)>>>,
    read: Arc<Mutex<Vec<(String, Range<u64>)>>>,
    in_flight: Arc<AtomicU64>,
    most_in_flight: Arc<AtomicU64>,
}

impl Store for Distant {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        thread::sleep(LATENCY);
        self.read.lock().unwrap().push((object.url.clone(), at..at + to.len() as u64));
        self.objects.read(object, at, to)
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        self.fetched.lock().unwrap().push((object.url.clone(), range.clone()));
        let (store, object) = (self.clone(), object.clone());
        thread::spawn(move || {
            let now = store.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            store.most_in_flight.fetch_max(now, Ordering::SeqCst);
            thread::sleep(LATENCY);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let answer = store.objects.read(&object, range.start, &mut bytes).map(|()| bytes);
            store.in_flight.fetch_sub(1, Ordering::SeqCst);
            reply.done(answer);
        });
    }
}

fn atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), &kind[..], content].concat()
}

/// Returns an atom at `path` in `file`, with its header.
fn found<'a>(file: &'a [u8], path: &[&[u8; 4]]) -> &'a [u8] {
    let (mut rest, mut whole) = (file, file);
    for kind in path {
        loop {
            let len = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            if &&rest[4..8] == kind {
                whole = &rest[..len];
                rest = &rest[8..len];
                break;
            }
            rest = &rest[len..];
        }
    }
    whole
}

/// Returns a video of one hour, at ten frames per second: a fixture with one group of pictures,
/// repeated. Also returns the number of bytes before the first packet.
fn one_hour() -> (Vec<u8>, u64) {
    let file = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures/long.mp4")).unwrap();
    let track = warpfeed_video::open(&file).unwrap();
    let packets = track.packets();
    assert!(packets.iter().filter(|packet| packet.is_key).count() == 1);
    let repeats = 36_000 / packets.len();
    let table = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    let list = |kind, head: &[u32], numbers: &[u32]| {
        atom(kind, &table(&[&[0], head, &[numbers.len() as u32], numbers].concat()))
    };
    let minf = |offsets: &[u32]| {
        let mdia: &[&[u8; 4]] = &[b"moov", b"trak", b"mdia"];
        let stsd = found(&file, &[mdia, &[b"minf", b"stbl", b"stsd"]].concat());
        let sizes: Vec<u32> = packets.iter().map(|packet| packet.size).cycle().take(offsets.len()).collect();
        let keys: Vec<u32> = (0..repeats).map(|number| (number * packets.len()) as u32 + 1).collect();
        let stts = atom(b"stts", &table(&[0, 1, offsets.len() as u32, (track.ticks_per_second() / 10) as u32]));
        let stsc = atom(b"stsc", &table(&[0, 1, 1, 1, 1]));
        let stbl = [stsd, &stts, &stsc, &list(b"stss", &[], &keys), &list(b"stsz", &[0], &sizes)].concat();
        let stbl = atom(b"stbl", &[stbl, list(b"stco", &[], offsets)].concat());
        let heads = [b"mdhd", b"hdlr"].map(|kind| found(&file, &[mdia, &[kind]].concat()).to_vec()).concat();
        let mdia = atom(b"mdia", &[heads, atom(b"minf", &stbl)].concat());
        let trak = atom(b"trak", &[found(&file, &[b"moov", b"trak", b"tkhd"]), &mdia].concat());
        atom(b"moov", &[found(&file, &[b"moov", b"mvhd"]), &trak].concat())
    };
    let start = found(&file, &[b"ftyp"]).len() + minf(&vec![0; repeats * packets.len()]).len() + 8;
    let (mut data, mut offsets) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        for packet in packets {
            offsets.push((start + data.len()) as u32);
            data.extend(&file[packet.offset as usize..][..packet.size as usize]);
        }
        data.resize(data.len() + GAP, 0);
    }
    ([found(&file, &[b"ftyp"]), &minf(&offsets), &atom(b"mdat", &data)].concat(), start as u64)
}

/// Returns the bytes of the groups of pictures of `track`.
fn groups(track: &Track) -> Vec<Range<u64>> {
    let is_key = |packet: &&[warpfeed_video::Packet]| packet[0].is_key;
    let runs: Vec<_> = track.packets().chunk_by(|_, next| !next.is_key).collect();
    assert!(runs.iter().all(is_key));
    runs.iter().map(|run| run[0].offset..run.last().map(|last| last.offset + u64::from(last.size)).unwrap()).collect()
}

fn long_video() -> (tempfile::TempDir, Distant, Track, u64) {
    let (file, start) = one_hour();
    let track = warpfeed_video::open(&file).unwrap();
    assert!(track.len() == 36_000 && (track.time(35_999).seconds() - 3599.9).abs() < 1e-6);
    let (folder, store) = (tempfile::tempdir().unwrap(), Distant::default());
    fs::write(folder.path().join("a.mp4"), &file).unwrap();
    store.objects.put("mem://set/a.mp4", file);
    (folder, store, track, start)
}

fn clips(loader: Loader, epoch: u64) -> BTreeMap<String, Vec<u8>> {
    let loader = loader.field("video", Image::of("video").frames(3)).augment(Augment::resize(24, 16));
    let mut batches = loader.batch_size(4).shuffle(3).epochs(epoch + 1).max_sample_bytes(1 << 20).host().unwrap();
    let mut found = BTreeMap::new();
    for batch in batches.epoch(epoch) {
        let batch = batch.unwrap();
        let each = batch.field("video").unwrap().bytes().chunks(3 * 24 * 16 * 3);
        found.extend(batch.keys().map(str::to_owned).zip(each.map(<[u8]>::to_vec)));
    }
    found
}

#[test]
fn each_group_of_pictures_of_a_video_of_one_hour_needs_one_request() {
    no_hang(|| {
        let (folder, store, track, start) = long_video();
        let options = ClipsOptions::new(3).stride(2).per_video(60);
        let opening = Options::new().store("mem", Arc::new(store.clone()));
        let local = clips(Loader::source(Clips::open(folder.path(), &options).unwrap()), 0);
        assert_eq!(local.len(), 60);
        let set = Clips::with("mem://set", &options, &opening).unwrap();
        assert!(clips(Loader::source(set).workers(3), 0) == local);

        let groups = groups(&track);
        let mut expected = BTreeSet::new();
        for key in local.keys() {
            let first: usize = key.strip_prefix("a/frame_").unwrap().parse().unwrap();
            for frame in [first, first + 2, first + 4] {
                let packet = track.packets()[track.packet_of(frame)];
                let group = groups.iter().find(|group| group.contains(&packet.offset)).unwrap();
                expected.insert((group.start, group.end));
            }
        }
        let fetched = store.fetched.lock().unwrap();
        let found: BTreeSet<_> = fetched.iter().map(|(_, range)| (range.start, range.end)).collect();
        assert_eq!(found, expected);
        assert_eq!(fetched.len(), expected.len(), "each group is requested once");
        let of_table = store.read.lock().unwrap();
        assert!(of_table.iter().all(|(_, range)| range.end <= start + 8), "{of_table:?}");
        let most = store.most_in_flight.load(Ordering::SeqCst);
        assert!(most >= 4, "at most {most} of {} requests at the same time", fetched.len());
    });
}

#[test]
fn a_clip_that_starts_anywhere_in_a_video_of_one_hour_reads_only_its_own_groups() {
    no_hang(|| {
        let (folder, store, track, start) = long_video();
        let options = ClipsOptions::new(3).stride(2).per_video(20).jitter(usize::MAX);
        let opening = Options::new().store("mem", Arc::new(store.clone()));
        let mut epochs = Vec::new();
        for epoch in 0..2 {
            let local = clips(Loader::source(Clips::open(folder.path(), &options).unwrap()), epoch);
            store.fetched.lock().unwrap().clear();
            store.read.lock().unwrap().clear();
            let set = Clips::with("mem://set", &options, &opening).unwrap();
            assert!(clips(Loader::source(set).workers(3), epoch) == local, "epoch {epoch}");
            let groups: BTreeSet<_> = groups(&track).iter().map(|group| (group.start, group.end)).collect();
            let found: Vec<_> = store.fetched.lock().unwrap().iter().map(|(_, own)| (own.start, own.end)).collect();
            assert!(found.iter().all(|range| groups.contains(range)), "{found:?}");
            assert!((20..=40).contains(&found.len()), "{} requests", found.len());
            assert!(store.read.lock().unwrap().iter().all(|(_, range)| range.end <= start + 8));
            epochs.push(found.into_iter().collect::<BTreeSet<_>>());
        }
        assert_ne!(epochs[0], epochs[1], "each epoch has other starts");
    });
}

#[test]
fn a_drawn_clip_has_the_frames_of_the_same_choice() {
    let folder = tempfile::tempdir().unwrap();
    let videos = Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures");
    for name in ["g2.mp4", "long.mkv", "vfr.mp4"] {
        fs::copy(videos.join(name), folder.path().join(name)).unwrap();
    }
    let set = Clips::open(folder.path(), &ClipsOptions::new(3).fps(8.0).per_video(2).jitter(4)).unwrap();
    let (mut all, mut drawn) = (Vec::new(), Vec::new());
    let mut choices = BTreeSet::new();
    for index in 0..set.len() {
        for draw in (0..16).map(|number| number << 60 | 12345) {
            let [all, drawn] = [set.read(index, &mut all), set.read_drawn(index, draw, &mut drawn)].map(|sample| {
                let sample = sample.unwrap();
                let Some(Value::Bytes(bytes)) = sample.value("video") else { panic!("no frames") };
                (sample.key().to_owned(), Frames::read(bytes).unwrap())
            });
            let expected = all.1.draw(draw);
            assert!(all.1.choices() > 1 && drawn.1.choices() == 1 && drawn.0 == all.0);
            let indices = |frames: Frames<'_>| (0..3).map(|frame| frames.index(frame)).collect::<Vec<_>>();
            assert_eq!(indices(drawn.1), indices(expected));
            assert!(drawn.1.iter().eq(expected.iter()));
            choices.insert((index, drawn.1.index(0)));
        }
    }
    assert!(choices.len() > 3 * set.len());
}

/// Returns the files of a folder, with their paths relative to it.
fn files(folder: &Path, below: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(below)).unwrap().map(Result::unwrap) {
        let path = below.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(folder, &path)),
            false => found.push((path.clone(), fs::read(folder.join(&path)).unwrap())),
        }
    }
    found
}

#[test]
fn frames_of_robots_in_a_store_are_prefetched() {
    no_hang(|| {
        let cameras = ["observation.images.front", "observation.images.wrist"];
        let (folder, store) = (fixture("lerobot").join("v30_video"), Distant::default());
        for (path, mut bytes) in files(&folder, Path::new("")) {
            if path.extension().is_some_and(|extension| extension == "mp4") {
                // The prefetch buffer is not larger than the files.
                bytes.extend(atom(b"free", &vec![0; 1 << 20]));
            }
            store.objects.put(&format!("mem://arm/{}", path.display()), bytes);
        }
        let options = LeRobotOptions::new().delta_indices(cameras[0], [-3, 0, 1]);
        let opening = Options::new().store("mem", Arc::new(store.clone()));
        let batches = |set: LeRobot| {
            let loader = Loader::source(set).drop_field("label").augment(Augment::resize(32, 32)).batch_size(3);
            let loader = loader.field("front", Image::of(cameras[0]).frames(3)).field("wrist", Image::of(cameras[1]));
            let mut batches = loader.shuffle(5).workers(3).epochs(2).host().unwrap();
            let all = |batch: Result<warpfeed::HostBatch>| {
                let batch = batch.unwrap();
                ["front", "wrist"].map(|name| batch.field(name).unwrap().bytes().to_vec())
            };
            (0..2).flat_map(|epoch| batches.epoch(epoch).map(all).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let local = batches(LeRobot::with(&folder, &options, &Options::new()).unwrap());
        let set = LeRobot::with("mem://arm", &options, &opening).unwrap();
        // Opens all files.
        (0..set.len()).for_each(|index| _ = set.read(index, &mut Vec::new()).unwrap());
        let is_video = |(url, _): &&(String, Range<u64>)| url.ends_with(".mp4");
        let of_tables = store.read.lock().unwrap().iter().filter(is_video).count();
        assert!(batches(set) == local);
        assert!(store.fetched.lock().unwrap().iter().any(|own| is_video(&own)));
        assert_eq!(store.read.lock().unwrap().iter().filter(is_video).count(), of_tables, "no frame is read on demand");
    });
}
