//! Tests that SECURITY.md lists the parser of every format, and the fuzz harnesses of file parsers,
//! and that a test compares the listed public files with other libraries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

type Row = [String; 6];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn rows(page: &str) -> Vec<Row> {
    let (_, table) = page.split_once("| input | parser |").expect("SECURITY.md has the table of parsers");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells =
        |line: &str| -> Vec<String> { line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect() };
    lines.map(|line| cells(line).try_into().unwrap_or_else(|_| panic!("expected six cells: {line}"))).collect()
}

fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_format_is_in_the_table_of_parsers() {
    let rows = rows(&read("SECURITY.md"));
    let listed: BTreeSet<&str> = rows.iter().flat_map(|row| code(&row[0])).collect();
    let sets = warpfeed::source::DATA_FORMATS.iter().map(|format| format.name);
    for name in sets.chain(warpfeed::format::FORMATS.iter().map(|format| format.name)) {
        assert!(listed.contains(name), "SECURITY.md has no row with `{name}`");
    }
}

#[test]
fn rows_and_fuzz_harnesses_match() {
    let rows = rows(&read("SECURITY.md"));
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| code(&row[4])).collect();
    let files = |prefix: &'static str, folder| {
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
        entries.map(move |entry| format!("{prefix}{}", entry.unwrap().file_name().into_string().unwrap()))
    };
    let harnesses = files("", "tests/fuzz").chain(files("jpeg/tests/fuzz/", "jpeg/tests/fuzz"));
    let harnesses = harnesses.chain(files("sources/tests/fuzz/", "sources/tests/fuzz"));
    let harnesses: Vec<String> = harnesses.filter(|name| name.ends_with(".rs")).collect();
    for name in &named {
        assert!(harnesses.iter().any(|harness| harness == name), "there is no harness {name}");
    }
    // These files fuzz no file parser, or contain shared code.
    let others = ["coverage.rs", "mod.rs", "repack.rs", "resume.rs"];
    for harness in harnesses.iter().filter(|harness| !others.iter().any(|other| harness.ends_with(other))) {
        assert!(named.contains(&**harness), "SECURITY.md has no row with {harness}");
    }
    for row in rows.iter().filter(|row| code(&row[4]).next().is_none()) {
        assert!(row[4].starts_with("none"), "a row without a harness must say \"none\": {row:?}");
    }
}

#[test]
fn the_listed_public_files_are_the_compared_ones() {
    let compared = read("python/tests/test_corpora.py");
    for row in rows(&read("SECURITY.md")) {
        for corpus in row[5].split(',').map(str::trim).filter(|corpus| !corpus.is_empty() && *corpus != "with bmpsuite")
        {
            let folder = if corpus == "PngSuite" { "pngsuite" } else { corpus };
            assert!(compared.contains(&format!("Outcomes(\"{folder}\")")), "no test compares the files of {corpus}");
        }
    }
}
