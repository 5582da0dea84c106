//! Splits that are part of array names.

use crate::error::{Error, Result};
use crate::medium::splits::usual;

/// Parses an array name such as `train_images` or `x_test`. Returns the split and the name within
/// the split, or `None` if the name does not denote a split.
fn split_of(name: &str) -> Option<(&'static str, &str)> {
    let separators = ['_', '-', '.', '/'];
    let first = name.split_once(separators).and_then(|(word, rest)| Some((usual(word)?, rest)));
    first.or_else(|| name.rsplit_once(separators).and_then(|(rest, word)| Some((usual(word)?, rest))))
}

/// Selects the arrays of the split `wanted`, or of the only split. Returns the index of each array,
/// and its name within the split. Unless all names denote a split, the dataset has no splits.
///
/// # Errors
/// If `wanted` does not exist, or if it is `None` and there are several splits. The message lists
/// the splits.
pub(super) fn choose(names: &[String], wanted: Option<&str>) -> Result<Vec<(usize, String)>> {
    let of_all: Option<Vec<_>> = names.iter().map(|name| split_of(name)).collect();
    let of_all = of_all.unwrap_or_default();
    let mut splits: Vec<&str> = of_all.iter().map(|(split, _)| *split).collect();
    splits.sort_unstable();
    splits.dedup();
    let listed = splits.join(", ");
    let split = match (wanted, &splits[..]) {
        (None, []) => return Ok(names.iter().cloned().enumerate().collect()),
        (None, [only]) => only,
        (None, _) => {
            return Err(Error::config(format!("the arrays have the splits {listed}: add `/` and a split to the path")));
        }
        (Some(wanted), []) => {
            return Err(Error::config(format!("no split {wanted:?}: the array names do not denote splits")));
        }
        (Some(wanted), _) => match splits.iter().find(|split| **split == wanted || usual(wanted) == Some(**split)) {
            Some(split) => split,
            None => return Err(Error::config(format!("no split {wanted:?}: expected one of {listed}"))),
        },
    };
    let named = of_all.iter().enumerate().filter(|(_, (of, _))| of == split);
    Ok(named.map(|(number, (_, name))| (number, (*name).to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_or_last_part_of_a_name_is_the_split() {
        assert_eq!(split_of("train_images"), Some(("train", "images")));
        assert_eq!(split_of("x_test"), Some(("test", "x")));
        assert_eq!(split_of("VAL-labels"), Some(("validation", "labels")));
        assert_eq!((split_of("images"), split_of("train"), split_of("latest_x")), (None, None, None));
    }

    #[test]
    fn several_splits_require_a_choice_by_any_common_name() {
        let names = ["train_x", "train_y", "val_x", "val_y"].map(str::to_owned);
        let e = choose(&names, None).unwrap_err();
        assert!(e.cause().contains("have the splits train, validation: add `/`"), "{e}");
        let chosen = [(2, "x".to_owned()), (3, "y".to_owned())];
        assert_eq!(
            (choose(&names, Some("val")).unwrap(), choose(&names, Some("validation")).unwrap()),
            (chosen.to_vec(), chosen.to_vec())
        );
        assert!(
            choose(&names, Some("test"))
                .unwrap_err()
                .cause()
                .contains("no split \"test\": expected one of train, validation")
        );
        assert_eq!(choose(&names[2..], None).unwrap(), [(0, "x".to_owned()), (1, "y".to_owned())]);
        let plain = ["images".to_owned(), "train_y".to_owned()];
        assert_eq!(choose(&plain, None).unwrap().len(), 2, "one name has no split");
        assert!(choose(&plain, Some("train")).is_err());
    }
}
