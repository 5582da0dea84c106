//! Tests the requests for a video in a store. Each group of pictures (GOP) with adjacent packets
//! must take one request, in addition to the requests for the sample table. Requests for upcoming
//! samples must overlap. A clip with a random start must fetch only the GOPs that contain its
//! frames.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use warpfeed::field::Image;
use warpfeed::source::{
    BatchIndex, Classes, Clips, ClipsOptions, Concat, Frames, LeRobot, LeRobotOptions, Lookahead, Object, Options,
    OwnedSample, ReadCompletion, Source, Store, Value, Zip,
};
use warpfeed::{Augment, HostBatch, Loader, Result};
use warpfeed_video::Track;

use crate::formats::fixture;
use crate::objects::Objects;
use crate::support::exit_on_hang;

const LATENCY: Duration = Duration::from_millis(30);
/// Padding in bytes between two GOPs in `one_hour()`. It is too long for requests to be merged
/// across it.
const GAP: usize = 8 << 10;

type Request = (String, Range<u64>);

/// A store with latency that records its requests.
#[derive(Clone, Default)]
struct SlowStore {
    objects: Objects,
    /// Prefetch requests.
    prefetches: Arc<Mutex<Vec<Request>>>,
    /// Requests that a thread waited for.
    blocking_reads: Arc<Mutex<Vec<Request>>>,
    in_flight: Arc<AtomicU64>,
    most_in_flight: Arc<AtomicU64>,
}

impl Store for SlowStore {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        thread::sleep(LATENCY);
        self.blocking_reads.lock().unwrap().push((object.url.clone(), at..at + to.len() as u64));
        self.objects.read(object, at, to)
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        self.prefetches.lock().unwrap().push((object.url.clone(), range.clone()));
        let (store, object) = (self.clone(), object.clone());
        thread::spawn(move || {
            let now = store.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            store.most_in_flight.fetch_max(now, Ordering::SeqCst);
            thread::sleep(LATENCY);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let answer = store.objects.read(&object, range.start, &mut bytes).map(|()| bytes);
            store.in_flight.fetch_sub(1, Ordering::SeqCst);
            reply.complete(answer);
        });
    }
}

fn atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), &kind[..], content].concat()
}

fn find_atom<'a>(file: &'a [u8], path: &[&[u8; 4]]) -> &'a [u8] {
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

/// Creates a video with ten frames per second by repeating a fixture with one GOP. Returns the
/// video and the offset of its media data. `append_gop` appends the packets of a GOP to the media
/// data, and returns their offsets in it.
fn video(repeats: usize, append_gop: impl Fn(&mut Vec<u8>, &[&[u8]]) -> Vec<usize>) -> (Vec<u8>, u64) {
    let file = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures/long.mp4")).unwrap();
    let track = warpfeed_video::open(&file).unwrap();
    let packets = track.packets();
    assert!(packets.iter().filter(|packet| packet.is_key).count() == 1);
    let table = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    let list = |kind, head: &[u32], numbers: &[u32]| {
        atom(kind, &table(&[&[0], head, &[numbers.len() as u32], numbers].concat()))
    };
    let moov = |offsets: &[u32]| {
        let mdia: &[&[u8; 4]] = &[b"moov", b"trak", b"mdia"];
        let stsd = find_atom(&file, &[mdia, &[b"minf", b"stbl", b"stsd"]].concat());
        let sizes: Vec<u32> = packets.iter().map(|packet| packet.size).cycle().take(offsets.len()).collect();
        let keys: Vec<u32> = (0..repeats).map(|number| (number * packets.len()) as u32 + 1).collect();
        let stts = atom(b"stts", &table(&[0, 1, offsets.len() as u32, (track.ticks_per_second() / 10) as u32]));
        let stsc = atom(b"stsc", &table(&[0, 1, 1, 1, 1]));
        let stbl = [stsd, &stts, &stsc, &list(b"stss", &[], &keys), &list(b"stsz", &[0], &sizes)].concat();
        let stbl = atom(b"stbl", &[stbl, list(b"stco", &[], offsets)].concat());
        let heads = [b"mdhd", b"hdlr"].map(|kind| find_atom(&file, &[mdia, &[kind]].concat()).to_vec()).concat();
        let mdia = atom(b"mdia", &[heads, atom(b"minf", &stbl)].concat());
        let trak = atom(b"trak", &[find_atom(&file, &[b"moov", b"trak", b"tkhd"]), &mdia].concat());
        atom(b"moov", &[find_atom(&file, &[b"moov", b"mvhd"]), &trak].concat())
    };
    let start = find_atom(&file, &[b"ftyp"]).len() + moov(&vec![0; repeats * packets.len()]).len() + 8;
    let bytes: Vec<&[u8]> =
        packets.iter().map(|packet| &file[packet.offset as usize..][..packet.size as usize]).collect();
    let (mut data, mut offsets) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        offsets.extend(append_gop(&mut data, &bytes).iter().map(|offset| (start + offset) as u32));
    }
    // Videos of up to 16 MiB are fetched as a whole, so pad the file beyond that.
    data.resize(data.len().max(17 << 20), 0);
    ([find_atom(&file, &[b"ftyp"]), &moov(&offsets), &atom(b"mdat", &data)].concat(), start as u64)
}

fn append_packet(data: &mut Vec<u8>, packet: &[u8], gap: usize) -> usize {
    let offset = data.len();
    data.extend(packet);
    data.resize(data.len() + gap, 0);
    offset
}

fn one_hour() -> (Vec<u8>, u64) {
    video(36_000 / 12, |data, packets| {
        let offsets = packets.iter().map(|packet| append_packet(data, packet, 0)).collect();
        data.resize(data.len() + GAP, 0);
        offsets
    })
}

fn groups(track: &Track) -> Vec<Range<u64>> {
    let is_key = |packet: &&[warpfeed_video::Packet]| packet[0].is_key;
    let runs: Vec<_> = track.packets().chunk_by(|_, next| !next.is_key).collect();
    assert!(runs.iter().all(is_key));
    runs.iter().map(|run| run[0].offset..run.last().map(|last| last.offset + u64::from(last.size)).unwrap()).collect()
}

fn long_video() -> (tempfile::TempDir, SlowStore, Track, u64) {
    let (file, start) = one_hour();
    let track = warpfeed_video::open(&file).unwrap();
    assert!(track.len() == 36_000 && (track.time(35_999).seconds() - 3599.9).abs() < 1e-6);
    let (folder, store) = (tempfile::tempdir().unwrap(), SlowStore::default());
    fs::write(folder.path().join("a.mp4"), &file).unwrap();
    store.objects.put("mem://set/a.mp4", file);
    (folder, store, track, start)
}

/// The index, the key and the frames of a sample.
type Clip = (u64, String, Vec<u8>);

fn loader(set: impl Source + 'static) -> Loader {
    let loader =
        Loader::source(set).field("video", Image::from_field("video").frames(3)).augment(Augment::resize(24, 16));
    loader.batch_size(4).shuffle(3).max_sample_bytes(1 << 20)
}

fn rows(batch: Result<HostBatch>) -> Vec<Clip> {
    let batch = batch.unwrap();
    let each = batch.field("video").unwrap().bytes().chunks(3 * 24 * 16 * 3);
    batch
        .ids()
        .zip(batch.sample_keys())
        .zip(each)
        .map(|((id, key), clip)| (id, key.to_owned(), clip.to_vec()))
        .collect()
}

fn clips(loader: Loader, epoch: u64) -> Vec<Clip> {
    let mut found: Vec<_> = loader.epochs(epoch + 1).host().unwrap().epoch(epoch).flat_map(rows).collect();
    found.sort();
    found
}

#[test]
fn each_group_of_pictures_of_a_long_video_needs_one_request() {
    exit_on_hang(|| {
        let (folder, store, track, start) = long_video();
        let options = ClipsOptions::new(3).stride(2).clips_per_video(60);
        let store_options = Options::new().store("mem", Arc::new(store.clone()));
        let local = clips(loader(Clips::open(folder.path(), &options).unwrap()), 0);
        assert_eq!(local.len(), 60);
        let set = Clips::open_with("mem://set", &options, &store_options).unwrap();
        assert!(clips(loader(set).workers(3), 0) == local);

        let groups = groups(&track);
        let mut expected = BTreeSet::new();
        for (_, key, _) in &local {
            let first: usize = key.strip_prefix("a/frame_").unwrap().parse().unwrap();
            for frame in [first, first + 2, first + 4] {
                let packet = track.packets()[track.packet_index(frame)];
                let group = groups.iter().find(|group| group.contains(&packet.offset)).unwrap();
                expected.insert((group.start, group.end));
            }
        }
        let fetched = store.prefetches.lock().unwrap();
        let found: BTreeSet<_> = fetched.iter().map(|(_, range)| (range.start, range.end)).collect();
        assert_eq!(found, expected);
        assert_eq!(fetched.len(), expected.len(), "each group is requested once");
        let table_requests = store.blocking_reads.lock().unwrap();
        assert!(table_requests.iter().all(|(_, range)| range.end <= start + 8), "{table_requests:?}");
        let most = store.most_in_flight.load(Ordering::SeqCst);
        assert!(most >= 4, "at most {most} of {} requests at the same time", fetched.len());
    });
}

#[test]
fn a_clip_with_a_random_start_requests_only_its_own_groups() {
    exit_on_hang(|| {
        let (folder, store, track, start) = long_video();
        let options = ClipsOptions::new(3).stride(2).clips_per_video(20).start_jitter(usize::MAX);
        let store_options = Options::new().store("mem", Arc::new(store.clone()));
        let mut epochs = Vec::new();
        for epoch in 0..2 {
            let local = clips(loader(Clips::open(folder.path(), &options).unwrap()), epoch);
            store.prefetches.lock().unwrap().clear();
            store.blocking_reads.lock().unwrap().clear();
            let set = Clips::open_with("mem://set", &options, &store_options).unwrap();
            assert!(clips(loader(set).workers(3), epoch) == local, "epoch {epoch}");
            let groups: BTreeSet<_> = groups(&track).iter().map(|group| (group.start, group.end)).collect();
            let found: Vec<_> =
                store.prefetches.lock().unwrap().iter().map(|(_, range)| (range.start, range.end)).collect();
            assert!(found.iter().all(|range| groups.contains(range)), "{found:?}");
            assert!((20..=40).contains(&found.len()), "{} requests", found.len());
            assert!(store.blocking_reads.lock().unwrap().iter().all(|(_, range)| range.end <= start + 8));
            epochs.push(found.into_iter().collect::<BTreeSet<_>>());
        }
        assert_ne!(epochs[0], epochs[1], "the clips of each epoch must start at different frames");
    });
}

#[test]
fn read_drawn_matches_the_draw_of_all_frames() {
    let folder = tempfile::tempdir().unwrap();
    let videos = Path::new(env!("CARGO_MANIFEST_DIR")).join("video/tests/fixtures");
    fs::create_dir(folder.path().join("x")).unwrap();
    for name in ["g2.mp4", "long.mkv", "vfr.mp4"] {
        fs::copy(videos.join(name), folder.path().join("x").join(name)).unwrap();
    }
    let options = ClipsOptions::new(3).fps(8.0).clips_per_video(2).start_jitter(4);
    let set = || Arc::new(Clips::open(folder.path(), &options).unwrap()) as Arc<dyn Source>;
    for set in [
        set(),
        Arc::new(Concat::match_labels_by_name(vec![set(), set()]).unwrap()),
        Arc::new(Zip::by_index(vec![set(), set()]).unwrap().with_prefix(0, "other").unwrap()),
        Classes::new(["y", "x"]).unwrap().relabel(set()).unwrap(),
    ] {
        let (mut all, mut drawn) = (Vec::new(), Vec::new());
        let mut choices = BTreeSet::new();
        for index in 0..set.len() {
            for draw in (0..16).map(|number| number << 60 | 12345) {
                let [all, drawn] = [set.read(index, &mut all), set.read_drawn(index, draw, &mut drawn)].map(|sample| {
                    let sample = sample.unwrap();
                    let Some(Value::Bytes(bytes)) = sample.value("video") else { panic!("no frames") };
                    let label = (sample.key().to_owned(), sample.label().unwrap());
                    (label, Frames::read(bytes).unwrap())
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
}

#[test]
fn joined_and_resumed_ranks_read_the_same_clips_as_local_files() {
    exit_on_hang(|| {
        let (folder, store, ..) = long_video();
        let options = ClipsOptions::new(3).stride(2).clips_per_video(20).start_jitter(usize::MAX);
        let store_options = Options::new().store("mem", Arc::new(store.clone()));
        let joined = |set: &dyn Fn() -> Arc<dyn Source>| {
            let zip = Zip::by_index(vec![set(), set()]).unwrap().with_prefix(0, "other").unwrap();
            Arc::new(Concat::keep_labels(vec![set(), Arc::new(zip), set()]).unwrap())
        };
        let local = joined(&|| Arc::new(Clips::open(folder.path(), &options).unwrap()));
        let stored = joined(&|| Arc::new(Clips::open_with("mem://set", &options, &store_options).unwrap()));
        let expected = clips(loader(local.clone()), 1);
        assert_eq!(expected.len(), 60);
        let mut found = thread::scope(|scope| {
            let ranks = [0, 1].map(|rank| {
                let loader = loader(stored.clone()).rank(rank, 2).workers(2);
                scope.spawn(|| clips(loader, 1))
            });
            ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        found.sort();
        assert!(found == expected);

        let mut first = loader(stored.clone()).epochs(2).host().unwrap();
        let mut found: Vec<_> = first.epoch(1).take(5).flat_map(rows).collect();
        let mut rest = loader(stored).epochs(2).resume(first.checkpoint()).host().unwrap();
        found.extend(rest.epoch(1).flat_map(rows));
        found.sort();
        assert!(found == expected);
        let requests =
            [&store.prefetches, &store.blocking_reads].map(|requests| requests.lock().unwrap().clone()).concat();
        let bytes: u64 = requests.iter().map(|(_, range)| range.end - range.start).sum();
        let len = store.object("mem://set/a.mp4").unwrap().len;
        assert!(bytes < len, "{bytes} of {len} bytes");
    });
}

#[test]
fn interleaved_packets_give_the_frames_of_local_files() {
    exit_on_hang(|| {
        // Each case consists of the gap after each packet in bytes, whether packets are in reverse
        // order, and whether the loader is expected to prefetch GOPs.
        for (gap, is_reversed, is_prefetched) in [
            (0, true, true),
            (100, false, true),
            (20 << 10, false, false),
            (20 << 10, true, false),
            (70 << 10, false, false),
        ] {
            let (file, start) = video(4, |data, packets| {
                let mut order: Vec<usize> = (0..packets.len()).collect();
                if is_reversed {
                    order.reverse();
                }
                let mut offsets = vec![0; packets.len()];
                order.iter().for_each(|&packet| offsets[packet] = append_packet(data, packets[packet], gap));
                offsets
            });
            let (folder, store) = (tempfile::tempdir().unwrap(), SlowStore::default());
            fs::write(folder.path().join("a.mp4"), &file).unwrap();
            store.objects.put("mem://set/a.mp4", file);
            let options = ClipsOptions::new(3).stride(9).clips_per_video(6);
            let store_options = Options::new().store("mem", Arc::new(store.clone()));
            let local = clips(loader(Clips::open(folder.path(), &options).unwrap()), 0);
            let set = Clips::open_with("mem://set", &options, &store_options).unwrap();
            assert!(clips(loader(set).workers(3), 0) == local, "gap {gap}, {is_reversed}");
            assert_eq!(!store.prefetches.lock().unwrap().is_empty(), is_prefetched, "gap {gap}, {is_reversed}");
            let on_demand = store.blocking_reads.lock().unwrap().iter().any(|(_, range)| range.end > start + 8);
            assert_eq!(!on_demand, is_prefetched, "gap {gap}, {is_reversed}");
        }
    });
}

#[test]
fn prefetched_groups_of_pictures_stay_within_the_budget() {
    exit_on_hang(|| {
        let (folder, store, track, _) = long_video();
        let options = ClipsOptions::new(3).clips_per_video(40).start_jitter(9);
        let local = Clips::open(folder.path(), &options).unwrap();
        let store_options = Options::new().store("mem", Arc::new(store.clone()));
        let group = groups(&track).iter().map(|group| group.end - group.start).max().unwrap();
        for groups in [0, 1, 5] {
            store.prefetches.lock().unwrap().clear();
            let set = Clips::open_with("mem://set", &options, &store_options).unwrap();
            let budget = (groups * group + group / 2) as usize;
            let samples = |index: BatchIndex| Some(vec![(index.batch, index.batch << 58)]);
            let prefetcher = set
                .prefetcher(Lookahead::with_draws(budget, |epoch| if epoch == 0 { 40 } else { 0 }, samples))
                .unwrap();
            prefetcher.start(BatchIndex::default());
            let fetched =
                || store.prefetches.lock().unwrap().iter().map(|(_, range)| range.end - range.start).sum::<u64>();
            while groups > 0 && fetched() == 0 {
                thread::sleep(LATENCY);
            }
            thread::sleep(5 * LATENCY);
            assert!(fetched() <= budget as u64, "{} of {budget} bytes", fetched());
            for batch in 0..40 {
                let (mut found, mut expected) = (Vec::new(), Vec::new());
                let [found, expected] = [
                    set.read_drawn(batch, (batch as u64) << 58, &mut found),
                    local.read_drawn(batch, (batch as u64) << 58, &mut expected),
                ]
                .map(|sample| OwnedSample::try_from(&sample.unwrap()).unwrap());
                assert!(found == expected, "sample {batch}");
                prefetcher.done(BatchIndex { epoch: 0, batch: batch as u64 });
            }
            assert_eq!(fetched() > 0, groups > 0);
        }
    });
}

#[test]
fn a_video_that_changes_in_the_store_is_an_error() {
    exit_on_hang(|| {
        let (_folder, store, ..) = long_video();
        let options = ClipsOptions::new(3).clips_per_video(8).start_jitter(usize::MAX);
        let store_options = Options::new().store("mem", Arc::new(store.clone()));
        let set = Arc::new(Clips::open_with("mem://set", &options, &store_options).unwrap());
        clips(loader(set.clone()), 0);
        let mut file = one_hour().0;
        let last = file.len() - 1;
        file[last] = 1;
        store.objects.put("mem://set/a.mp4", file);
        let results: Vec<_> = loader(set).epochs(2).host().unwrap().epoch(1).collect();
        assert!(results.iter().all(Result::is_err));
        let e = results[0].as_ref().unwrap_err().to_string();
        assert!(e.contains("a.mp4") && e.contains("the object changed"), "{e}");
    });
}

#[test]
fn frames_lost_by_truncation_in_a_store_are_errors() {
    exit_on_hang(|| {
        let (folder, store, ..) = long_video();
        let mut file = one_hour().0;
        file.truncate(file.len() / 2);
        assert!(file.len() > 16 << 20, "the video must be too large to be fetched as a whole");
        store.objects.put("mem://set/a.mp4", file);
        let options = ClipsOptions::new(3).clips_per_video(20);
        let store_options = Options::new().store("mem", Arc::new(store));
        let local = clips(loader(Clips::open(folder.path(), &options).unwrap()), 0);
        let set = Clips::open_with("mem://set", &options, &store_options).unwrap();
        let mut batches = loader(set).batch_size(1).workers(3).host().unwrap();
        let (found, errors): (Vec<_>, Vec<_>) = batches.epoch(0).partition(Result::is_ok);
        let mut found: Vec<_> = found.into_iter().flat_map(rows).collect();
        found.sort();
        assert!(found.len() == 10 && found == local[..10], "{}", found.len());
        for e in errors.into_iter().map(|batch| batch.unwrap_err().to_string()) {
            assert!(e.contains("a.mp4") && e.contains("it is truncated") && e.contains("frame "), "{e}");
        }
    });
}

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
    exit_on_hang(|| {
        let cameras = ["observation.images.front", "observation.images.wrist"];
        let (folder, store) = (fixture("lerobot").join("v30_video"), SlowStore::default());
        for (path, mut bytes) in files(&folder, Path::new("")) {
            if path.extension().is_some_and(|extension| extension == "mp4") {
                // The prefetch budget cannot exceed the size of the files, and the fixtures are
                // too small.
                bytes.extend(atom(b"free", &vec![0; 1 << 20]));
            }
            store.objects.put(&format!("mem://arm/{}", path.display()), bytes);
        }
        let store_options = Options::new().store("mem", Arc::new(store.clone()));
        let batches = |set: LeRobot| {
            let loader = Loader::source(set).drop_field("label").augment(Augment::resize(32, 32)).batch_size(3);
            let loader = loader
                .field("front", Image::from_field(cameras[0]).frames(3))
                .field("wrist", Image::from_field(cameras[1]));
            let mut batches = loader.shuffle(5).workers(3).epochs(2).host().unwrap();
            let all = |batch: Result<HostBatch>| {
                let batch = batch.unwrap();
                ["front", "wrist"].map(|name| batch.field(name).unwrap().bytes().to_vec())
            };
            (0..2).flat_map(|epoch| batches.epoch(epoch).map(all).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let is_video = |(url, _): &&Request| url.ends_with(".mp4");
        // The second list of deltas returns to the GOP of its first frame.
        for deltas in [[-3, 0, 1], [0, -3, 1]] {
            let options = LeRobotOptions::new().delta_indices(cameras[0], deltas);
            let local = batches(LeRobot::open_with(&folder, &options, &Options::new()).unwrap());
            let set = LeRobot::open_with("mem://arm", &options, &store_options).unwrap();
            (0..set.len()).for_each(|index| _ = set.read(index, &mut Vec::new()).unwrap());
            store.prefetches.lock().unwrap().clear();
            store.blocking_reads.lock().unwrap().clear();
            assert!(batches(set) == local, "{deltas:?}");
            assert!(store.prefetches.lock().unwrap().iter().any(|request| is_video(&request)));
            let on_demand = store.blocking_reads.lock().unwrap().iter().filter(is_video).count();
            assert_eq!(on_demand, 0, "{deltas:?}: no frame is read on demand");
        }
    });
}
