//! Tests that sources return the same samples from an HTTP or S3 server as from local files, even
//! if the server truncates bodies, refuses requests and closes connections, and in a child process
//! after a `fork`. Error messages must say what to do.
#![allow(unsafe_code)]

use std::fs;
use std::sync::atomic::Ordering;

use crate::process::own_process;
use crate::support::Server;
use warpfeed::pack::Pack;
use warpfeed::source::{BatchIndex, Lookahead, Memory, Options, OwnedSample, Source, open};

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

fn read_with_prefetch(source: &dyn Source) -> Vec<OwnedSample> {
    let len = source.len() as u64;
    let batch = move |index: BatchIndex| Some((index.batch * 4..(index.batch * 4 + 4).min(len)).collect());
    let order = Lookahead::new(1 << 20, move |epoch| if epoch == 0 { len.div_ceil(4) } else { 0 }, batch);
    let prefetcher = source.prefetcher(order).unwrap();
    prefetcher.start(BatchIndex::default());
    samples(source)
}

#[test]
fn a_server_yields_the_samples_of_the_files_despite_faults() {
    own_process!(a_server_yields_the_samples_of_the_files_despite_faults);
    let (server, address) = Server::start_for_urls();
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u8| OwnedSample::new(format!("s{n:02}")).field("npy", vec![n; 3000]).label(n.into());
    let source = Memory::new((0..40).map(sample).collect());
    Pack::new(&source).shard_size(40_000).keep_undecodable(true).to(root.path().join("s.tar")).unwrap();
    for entry in fs::read_dir(root.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        server.put(&format!("/bucket/train/{name}"), fs::read(&path).unwrap());
    }
    let local = samples(&*open(root.path()).unwrap());
    let options = Options::new().stores(warpfeed_stores::all());
    let web = format!("{address}/bucket/train/s-{{000000..000002}}.tar");
    let count = options.open(&web).unwrap().len();
    for faults in [0, 1] {
        server.faults.store(faults, Ordering::SeqCst);
        server.omits_quotes.store(faults > 0, Ordering::SeqCst);
        let s3 = options.open("s3://bucket/train").unwrap();
        assert!(read_with_prefetch(&*s3) == local && samples(&*s3) == local);
        assert!(read_with_prefetch(&*options.open(&web).unwrap())[..] == local[..count]);
    }
    server.faults.store(0, Ordering::SeqCst);

    for (key, bytes) in [("cat/1.jpg", "one"), ("cat/2.jpg", "two"), ("dog/3.jpg", "three")] {
        server.put(&format!("/bucket/photos/{key}"), bytes.into());
    }
    let photos = options.open("s3://bucket/photos").unwrap();
    assert_eq!((photos.len(), photos.classes()), (3, &["cat".to_owned(), "dog".to_owned()][..]));
    assert_eq!(read_with_prefetch(&*photos)[2].as_sample().unwrap().image().unwrap().1, b"three");

    server.put("/bucket/photos/dog/3.jpg", b"3333!".to_vec());
    let e = photos.read(2, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("changed since it was opened") && !e.is_transient(), "{e}");
    // A file on the Hub changes after the listing. The version in the listed commit must be read.
    server.put("/api/datasets/o/n/revision/main", br#"{"sha":"c1"}"#.to_vec());
    let tree = r#"[{"type":"file","path":"train/dog/3.jpg","size":5}]"#;
    server.put("/api/datasets/o/n/tree/c1/train/", tree.into());
    server.put("/api/datasets/o/n/tree/c1/train", tree.into());
    server.put("/datasets/o/n/resolve/c1/train/dog/3.jpg", b"three".to_vec());
    server.put("/datasets/o/n/resolve/main/train/dog/3.jpg", b"THREE".to_vec());
    let hub = options.open("hf://datasets/o/n/train").unwrap();
    assert_eq!(read_with_prefetch(&*hub)[0].as_sample().unwrap().image().unwrap().1, b"three");

    let e = options.open("s3://bucket/none.tar").err().unwrap();
    assert!(e.cause().contains("does not exist") && e.path().unwrap().to_str() == Some("s3://bucket/none.tar"), "{e}");
    let e = options.open(format!("{address}/bucket/train")).err().unwrap();
    assert!(e.cause().contains("for example as train-{000..099}.tar"), "{e}");

    // A different server has an object with the same URL, length and version.
    let (other, elsewhere) = Server::start();
    for (server, bytes) in [(&server, "here!"), (&other, "there")] {
        server.put("/bucket/one/cat/1.jpg", bytes.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let cached = || {
        let cache = warpfeed_stores::Cache::open(folder.path(), 1 << 30).unwrap();
        let options = Options::new().stores(cache.stores(warpfeed_stores::all()));
        let source = options.open("s3://bucket/one").unwrap();
        let sample = read_with_prefetch(&*source).remove(0);
        (sample.as_sample().unwrap().image().unwrap().1.to_vec(), cache.stats())
    };
    assert_eq!((cached().0, cached().1.disk_hits), (b"here!".to_vec(), 1));
    assert!(
        warpfeed_stores::show(folder.path()).unwrap().sets.contains_key(&format!("s3://bucket/one/cat at {address}"))
    );
    // SAFETY: the child has a single thread, so nothing races with `set_var`. Afterward, the child
    // only reads through the cache and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            std::env::set_var("AWS_ENDPOINT_URL", &elsewhere);
            libc::_exit(if cached().0 == b"there" { 0 } else { 1 });
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert_eq!(
            status, 0,
            "the child must read from its own server, and not the first server's bytes from the cache"
        );
    }

    // SAFETY: the child has none of the parent's threads. It only reads from the server, and exits
    // without running any other code.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let source = options.open("s3://bucket/train");
            let same = source.is_ok_and(|source| read_with_prefetch(&*source) == local);
            libc::_exit(if same { 0 } else { 1 });
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "the child must read the same samples");
    }
}
