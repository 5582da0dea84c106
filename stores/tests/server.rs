//! Promise: a loader reads shards and pictures from a server with HTTP's and S3's interface, bit for bit
//! as from local files, although the server cuts bodies, refuses requests and answers late; also after a
//! `fork`. Errors say what to do.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use warpfeed::pack::Pack;
use warpfeed::source::{Lookahead, Memory, Options, OwnedSample, Place, Source, open};

/// A web server of objects, with byte ranges, versions, and S3's `ListObjectsV2` of one page.
#[derive(Default)]
struct Server {
    /// Version and bytes by path, such as `/bucket/key`.
    objects: Mutex<BTreeMap<String, (u64, Vec<u8>)>>,
    /// Every so many requests for bytes is refused, cut short, or answered with other bytes' length.
    faults: AtomicU64,
    requests: AtomicU64,
    /// Whether listings have ETags without quotes, as those of Azure.
    bare: AtomicBool,
}

impl Server {
    fn start() -> (Arc<Server>, String) {
        let (server, listener) = (Arc::new(Server::default()), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = format!("http://{}", listener.local_addr().unwrap());
        let own = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = own.clone();
                thread::spawn(move || server.serve(&stream.unwrap()));
            }
        });
        (server, address)
    }

    fn put(&self, path: &str, bytes: Vec<u8>) {
        let mut objects = self.objects.lock().unwrap();
        let version = objects.get(path).map_or(0, |(version, _)| version + 1);
        objects.insert(path.to_owned(), (version, bytes));
    }

    /// Answers the requests of one connection until it ends or a body is cut.
    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        loop {
            let request = lines.next()?.ok()?;
            let mut headers = BTreeMap::new();
            loop {
                let line = lines.next()?.ok()?;
                let Some((name, value)) = line.split_once(':') else { break };
                headers.insert(name.to_lowercase(), value.trim().to_owned());
            }
            let mut words = request.split(' ');
            let (method, target) = (words.next()?, words.next()?);
            let (answer, kept) = self.answer(method, target, &headers);
            stream.write_all(&answer).ok()?;
            if !kept {
                return None;
            }
        }
    }

    /// The answer, and whether the connection stays open.
    fn answer(&self, method: &str, target: &str, headers: &BTreeMap<String, String>) -> (Vec<u8>, bool) {
        let head = |status: &str, more: &str, len: usize| {
            let time = "Last-Modified: Mon, 23 Nov 2026 07:00:00 GMT";
            format!("HTTP/1.1 {status}\r\n{time}\r\nContent-Length: {len}\r\n{more}\r\n").into_bytes()
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if query.contains("list-type=2") {
            let xml = self.listing(path, query);
            return ([head("200 OK", "", xml.len()), xml.into_bytes()].concat(), true);
        }
        let objects = self.objects.lock().unwrap();
        let Some((version, bytes)) = objects.get(path) else { return (head("404 Not Found", "", 0), true) };
        let tag = format!("\"v{version}\"");
        if headers.get("if-match").is_some_and(|wanted| *wanted != tag) {
            return (head("412 Precondition Failed", "", 0), true);
        }
        let more = format!("ETag: {tag}\r\n");
        if method == "HEAD" {
            return (head("200 OK", &more, bytes.len()), true);
        }
        let range = headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (start, end) =
            range.map_or((0, bytes.len()), |(start, end)| (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1));
        let body = &bytes[start..end];
        let partial = format!("{more}Content-Range: bytes {start}-{}/{}\r\n", end - 1, bytes.len());
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        match (self.faults.load(Ordering::SeqCst), number % 7) {
            (1.., 1) => (head("503 Slow Down", "", 0), true),
            (1.., 3) => {
                ([&head("206 Partial Content", &partial, body.len())[..], &body[..body.len() / 2]].concat(), false)
            }
            (1.., 5) => (Vec::new(), false),
            _ => ([&head("206 Partial Content", &partial, body.len())[..], body].concat(), true),
        }
    }

    fn listing(&self, bucket: &str, query: &str) -> String {
        let of =
            |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)).unwrap_or("").replace("%2F", "/");
        let (prefix, delimited) = (of("prefix="), !of("delimiter=").is_empty());
        let (mut keys, mut folders) = (String::new(), std::collections::BTreeSet::new());
        let root = format!("{}/", bucket.trim_end_matches('/'));
        for (path, (version, bytes)) in self.objects.lock().unwrap().iter() {
            let Some(key) = path.strip_prefix(&root).filter(|key| key.starts_with(&prefix)) else { continue };
            if let (true, Some((folder, _))) = (delimited, key[prefix.len()..].split_once('/')) {
                folders.insert(format!("{prefix}{folder}/"));
                continue;
            }
            let quote = if self.bare.load(Ordering::SeqCst) { "" } else { "&quot;" };
            let (time, len) = ("2026-11-23T07:00:00.000Z", bytes.len());
            keys += &format!(
                "<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>{quote}v{version}{quote}</ETag><Size>{len}</Size></Contents>"
            );
        }
        let folders: String =
            folders.iter().map(|f| format!("<CommonPrefixes><Prefix>{f}</Prefix></CommonPrefixes>")).collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{keys}{folders}</ListBucketResult>")
    }
}

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

/// The samples, read ahead in the order of the file.
fn followed(source: &dyn Source) -> Vec<OwnedSample> {
    let len = source.len() as u64;
    let batch = move |place: Place| Some((place.batch * 4..(place.batch * 4 + 4).min(len)).collect());
    let order = Lookahead::new(1 << 20, move |epoch| if epoch == 0 { len.div_ceil(4) } else { 0 }, batch);
    let follow = source.follow(order).unwrap();
    follow.start(Place::default());
    samples(source)
}

#[test]
fn batches_from_a_server_are_those_of_the_files_also_when_it_fails_and_after_a_fork() {
    let (server, address) = Server::start();
    // SAFETY: the only test of this program, and the server reads no variable.
    unsafe {
        std::env::set_var("AWS_ENDPOINT_URL", &address);
        std::env::set_var("AWS_ACCESS_KEY_ID", "a");
        std::env::set_var("AWS_SECRET_ACCESS_KEY", "b");
        std::env::set_var("AWS_REGION", "us-east-1");
        std::env::set_var("HF_ENDPOINT", &address);
    }
    let root = tempfile::tempdir().unwrap();
    let sample = |n: u8| OwnedSample::new(format!("s{n:02}")).field("npy", vec![n; 3000]).label(n.into());
    let source = Memory::new((0..40).map(sample).collect());
    Pack::new(&source).shard_size(40_000).keep_bad(true).to(root.path().join("s.tar")).unwrap();
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
        server.bare.store(faults > 0, Ordering::SeqCst);
        let s3 = options.open("s3://bucket/train").unwrap();
        assert!(followed(&*s3) == local && samples(&*s3) == local);
        assert!(followed(&*options.open(&web).unwrap())[..] == local[..count]);
    }
    server.faults.store(0, Ordering::SeqCst);

    for (key, bytes) in [("cat/1.jpg", "one"), ("cat/2.jpg", "two"), ("dog/3.jpg", "three")] {
        server.put(&format!("/bucket/photos/{key}"), bytes.into());
    }
    let photos = options.open("s3://bucket/photos").unwrap();
    assert_eq!((photos.len(), photos.classes()), (3, &["cat".to_owned(), "dog".to_owned()][..]));
    assert_eq!(followed(&*photos)[2].as_sample().unwrap().image().unwrap().1, b"three");

    server.put("/bucket/photos/dog/3.jpg", b"3333!".to_vec());
    let e = photos.read(2, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("changed since it was opened") && !e.is_transient(), "{e}");
    // A file of the hub that changes after the listing is read from the listed commit.
    server.put("/api/datasets/o/n/revision/main", br#"{"sha":"c1"}"#.to_vec());
    let tree = r#"[{"type":"file","path":"train/dog/3.jpg","size":5}]"#;
    server.put("/api/datasets/o/n/tree/c1/train/", tree.into());
    server.put("/api/datasets/o/n/tree/c1/train", tree.into());
    server.put("/datasets/o/n/resolve/c1/train/dog/3.jpg", b"three".to_vec());
    server.put("/datasets/o/n/resolve/main/train/dog/3.jpg", b"THREE".to_vec());
    let hub = options.open("hf://datasets/o/n/train").unwrap();
    assert_eq!(followed(&*hub)[0].as_sample().unwrap().image().unwrap().1, b"three");

    let e = options.open("s3://bucket/none.tar").err().unwrap();
    assert!(e.cause().contains("does not exist") && e.path().unwrap().to_str() == Some("s3://bucket/none.tar"), "{e}");
    let e = options.open(format!("{address}/bucket/train")).err().unwrap();
    assert!(e.cause().contains("for example as train-{000..099}.tar"), "{e}");

    // The child has none of the parent's threads.
    // SAFETY: the child only reads from the server, and ends without running anything else.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let source = options.open("s3://bucket/train");
            let same = source.is_ok_and(|source| followed(&*source) == local);
            libc::_exit(if same { 0 } else { 1 });
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "the child has read other samples, or failed");
    }
}
