//! Tests uploads. An upload to S3 that must create an object never replaces an existing one, and a
//! failed upload leaves neither an object nor parts. A missing object is detected without a
//! listing.

use std::fs;
use std::sync::{Arc, LazyLock};

use crate::process::own_process;
use crate::support::Server;
use warpfeed::pack::Pack;
use warpfeed::source::{Memory, Options, OwnedSample, Source, Store, Upload, open};

/// Size of the object in bytes. The object is uploaded in three parts.
const LARGE: usize = 18 << 20;
const DENIED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
const ABSENT: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

fn server() -> &'static Server {
    static SERVER: LazyLock<Arc<Server>> = LazyLock::new(|| Server::start_for_urls().0);
    &SERVER
}

fn store() -> Arc<dyn Store> {
    server();
    warpfeed_stores::all().into_iter().find(|(scheme, _)| *scheme == "s3").unwrap().1
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..LARGE).map(|index| (index / 1000) as u8 ^ seed).collect()
}

fn start_upload(url: &str, bytes: &[u8]) -> Box<dyn Upload> {
    let mut upload = store().create(url).unwrap();
    upload.write(bytes).unwrap();
    upload
}

fn object(path: &str) -> Option<Vec<u8>> {
    server().objects.lock().unwrap().get(path).map(|(_, bytes)| bytes.clone())
}

fn requests(method: &str, path: &str) -> Vec<String> {
    let seen = server().received.lock().unwrap();
    seen.iter().filter(|line| line.starts_with(&format!("{method} {path}"))).cloned().collect()
}

/// Returns the number of uploads that were started in `bucket`, and the number of requests to
/// complete or abort them.
fn counts(bucket: &str) -> (usize, usize) {
    let started = requests("POST", bucket).iter().filter(|line| line.contains("?uploads")).count();
    let ended = |line: &&String| line.contains("uploadId=");
    (started, requests("POST", bucket).iter().chain(&requests("DELETE", bucket)).filter(ended).count())
}

#[test]
fn the_first_of_two_concurrent_uploads_wins() {
    own_process!(the_first_of_two_concurrent_uploads_wins);
    let (first, second) = (bytes(1), bytes(2));
    let (one, two) = (start_upload("s3://race/x", &first), start_upload("s3://race/x", &second));
    // Both uploads check for the object before either is completed.
    server().scripts.lock().unwrap().insert("HEAD /race/x".into(), vec![ABSENT.into()]);
    assert!(one.complete(true).unwrap());
    assert!(!two.complete(true).unwrap());
    assert!(object("/race/x").unwrap() == first);
    assert_eq!(counts("/race/"), (2, 3), "completed, refused and aborted");
    assert!(start_upload("s3://race/x", &second).complete(false).unwrap());
    assert!(object("/race/x").unwrap() == second);
}

#[test]
fn a_failed_upload_is_aborted_and_cannot_be_completed() {
    own_process!(a_failed_upload_is_aborted_and_cannot_be_completed);
    let scripts = |target: &str| server().scripts.lock().unwrap().insert(target.into(), vec![DENIED.into()]);
    // If an upload cannot start, later writes must fail, too. Otherwise, an incomplete
    // object could appear.
    scripts("POST /failed/begin?uploads");
    scripts("POST /failed/begin?uploads=");
    let mut upload = store().create("s3://failed/begin").unwrap();
    assert!(upload.write(&bytes(1)).unwrap_err().cause().contains("access is denied"));
    assert!(upload.write(b"more").is_err() && upload.complete(true).is_err());
    assert_eq!((object("/failed/begin"), counts("/failed/begin")), (None, (1, 0)));

    let mut upload = start_upload("s3://failed/part", &bytes(1));
    let number = server().upload("/failed/part").unwrap();
    for part in 3..9 {
        scripts(&format!("PUT /failed/part?partNumber={part}&uploadId={number}"));
    }
    let failed = (0..4).find_map(|_| upload.write(&bytes(2)).err()).unwrap();
    assert!(failed.cause().contains("access is denied"), "{failed}");
    assert_eq!(server().upload("/failed/part"), None, "the upload is aborted immediately");
    assert!(upload.complete(true).is_err());
    assert_eq!((object("/failed/part"), counts("/failed/part")), (None, (1, 1)));

    let upload = start_upload("s3://failed/end", &bytes(1));
    let number = server().upload("/failed/end").unwrap();
    scripts(&format!("POST /failed/end?uploadId={number}"));
    assert!(upload.complete(true).unwrap_err().cause().contains("access is denied"));
    assert_eq!(server().upload("/failed/end"), None);

    drop(start_upload("s3://failed/dropped", &bytes(1)));
    assert_eq!((object("/failed/dropped"), counts("/failed/dropped")), (None, (1, 1)));
}

#[test]
fn an_upload_whose_response_was_lost_finds_its_object() {
    own_process!(an_upload_whose_response_was_lost_finds_its_object);
    let gone = "HTTP/1.1 404 Not Found\r\nContent-Length: 44\r\n\r\n<Error><Code>NoSuchUpload</Code></Error>    ";
    let found_response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nLast-Modified: Mon, 23 Nov 2026 07:00:00 GMT\r\n\r\n";
    for (path, completed) in [("/lost/x", true), ("/lost/y", false)] {
        let upload = start_upload(&format!("s3:/{path}"), &bytes(1));
        let end = format!("POST {path}?uploadId={}", server().upload(path).unwrap());
        let looks = if completed { vec![ABSENT.into(), found_response.into()] } else { vec![ABSENT.into()] };
        server().scripts.lock().unwrap().extend([(end, vec![gone.into()]), (format!("HEAD {path}"), looks)]);
        let result = upload.complete(true);
        if completed {
            assert!(!result.unwrap());
            continue;
        }
        let e = result.unwrap_err();
        assert!(e.cause().contains("the server has aborted the upload") && !e.is_not_found(), "{e}");
    }
}

#[test]
fn a_missing_object_is_detected_without_a_listing() {
    own_process!(a_missing_object_is_detected_without_a_listing);
    server();
    let e = store().object("s3://packed/none").unwrap_err();
    assert!(e.is_not_found() && e.cause().contains("does not exist"), "{e}");
    assert!(requests("GET", "/packed").is_empty());

    let sample =
        |n: u8| OwnedSample::new(format!("s{n:02}")).field("npy", bytes(n)[..3 << 20].to_vec()).label(n.into());
    let source = Memory::new((0..8).map(sample).collect());
    let pack = || Pack::new(&source).shard_size(10 << 20).keep_undecodable(true).workers(2);
    let root = tempfile::tempdir().unwrap();
    pack().to(root.path().join("x.tar")).unwrap();
    pack().stores(warpfeed_stores::all()).to("s3://packed/set/x.tar").unwrap();
    let mut shards = 0;
    for entry in fs::read_dir(root.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(object(&format!("/packed/set/{name}")).unwrap() == fs::read(&path).unwrap(), "{name}");
        shards += usize::from(name.ends_with(".tar"));
    }
    // The last shard is smaller than a part.
    assert_eq!((shards, counts("/packed/")), (3, (2, 2)));
    let read = |source: &dyn Source| -> Vec<_> {
        (0..source.len())
            .map(|index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap())
            .collect()
    };
    let stored = Options::new().stores(warpfeed_stores::all()).open("s3://packed/set/").unwrap();
    assert!(read(&*stored) == read(&*open(root.path()).unwrap()));
}
