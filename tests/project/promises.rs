//! Each guarantee of docs/guarantees.md must have one entry in tests/PROMISES.md, which quotes its
//! first sentence and names tests that exist and are not ignored. Each guarantee of the README must
//! have a section in both pages. Tests that observe the whole process must first call
//! `process::serial`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

struct Item {
    line: usize,
    text: String,
}

/// Parses a page. `## ` begins a section, `- ` begins an item, and indented lines continue it.
fn sections(page: &str) -> Vec<(String, Vec<Item>)> {
    let mut sections: Vec<(String, Vec<Item>)> = Vec::new();
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(name) = text.strip_prefix("## ") {
            sections.push((name.to_owned(), Vec::new()));
        } else if let Some((_, items)) = sections.last_mut() {
            if let Some(text) = text.strip_prefix("- ") {
                items.push(Item { line, text: text.to_owned() });
            } else if text.starts_with("  ") {
                let item = items.last_mut().unwrap_or_else(|| panic!("line {line}: the section begins inside an item"));
                item.text = format!("{} {}", item.text, text.trim());
            } else {
                assert!(text.is_empty(), "line {line}: expected a heading or a list: {text}");
            }
        }
    }
    sections
}

/// Returns the first sentence of a guarantee, with the text of links instead of the links.
fn first_sentence(text: &str) -> String {
    let mut rest = text.split_inclusive(". ").next().unwrap().trim_end();
    let mut sentence = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        let (before, label) = before.rsplit_once('[').expect("a link has a text");
        sentence += before;
        sentence += label;
        rest = after.split_once(')').expect("the target of a link ends").1;
    }
    sentence + rest
}

/// Returns the quoted sentence of an entry of tests/PROMISES.md, and the names of its tests by file.
fn entry(text: &str) -> (&str, Vec<(&str, Vec<&str>)>) {
    let mut parts = text.split(" - `");
    let sentence = parts.next().unwrap();
    let tests = parts.map(|part| {
        let mut pieces = part.split('`');
        (pieces.next().unwrap(), pieces.skip(1).step_by(2).collect())
    });
    (sentence, tests.collect())
}

fn promised(readme: &str) -> Vec<String> {
    let (_, list) = readme.split_once("\n## What it promises\n").expect("the README has a list of promises");
    let list = list.split("\n## ").next().unwrap();
    let bold = list.lines().filter_map(|line| line.strip_prefix("- **")?.split_once(".**"));
    bold.map(|(name, _)| name.to_owned()).collect()
}

fn tests_of(file: &str, text: &str) -> Vec<String> {
    let name = |line: &str, before: &str| {
        let name: String =
            line.trim().strip_prefix(before)?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        Some(name)
    };
    if file.ends_with(".py") {
        return text.lines().filter_map(|line| name(line, "def ")).filter(|name| name.starts_with("test_")).collect();
    }
    let (mut tests, mut is_test, mut is_ignored) = (Vec::new(), false, false);
    for line in text.lines().map(str::trim) {
        match line {
            "#[test]" => is_test = true,
            _ if line.starts_with("#[ignore") => is_ignored = true,
            _ if line.starts_with("#[") || line.starts_with("//") => {}
            _ => {
                if is_test && !is_ignored {
                    tests.extend(name(line, "fn "));
                }
                (is_test, is_ignored) = (false, false);
            }
        }
    }
    tests
}

/// Lists guarantees and sections that another page lacks, and tests that are missing or ignored.
fn faults(readme: &str, page: &str, index: &str, file: &mut dyn FnMut(&str) -> Option<String>) -> Vec<String> {
    let (guarantees, promises) = (sections(page), sections(index));
    let mut faults = Vec::new();
    for name in promised(readme).iter().filter(|name| !guarantees.iter().any(|(section, _)| section == *name)) {
        faults.push(format!("`{name}` is promised in README.md, but docs/guarantees.md has no such section"));
    }
    for (name, items) in &guarantees {
        let Some((_, entries)) = promises.iter().find(|(section, _)| section == name) else {
            faults.push(format!("`{name}` is in docs/guarantees.md, but tests/PROMISES.md has no such section"));
            continue;
        };
        let sentences: Vec<String> = items.iter().map(|item| first_sentence(&item.text)).collect();
        let quotes: Vec<String> = entries.iter().map(|item| first_sentence(entry(&item.text).0)).collect();
        for sentence in sentences.iter().filter(|sentence| !quotes.contains(sentence)) {
            faults.push(format!("`{name}` lacks this guarantee in tests/PROMISES.md: {sentence}"));
        }
        for (Item { line, .. }, quote) in entries.iter().zip(&quotes).filter(|(_, quote)| !sentences.contains(quote)) {
            faults.push(format!("tests/PROMISES.md:{line}: `{name}` has no such guarantee: {quote}"));
        }
        if faults.is_empty() && sentences != quotes {
            faults.push(format!("`{name}` has repeated guarantees or a different order in tests/PROMISES.md"));
        }
    }
    for (name, _) in promises.iter().filter(|(name, _)| !guarantees.iter().any(|(section, _)| section == name)) {
        faults.push(format!("`{name}` is in tests/PROMISES.md, but docs/guarantees.md has no such section"));
    }
    let mut tests_by_path: BTreeMap<String, Option<Vec<String>>> = BTreeMap::new();
    for (name, entries) in &promises {
        if entries.is_empty() {
            faults.push(format!("`{name}` has no guarantee with a test"));
        }
        for Item { line, text } in entries {
            let (_, files) = entry(text);
            if files.is_empty() || files.iter().any(|(_, names)| names.is_empty()) {
                faults.push(format!("tests/PROMISES.md:{line}: the guarantee or a file names no test: {text}"));
            }
            for (path, names) in files {
                let tests = tests_by_path.entry(path.to_owned()).or_insert_with(|| Some(tests_of(path, &file(path)?)));
                let Some(tests) = tests else {
                    faults.push(format!("tests/PROMISES.md:{line}: {path} does not exist"));
                    continue;
                };
                for name in names.into_iter().filter(|name| !tests.iter().any(|test| test == name)) {
                    faults.push(format!("tests/PROMISES.md:{line}: {path} has no test {name} that is run"));
                }
            }
        }
    }
    faults
}

#[test]
fn every_promise_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut file = |path: &str| fs::read_to_string(root.join(path)).ok();
    let faults = faults(&read("README.md"), &read("docs/guarantees.md"), &read("tests/PROMISES.md"), &mut file);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_kind_of_fault_is_detected() {
    let readme =
        "\n## What it promises\n\n- **One.** It is so.\n- **Two.** And so.\n\n## Else\n\n- **Three.** No promise.\n";
    let files = [
        ("tests/a.rs", "#[test]\nfn is_run() {\n#[test]\n#[ignore = \"long\"]\nfn takes_hours() {\nfn helper() {"),
        ("tests/a.py", "def test_is_run(tmp_path):\ndef helper():"),
    ];
    let mut file = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
    let page = "# Title\n\n## One\n\n- It is so,\n  as [said](said.md). It is.\n- It is 7.0.\n\n## Two\n\n- And so.\n";
    let mut faults = |page: &str, index: &str| faults(readme, page, index, &mut file).join("\n");
    let sound = "# Title\n\n## One\n\n- It is so, as\n  said.\n  - `tests/a.rs`: `is_run`,\n    `is_run`\n  \
                 - `tests/a.py`: `test_is_run`\n- It is 7.0.\n  - `tests/a.rs`: `is_run`\n\n## Two\n\n- And so.\n  \
                 - `tests/a.rs`: `is_run`\n";
    assert_eq!(faults(page, sound), "");
    let renamed = page.replace("## Two", "## Four");
    let report = faults(&renamed, sound);
    for fault in [
        "`Two` is promised in README.md, but docs/guarantees.md has no such section",
        "`Four` is in docs/guarantees.md, but tests/PROMISES.md has no such section",
        "`Two` is in tests/PROMISES.md, but docs/guarantees.md has no such section",
    ] {
        assert!(report.contains(fault), "{report}");
    }
    let mut seen = |from: &str, to: &str, fault: &str| {
        let index = sound.replacen(from, to, 1);
        assert_ne!(index, sound);
        assert!(faults(page, &index).contains(fault), "{index}\n{}", faults(page, &index));
    };
    seen("## Two", "## Four", "`Two` is in docs/guarantees.md, but tests/PROMISES.md has no such section");
    seen("\n- And so.\n  - `tests/a.rs`: `is_run`\n", "", "`Two` has no guarantee");
    seen("\n- And so.\n  - `tests/a.rs`: `is_run`\n", "", "`Two` lacks this guarantee in tests/PROMISES.md: And so.");
    seen("as\n  said", "as written", "`One` lacks this guarantee in tests/PROMISES.md: It is so, as said.");
    seen("as\n  said", "as written", "tests/PROMISES.md:5: `One` has no such guarantee: It is so, as written.");
    let last = "- It is 7.0.\n  - `tests/a.rs`: `is_run`\n";
    seen(last, &last.repeat(2), "`One` has repeated guarantees or a different order");
    let swapped = sound.replace(last, "").replace("- It is so", &format!("{last}- It is so"));
    seen(sound, &swapped, "`One` has repeated guarantees or a different order");
    let no_test = "tests/PROMISES.md:15: the guarantee or a file names no test";
    seen("And so.\n  - `tests/a.rs`: `is_run`", "And so.", no_test);
    seen("And so.\n  - `tests/a.rs`: `is_run`", "And so.\n  - `tests/a.rs`", no_test);
    seen("a.rs`", "b.rs`", "tests/PROMISES.md:5: tests/b.rs does not exist");
    for (file, name) in [("a.rs", "is_not_there"), ("a.rs", "takes_hours"), ("a.rs", "helper"), ("a.py", "helper")] {
        let fault = format!("tests/PROMISES.md:5: tests/{file} has no test {name} that is run");
        seen("a.rs`: `is_run`", &format!("{file}`: `{name}`"), &fault);
    }
}

/// The tests in these groups count threads or measure the memory of the process.
#[test]
fn tests_that_observe_the_process_run_one_at_a_time() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut count = 0;
    for group in ["process_wide", "memory", "gpu_process_wide"] {
        for file in fs::read_dir(tests.join(group)).unwrap().map(|entry| entry.unwrap().path()) {
            let text = fs::read_to_string(&file).unwrap();
            for test in text.split("#[test]\n").skip(1) {
                let body = test.split_once("() {\n").expect("a test is a function without arguments").1;
                let place =
                    format!("{}: {}", file.display(), test.lines().find(|line| line.starts_with("fn ")).unwrap());
                assert_eq!(body.lines().next().unwrap().trim(), "let _serial = serial();", "{place}");
                count += 1;
            }
        }
    }
    assert!(count > 40, "{count} tests");
}
