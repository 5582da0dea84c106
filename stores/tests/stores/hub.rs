//! Tests datasets on the Hugging Face Hub. A listing is complete, or it fails: throttled requests,
//! server errors and truncated pages are retried, whereas loops of pages and pages that are not
//! listings cause an error that names the dataset. The token is sent only to the Hub. All requests
//! of a process for the same revision of a dataset use the same commit. A folder or table on the
//! Hub has the same samples, keys and classes as its local copy, even if file names contain special
//! characters.
#![allow(unsafe_code)]

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::process::own_process;
use crate::support::Server;
use warpfeed::source::{CancelToken, Concat, Options, OwnedSample, Source, open};

/// The simulated Hub, and its URL.
static HUB: LazyLock<(Arc<Server>, String)> = LazyLock::new(|| {
    let hub = Server::start_for_urls();
    // SAFETY: this is the only test in the process, and the servers read no environment variables.
    unsafe { std::env::set_var("HF_TOKEN", "hf_secret") };
    hub
});

fn page(body: &str, next: Option<&str>) -> String {
    let link = next.map(|next| format!("Link: <{next}>; rel=\"next\"\r\n")).unwrap_or_default();
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n{link}\r\n{body}", body.len())
}

fn status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

fn files(names: &[&str]) -> String {
    let file = |name: &&str| format!(r#"{{"type":"file","path":"train/{name}","size":5}}"#);
    format!("[{}]", names.iter().map(file).collect::<Vec<_>>().join(","))
}

#[test]
fn a_hub_listing_is_complete_or_fails() {
    own_process!(a_hub_listing_is_complete_or_fails);
    let (server, address) = &*HUB;
    let (other, elsewhere) = Server::start();
    let options = Options::new().stores(warpfeed_stores::all());
    let commit = page(r#"{"sha":"c1"}"#, None);
    let tree = |name: &str| format!("/api/datasets/o/{name}/tree/c1/train?recursive=true");
    let set = |name: &str, revision: Vec<String>, pages: Vec<(String, Vec<String>)>| {
        let mut scripts = server.scripts.lock().unwrap();
        scripts.insert(format!("/api/datasets/o/{name}/revision/main"), revision);
        scripts.extend(pages);
        drop(scripts);
        options.open(format!("hf://datasets/o/{name}/train"))
    };
    let urls = |source: &dyn Source| -> Vec<String> {
        (0..source.len()).map(|index| source.path(index).unwrap().display().to_string()).collect()
    };
    let (one, two) = (files(&["a.jpg", "b.jpg"]), files(&["c.jpg"]));

    // The first three attempts at the first page fail: a refusal, a body that is truncated in the
    // middle, and a second refusal.
    let next = format!("{address}/api/page2");
    let truncated_page = page(&one, Some(&next)).replace(&one, &one[..20]);
    let responses = vec![
        status("429 Too Many Requests"),
        truncated_page,
        status("503 Service Unavailable"),
        page(&one, Some(&next)),
    ];
    let pages = vec![(tree("busy"), responses), ("/api/page2".to_owned(), vec![status("500 Oops"), page(&two, None)])];
    let source = set("busy", vec![status("503 Slow Down"), commit.clone()], pages).unwrap();
    assert_eq!(urls(&*source), ["a", "b", "c"].map(|name| format!("hf://datasets/o/busy/train/{name}.jpg")));
    assert!(
        source.network_stats().unwrap().refusals >= 3 && source.network_stats().unwrap().retries >= 5,
        "{:?}",
        source.network_stats()
    );

    // The pages form loops of one and two pages, list files twice, are not listings, contain an
    // invalid name, or are refused.
    let third = format!("{address}/api/page3");
    let back = format!("{address}{}", tree("circle"));
    for (name, first, second, words) in [
        ("itself", page(&one, Some(&format!("{address}{}", tree("itself")))), None, "link to each other in a loop"),
        ("circle", page(&one, Some(&third)), Some(page(&two, Some(&back))), "link to each other in a loop"),
        ("twice", page(&one, Some(&third)), Some(page(&one, None)), "\"train/a.jpg\" is listed twice"),
        ("cut", page(&one[..30], None), None, "the response is not a list of files"),
        ("html", page("<html>", None), None, "the response is not a list of files"),
        (
            "sizeless",
            page(r#"[{"type":"file","path":"train/a.jpg"}]"#, None),
            None,
            "the response is not a list of files",
        ),
        ("outside", page(r#"[{"type":"file","path":"train/../../a.jpg","size":1}]"#, None), None, "invalid name"),
        ("private", status("401 Unauthorized"), None, "set HF_TOKEN for a private dataset"),
        ("absent", status("404 Not Found"), None, "check the name"),
    ] {
        let mut pages = vec![(tree(name), vec![first])];
        pages.extend(second.map(|second| ("/api/page3".to_owned(), vec![second])));
        let e = set(name, vec![commit.clone()], pages).err().unwrap_or_else(|| panic!("{name} opens"));
        assert!(e.cause().contains(words) && !e.is_transient(), "{name}: {e}");
        assert!(e.path().unwrap().to_str().unwrap().starts_with(&format!("hf://datasets/o/{name}")), "{e}");
        assert!(!format!("{e:?}").contains("hf_secret"), "{e:?}");
    }
    let e = set("empty", vec![page("{}", None)], vec![]).err().unwrap();
    assert!(e.cause().contains("the response contains no commit"), "{e}");

    // A different server must not receive the token.
    other.scripts.lock().unwrap().insert("/page2".to_owned(), vec![page(&two, None)]);
    let pages = vec![(tree("away"), vec![page(&one, Some(&format!("{elsewhere}/page2")))])];
    assert_eq!(set("away", vec![commit.clone()], pages).unwrap().len(), 3);
    let received_token =
        |server: &Server| server.received.lock().unwrap().iter().any(|request| request.contains("hf_secret"));
    assert_eq!((received_token(server), received_token(&other)), (true, false));

    // Although the branch moves after the first request, a table and its files come from the same
    // commit.
    let moving = ["c1", "c2"].map(|commit| page(&format!(r#"{{"sha":"{commit}"}}"#), None));
    server.scripts.lock().unwrap().insert("/api/datasets/o/moving/revision/main".to_owned(), moving.into());
    let trees = ["c1", "c2"].map(|commit| {
        let tree = format!("/api/datasets/o/moving/tree/{commit}/train?recursive=true");
        (tree, vec![page(&files(&["a.jpg", "t.csv"]), None)])
    });
    server.scripts.lock().unwrap().extend(trees);
    for commit in ["c1", "c2", "main"] {
        for name in ["a.jpg", "t.csv"] {
            let path = format!("/datasets/o/moving/resolve/{commit}/train/{name}");
            server.put(&path, format!("{commit:5}").into_bytes());
        }
    }
    let hub = warpfeed_stores::all().into_iter().find(|(scheme, _)| *scheme == "hf").unwrap().1;
    let table = hub.object("hf://datasets/o/moving/train/t.csv").unwrap();
    let listed = hub.list("hf://datasets/o/moving/train/").unwrap();
    assert_eq!((table.tag.as_deref(), listed.len()), (Some("commit c1"), 2));
    for object in [&table, &listed[0], &listed[1]] {
        let mut bytes = [0; 5];
        hub.read(object, 0, &mut bytes).unwrap();
        assert_eq!((object.tag.as_deref(), &bytes), (Some("commit c1"), b"c1   "), "{}", object.url);
    }
    assert_eq!(listed[1], table);

    // A cancellation must not wait for a server that refuses every request.
    let start_time = Instant::now();
    let stop = CancelToken::new(move || start_time.elapsed() > Duration::from_millis(300));
    let pages = vec![(tree("never"), vec![status("429 Too Many Requests")])];
    assert!(stop.run(|| set("never", vec![commit.clone()], pages)).is_err());
    // Without the cancellation, the retries would take more than 40 seconds.
    assert!(start_time.elapsed() < Duration::from_secs(30));
}

/// Publishes the files under `folder` on the simulated Hub, at `path_in_commit` in `commit` of the
/// dataset `name`.
fn publish(server: &Server, name: &str, (revision, commit): (&str, &str), folder: &Path, path_in_commit: &str) {
    fn files(folder: &Path, below: &str, out: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{below}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() { files(&path, &name, out) } else { out.push((name, fs::read(path).unwrap())) }
        }
    }
    let mut contents = Vec::new();
    files(folder, path_in_commit, &mut contents);
    let listed: Vec<_> = contents
        .iter()
        .map(|(path, bytes)| format!(r#"{{"type":"file","path":"{path}","size":{}}}"#, bytes.len()))
        .collect();
    let sha = format!(r#"{{"sha":"{commit}"}}"#);
    server.put(&format!("/api/datasets/o/{name}/revision/{revision}"), sha.into_bytes());
    server.put(
        &format!("/api/datasets/o/{name}/tree/{commit}/{path_in_commit}"),
        format!("[{}]", listed.join(",")).into_bytes(),
    );
    for (path, bytes) in contents {
        server.put(&format!("/datasets/o/{name}/resolve/{commit}/{path}"), bytes);
    }
}

fn samples(source: &dyn Source) -> Vec<OwnedSample> {
    let read = |index| OwnedSample::try_from(&source.read(index, &mut Vec::new()).unwrap()).unwrap();
    (0..source.len()).map(read).collect()
}

#[test]
fn a_hub_folder_equals_the_same_local_folder() {
    own_process!(a_hub_folder_equals_the_same_local_folder);
    let (server, _) = &*HUB;
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "c 2/e'%41.jpg",
        "c1/#1.jpg",
        "c1/a b.png",
        "x y/q?.jpg",
        "x!y/plus+&=.jpg",
        "ü/é.jpg",
        "100%/a.jpg",
        "a#b/deep er/1.jpg",
        "q?r/1.jpg",
        "c%202/@.jpg",
    ]; // fmt: skip
    for name in names {
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        fs::write(folder.path().join(name), name).unwrap();
    }
    let rows: String = names.iter().map(|name| format!("{name},{}\n", name.split('/').next().unwrap())).collect();
    fs::write(folder.path().join("t 1.csv"), format!("path,label\n{rows}")).unwrap();
    let options = Options::new().stores(warpfeed_stores::all());
    for path_in_commit in ["train", "my folder", "a%23b", "q?r#1", "50%/p%2520c"] {
        publish(server, "odd", ("main", "c1"), folder.path(), path_in_commit);
        for file in ["", "/t 1.csv"] {
            let url = format!("hf://datasets/o/odd/{path_in_commit}{file}");
            let local = open(folder.path().join(file.trim_start_matches('/'))).unwrap();
            let hub = options.open(&url).unwrap();
            assert_eq!(hub.classes(), local.classes(), "{url}");
            assert_eq!(samples(&*hub), samples(&*local), "{url}");
            let joined = Concat::match_labels_by_name(vec![local.clone(), hub]).unwrap();
            assert_eq!(joined.classes(), local.classes(), "{url}");
        }
    }
}

#[test]
fn a_hub_revision_may_contain_slashes() {
    own_process!(a_hub_revision_may_contain_slashes);
    let (server, _) = &*HUB;
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().stores(warpfeed_stores::all());
    for (revision, commit) in [("main", "c1"), ("refs/pr/1", "c2"), ("refs/convert/parquet", "c3"), ("fix#1", "c4")] {
        fs::write(folder.path().join("a.jpg"), commit).unwrap();
        publish(server, "revised", (revision, commit), folder.path(), "train");
    }
    for (revision, commit) in
        [("", "c1"), ("@refs/pr/1", "c2"), ("@refs%2Fpr%2F1", "c2"), ("@refs/convert/parquet", "c3"), ("@fix#1", "c4")]
    {
        let source = options.open(format!("hf://datasets/o/revised{revision}/train")).unwrap();
        assert_eq!(samples(&*source)[0].as_sample().unwrap().image().unwrap().1, commit.as_bytes(), "{revision}");
    }
    let seen = server.received.lock().unwrap();
    assert!(seen.iter().any(|request| request.contains("/revised/revision/refs%2Fpr%2F1 ")), "{seen:?}");
}
