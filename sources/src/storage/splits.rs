//! Finds the splits of a dataset, such as `train` and `validation`, from the names of its files.
//!
//! The path of a split is the path of the dataset followed by the name of the split, such as
//! `imagenet/train`. If that path is a folder, the folder is opened. If not, the names of the files
//! in `imagenet` or in `imagenet/data` determine their splits:
//!
//! - `train-00000-of-00003.parquet` belongs to `train`.
//! - `set-train-00000-of-00003.arrow` and `set-train.arrow`, as in the Hugging Face cache, belong
//!   to `train`.
//! - Any other file belongs to the split with the common name that occurs first in the file name.
//!   For example, `my_test.parquet` belongs to `test`. If the name contains no common split name,
//!   the file belongs to `train`.
//!
//! If no file name contains a split, the dataset has no splits, and only its own path opens it:
//! `imagenet/train` could be the misspelled path of a different dataset. On the Hugging Face Hub,
//! such files are the split `train`, because a path below a Hub dataset cannot be a different
//! dataset.
//!
//! If all files are in a single folder without a common split name, such as
//! `imagenet/plain_text`, the folder may be a configuration. On the Hugging Face Hub, it is a
//! configuration of the dataset, and `imagenet/train` is a split of this configuration. Elsewhere,
//! the folder may be a different dataset, so its splits are not opened as splits of `imagenet`.
//!
//! Opening fails if a shard is missing, or if a split contains files from two datasets.

use std::path::{Path, PathBuf};

use super::Storage;
use crate::error::{Error, Result, counted};
use crate::machine::file::has_extension;

const SPLIT_NAMES: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "val", "dev"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];

pub(crate) fn common_split_name(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    SPLIT_NAMES.iter().find(|(_, words)| words.contains(&&*word)).map(|(name, _)| *name)
}

/// Split of the files without a split in their name.
const DEFAULT_SPLIT: &str = "train";

/// A split: its name, and its files sorted by name. The name is `None` if the dataset has no
/// splits.
pub(crate) type Split<T> = (Option<String>, Vec<T>);

/// Returns the split in the file name `name`. `prefixed` is true if file names start with the name
/// of the dataset.
fn split_of(name: &str, prefixed: bool) -> Option<String> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let split_before_number = without_shard_number(stem);
    if let Some(split) = split_before_number {
        return Some(if prefixed { split.rsplit('-').next().unwrap_or(split) } else { split }.to_owned());
    }
    if prefixed && let Some((_, suffix)) = stem.rsplit_once('-') {
        return Some(common_split_name(suffix).unwrap_or(suffix).to_owned());
    }
    let lower = stem.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphabetic()).collect();
    words.iter().find_map(|word| common_split_name(word)).map(str::to_owned)
}

fn without_shard_number(stem: &str) -> Option<&str> {
    parse_shard_name(stem).map(|(split, _, _)| split)
}

/// Parses a name such as `train-00000-of-00003` into the split, the shard index and the number of
/// shards. In older files on the Hub, a hash follows the number of shards.
fn parse_shard_name(stem: &str) -> Option<(&str, u64, u64)> {
    let parse = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (stem_without_count, count) = stem.rsplit_once("-of-")?;
    let (count, hash) = count.split_once('-').unwrap_or((count, ""));
    let (split, index) = stem_without_count.rsplit_once('-')?;
    let is_valid = !split.is_empty() && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some((split, parse(index)?, parse(count)?)).filter(|_| is_valid)
}

/// Checks that no shard of a split is missing, if the file names contain shard indices, and that
/// all files belong to one dataset. `path` is the path of the dataset.
pub(crate) fn check_complete(path: &Path, names: &[String]) -> Result<()> {
    let index_and_count = |name: &String| {
        let name = name.rsplit('/').next().unwrap_or(name);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        parse_shard_name(stem).or_else(|| parse_shard_name(name)).map(|(_, index, count)| (index, count))
    };
    let shards: Vec<_> = names.iter().map(index_and_count).collect();
    let Some(count) = shards.iter().flatten().map(|(_, count)| *count).max() else { return Ok(()) };
    let error = |cause: String| Err(Error::in_source(cause).at_path(path));
    if let Some(foreign) = shards.iter().position(|shard| shard.is_none_or(|(_, other_count)| other_count != count)) {
        return error(format!(
            "{:?} does not belong to the {count} shards of this split: move it to a different folder",
            names[foreign]
        ));
    }
    let mut indices: Vec<u64> = shards.iter().flatten().map(|(index, _)| *index).collect();
    indices.sort_unstable();
    if let Some(duplicate) = indices.windows(2).find(|pair| pair[0] == pair[1]) {
        return error(format!("shard {} of {count} exists twice: remove the files of the older dataset", duplicate[0]));
    }
    // The number of files limits the search, because names may claim any number of shards.
    let missing = (0..count).take(indices.len() + 1).find(|index| indices.binary_search(index).is_err());
    match missing {
        Some(missing) => {
            let present = counted(indices.len(), "shard", "shards");
            error(format!("shard {missing} of {count} is missing; found only {present}"))
        }
        None => Ok(()),
    }
}

/// Selects the files of one split from `names`, the relative paths of all files of a dataset. The
/// names of files directly in the dataset or in its folder `data` determine the splits. If there
/// are no such files, the first folder of each path is a split, or a configuration in which file
/// names determine the splits.
#[cfg(any(feature = "parquet", test))]
pub(crate) fn select_split(path: &Path, names: Vec<String>, requested: Option<&str>) -> Result<Vec<String>> {
    select_split_in(path, names, requested, is_hub_dataset(path))
}

/// `is_on_hub` is true if `path` is a whole dataset on the Hub, or one of its configurations.
#[cfg(any(feature = "parquet", test))]
fn select_split_in(path: &Path, names: Vec<String>, requested: Option<&str>, is_on_hub: bool) -> Result<Vec<String>> {
    let is_direct = |name: &String| !name.strip_prefix("data/").unwrap_or(name).contains('/');
    if names.iter().any(is_direct) {
        let mut splits = group_by_split(names.into_iter().filter(is_direct).collect(), false, |name| {
            name.rsplit('/').next().unwrap_or(name).to_owned()
        });
        if is_on_hub {
            splits.iter_mut().for_each(|(name, _)| _ = name.get_or_insert_with(|| DEFAULT_SPLIT.to_owned()));
        }
        let names = choose_split(path, splits, requested)?;
        check_complete(path, &names)?;
        return Ok(names);
    }
    let mut splits: Vec<Split<String>> = Vec::new();
    for name in names {
        let folder = name.split('/').next().unwrap_or_default().to_owned();
        match splits.iter_mut().find(|(split, _)| split.as_ref() == Some(&folder)) {
            Some((_, names)) => names.push(name),
            None => splits.push((Some(folder), vec![name])),
        }
    }
    // The only folder may be a configuration, as in `plain_text/train-00000-of-00001.parquet`.
    let configuration = match &splits[..] {
        [(Some(folder), _)] if common_split_name(folder).is_none() && requested != Some(folder) => Some(folder),
        _ => None,
    };
    let is_configuration = configuration.is_some();
    if let (Some(folder), Some(requested), false) = (configuration, requested, is_on_hub) {
        let cause = format!(
            "no such file or folder, and {} has no such split; its files are in the folder {folder:?}: open {} or one \
             of its splits",
            path.display(),
            path.join(folder).display(),
        );
        return Err(Error::no_such_path(path.join(requested), cause));
    }
    let names = if is_configuration { splits.swap_remove(0).1 } else { choose_split(path, splits, requested)? };
    let Some((folder, _)) = names.first().and_then(|name| name.split_once('/')) else { return Ok(names) };
    if common_split_name(folder).is_some() {
        check_complete(path, &names)?;
        return Ok(names);
    }
    let folder = folder.to_owned();
    let names_inside = names.iter().map(|name| name[folder.len() + 1..].to_owned()).collect();
    let requested = requested.filter(|_| is_configuration);
    let names = select_split_in(&path.join(&folder), names_inside, requested, is_on_hub)?;
    Ok(names.into_iter().map(|name| format!("{folder}/{name}")).collect())
}

/// Returns whether `path` is a whole dataset on the Hub, such as `hf://datasets/org/name@revision`.
#[cfg(any(feature = "parquet", test))]
fn is_hub_dataset(path: &Path) -> bool {
    let name = path.to_str().and_then(|url| url.strip_prefix("hf://datasets/")).map(|name| name.trim_end_matches('/'));
    name.is_some_and(|name| {
        let (name, revision) = name.split_once('@').unwrap_or((name, ""));
        name.split('/').count() == 2 && (!revision.contains('/') || revision.starts_with("refs/"))
    })
}

/// Groups files by the splits in their names. If at least one name contains a split, the files
/// without one belong to [`DEFAULT_SPLIT`].
pub(crate) fn group_by_split<T>(files: Vec<T>, prefixed: bool, name: impl Fn(&T) -> String) -> Vec<Split<T>> {
    let named: Vec<_> = files.into_iter().map(|file| (split_of(&name(&file), prefixed), file)).collect();
    let default_split = named.iter().any(|(split, _)| split.is_some()).then(|| DEFAULT_SPLIT.to_owned());
    let mut splits: Vec<Split<T>> = Vec::new();
    for (split, file) in named {
        let split = split.or_else(|| default_split.clone());
        match splits.iter_mut().find(|(name, _)| *name == split) {
            Some((_, files)) => files.push(file),
            None => splits.push((split, vec![file])),
        }
    }
    splits.sort_by(|a, b| a.0.cmp(&b.0));
    splits
}

/// Returns the sorted paths of the files with this extension, without hidden files.
pub(crate) fn files_in(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    Storage::Machine { mapped: true }.files_in(folder, |name| has_extension(name, extension))
}

/// Returns the files of the split `requested`. If `requested` is `None`, returns the files of the
/// only split, and fails if there are several. `path` is the path of the dataset, for messages.
pub(crate) fn choose_split<T>(path: &Path, mut splits: Vec<Split<T>>, requested: Option<&str>) -> Result<Vec<T>> {
    let names: Vec<String> = splits.iter().filter_map(|(name, _)| name.clone()).collect();
    let listed = names.join(", ");
    let Some(requested) = requested else {
        if splits.len() > 1 {
            let first_path = path.join(&names[0]);
            let first_path = first_path.display();
            let cause = format!("found the splits {listed}: append one to the path, for example {first_path}");
            return Err(Error::config(cause).at_path(path));
        }
        return Ok(splits.pop().map_or_else(Vec::new, |(_, files)| files));
    };
    if let Some(index) = splits.iter().position(|(name, _)| name.as_deref() == Some(requested)) {
        return Ok(splits.swap_remove(index).1);
    }
    let cause = if names.is_empty() {
        let folder = if path.as_os_str().is_empty() { Path::new(".") } else { path }.display();
        format!(
            "no such file or folder, and no file name in {folder} contains a split: open the folder itself, {folder}"
        )
    } else {
        format!("no such file or folder, and no split {requested:?}: expected one of {listed}")
    };
    Err(Error::no_such_path(path.join(requested), cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_file_name_determines_the_split() {
        for (name, prefixed, split) in [
            ("train-00000-of-00003.parquet", false, "train"),
            ("left-eye-00000-of-00003.parquet", false, "left-eye"),
            ("mini-train-00001-of-00002.arrow", true, "train"),
            ("mini-validation.arrow", true, "validation"),
            ("mini-extra.arrow", true, "extra"),
            ("data-00000-of-00001.arrow", true, "data"),
            ("my_val.parquet", false, "validation"),
            ("TEST.parquet", false, "test"),
            ("0000.parquet", false, ""),
            ("contest.parquet", false, ""),
            ("-of-.parquet", false, ""),
            ("train_gen-00000-of-00001-a6c9f2.parquet", false, "train_gen"),
            ("test_images-train.arrow", true, "train"),
        ] {
            assert_eq!(split_of(name, prefixed).unwrap_or_default(), split, "{name}");
        }
    }

    #[test]
    fn a_configuration_folder_has_splits() {
        let names = |list: &[&str]| -> Vec<String> { list.iter().map(|name| (*name).to_owned()).collect() };
        let path = Path::new("hf://datasets/org/set@refs/pr/1");
        let files = names(&["plain/test-00000-of-00001.parquet", "plain/train-00000-of-00001.parquet"]);
        let e = select_split(path, files.clone(), None).unwrap_err();
        assert!(e.cause().contains("the splits test, train"), "{e}");
        assert!(select_split(path, files.clone(), Some("plain")).is_err());
        assert_eq!(select_split(path, files.clone(), Some("train")).unwrap(), files[1..]);
        let deep = names(&["default/test/0000.parquet", "default/train/0000.parquet"]);
        assert!(select_split(path, deep.clone(), None).is_err());
        assert_eq!(select_split(path, deep.clone(), Some("train")).unwrap(), deep[1..]);
        let custom = names(&["left/0000.parquet", "right/0000.parquet"]);
        assert_eq!(select_split(path, custom.clone(), Some("right")).unwrap(), custom[1..]);
    }

    #[test]
    fn splits_of_a_different_dataset_are_not_found() {
        let files = vec!["other/train-00000-of-00001.parquet".to_owned()];
        for path in ["x", "s3://bucket", "hf://datasets/org/set/part"] {
            let e = select_split(Path::new(path), files.clone(), Some("train")).unwrap_err();
            assert!(
                e.cause().contains("no such file or folder") && e.cause().contains(&format!("{path}/other")),
                "{e}"
            );
            assert_eq!(e.path(), Some(&*Path::new(path).join("train")));
            assert_eq!(select_split(Path::new(path), files.clone(), None).unwrap(), files);
        }
        assert_eq!(select_split(Path::new("hf://datasets/org/set"), files.clone(), Some("train")).unwrap(), files);
    }

    #[test]
    fn a_missing_or_foreign_shard_is_rejected() {
        let cause = |list: &[&str]| {
            let names: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
            check_complete(Path::new("set"), &names).err().map(|e| e.cause().to_owned()).unwrap_or_default()
        };
        assert_eq!(cause(&["a.parquet", "b.parquet"]), "");
        assert_eq!(cause(&["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"]), "");
        for (list, expected) in [
            (&["train-00001-of-00003.parquet"][..], "shard 0 of 3 is missing; found only 1 shard"),
            (&["train-00000-of-00002"], "shard 1 of 2 is missing"),
            (&["x.tfrecord-00000-of-00002"], "shard 1 of 2 is missing"),
            (&["train-00000-of-00001.tfrecord", "train-00000-of-00002.tfrecord"], "does not belong"),
            (&["train-00000-of-00001.parquet", "extra.parquet"], "\"extra.parquet\" does not belong"),
            (&["a-train-00000-of-00001.arrow", "b-train-00000-of-00001.arrow"], "exists twice"),
        ] {
            assert!(cause(list).contains(expected), "{list:?}: {}", cause(list));
        }
    }

    #[test]
    fn a_dataset_with_several_splits_requires_a_choice() {
        let splits = || vec![(Some("test".to_owned()), vec![1]), (Some("train".to_owned()), vec![2, 3])];
        let path = Path::new("set");
        assert_eq!(choose_split(path, splits(), Some("train")).unwrap(), [2, 3]);
        let e = choose_split(path, splits(), None).unwrap_err();
        let expected =
            format!("the splits test, train: append one to the path, for example {}", path.join("test").display());
        assert!(e.cause().contains(&expected), "{e}");
        let e = choose_split(path, splits(), Some("dev")).unwrap_err();
        assert!(e.cause().contains("no split \"dev\": expected one of test, train"), "{e}");
        assert_eq!(choose_split(path, splits()[1..].to_vec(), None).unwrap(), [2, 3]);
    }

    #[test]
    fn files_that_name_no_split_open_only_by_the_path_of_their_folder() {
        let files = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let unnamed = files(&["old_experiment.parquet"]);
        assert_eq!(select_split(Path::new("e"), unnamed.clone(), None).unwrap(), unnamed);
        let e = select_split(Path::new("e"), unnamed.clone(), Some("train")).unwrap_err();
        assert!(e.cause().ends_with("no file name in e contains a split: open the folder itself, e"), "{e}");
        assert_eq!(select_split(Path::new("hf://datasets/org/set"), unnamed.clone(), Some("train")).unwrap(), unnamed);
        // Next to a file that names a split, the other files are the training data.
        let mixed = files(&["pets.parquet", "pets_test.parquet"]);
        assert_eq!(select_split(Path::new("e"), mixed.clone(), Some("train")).unwrap(), mixed[..1]);
        let grouped = group_by_split(files(&["shard.tfrecord"]), false, String::clone);
        assert!(choose_split(Path::new("e"), grouped, Some("train")).is_err());
    }

    #[test]
    fn a_missing_path_next_to_the_files_of_a_dataset_is_not_found() {
        let splits =
            || group_by_split(vec!["train.parquet".to_owned(), "test.parquet".to_owned()], false, String::clone);
        for name in ["train.csv", "missing.lmdb", "clases"] {
            let e = choose_split(Path::new("d"), splits(), Some(name)).unwrap_err();
            assert_eq!((e.kind(), e.os_code()), (ErrorKind::Io, Some(2)), "{e}");
            assert_eq!(e.path(), Some(&*Path::new("d").join(name)));
            let expected = format!("no such file or folder, and no split {name:?}: expected one of test, train");
            assert_eq!(e.cause(), expected);
        }
    }
}
