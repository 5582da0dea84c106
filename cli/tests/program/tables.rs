//! Tests that `inspect`, `verify`, `preview` and `pack` open a table with the given columns and
//! class list.

use std::fs;

use crate::support::{json, ok, text, warpfeed};

#[test]
fn every_command_uses_the_given_columns_and_classes() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    ok(dir, &["synth", "--out", "set", "--images", "12", "--classes", "3", "--side", "64"]);
    let mut rows = String::new();
    for class in fs::read_dir(dir.join("set")).unwrap().map(|entry| entry.unwrap().path()) {
        for image in fs::read_dir(&class).unwrap().map(|entry| entry.unwrap().path()) {
            let name = class.file_name().unwrap().to_str().unwrap();
            rows += &format!("{name}/{};{name};3;4\n", image.file_name().unwrap().to_str().unwrap());
        }
    }
    fs::write(dir.join("t.csv"), format!("where;what;w;h\n{rows}")).unwrap();
    let classes = json(&ok(dir, &["inspect", "set", "--json"]))["classes"].clone();
    let names: Vec<&str> = classes.as_array().unwrap().iter().rev().map(|name| name.as_str().unwrap()).collect();
    fs::write(dir.join("classes.txt"), format!("other\n{}\n", names.join("\n"))).unwrap();
    let columns = ["--image-column", "where", "--root", "set", "--label-column", "what", "--gather", "size=w,h"];
    let with = |args: &[&'static str]| [args, &columns, &["--classes", "classes.txt"]].concat();
    for packed in ["t.lmdb", "t.tar"] {
        ok(dir, &with(&["pack", "t.csv", packed]));
    }
    let table = json(&ok(dir, &with(&["inspect", "t.csv", "--json"])));
    for report in
        [&table, &json(&ok(dir, &["inspect", "t.lmdb", "--json"])), &json(&ok(dir, &["inspect", "t.tar", "--json"]))]
    {
        assert_eq!(report["samples"], 12);
        assert_eq!(report["classes"], serde_json::json!([&["other"], &names[..]].concat()));
        assert_eq!(report["labels"], serde_json::json!({"1": 4, "2": 4, "3": 4}));
        assert_eq!(report["fields"], serde_json::json!({"size.txt": 12}));
        assert_eq!(report["unreadable"], 0);
    }
    let verified = warpfeed(dir, &with(&["verify", "t.csv"]));
    assert_eq!((verified.status.code(), &*text(&verified.stderr)), (Some(0), "t.csv: 12 samples, 0 bad\n"));
    ok(dir, &with(&["preview", "t.csv", "--out", "grid.png"]));
    fs::write(dir.join("short.txt"), "other\n").unwrap();
    let refused = warpfeed(dir, &[&["inspect", "t.csv", "--classes", "short.txt"], &columns[..]].concat());
    let stderr = text(&refused.stderr);
    assert!(
        !refused.status.success()
            && stderr.contains("t.csv")
            && stderr.contains("line ")
            && stderr.contains("not in the list"),
        "{stderr}"
    );
    ok(dir, &["inspect", "set", "--cache-listing"]);
}
