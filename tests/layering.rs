//! Promise: the way data flows is the way the folders lie. A module imports only what lies upstream
//! of it.

use std::fs;
use std::path::{Path, PathBuf};

/// The path from an index to the user, and who may not be imported from where. `trace` watches all
/// of it and needs none of it.
const FLOW: [&str; 12] = [
    "error",
    "trace",
    "order",
    "format",
    "source",
    "decode",
    "transform",
    "batch",
    "cuda",
    "device",
    "engine",
    "loader",
];
/// Writers of data sets stand beside the path: they use its beginning.
const PACK: [&str; 6] = ["error", "order", "format", "source", "decode", "transform"];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Modules of the crate that the code of a file names, without its comments and its tests.
fn imports(text: &str) -> Vec<(usize, String)> {
    let code = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        line.match_indices("crate::").map(move |(at, _)| {
            let rest = &line[at + "crate::".len()..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
            (number + 1, rest[..end].to_owned())
        })
    })
    .collect()
}

#[test]
fn modules_import_only_what_lies_upstream() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut checked = 0;
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&src).unwrap();
        let module = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let allowed = match FLOW.iter().position(|m| *m == module) {
            Some(place) => &FLOW[..=place],
            None if module == "pack" => &PACK[..],
            None => continue, // lib.rs, the program
        };
        for (line, import) in imports(&fs::read_to_string(&file).unwrap()) {
            let known = FLOW.contains(&import.as_str()) || import == "pack";
            if known && import != module && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{}:{line}: {module} imports {import}", inside.display()));
            }
            checked += usize::from(known);
        }
    }
    assert!(checked > 100, "only {checked} imports found: is this looking at the right files?");
    assert!(wrong.is_empty(), "imports against the flow:\n{}", wrong.join("\n"));
}

/// Others reach its types through `crate::cuda`, which decides on the version.
#[test]
fn cudarc_is_named_in_the_cuda_room_alone() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let names = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        let foreign = |line: &str| line.replace("crate::cuda::cudarc::", "").contains("cudarc::");
        text.lines().any(|line| !line.trim_start().starts_with("//") && foreign(line))
    };
    let namers: Vec<_> = files.iter().filter(|f| names(f)).map(|f| f.strip_prefix(&src).unwrap().to_owned()).collect();
    assert!(!namers.is_empty());
    assert!(namers.iter().all(|f| f.starts_with("cuda")), "{namers:?}");
}
