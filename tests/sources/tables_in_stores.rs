//! Tests that tables and COCO annotations in a store, with the files that they refer to, give the
//! same samples as local copies. The same holds for a local table that refers to files in a store.
//! The files must be prefetched. URLs outside a table's own folder must be read only if an option
//! names their column.

use std::fs;
use std::sync::Arc;

use crate::objects::Objects;
use crate::stores::samples;
use crate::support::{BatchContent, NumberCodec};
use warpfeed::source::{Options, TableOptions, open};
use warpfeed::{Augment, ErrorKind, Loader};

const ROWS: usize = 24;

fn set() -> (tempfile::TempDir, Objects) {
    let root = tempfile::tempdir().unwrap();
    let (mut csv, mut json, mut urls) = ("path,mask,label,note\n".to_owned(), String::new(), "path,label\n".to_owned());
    for row in 0..ROWS {
        let (image, mask) = (format!("a/{row}.jpg"), format!("masks/{row}.png"));
        let label = ["cat", "dog"][row % 2];
        csv += &format!("{image},{mask},{label},see https://x.org/{row}.png\n");
        json += &format!("{{\"file\": \"./{image}\", \"label\": \"{label}\"}}\n");
        urls += &format!("mem://set/{image},{label}\n");
        for (name, bytes) in [(image, (row as u64).to_le_bytes().to_vec()), (mask, vec![!row as u8; 300])] {
            fs::create_dir_all(root.path().join(&name).parent().unwrap()).unwrap();
            fs::write(root.path().join(name), bytes).unwrap();
        }
    }
    for (name, text) in [("x.csv", csv), ("x.jsonl", json), ("urls.csv", urls)] {
        fs::write(root.path().join(name), text).unwrap();
    }
    let store = Objects::of(root.path(), "mem://set");
    (root, store)
}

#[test]
fn a_table_and_its_files_are_equal_locally_and_in_a_store() {
    let (root, store) = set();
    let stores = || Options::new().store("mem", Arc::new(store.clone()));
    for name in ["x.csv", "x.jsonl"] {
        let local = open(root.path().join(name)).unwrap();
        let url = format!("mem://set/{name}");
        let there = stores().open(&url).unwrap();
        assert_eq!(("table", ROWS, local.classes()), (there.kind(), there.len(), there.classes()), "{name}");
        assert_eq!(samples(&*there), samples(&*local), "{name}");
        let has_mask = samples(&*there)[3].as_sample().unwrap().field("mask.png").is_some();
        assert_eq!(has_mask, name == "x.csv");
        assert_eq!(there.path(3).unwrap().to_str(), Some("mem://set/a/3.jpg"));
        let other = tempfile::tempdir().unwrap();
        fs::copy(root.path().join(name), other.path().join(name)).unwrap();
        let mixed = stores().table(TableOptions::new().root("mem://set")).open(other.path().join(name)).unwrap();
        assert_eq!(samples(&*mixed), samples(&*local), "{name}");
    }
    let urls = root.path().join("urls.csv");
    let table_samples = samples(&*stores().table(TableOptions::new().image("path")).open(&urls).unwrap());
    let local_table = open(root.path().join("x.jsonl")).unwrap();
    for (sample, expected) in table_samples.iter().zip(samples(&*local_table)) {
        assert_eq!(sample.as_sample().unwrap().image().unwrap().1, expected.as_sample().unwrap().image().unwrap().1);
    }
    // URLs under the table's own folder need no option.
    assert_eq!(stores().open("mem://set/urls.csv").unwrap().len(), ROWS);
    // Without the option, a local table with URLs is refused, even if its `root` is empty.
    for options in [TableOptions::new(), TableOptions::new().root("")] {
        let e = stores().table(options).open(&urls).err().unwrap();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains("TableOptions::image(\"path\")"), "{e}");
    }

    let loader = |loader: Loader| loader.codec(NumberCodec).augment(Augment::train(16)).batch_size(8).shuffle(3);
    let content =
        |loader: Loader| loader.into_iter().map(|batch| BatchContent::from(&batch.unwrap())).collect::<Vec<_>>();
    let remote = loader(Loader::new("mem://set/x.jsonl").store("mem", store.clone()));
    assert!(content(remote) == content(loader(Loader::new(root.path().join("x.jsonl")))));
}

#[test]
fn files_of_a_remote_table_are_prefetched() {
    use warpfeed::source::{BatchIndex, Lookahead};

    let (_root, store) = set();
    store.0.lock().unwrap().remove("mem://set/a/5.jpg");
    store.put("mem://set/up.csv", b"path\na/1.jpg\n../a/2.jpg\n".to_vec());
    store.put("mem://set/two.csv", b"path\nmem://set/a/1.jpg\nmem://other/a/2.jpg\n".to_vec());
    let stores = || Options::new().store("mem", Arc::new(store.clone()));
    let source = stores().open("mem://set/x.csv").unwrap();
    assert_eq!(source.prefetch_bytes(), ROWS * 308 - 8);
    let batch = move |place: BatchIndex| Some((place.batch * 4..place.batch * 4 + 4).collect());
    let order = Lookahead::new(1 << 20, |epoch| if epoch == 0 { ROWS as u64 / 4 } else { 0 }, batch);
    let before = source.network_stats().unwrap();
    let prefetcher = source.prefetcher(order).unwrap();
    prefetcher.start(BatchIndex::default());
    for row in 0..ROWS {
        let mut scratch = Vec::new();
        match source.read(row, &mut scratch) {
            Ok(sample) => assert_eq!(sample.image().unwrap().1, (row as u64).to_le_bytes()),
            Err(e) => assert!(row == 5 && e.to_string().contains("mem://set/a/5.jpg"), "{e}"),
        }
    }
    drop(prefetcher);
    let after = source.network_stats().unwrap();
    // Only prefetches are timed, so every request except hedges must have been a prefetch. A hedge
    // sends a request a second time, and both responses may be counted.
    let sent = after.requests - before.requests - after.hedges;
    assert!(sent > 0 && after.responses.count >= sent, "{before:?} {after:?}");

    let up = stores().open("mem://set/up.csv").unwrap();
    assert!(up.read(0, &mut Vec::new()).is_ok());
    let e = up.read(1, &mut Vec::new()).unwrap_err();
    assert!(e.cause().contains("must be a relative path inside") && e.to_string().contains("up.csv"), "{e}");
    let e = stores().table(TableOptions::new().image("path")).open("mem://set/two.csv").err().unwrap();
    assert!(
        e.cause().contains("the files are in several stores or buckets: mem://set/a/1.jpg and mem://other/a/2.jpg"),
        "{e}"
    );
    let e = stores().open("mem://set/none.csv").err().unwrap();
    assert!(e.to_string().contains("mem://set/none.csv"), "{e}");
}

#[cfg(feature = "annotations")]
#[test]
fn coco_datasets_are_equal_locally_and_in_a_store() {
    use crate::annotated::{coco, write_files};

    let json = coco().to_string();
    for (file, images) in [
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_val2017.json", "images/val2017"),
        ("x.json", "images"),
        ("x.json", "."),
        ("train/_annotations.coco.json", "train"),
    ] {
        let names = ["b.png", "deep/a.c.png", "empty.png"].map(|name| format!("{images}/{name}"));
        let names = names.map(|name| name.trim_start_matches("./").to_owned());
        let mut copied = vec![(file, &*json)];
        copied.extend(names.iter().map(|name| (&**name, "")));
        let root = write_files(&copied);
        let store = Objects::of(root.path(), "mem://bucket/set");
        let folder = file.strip_suffix("/_annotations.coco.json");
        let options = Options::new().store("mem", Arc::new(store.clone()));
        for path in [Some(file), folder].into_iter().flatten() {
            let (local, there) =
                (open(root.path().join(path)).unwrap(), options.open(format!("mem://bucket/set/{path}")).unwrap());
            assert_eq!((there.kind(), there.len(), there.classes()), ("coco", 3, local.classes()), "{path}");
            assert_eq!(samples(&*there), samples(&*local), "{path} {images}");
            assert!(there.prefetch_bytes() > 0 && there.network_stats().is_some());
        }
        store.0.lock().unwrap().retain(|url, _| !url.ends_with("deep/a.c.png"));
        if folder.is_none() {
            let e = options.open(format!("mem://bucket/set/{file}")).err().unwrap();
            assert!(e.cause().contains("the first image, \"deep/a.c.png\", was not found in mem://"), "{e}");
        }
    }
}

#[test]
fn remote_tables_find_extensions_and_missing_files() {
    let (_root, store) = set();
    store.put("mem://set/ids.csv", b"path,mask\na/1,masks/gone.png\na/2,masks/2.png\na/99,masks/3.png\n".to_vec());
    let source = Options::new().store("mem", Arc::new(store)).open("mem://set/ids.csv").unwrap();
    let mut scratch = Vec::new();
    let sample = source.read(1, &mut scratch).unwrap();
    assert_eq!((sample.key(), sample.image().unwrap()), ("a/2", ("jpg", &2_u64.to_le_bytes()[..])));
    assert!(sample.field("mask.png").is_some());
    for (row, url, line) in [(0, "mem://set/masks/gone.png", "line 2 of"), (2, "mem://set/a/99.jpg", "line 4 of")] {
        let e = source.read(row, &mut Vec::new()).unwrap_err();
        assert!(e.path().unwrap().to_str() == Some(url) && e.cause().contains(line), "{e}");
    }
}
