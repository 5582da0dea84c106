//! [`Features`]: the names and types of columns, as the Hugging Face library `datasets` describes
//! them in JSON. The library writes this JSON to the metadata entry `huggingface` of a file, or to
//! `dataset_info.json` next to the file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::record::{Column, ColumnType, ColumnValue, Columns};
use crate::error::{Error, Result};
use crate::machine::file;
use crate::options::Options;

/// Maximum size of `dataset_info.json`, in bytes.
const MAX_INFO_BYTES: u64 = 64 << 20;

/// The names and types of columns. The JSON value is null if they are unknown.
#[derive(Debug, Default)]
pub(crate) struct Features(Value);

impl Features {
    /// Parses JSON with the features either at the top level or in `info`.
    pub(crate) fn of(json: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(json).ok()?;
        let top = if value.get("info").is_some() { value.get_mut("info")? } else { &mut value };
        let features = top.get_mut("features")?.take();
        features.is_object().then_some(Features(features))
    }

    /// Reads `dataset_info.json` in `folder`, if it exists.
    pub(crate) fn in_folder(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("dataset_info.json");
        match file::read_text(&path, MAX_INFO_BYTES) {
            Ok(text) => Ok(Self::of(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&path, &e)),
        }
    }

    pub(crate) fn classes(&self, column: &str) -> Option<Vec<String>> {
        let names = self.0.get(column)?.get("names")?.as_array()?;
        names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// Returns the type of a column that contains files, if the column's feature determines it.
    pub(crate) fn file_column_type(&self, column: &str) -> Option<ColumnType> {
        match self.0.get(column)?.get("_type")?.as_str()? {
            "Image" => Some(ColumnType::Images),
            "Value" => None,
            // Other features are audio, video or documents, for example.
            _ => Some(ColumnType::Bytes),
        }
    }
}

pub(crate) struct FileFeatures<'a> {
    features: Features,
    /// Whether `features` comes from the first file.
    is_from_file: bool,
    files: &'a [(PathBuf, String)],
}

impl<'a> FileFeatures<'a> {
    /// Collects the features of a dataset. `dataset_features` describes the whole dataset. If it is
    /// `None`, the first file determines the features. `files` contains the path and the JSON of
    /// each file that has features.
    pub(crate) fn new(dataset_features: Option<Features>, files: &'a [(PathBuf, String)]) -> Self {
        let is_from_file = dataset_features.is_none();
        let features = dataset_features.or_else(|| files.iter().find_map(|(_, json)| Features::of(json)));
        FileFeatures { features: features.unwrap_or_default(), is_from_file, files }
    }

    pub(crate) fn all(&self) -> &Features {
        &self.features
    }

    /// Sets the class names of `columns`, which uses the columns in `list`. See
    /// [`with_learned_labels`](Columns::with_learned_labels).
    pub(crate) fn learn_labels<'v>(
        &self,
        columns: Columns,
        list: &[Column],
        options: &Options,
        rows: usize,
        read_value: impl Fn(usize, usize, &mut Vec<u8>) -> Result<ColumnValue<'v>>,
    ) -> Result<Columns> {
        let name = |column: usize| &*list[column].name;
        let names = self.classes(columns.used_columns().map(name), columns.label().map(name))?;
        columns.with_learned_labels(list, names, options, rows, read_value)
    }

    /// Returns the class names of the `label` column. Fails if one of `columns` has different class
    /// names in two files, or in a file and in `dataset_info.json`.
    pub(crate) fn classes<'n>(
        &self,
        columns: impl Iterator<Item = &'n str>,
        label: Option<&str>,
    ) -> Result<Option<Vec<String>>> {
        let mut label_classes = None;
        // Nearly all files contain the same text as the previous file, so parse each text once.
        let mut texts: Vec<&(PathBuf, String)> = self.files.iter().collect();
        texts.dedup_by_key(|(_, json)| json.as_str());
        let files: Vec<_> = texts.iter().filter_map(|(path, json)| Some((&**path, Features::of(json)?))).collect();
        for column in columns {
            let dataset_classes =
                self.features.classes(column).filter(|_| !self.is_from_file).map(|names| (None, names));
            let file_classes =
                files.iter().filter_map(|(path, features)| Some((Some(*path), features.classes(column)?)));
            let mut named = dataset_classes.into_iter().chain(file_classes);
            let Some((first, names)) = named.next() else { continue };
            for (path, others) in named {
                if let Some(cause) = difference(&names, &others) {
                    let first = first.map_or("dataset_info.json".into(), Path::to_string_lossy);
                    return Err(Error::in_source(format!(
                        "column {column:?}: {cause} in {first}; open the files separately, and join them \
                         with Concat::match_labels_by_name"
                    ))
                    .at_path(path.unwrap_or(Path::new(""))));
                }
            }
            if label == Some(column) {
                label_classes = Some(names);
            }
        }
        Ok(label_classes)
    }
}

/// Describes the first difference between two lists of class names. The caller appends the name of
/// the file that contains `names`.
fn difference(names: &[String], others: &[String]) -> Option<String> {
    let len = names.len().max(others.len());
    let label = (0..len).find(|&label| names.get(label) != others.get(label))?;
    let quoted = |name: Option<&String>| name.map_or("missing".to_owned(), |name| format!("{name:?}"));
    let (own_name, other_name) = (quoted(others.get(label)), quoted(names.get(label)));
    Some(format!("class {label} is {own_name} here, but {other_name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_both_forms_of_metadata() {
        let features =
            r#"{"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "n": {}}"#;
        for json in [format!(r#"{{"features": {features}}}"#), format!(r#"{{"info": {{"features": {features}}}}}"#)] {
            let features = Features::of(&json).unwrap();
            assert_eq!(features.classes("label").unwrap(), ["cat", "dog"]);
            assert_eq!(
                (features.file_column_type("image"), features.file_column_type("n")),
                (Some(ColumnType::Images), None)
            );
            assert!(features.classes("n").is_none());
        }
        let sound = Features::of(r#"{"features": {"s": {"_type": "Audio"}, "b": {"_type": "Value"}}}"#).unwrap();
        assert_eq!((sound.file_column_type("s"), sound.file_column_type("b")), (Some(ColumnType::Bytes), None));
        for json in ["", "[]", "{}", r#"{"info": 3}"#, r#"{"features": []}"#] {
            assert!(Features::of(json).is_none(), "{json}");
        }
    }

    #[test]
    fn different_class_names_in_two_files_are_rejected() {
        let json =
            |names: &str| format!(r#"{{"features": {{"label": {{"names": [{names}], "_type": "ClassLabel"}}}}}}"#);
        let file = |name: &str, names: &str| (PathBuf::from(name), json(names));
        let files = |second: &str| [file("a", r#""cat", "dog""#), file("b", r#""cat", "dog""#), file("c", second)];
        let columns = || ["image", "label"].into_iter();
        let names = ["cat", "dog"].map(String::from).to_vec();
        let same = files(r#""cat", "dog""#);
        assert_eq!(FileFeatures::new(None, &same).classes(columns(), Some("label")).unwrap(), Some(names.clone()));
        assert_eq!(FileFeatures::new(None, &same).classes(columns(), None).unwrap(), None);
        assert_eq!(FileFeatures::new(None, &[]).classes(columns(), Some("label")).unwrap(), None);
        for (second, cause) in [
            (r#""cat", "fox""#, "column \"label\": class 1 is \"fox\" here, but \"dog\" in a"),
            (r#""cat""#, "class 1 is missing here, but \"dog\" in a"),
            (r#""cat", "dog", "fox""#, "class 2 is \"fox\" here, but missing in a"),
        ] {
            let files = files(second);
            let e = FileFeatures::new(None, &files).classes(columns(), Some("label")).unwrap_err();
            assert!(e.cause().contains(cause) && e.path() == Some(Path::new("c")), "{e}");
            assert!(FileFeatures::new(None, &files).classes(["image"].into_iter(), None).is_ok());
            let features = Features::of(&json(r#""dog", "cat""#));
            let e = FileFeatures::new(features, &files).classes(columns(), Some("label")).unwrap_err();
            assert!(e.cause().contains("class 0 is \"cat\" here, but \"dog\" in dataset_info.json"), "{e}");
        }
    }
}
