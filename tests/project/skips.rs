//! Checks that Rust tests which return early call `missing` (tests/support/require.rs), and that
//! Python tests are skipped only by the helpers in python/tests/conftest.py. These report that the
//! test is skipped, or fail if `WARPFEED_REQUIRE` lists the requirement.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprClosure, ExprIf, ExprReturn, ItemFn, Local};

use crate::require::{is_required, words};

const FOLDERS: [&str; 15] = [
    "src",
    "sources/src",
    "sources/tests",
    "tests",
    "cli/src",
    "cli/tests",
    "jpeg/src",
    "jpeg/tests",
    "stores/src",
    "stores/tests",
    "video/src",
    "video/tests",
    "adaptors/burn/tests",
    "adaptors/candle/tests",
    "adaptors/tch/tests",
];
const HOME: &str = "tests/support/require.rs";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            paths.extend(files(&path, extension));
        } else if path.extension().is_some_and(|actual| actual == extension) {
            paths.push(path);
        }
    }
    paths
}

fn called(expr: &Expr) -> Option<String> {
    if let Expr::Call(call) = expr { function(call) } else { None }
}

fn function(call: &ExprCall) -> Option<String> {
    let Expr::Path(path) = &*call.func else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

#[derive(Default)]
struct Helpers {
    function: Option<String>,
    names: BTreeSet<String>,
}

impl<'a> Visit<'a> for Helpers {
    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        let outer = self.function.replace(item.sig.ident.to_string()).filter(|_| has(&item.attrs, "test"));
        visit::visit_item_fn(self, item);
        self.function = outer;
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if function(call).is_some_and(|name| name == "missing") {
            self.names.extend(self.function.clone());
        }
        visit::visit_expr_call(self, call);
    }

    /// A helper may get its stream from another helper: `let known = stream()?;`.
    fn visit_expr_try(&mut self, expr: &'a syn::ExprTry) {
        if called(&expr.expr).is_some_and(|name| self.names.contains(&name)) {
            self.names.extend(self.function.clone());
        }
        visit::visit_expr_try(self, expr);
    }
}

struct Returns<'a> {
    helpers: &'a BTreeSet<String>,
    test: Option<String>,
    violations: Vec<String>,
}

impl<'a> Visit<'a> for Returns<'_> {
    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        let runs = has(&item.attrs, "test") && !has(&item.attrs, "ignore");
        let outer = std::mem::replace(&mut self.test, runs.then(|| item.sig.ident.to_string()));
        visit::visit_item_fn(self, item);
        self.test = outer;
    }

    fn visit_expr_closure(&mut self, _: &'a ExprClosure) {}

    fn visit_expr_return(&mut self, expr: &'a ExprReturn) {
        let missing = expr.expr.as_deref().and_then(called).is_some_and(|name| name == "missing");
        if let (Some(test), false) = (&self.test, missing) {
            self.violations.push(test.clone());
        }
    }

    /// `let Some(stream) = stream() else { return };`
    fn visit_local(&mut self, local: &'a Local) {
        let helped = local.init.as_ref().and_then(|init| called(&init.expr));
        if !helped.is_some_and(|name| self.helpers.contains(&name)) {
            visit::visit_local(self, local);
        }
    }

    /// A test that reruns itself may return early in the child process.
    fn visit_expr_if(&mut self, expr: &'a ExprIf) {
        let read = match &*expr.cond {
            Expr::MethodCall(call) if call.method == "is_some" => called(&call.receiver),
            Expr::Let(condition) => called(&condition.expr),
            _ => None,
        };
        if read.is_none_or(|name| name != "var_os") {
            visit::visit_expr_if(self, expr);
        }
    }
}

/// Lists the tests in `files` (path and text) that return early in a way that `WARPFEED_REQUIRE`
/// does not turn into a failure. Omits ignored tests, and returns under a condition on an
/// environment variable.
fn silent(files: &[(String, String)]) -> Vec<String> {
    let parsed: Vec<_> = files
        .iter()
        .map(|(path, text)| (path, syn::parse_file(text).unwrap_or_else(|e| panic!("{path}: {e}"))))
        .collect();
    let mut helpers = Helpers::default();
    // A helper may be defined before the helper that it calls.
    for _ in 0..2 {
        parsed.iter().for_each(|(_, file)| helpers.visit_file(file));
    }
    let mut reports = Vec::new();
    for (path, file) in &parsed {
        let mut returns = Returns { helpers: &helpers.names, test: None, violations: Vec::new() };
        returns.visit_file(file);
        reports.extend(returns.violations.iter().map(|test| format!("{path}: {test}")));
    }
    reports
}

#[test]
fn no_rust_test_returns_early_without_a_report() {
    let mut named_files = Vec::new();
    for path in FOLDERS.iter().flat_map(|folder| files(&root().join(folder), "rs")) {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        if name != HOME && !name.starts_with("tests/project/") {
            let printed =
                text.lines().find(|line| line.contains("println!(\"skipped") || line.contains("println!(\"not tested"));
            assert_eq!(printed, None, "{name}: call `missing` instead of printing");
        }
        named_files.push((name, text));
    }
    let silent = silent(&named_files);
    assert!(
        silent.is_empty(),
        "these tests return early; return `missing(word, why)` instead (see {HOME}):\n{}",
        silent.join("\n")
    );
}

#[test]
fn python_tests_are_skipped_only_by_the_helpers() {
    for path in files(&root().join("python/tests"), "py") {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let other = ["importorskip", "pytest.skip(", "skipif", "mark.skip", "xfail", "SkipTest"];
            let skip_word = other.iter().find(|word| line.contains(**word));
            let home = path.ends_with("conftest.py") && line.contains("pytest.skip(f\"needs {word}");
            assert!(skip_word.is_none() || home, "{}:{}: use `need`, `needs` or `missing`", path.display(), number + 1);
        }
    }
}

#[test]
fn warpfeed_require_names_known_words() {
    let required = std::env::var("WARPFEED_REQUIRE").unwrap_or_default();
    is_required(&required, "cuda").unwrap();
    assert_eq!(is_required("torch, cuda,", "cuda"), Ok(true));
    assert_eq!(is_required("torch,libtorch", "cuda"), Ok(false));
    assert_eq!(is_required("", "cuda"), Ok(false));
    let e = is_required("cuda,cudaa", "cuda").unwrap_err();
    assert!(e.starts_with("WARPFEED_REQUIRE=\"cudaa\": expected one of cuda, "), "{e}");
    assert!(is_required("", "gpu").is_err(), "the word is not in require.txt");
    let distinct: BTreeSet<_> = words().collect();
    assert_eq!(distinct.len(), words().count(), "every word is listed once");
}

#[test]
fn the_check_finds_every_early_return() {
    let count_of = |test: &str| {
        let helper = "fn stream() -> Option<u8> { crate::require::missing(\"cuda\", \"\"); None }";
        silent(&[("a.rs".into(), helper.into()), ("b.rs".into(), format!("#[test]\nfn tests() {{ {test} }}"))]).len()
    };
    assert_eq!(count_of("if no_gpu() { return; } work()"), 1);
    assert_eq!(count_of("let Some(x) = other() else { return }; work(x)"), 1);
    assert_eq!(count_of("match gpu() { Err(e) => return eprintln!(\"{e}\"), Ok(x) => work(x) }"), 1);
    assert_eq!(count_of("if no_gpu() { return missing(\"cuda\", \"\") } work()"), 0);
    assert_eq!(count_of("let Some(x) = stream() else { return }; work(x)"), 0);
    assert_eq!(count_of("work(|x| { if x { return } })"), 0);
    assert_eq!(count_of("if std::env::var_os(INSIDE).is_some() { return } work()"), 0);
}
