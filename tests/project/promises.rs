//! Tests that tests/PROMISES.md covers every section of docs/guarantees.md and every guarantee of
//! the README, and that the tests it names exist and are not ignored. Also tests that each test
//! that observes the whole process calls `process::serial`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

struct Claim {
    line: usize,
    text: String,
    tests: Vec<String>,
}

fn guarantees(page: &str) -> Vec<&str> {
    page.lines().filter_map(|line| line.strip_prefix("## ")).collect()
}

/// Parses the sections of tests/PROMISES.md. `## ` begins a section, `- ` begins a guarantee, and
/// indented lines continue it.
fn promises(index: &str) -> Vec<(String, Vec<Claim>)> {
    let mut promises: Vec<(String, Vec<Claim>)> = Vec::new();
    for (line, text) in index.lines().enumerate() {
        if let Some(name) = text.strip_prefix("## ") {
            promises.push((name.to_owned(), Vec::new()));
        } else if let Some((_, claims)) = promises.last_mut() {
            if let Some(text) = text.strip_prefix("- ") {
                claims.push(Claim { line: line + 1, text: text.to_owned(), tests: Vec::new() });
            } else if let Some(text) = text.strip_prefix("  ") {
                let claim =
                    claims.last_mut().unwrap_or_else(|| panic!("line {}: a test without a guarantee", line + 1));
                claim.text += text;
            }
        }
    }
    for claim in promises.iter_mut().flat_map(|(_, claims)| claims) {
        let quoted = claim.text.split('`').skip(1).step_by(2);
        claim.tests = quoted.filter(|text| text.contains("::")).map(str::to_owned).collect();
    }
    promises
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

/// Lists the guarantees of the README and the sections of docs/guarantees.md and tests/PROMISES.md
/// that lack a counterpart, and the tests that are missing or ignored.
fn faults(readme: &str, page: &str, index: &str, file: &mut dyn FnMut(&str) -> Option<String>) -> Vec<String> {
    let guarantees = guarantees(page);
    let promises = promises(index);
    let mut faults = Vec::new();
    for name in promised(readme).iter().filter(|name| !guarantees.contains(&name.as_str())) {
        faults.push(format!("`{name}` is promised in README.md, but docs/guarantees.md has no such section"));
    }
    for name in guarantees.iter().filter(|name| !promises.iter().any(|(promise, _)| promise == *name)) {
        faults.push(format!("`{name}` is in docs/guarantees.md, but tests/PROMISES.md has no such section"));
    }
    for (name, _) in promises.iter().filter(|(name, _)| !guarantees.contains(&name.as_str())) {
        faults.push(format!("`{name}` is in tests/PROMISES.md, but docs/guarantees.md has no such section"));
    }
    let mut tests_by_path: BTreeMap<String, Option<Vec<String>>> = BTreeMap::new();
    for (promise, claims) in &promises {
        if claims.is_empty() {
            faults.push(format!("`{promise}` has no guarantee with a test"));
        }
        for Claim { line, text, tests } in claims {
            if tests.is_empty() {
                faults.push(format!("tests/PROMISES.md:{line}: the guarantee names no test: {text}"));
            }
            for test in tests {
                let (path, name) = test.rsplit_once("::").expect("tests contain `::`");
                let tests = tests_by_path.entry(path.to_owned()).or_insert_with(|| Some(tests_of(path, &file(path)?)));
                match tests {
                    None => faults.push(format!("tests/PROMISES.md:{line}: {path} does not exist")),
                    Some(tests) if !tests.iter().any(|test| test == name) => {
                        faults.push(format!("tests/PROMISES.md:{line}: {path} has no test {name} that is run"));
                    }
                    Some(_) => {}
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
    let page = "# Title\n\n## One\n\n- It is so.\n\n## Two\n\n- And so.\n";
    let mut faults = |page: &str, index: &str| faults(readme, page, index, &mut file).join("\n");
    let sound = "# Title\n\n## One\n\n- It is so:\n  `tests/a.rs::is_run`, `tests/a.py::test_is_run`\n\n## Two\n\n- `tests/a.rs::is_run`\n";
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
    seen("\n- `tests/a.rs::is_run`\n", "", "`Two` has no guarantee");
    seen(
        "`tests/a.rs::is_run`, `tests/a.py::test_is_run`",
        "by hand",
        "tests/PROMISES.md:5: the guarantee names no test",
    );
    seen("a.rs::is_run", "b.rs::is_run", "tests/PROMISES.md:5: tests/b.rs does not exist");
    for name in ["a.rs::is_not_there", "a.rs::takes_hours", "a.rs::helper", "a.py::helper"] {
        let fault = format!("tests/{} that is run", name.replace("::", " has no test "));
        seen("a.rs::is_run", name, &fault);
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
