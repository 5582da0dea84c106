use crate::error::{Error, Result};
use crate::medium::splits::usual;

/// Split of the array `name`, and the name in the split: `train_images` and `x_test`.
fn split_of(name: &str) -> Option<(&'static str, &str)> {
    let separators = ['_', '-', '.', '/'];
    let first = name.split_once(separators).and_then(|(word, rest)| Some((usual(word)?, rest)));
    first.or_else(|| name.rsplit_once(separators).and_then(|(rest, word)| Some((usual(word)?, rest))))
}

/// The arrays of the split `wanted` among those called `names`: the number of each, and its name in
/// the split. Arrays belong to splits if the names of all say so.
///
/// # Errors
/// If there are several splits and none is wanted, or there is no such split. The message lists
/// them.
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
            return Err(Error::config(format!("has the splits {listed}: add `/` and the name of one to the path")));
        }
        (Some(wanted), []) => {
            return Err(Error::config(format!("no split {wanted:?}: the names of the arrays have none")));
        }
        (Some(wanted), _) => match splits.iter().find(|split| **split == wanted || usual(wanted) == Some(**split)) {
            Some(split) => split,
            None => return Err(Error::config(format!("no split {wanted:?}, only {listed}"))),
        },
    };
    let named = of_all.iter().enumerate().filter(|(_, (of, _))| of == split);
    Ok(named.map(|(number, (_, name))| (number, (*name).to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_or_the_last_part_of_a_name_is_a_split() {
        assert_eq!(split_of("train_images"), Some(("train", "images")));
        assert_eq!(split_of("x_test"), Some(("test", "x")));
        assert_eq!(split_of("VAL-labels"), Some(("validation", "labels")));
        assert_eq!((split_of("images"), split_of("train"), split_of("latest_x")), (None, None, None));
    }

    #[test]
    fn several_splits_need_a_choice_and_one_is_chosen_by_any_usual_name() {
        let names = ["train_x", "train_y", "val_x", "val_y"].map(str::to_owned);
        let e = choose(&names, None).unwrap_err();
        assert!(e.cause().contains("has the splits train, validation: add `/`"), "{e}");
        let chosen = [(2, "x".to_owned()), (3, "y".to_owned())];
        assert_eq!(
            (choose(&names, Some("val")).unwrap(), choose(&names, Some("validation")).unwrap()),
            (chosen.to_vec(), chosen.to_vec())
        );
        assert!(
            choose(&names, Some("test")).unwrap_err().cause().contains("no split \"test\", only train, validation")
        );
        assert_eq!(choose(&names[2..], None).unwrap(), [(0, "x".to_owned()), (1, "y".to_owned())]);
        let plain = ["images".to_owned(), "train_y".to_owned()];
        assert_eq!(choose(&plain, None).unwrap().len(), 2, "one name has no split");
        assert!(choose(&plain, Some("train")).is_err());
    }
}
