//! Finds splits in array names, such as `train` in `train_images`.

use crate::error::{Error, Result};
use crate::storage::splits::common_split_name;

/// Divides an array name such as `train_images` or `x_test` into the split and the remaining name.
/// Returns `None` if neither the first nor the last word is a common split name.
fn split_of(name: &str) -> Option<(&'static str, &str)> {
    let separators = ['_', '-', '.', '/'];
    let first = name.split_once(separators).and_then(|(word, rest)| Some((common_split_name(word)?, rest)));
    first.or_else(|| name.rsplit_once(separators).and_then(|(rest, word)| Some((common_split_name(word)?, rest))))
}

/// Selects the arrays of the split `requested`, or of the only split. Returns the index of each
/// array, and its name without the split. If any array name contains no split, the dataset has no
/// splits. In this case, all arrays are selected, and requesting a split is an error.
pub(super) fn select_split_arrays(names: &[String], requested: Option<&str>) -> Result<Vec<(usize, String)>> {
    let parsed: Option<Vec<_>> = names.iter().map(|name| split_of(name)).collect();
    let parsed = parsed.unwrap_or_default();
    let mut splits: Vec<&str> = parsed.iter().map(|(split, _)| *split).collect();
    splits.sort_unstable();
    splits.dedup();
    let listed = splits.join(", ");
    let split = match (requested, &splits[..]) {
        (None, []) => return Ok(names.iter().cloned().enumerate().collect()),
        (None, [only]) => only,
        (None, _) => {
            return Err(Error::config(format!(
                "found the splits {listed}: append `/` and one of them to the path, as in `data.npz/train`"
            )));
        }
        (Some(requested), []) => {
            return Err(Error::config(format!(
                "no split {requested:?}: the dataset has no splits, because some array names do not include one"
            )));
        }
        (Some(requested), _) => {
            match splits.iter().find(|split| **split == requested || common_split_name(requested) == Some(**split)) {
                Some(split) => split,
                None => return Err(Error::config(format!("no split {requested:?}: expected one of {listed}"))),
            }
        }
    };
    let in_split = parsed.iter().enumerate().filter(|(_, (name, _))| name == split);
    Ok(in_split.map(|(index, (_, name))| (index, (*name).to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_or_last_word_of_a_name_is_the_split() {
        assert_eq!(split_of("train_images"), Some(("train", "images")));
        assert_eq!(split_of("x_test"), Some(("test", "x")));
        assert_eq!(split_of("VAL-labels"), Some(("validation", "labels")));
        assert_eq!((split_of("images"), split_of("train"), split_of("latest_x")), (None, None, None));
    }

    #[test]
    fn several_splits_need_a_choice_by_any_common_name() {
        let names = ["train_x", "train_y", "val_x", "val_y"].map(str::to_owned);
        let e = select_split_arrays(&names, None).unwrap_err();
        assert!(e.cause().contains("found the splits train, validation: append `/`"), "{e}");
        let selected = [(2, "x".to_owned()), (3, "y".to_owned())];
        assert_eq!(
            (
                select_split_arrays(&names, Some("val")).unwrap(),
                select_split_arrays(&names, Some("validation")).unwrap()
            ),
            (selected.to_vec(), selected.to_vec())
        );
        assert!(
            select_split_arrays(&names, Some("test"))
                .unwrap_err()
                .cause()
                .contains("no split \"test\": expected one of train, validation")
        );
        assert_eq!(select_split_arrays(&names[2..], None).unwrap(), [(0, "x".to_owned()), (1, "y".to_owned())]);
        let plain = ["images".to_owned(), "train_y".to_owned()];
        assert_eq!(
            select_split_arrays(&plain, None).unwrap().len(),
            2,
            "`images` contains no split, so the dataset has none"
        );
        assert!(select_split_arrays(&plain, Some("train")).is_err());
    }
}
