//! Tests packing in parts. The bytes must not depend on the number of parts, even if packing a part
//! is interrupted or repeated. Merging must detect missing parts, changes and damage. A dataset
//! must open only once it is complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use crate::before_read::BeforeRead;
use warpfeed::pack::{Merge, Pack, Recode, Report};
use warpfeed::source::{Memory, OwnedSample, Sample, Source, open};
use warpfeed::{Error, ErrorKind, Result};

pub(crate) fn sample(i: usize) -> OwnedSample {
    // Samples of different sizes make shards of different sizes.
    OwnedSample::new(format!("{:05}", 7 * i)).field("bin", vec![i as u8; 300 + 97 * (i % 13)]).label((i % 3) as i64)
}

pub(crate) fn numbers(samples: usize) -> Memory {
    Memory::new((0..samples).map(sample).collect()).with_classes(["a", "b", "c"])
}

pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

fn names(folder: &Path) -> Vec<String> {
    files(folder).into_keys().collect()
}

fn find_file(folder: &Path, start: &str, end: &str) -> PathBuf {
    let name = names(folder).into_iter().find(|name| name.starts_with(start) && name.ends_with(end));
    folder.join(name.unwrap_or_else(|| panic!("no {start}*{end}")))
}

pub(crate) fn read_all(source: &dyn Source) -> Vec<OwnedSample> {
    let mut scratch = Vec::new();
    (0..source.len()).map(|i| OwnedSample::try_from(&source.read(i, &mut scratch).unwrap()).unwrap()).collect()
}

pub(crate) fn pack_part(source: &dyn Source, folder: &Path, (part, parts): (u64, u64)) -> Result<Report> {
    Pack::new(source).workers(2).shard_samples(4).part(part, parts).to(folder.join("x.tar"))
}

fn merge(folder: &Path) -> Merge {
    Merge::new(folder.join("x.tar"))
}

fn pack_whole(source: &dyn Source) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    pack_part(source, root.path(), (0, 1)).unwrap();
    merge(root.path()).run().unwrap();
    root
}

#[test]
fn packed_bytes_do_not_depend_on_the_number_of_parts() {
    let set = numbers(50);
    let expected = files(pack_whole(&set).path());
    assert_eq!(expected.len(), 13 + 1, "{:?}", expected.keys());
    for parts in [2, 5, 16] {
        let root = tempfile::tempdir().unwrap();
        let mut samples = 0;
        for number in (0..parts).rev() {
            samples += pack_part(&set, root.path(), (number, parts)).unwrap().samples;
            assert!(
                names(root.path()).iter().all(|name| !name.ends_with(".tar")),
                "no shard has its final name before the merge"
            );
        }
        assert_eq!(samples, 50);
        let merged = merge(root.path()).run().unwrap();
        assert_eq!((merged.report.samples, merged.report.written.paths.len(), merged.orphans.len()), (50, 13, 0));
        assert!(files(root.path()) == expected, "{parts} parts");
        assert_eq!(merge(root.path()).run().unwrap(), merged);
        pack_part(&set, root.path(), (0, parts)).unwrap();
        assert!(files(root.path()) == expected, "{parts} parts, after a second merge");
    }
    let root = tempfile::tempdir().unwrap();
    Pack::new(&set).shard_samples(4).to(root.path().join("x.tar")).unwrap();
    assert!(files(root.path()) == expected, "packing without parts gives the same files");
    let opened = open(root.path()).unwrap();
    assert_eq!((read_all(&*opened), opened.classes()), (read_all(&set), set.classes()));
}

#[test]
fn shard_boundaries_by_size_do_not_depend_on_the_parts() {
    let set = numbers(400);
    let pack = |parts: u64| {
        let root = tempfile::tempdir().unwrap();
        for number in 0..parts {
            Pack::new(&set).shard_size(40_000).part(number, parts).to(root.path().join("x.tar")).unwrap();
        }
        merge(root.path()).run().unwrap();
        files(root.path())
    };
    let two = pack(2);
    assert!(two == pack(7));
    let sizes: Vec<usize> = two.iter().filter(|(name, _)| name.ends_with(".tar")).map(|(_, b)| b.len()).collect();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    assert!((30_000..50_000).contains(&mean), "{sizes:?}");
    // Without parts, no shard may exceed the size.
    let root = tempfile::tempdir().unwrap();
    Pack::new(&set).shard_size(40_000).to(root.path().join("x.tar")).unwrap();
    let sizes = files(root.path());
    assert!(sizes.iter().filter(|(name, _)| name.ends_with(".tar")).all(|(_, bytes)| bytes.len() <= 40_000));
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&set));
}

#[test]
fn finished_parts_are_skipped_and_interrupted_ones_continue() {
    let read = AtomicUsize::new(0);
    let set = BeforeRead(numbers(50), |_| {
        read.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let expected = files(pack_whole(&set.0).path());
    let probes = 50; // up to 64 samples are read for the plan
    let pack = |root: &Path, plain: bool| {
        read.store(0, Ordering::Relaxed);
        let pack = Pack::new(&set).workers(1).shard_samples(4);
        let packed = if plain { pack.to(root.join("x.tar")) } else { pack.part(0, 1).to(root.join("x.tar")) };
        packed.map(|report| (report.samples, read.load(Ordering::Relaxed).saturating_sub(probes)))
    };
    for plain in [true, false] {
        let root = tempfile::tempdir().unwrap();
        // Planning reads all of these few samples. Let that succeed, and a later read fail.
        let first = BeforeRead(numbers(50), {
            let reads = AtomicUsize::new(0);
            move |_| {
                if reads.fetch_add(1, Ordering::Relaxed) == 50 + 33 { Err(Error::in_source("gone")) } else { Ok(()) }
            }
        });
        let interrupted = Pack::new(&first).workers(1).shard_samples(4);
        let interrupted = if plain { interrupted } else { interrupted.part(0, 1) };
        interrupted.to(root.path().join("x.tar")).unwrap_err();
        let staged = names(root.path()).iter().filter(|name| name.contains(".tar.")).count();
        assert_eq!(staged, 8, "{:?}", names(root.path()));
        assert!(open(root.path()).is_err());
        let (samples, reads) = pack(root.path(), plain).unwrap();
        assert_eq!((samples, reads), (50, 50 - 32), "the first eight shards are complete");
        if !plain {
            assert_eq!(pack(root.path(), plain).unwrap(), (50, 0));
            merge(root.path()).run().unwrap();
        }
        assert!(files(root.path()) == expected);
    }
}

#[test]
fn concurrent_attempts_at_a_part_leave_one_dataset() {
    let set = BeforeRead(numbers(40), |_| {
        std::thread::sleep(Duration::from_micros(300));
        Ok(())
    });
    let expected = files(pack_whole(&set.0).path());
    let root = tempfile::tempdir().unwrap();
    let start = Barrier::new(6);
    std::thread::scope(|scope| {
        for attempt in 0..6 {
            let (set, start, folder) = (&set, &start, root.path());
            scope.spawn(move || {
                start.wait();
                let report = pack_part(set, folder, (attempt % 2, 2)).unwrap();
                assert_eq!(report.samples, 20);
            });
        }
    });
    let merged = merge(root.path()).run().unwrap();
    assert_eq!(merged.orphans, [] as [PathBuf; 0]);
    assert!(files(root.path()) == expected);
}

#[test]
fn a_late_attempt_does_not_change_the_merged_dataset() {
    let set = numbers(40);
    let expected = files(pack_whole(&set).path());
    for stop_at in [0, 5, 12, 19] {
        let root = tempfile::tempdir().unwrap();
        // Stop the slow attempt while it packs a shard, after it has read its probe samples.
        let (reads, gate) = (AtomicUsize::new(0), (Mutex::new(false), std::sync::Condvar::new()));
        let waits = BeforeRead(numbers(40), |index| {
            if reads.fetch_add(1, Ordering::Relaxed) >= 40 && index == stop_at {
                let mut open = gate.0.lock().unwrap();
                while !*open {
                    open = gate.1.wait(open).unwrap();
                }
            }
            Ok(())
        });
        std::thread::scope(|scope| {
            let late = scope.spawn(|| pack_part(&waits, root.path(), (0, 2)));
            while reads.load(Ordering::Relaxed) <= 40 + stop_at {
                std::thread::sleep(Duration::from_millis(1));
            }
            pack_part(&set, root.path(), (0, 2)).unwrap();
            pack_part(&set, root.path(), (1, 2)).unwrap();
            merge(root.path()).run().unwrap();
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
            assert_eq!(late.join().unwrap().unwrap().samples, 20, "the late attempt finds the dataset");
        });
        assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&set));
        assert_eq!(merge(root.path()).run().unwrap().orphans, [] as [PathBuf; 0]);
        assert!(files(root.path()) == expected, "{:?}", names(root.path()));
    }
}

#[test]
fn a_source_that_changes_between_parts_fails_the_next_part() {
    let original = numbers(40);
    let renamed = Memory::new(
        (0..40).map(|i| if i == 31 { OwnedSample::new("new").field("bin", [1]) } else { sample(i) }).collect(),
    );
    let changes: [(Memory, &str); 3] = [
        (numbers(41), "samples"),
        (renamed.with_classes(["a", "b", "c"]), "source.list"),
        (numbers(40).with_classes(["a", "b", "d"]), "source.classes"),
    ];
    for (changed, what) in changes {
        let root = tempfile::tempdir().unwrap();
        pack_part(&original, root.path(), (0, 2)).unwrap();
        let before = files(root.path());
        let e = pack_part(&changed, root.path(), (1, 2)).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(&format!("plans differ in {what}")), "{e}");
        assert!(files(root.path()) == before, "nothing has changed");
        let e =
            Pack::new(&original).recode(Recode::KeepBytes).shard_samples(4).part(1, 2).to(root.path().join("x.tar"));
        assert!(e.unwrap_err().cause().contains("plans differ in recode.how"));
        // Without a shared folder, only merging can compare the parts.
        let other = tempfile::tempdir().unwrap();
        pack_part(&changed, other.path(), (1, 2)).unwrap();
        for (name, bytes) in files(other.path()).into_iter().filter(|(name, _)| !name.contains(".plan.")) {
            fs::write(root.path().join(name), bytes).unwrap();
        }
        let e = merge(root.path()).run().unwrap_err();
        assert!(
            e.cause().contains("part 1 of 2 is missing") && e.cause().contains(&format!("differ in {what}")),
            "{e}"
        );
        assert!(open(root.path()).is_err());
        for number in 0..2 {
            let pack = Pack::new(&changed).shard_samples(4).part(number, 2).force(true);
            pack.to(root.path().join("x.tar")).unwrap();
        }
        merge(root.path()).run().unwrap();
        assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&changed));
    }
}

/// A source that cannot list its samples, like some custom sources.
struct Unlisted(Vec<usize>);

impl Source for Unlisted {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        *scratch = vec![7; 100];
        Sample::new(Box::leak(format!("{}", self.0[index]).into_boxed_str())).with_field("bin", scratch)
    }
}

#[test]
fn a_sample_that_moves_between_parts_is_detected_without_a_list() {
    // Remove one sample from the first half and add one to the second. The boundary between the
    // parts moves by one sample, which the plan's probes may miss.
    let before: Vec<usize> = (0..6400).collect();
    let mut after = before.clone();
    after.remove(3198);
    after.insert(3201, 99_999);
    let root = tempfile::tempdir().unwrap();
    pack_part(&Unlisted(before.clone()), root.path(), (0, 2)).unwrap();
    assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 4);
    match pack_part(&Unlisted(after), root.path(), (1, 2)) {
        Err(e) => assert!(e.cause().contains("source.probes"), "{e}"),
        Ok(_) => {
            let e = merge(root.path()).run().unwrap_err();
            assert!(e.cause().contains("the source has changed"), "{e}");
            assert!(e.cause().contains("\"3199\""), "{e}");
        }
    }
}

#[test]
fn a_merge_names_what_is_missing_or_damaged_and_changes_nothing() {
    let set = numbers(40);
    let root = tempfile::tempdir().unwrap();
    let e = merge(root.path()).run().unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.cause().contains("there are no parts with this name"), "{e}");
    for number in [0, 2] {
        pack_part(&set, root.path(), (number, 4)).unwrap();
    }
    let refused = |words: &[&str]| {
        let before = files(root.path());
        let e = merge(root.path()).run().unwrap_err();
        assert!(words.iter().all(|word| e.to_string().contains(word)), "{e}");
        assert!(files(root.path()) == before);
        let e = open(root.path()).err().unwrap();
        assert!(e.cause().contains("is incomplete") || e.cause().contains("were not merged"), "{e}");
    };
    refused(&["parts 1,3 of 4 are missing"]);
    pack_part(&set, root.path(), (1, 4)).unwrap();
    pack_part(&set, root.path(), (3, 4)).unwrap();

    let shard = find_file(root.path(), "x-000005.tar.", ".partial");
    let name = shard.file_name().unwrap().to_str().unwrap().to_owned();
    let message = format!("1 of 10 shards are missing or damaged: {name} (part 2/4)");
    let sound = fs::read(&shard).unwrap();
    let mut damaged = sound.clone();
    damaged[700] ^= 1;
    fs::write(&shard, &damaged).unwrap();
    refused(&[&message, "delete them"]);
    fs::remove_file(&shard).unwrap();
    refused(&[&message]);
    pack_part(&set, root.path(), (2, 4)).unwrap();
    assert!(fs::read(&shard).unwrap() == sound);

    let manifest = find_file(root.path(), "x.part-00002-of-00004.", ".json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"first\": 20", "\"first\": 21")).unwrap();
    refused(&[
        "it lists x-000005.tar with ",
        " from position 21, but expected x-000005.tar with samples from position 20",
        "x.part-00002-of-00004.",
    ]);
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    refused(&["x.part-00002-of-00004.", "damaged"]);
    fs::remove_file(&manifest).unwrap();
    pack_part(&set, root.path(), (2, 4)).unwrap();
    merge(root.path()).run().unwrap();
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&set));
}

#[test]
fn a_damaged_dataset_is_repacked_only_on_request() {
    let set = numbers(40);
    let (root, sound) = (pack_whole(&set), files(pack_whole(&set).path()));
    let shard = root.path().join("x-000003.tar");
    let mut bytes = sound["x-000003.tar"].clone();
    bytes[700] ^= 1;
    for damage in [None, Some(&bytes[..512]), Some(&bytes)] {
        match damage {
            Some(bytes) => fs::write(&shard, bytes).unwrap(),
            None => fs::remove_file(&shard).unwrap(),
        }
        let e = merge(root.path()).run().unwrap_err();
        let expected = "shards are missing or damaged: x-000003.tar; pack the dataset again with force(true)";
        assert!(e.cause().ends_with(expected), "{e}");
        // A part checks only the sizes of its own shards.
        if damage.is_none_or(|bytes| bytes.len() == 512) {
            let e = pack_part(&set, root.path(), (0, 2)).unwrap_err();
            assert!(e.cause().starts_with("1 of 5 ") && e.cause().ends_with(expected), "{e}");
        }
        pack_part(&set, root.path(), (1, 2)).unwrap();
        forced(&set, root.path(), (0, 1)).unwrap();
        merge(root.path()).force(true).run().unwrap();
        assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&set));
        merge(root.path()).run().unwrap();
    }
}

#[test]
fn a_dataset_opens_completely_or_not_at_all() {
    let set = numbers(40);
    let root = pack_whole(&set);
    let path_of = |name: &str| root.path().join(name);
    let refused = |words: &str| {
        for path in [root.path().to_owned(), path_of("x.manifest.json")] {
            let e = open(&path).err().unwrap();
            assert!(e.to_string().contains(words), "{e}");
        }
    };
    for path in [root.path().to_owned(), path_of("x.manifest.json"), path_of("x-{000000..000009}.tar")] {
        assert_eq!(read_all(&*open(path).unwrap()), read_all(&set));
    }
    // A shard of a different plan is not part of the dataset.
    fs::copy(path_of("x-000003.tar"), path_of("x-000010.tar")).unwrap();
    assert_eq!(open(root.path()).unwrap().len(), 40);
    let merged = merge(root.path()).run().unwrap();
    assert_eq!(merged.orphans, [path_of("x-000010.tar")]);
    fs::remove_file(path_of("x-000010.tar")).unwrap();

    let sound = fs::read(path_of("x-000003.tar")).unwrap();
    fs::write(path_of("x-000003.tar"), &sound[..sound.len() - 512]).unwrap();
    refused("x-000003.tar has");
    fs::remove_file(path_of("x-000003.tar")).unwrap();
    refused("1 of the 10 shards in x.manifest.json have changed since packing: x-000003.tar is missing");
    let mut other = sound.clone();
    other.truncate(1024);
    other.resize(sound.len(), 0);
    fs::write(path_of("x-000003.tar"), other).unwrap();
    refused("the shard has 0 samples, but its manifest claims 4");
    fs::write(path_of("x-000003.tar"), sound).unwrap();

    fs::copy(path_of("x-000003.tar"), path_of("more.tar")).unwrap();
    let e = open(root.path()).err().unwrap();
    assert!(e.cause().contains("1 tar file that x.manifest.json does not list, such as more.tar"), "{e}");
    assert_eq!(open(path_of("x.manifest.json")).unwrap().len(), 40);
    fs::remove_file(path_of("more.tar")).unwrap();
    Pack::new(&numbers(3)).shard_samples(2).to(path_of("y.tar")).unwrap();
    let e = open(root.path()).err().unwrap();
    assert!(
        e.cause()
            .contains("the folder contains 2 sets of shards: open one of their manifests, such as x.manifest.json"),
        "{e}"
    );
    assert_eq!(open(path_of("y.manifest.json")).unwrap().len(), 3);
    for (text, words) in [
        ("{\"warpfeed_set\": 2, \"shards\": []}", "version 2"),
        ("{\"warpfeed_set\": 1, \"shards\": []}", "no shards"),
        (
            "{\"warpfeed_set\": 1, \"shards\": [{\"name\": \"../x-000003.tar\", \"samples\": 4, \"bytes\": 1}]}",
            "not a valid shard name",
        ),
        ("{\"warpfeed_set\": 1, ", "damaged manifest"),
    ] {
        fs::write(path_of("z.manifest.json"), text).unwrap();
        let e = open(path_of("z.manifest.json")).err().unwrap();
        assert!(e.cause().contains(words) && e.to_string().contains("z.manifest.json"), "{e}");
    }
}

#[test]
fn the_old_dataset_stays_until_the_new_one_is_merged() {
    let (old, new) = (numbers(40), numbers(30));
    let root = pack_whole(&old);
    let e = pack_part(&new, root.path(), (0, 2)).unwrap_err();
    assert!(e.cause().contains("the plans differ in samples"), "{e}");
    let pack = |number| {
        Pack::new(&new).shard_samples(4).part(number, 2).force(true).to(root.path().join("x.tar")).unwrap();
    };
    pack(0);
    assert_eq!(open(root.path()).unwrap().len(), 40);
    pack(1);
    assert_eq!(open(root.path()).unwrap().len(), 40);
    assert!(merge(root.path()).run().unwrap_err().cause().contains("exists"));
    assert_eq!(open(root.path()).unwrap().len(), 40);
    merge(root.path()).force(true).run().unwrap();
    assert!(files(root.path()).keys().eq(files(pack_whole(&new).path()).keys()), "{:?}", names(root.path()));
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&new));
    let before = fs::metadata(root.path().join("x-000000.tar")).unwrap().modified().unwrap();
    pack(0);
    pack(1);
    merge(root.path()).force(true).run().unwrap();
    assert!(fs::metadata(root.path().join("x-000000.tar")).unwrap().modified().unwrap() > before);
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&new));
}

#[test]
fn merging_counts_the_bad_images_of_all_parts() {
    let bad_sample = |i: usize| OwnedSample::new(format!("{i:03}")).field("jpg", format!("no image {i}"));
    let set = Memory::new((0..40).map(|i| if i % 9 == 4 { bad_sample(i) } else { sample(i) }).collect());
    let root = tempfile::tempdir().unwrap();
    let e = pack_part(&set, root.path(), (1, 2)).unwrap_err();
    assert!(e.cause().starts_with("2 of 20 images cannot be decoded") && e.cause().contains("sample 22 (022)"), "{e}");
    let pack =
        |number| Pack::new(&set).shard_samples(4).part(number, 2).keep_undecodable(true).to(root.path().join("x.tar"));
    assert_eq!((pack(0).unwrap().not_recoded_count, pack(1).unwrap().not_recoded_count), (2, 2));
    // Without `keep_undecodable`, shards with these images are packed again.
    assert!(pack_part(&set, root.path(), (1, 2)).is_err());
    let report = merge(root.path()).run().unwrap().report;
    assert_eq!((report.samples, report.not_recoded_count, report.undecodable_count, report.unchanged), (40, 4, 4, 36));
    let not_recoded: Vec<u64> = report.not_recoded.iter().map(|image| image.index).collect();
    assert_eq!(not_recoded, [4, 13, 22, 31]);
}

#[test]
fn chosen_samples_keep_their_order_and_unknown_keys_fail() {
    let set = numbers(40);
    let root = tempfile::tempdir().unwrap();
    let [train, _] = warpfeed::sampler::split(0..40, [0.75, 0.25], 1).unwrap();
    for number in 0..2 {
        let pack = Pack::new(&set).samples(train.clone()).shard_samples(4).part(number, 2);
        pack.to(root.path().join("x.tar")).unwrap();
    }
    merge(root.path()).run().unwrap();
    let expected: Vec<OwnedSample> = train.iter().map(|&i| sample(i as usize)).collect();
    assert_eq!(read_all(&*open(root.path()).unwrap()), expected);

    Pack::new(&set).keys(["00021", "00007"]).to(root.path().join("keys.tar")).unwrap();
    assert_eq!(read_all(&*open(root.path().join("keys.tar")).unwrap()), [sample(1), sample(3)]);
    let e = Pack::new(&set).keys(["00021", "typo", "x"]).to(root.path().join("y.tar")).unwrap_err();
    assert_eq!((e.kind(), e.cause()), (ErrorKind::Config, "no sample has the key \"typo\", \"x\""));
    let e = Pack::new(&set).samples([3, 40]).to(root.path().join("y.tar")).unwrap_err();
    assert!(e.cause().contains("index 40 is out of range"), "{e}");
}

#[test]
fn invalid_parts_are_refused() {
    let set = numbers(10);
    let root = tempfile::tempdir().unwrap();
    let refused = |pack: Pack<'_>, name: &str, words: &str| {
        let e = pack.to(root.path().join(name)).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(words), "{e}");
    };
    refused(Pack::new(&set).part(2, 2).shard_samples(1), "x.tar", "part 2 of 2");
    refused(Pack::new(&set).part(0, 0).shard_samples(1), "x.tar", "part 0 of 0");
    refused(Pack::new(&set).part(0, 2), "x.tar", "set shard_size(bytes) or shard_samples(samples)");
    refused(Pack::new(&set).part(0, 2).shard_size(9).shard_samples(1), "x.tar", "both set");
    refused(Pack::new(&set).shard_size(9).shard_samples(1), "x.tar", "both set");
    refused(Pack::new(&set).shard_samples(0), "x.tar", "shard_samples(0): expected at least 1");
    refused(Pack::new(&set).part(0, 2).shard_samples(0), "x.tar", "shard_samples(0): expected at least 1");
    refused(Pack::new(&set).part(0, 2).shard_samples(1), "x.lmdb", "must end in .tar");
    refused(Pack::new(&set).shard_samples(1), "x.lmdb", "shard_samples: an LMDB has no shards");
    refused(Pack::new(&set).shard_size(1 << 20), "x.lmdb", "shard_size: an LMDB has no shards");
    assert!(names(root.path()).is_empty());
}

fn forced(source: &dyn Source, folder: &Path, (part, parts): (u64, u64)) -> Result<Report> {
    Pack::new(source).workers(1).shard_samples(4).part(part, parts).force(true).to(folder.join("x.tar"))
}

#[test]
fn concurrent_parts_discard_an_old_pack_and_not_each_other() {
    let (old, new) = (numbers(24), numbers(48));
    let expected = files(pack_whole(&new).path());
    for _ in 0..8 {
        let root = tempfile::tempdir().unwrap();
        (0..2).for_each(|number| drop(pack_part(&old, root.path(), (number, 3)).unwrap()));
        let start = Barrier::new(6);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (new, start, folder) = (&new, &start, root.path());
                scope.spawn(move || {
                    start.wait();
                    assert_eq!(forced(new, folder, (number, 6)).unwrap().samples, 8, "part {number}");
                });
            }
        });
        assert_eq!(merge(root.path()).run().unwrap().orphans, [] as [PathBuf; 0]);
        assert!(files(root.path()) == expected);
    }
}

#[test]
fn concurrent_merges_leave_one_dataset() {
    let set = numbers(48);
    let expected = files(pack_whole(&set).path());
    for _ in 0..10 {
        let root = tempfile::tempdir().unwrap();
        (0..3).for_each(|number| drop(pack_part(&set, root.path(), (number, 3)).unwrap()));
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let merged = merge(root.path()).skip_checksums(true).run().unwrap();
                    assert_eq!((merged.report.samples, merged.orphans.len()), (48, 0));
                });
            }
        });
        assert!(files(root.path()) == expected, "{:?}", names(root.path()));
    }
}

#[test]
fn a_merge_never_uses_a_shard_of_the_old_dataset() {
    // Shards of both datasets have the same sizes.
    let sized = |byte: u8| {
        let sample = move |i| OwnedSample::new(format!("{i:02}")).field("bin", vec![byte; 500]);
        Memory::new((0..40).map(sample).collect())
    };
    let (old, new) = (sized(1), sized(2));
    let root = pack_whole(&old);
    (0..2).for_each(|number| drop(forced(&new, root.path(), (number, 2)).unwrap()));
    let lost = find_file(root.path(), "x-000003.tar.", ".partial");
    fs::remove_file(&lost).unwrap();
    let e = merge(root.path()).force(true).skip_checksums(true).run().unwrap_err();
    assert!(e.cause().contains("1 of 10 shards are missing or damaged: x-000003.tar."), "{e}");
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&old));
    forced(&new, root.path(), (0, 2)).unwrap();
    // A merge was interrupted after it had renamed half of the shards.
    let plan = fs::read(root.path().join("x.plan.partial")).unwrap();
    fs::write(root.path().join("x.merge.partial"), plan).unwrap();
    fs::remove_file(root.path().join("x.manifest.json")).unwrap();
    for number in 0..10 {
        let shard = root.path().join(format!("x-{number:06}.tar"));
        fs::remove_file(&shard).unwrap();
        if number % 2 == 0 {
            fs::rename(find_file(root.path(), &format!("x-{number:06}.tar."), ".partial"), shard).unwrap();
        }
    }
    // A restarted part finds its shards, even with force.
    let before = files(root.path());
    assert_eq!(pack_part(&new, root.path(), (0, 2)).unwrap().samples, 20);
    assert_eq!(forced(&new, root.path(), (1, 2)).unwrap().samples, 20);
    assert!(files(root.path()) == before);
    merge(root.path()).run().unwrap();
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&new));
    assert!(files(root.path()).keys().eq(files(pack_whole(&new).path()).keys()));
}

#[test]
fn repacking_continues_after_an_interrupted_merge() {
    let set = numbers(40);
    let root = pack_whole(&set);
    (0..2).for_each(|number| drop(forced(&set, root.path(), (number, 2)).unwrap()));
    // A merge was interrupted before it renamed a shard.
    fs::remove_file(root.path().join("x.manifest.json")).unwrap();
    let before = files(root.path());
    (0..2).for_each(|number| drop(forced(&set, root.path(), (number, 2)).unwrap()));
    assert!(files(root.path()) == before, "nothing is packed again");
    merge(root.path()).force(true).run().unwrap();
    assert_eq!(read_all(&*open(root.path()).unwrap()), read_all(&set));
}

#[test]
fn a_shard_damaged_during_an_interruption_is_repacked() {
    let set = numbers(50);
    let root = tempfile::tempdir().unwrap();
    let fails = BeforeRead(numbers(50), {
        let reads = AtomicUsize::new(0);
        move |_| if reads.fetch_add(1, Ordering::Relaxed) == 50 + 33 { Err(Error::in_source("gone")) } else { Ok(()) }
    });
    Pack::new(&fails).workers(1).shard_samples(4).to(root.path().join("x.tar")).unwrap_err();
    let shard = find_file(root.path(), "x-000002.tar.", ".partial");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[700] ^= 1;
    fs::write(&shard, bytes).unwrap();
    Pack::new(&BeforeRead(set, |_| Ok(()))).shard_samples(4).to(root.path().join("x.tar")).unwrap();
    assert!(files(root.path()) == files(pack_whole(&numbers(50)).path()));
}

#[test]
fn large_files_named_like_a_manifest_are_not_read_completely() {
    let root = pack_whole(&numbers(40));
    fs::File::create(root.path().join("other.manifest.json")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(open(root.path()).unwrap().len(), 40);
}

#[test]
fn a_merge_that_is_stopped_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    pack_part(&numbers(40), root.path(), (0, 1)).unwrap();
    let before = files(root.path());
    let e = warpfeed::source::CancelToken::new(|| true).run(|| merge(root.path()).run()).unwrap_err();
    assert!(e.cause().contains("stopped"), "{e}");
    assert!(files(root.path()) == before);
    merge(root.path()).run().unwrap();
}
