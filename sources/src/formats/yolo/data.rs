//! Parses `data.yaml`, which contains the folders of the splits and the class names.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use saphyr_parser::{Event, Parser};

use crate::error::{Error, Result, counted};
use crate::machine::file;

/// Maximum size of a YAML file, in bytes. A file with 20,000 classes takes about 500 kB.
const MAX_YAML_BYTES: u64 = 16 << 20;
/// Maximum depth of nested values. A valid file has a depth of at most 3.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Default)]
pub(super) struct DataYaml {
    /// Root folder of the splits (`path`).
    pub(super) root: Option<String>,
    /// The folders and lists of images of each split.
    pub(super) splits: Vec<(&'static str, Vec<String>)>,
    pub(super) names: Vec<String>,
    /// Number of points per box, and of values per point (2 or 3), from `kpt_shape`.
    pub(super) keypoint_shape: Option<(usize, usize)>,
}

impl DataYaml {
    /// Reads and parses the file. If it is not YAML, the error contains the line and the column.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = file::read_text(path, MAX_YAML_BYTES).map_err(|e| Error::io(path, &e))?;
        Self::parse(&text).map_err(|cause| Error::in_source(cause).at_path(path))
    }

    fn parse(text: &str) -> Result<Self, String> {
        check_depth(text)?;
        let documents = Yaml::load_from_str(text).map_err(|e| format!("not YAML: {e}"))?;
        let Some(top) = documents.first().filter(|top| top.as_mapping().is_some()) else {
            return Err("not a data.yaml: expected a mapping with train, val and names".to_owned());
        };
        let get = |key: &str| top.as_mapping_get(key).filter(|value| !value.is_null());
        let text = |value: &Yaml<'_>, key: &str| {
            value.as_str().map(str::to_owned).ok_or_else(|| format!("{key} is {}: expected text", describe(value)))
        };
        let mut splits = Vec::new();
        for split in ["train", "val", "test"] {
            let Some(value) = get(split) else { continue };
            let names = match value.as_vec() {
                Some(names) => names.iter().map(|value| text(value, split)).collect::<Result<_, _>>()?,
                None => vec![text(value, split)?],
            };
            splits.push((split, names));
        }
        let names = get("names").map(parse_names).transpose()?.unwrap_or_default();
        if let Some(count) = get("nc") {
            let actual = names.len();
            if actual > 0 && count.as_integer() != Some(actual as i64) {
                return Err(format!(
                    "nc is {}, but names has {}",
                    describe(count),
                    counted(actual, "entry", "entries")
                ));
            }
        }
        let root = get("path").map(|value| text(value, "path")).transpose()?;
        let keypoint_shape = get("kpt_shape").map(parse_keypoint_shape).transpose()?;
        Ok(DataYaml { root, splits, names, keypoint_shape })
    }
}

/// Rejects values that are nested so deeply that parsing or dropping them could overflow the stack.
fn check_depth(text: &str) -> Result<(), String> {
    let mut depth = 0_usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| format!("not YAML: {e}"))?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let line = span.start.line();
            return Err(format!(
                "line {line}: lists and mappings are nested more than {MAX_DEPTH} deep: expected at most 3 levels"
            ));
        }
    }
    Ok(())
}

/// Parses a list of class names, or a mapping from consecutive integers, starting at 0, to names.
fn parse_names(value: &Yaml<'_>) -> Result<Vec<String>, String> {
    // The YAML parser returns class names such as `1` and `true` as numbers and booleans.
    let name = |value: &Yaml<'_>| {
        let number = || value.as_integer().map(|number| number.to_string());
        let name = value.as_str().map(str::to_owned).or_else(number);
        name.or_else(|| value.as_bool().map(|flag| flag.to_string()))
            .ok_or_else(|| format!("names contains {}: expected text", describe(value)))
    };
    if let Some(list) = value.as_vec() {
        return list.iter().map(name).collect();
    }
    let Some(mapping) = value.as_mapping() else {
        return Err(format!("names is {}: expected a list or a mapping", describe(value)));
    };
    let mut numbered = Vec::new();
    for (key, value) in mapping {
        let class =
            key.as_integer().ok_or_else(|| format!("names has the key {}: expected a number", describe(key)))?;
        numbered.push((class, name(value)?));
    }
    numbered.sort();
    match (0..).zip(&numbered).find(|(expected, (number, _))| expected != number) {
        Some((expected, (number, _))) => {
            Err(format!("names has the class {number} instead of {expected}: expected consecutive numbers from 0"))
        }
        None => Ok(numbered.into_iter().map(|(_, name)| name).collect()),
    }
}

fn parse_keypoint_shape(value: &Yaml<'_>) -> Result<(usize, usize), String> {
    let numbers: Option<Vec<i64>> =
        value.as_vec().and_then(|numbers_in_list| numbers_in_list.iter().map(Yaml::as_integer).collect());
    match numbers.as_deref() {
        Some(&[count, numbers @ 2..=3]) if count > 0 => Ok((count as usize, numbers as usize)),
        _ => Err(format!("kpt_shape is {}: expected [number of points, 2 or 3]", describe(value))),
    }
}

fn describe(value: &Yaml<'_>) -> String {
    const MAX_CHARS: usize = 60;
    let text = match value {
        Yaml::Value(Scalar::Null) => "null".to_owned(),
        Yaml::Value(Scalar::Boolean(value)) => value.to_string(),
        Yaml::Value(Scalar::Integer(value)) => value.to_string(),
        Yaml::Value(Scalar::FloatingPoint(value)) => value.to_string(),
        Yaml::Value(Scalar::String(text)) => format!("{text:?}"),
        Yaml::Sequence(entries) => {
            format!("[{}]", entries.iter().take(MAX_CHARS).map(describe).collect::<Vec<_>>().join(", "))
        }
        Yaml::Mapping(_) => "a mapping".to_owned(),
        _ => "a tagged or invalid value".to_owned(),
    };
    text.chars().take(MAX_CHARS).collect()
}

/// Finds the `data.yaml` or `data.yml` of a dataset in `folder` or its parent. A YAML file with a
/// different name is accepted if it is the only YAML file in its folder.
pub(super) fn find_yaml(folder: &Path) -> Result<Option<PathBuf>> {
    for folder in [folder.to_owned(), folder.join("..")] {
        let mut files = Vec::new();
        let entries = match fs::read_dir(&folder) {
            // The user can still open the YAML file by its path.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => continue,
            entries => entries.map_err(|e| Error::io(&folder, &e))?,
        };
        for entry in entries {
            let path = entry.map_err(|e| Error::io(&folder, &e))?.path();
            if is_yaml(&path) && file::is_file(&path)? {
                files.push(path);
            }
        }
        let data_yaml = files.iter().position(|path| path.file_stem().is_some_and(|stem| stem == "data"));
        match (data_yaml, files.len()) {
            (Some(index), _) => return Ok(Some(files.swap_remove(index))),
            (None, 1) => return Ok(files.pop()),
            _ => {}
        }
    }
    Ok(None)
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("yaml") || end.eq_ignore_ascii_case("yml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_data_yaml_is_read() {
        let text = "# COCO8\npath: ../datasets/coco8 # root\ntrain: images/train\nval: [a.txt, 'b dir']\ntest: # \
                    none\n\nnc: 3\nnames:\n  0: person\n  2: \"traffic light\"\n  1: 7\nkpt_shape: [17, 3]\nflip_idx: \
                    [0, 2,\n  1]\ndownload: |\n  import os\n  x = {'a': 1}\n";
        let data = DataYaml::parse(text).unwrap();
        assert_eq!(data.root.as_deref(), Some("../datasets/coco8"));
        let splits =
            [("train", vec!["images/train".to_owned()]), ("val", vec!["a.txt".to_owned(), "b dir".to_owned()])];
        assert_eq!(data.splits, splits);
        assert_eq!(
            (data.names, data.keypoint_shape),
            (["person", "7", "traffic light"].map(str::to_owned).to_vec(), Some((17, 3)))
        );
        let list = DataYaml::parse("train: ../train/images\nnames: ['a',\n  b, true, \"it's\"]\n").unwrap();
        assert_eq!(list.names, ["a", "b", "true", "it's"]);
        assert_eq!(DataYaml::parse("train: x\nnames:\n- a\n- b c\n").unwrap().names, ["a", "b c"]);
    }

    #[test]
    fn invalid_data_yaml_fails_with_the_reason() {
        let deep = ["- ".repeat(500_000), "? ".repeat(100_000)];
        for (text, words) in [
            ("", "not a data.yaml"),
            ("- a\n", "not a data.yaml"),
            ("a: [", "not YAML: "),
            (&deep[0], "line 1: lists and mappings are nested more than 64 deep"),
            (&deep[1], "line 1: lists and mappings are nested more than 64 deep"),
            ("train: {a: b}\n", "train is a mapping: expected text"),
            ("nc: 3\nnames: [a]\n", "nc is 3, but names has 1 entry"),
            ("names: {0: a, 2: b}\n", "names has the class 2 instead of 1"),
            ("names: {a: b}\n", "names has the key \"a\""),
            ("names: 5\n", "names is 5: expected a list or a mapping"),
            ("kpt_shape: [17, 4]\n", "kpt_shape is [17, 4]: expected [number of points, 2 or 3]"),
        ] {
            let cause = DataYaml::parse(text).unwrap_err();
            assert!(cause.contains(words), "{text:?}: {cause}");
        }
    }
}
