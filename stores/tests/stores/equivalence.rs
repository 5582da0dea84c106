//! Tests that a dataset yields the same batches in every format, from a server and through the
//! cache, with random options. `tests/equivalence` generates the random cases.
#![allow(dead_code, unreachable_pub)] // no test uses all of these functions

#[path = "../../../tests/equivalence/bytes.rs"]
mod bytes;
#[path = "../../../tests/equivalence/compressed.rs"]
mod compressed;
#[path = "../../../tests/equivalence/formats.rs"]
mod formats;
#[path = "../../../tests/equivalence/observe.rs"]
mod observe;
#[path = "../../../tests/equivalence/random_dataset.rs"]
mod random_dataset;
#[path = "../../../tests/equivalence/seed.rs"]
mod seed;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::objects::Objects;
use crate::process::own_process;
use crate::support::Server;
use formats::Format;
use observe::Member;
use seed::{Combinations, Counts, Opened, member};

use warpfeed_stores::Cache;

/// Number of random cases in an ordinary run.
const CASES: u64 = 12;

fn upload(server: &Server, folder: &Path, path: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let path = format!("{path}/{}", file.file_name().unwrap().to_str().unwrap());
        if file.is_dir() { upload(server, &file, &path) } else { server.put(&path, fs::read(&file).unwrap()) }
    }
}

#[test]
fn a_dataset_is_the_same_from_a_server_and_through_the_cache() {
    own_process!(a_dataset_is_the_same_from_a_server_and_through_the_cache);
    let (server, _) = Server::start_for_urls();
    let of_urls = |scheme: &str| warpfeed_stores::all().into_iter().find(|(name, _)| *name == scheme).unwrap().1;
    // Each dataset has its own URL, because the cache may contain earlier datasets.
    let number = std::cell::Cell::new(0);
    let storages = |format: &'static Format, folder: &Path, name: &str| -> Vec<Member> {
        number.set(number.get() + 1);
        let dataset = format!("set-{}", number.get());
        let url =
            |root: &str| if name.is_empty() { format!("{root}/{dataset}") } else { format!("{root}/{dataset}/{name}") };
        let objects = Arc::new(Objects::of(folder, &format!("mem://{dataset}")));
        let cache_folder = folder.with_extension("cache");
        let in_memory = || Some(Cache::open(&cache_folder, 1 << 30).unwrap().store(objects.clone()));
        let mem = if name.is_empty() { format!("mem://{dataset}") } else { format!("mem://{dataset}/{name}") };
        let mut members = vec![
            member(format, "cache", mem.clone(), in_memory(), true),
            member(format, "cache, again", mem.clone(), in_memory(), true),
        ];
        if formats::BY_RANGES.contains(&format.name) {
            let small = Cache::open(folder.with_extension("small"), 3_000).unwrap().store(objects);
            members.push(member(format, "small cache", mem, Some(small), true));
            // The name needs escaping in a URL, and spaces occur in names of class folders.
            upload(&server, folder, &format!("/bucket/100% of 5%20/{dataset}"));
            members.push(member(format, "server", url("s3://bucket/100% of 5%20"), Some(of_urls("s3")), true));
        }
        members
    };
    let may_refuse = |opened: &Opened| opened.format == formats::FOLDER_WITH_MASKS;
    let compressed = if cfg!(all(feature = "hdf5", feature = "parquet")) { compressed::FORMATS } else { &[] };
    let formats = formats::FORMATS.iter().chain(compressed).collect();
    let world = Combinations { formats, storages: &storages, may_refuse };
    let mut counts = Counts::default();
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = variable("WARPFEED_EQUIVALENCE_SEED") {
        counts.run(&world, seed..seed + variable("WARPFEED_EQUIVALENCE_DRAWS").unwrap_or(1), Duration::MAX);
    } else {
        counts.run(&world, 0..CASES, Duration::MAX);
        if let Some(seconds) = variable("WARPFEED_EQUIVALENCE_SECONDS") {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            counts.run(&world, now.as_secs()..u64::MAX, Duration::from_secs(seconds));
        }
    }
    counts.end();
}
