use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::source::Classes;

/// The list of classes of a loader, if it has one.
#[derive(Clone, Default)]
pub(super) enum Listed {
    #[default]
    No,
    Names(Vec<String>),
    File(PathBuf),
}

impl Listed {
    /// Checks the list, or reads it.
    pub(super) fn open(&self) -> Result<Option<Classes>> {
        match self {
            Listed::No => Ok(None),
            Listed::Names(names) => Classes::new(names).map(Some),
            Listed::File(path) => Classes::read(path).map(Some),
        }
    }
}

/// The name of a data set and its classes.
type Set = (String, Vec<String>);

/// Data sets of the process that are remembered, the last ones.
const REMEMBERED: usize = 16;

/// Warns if a data set that was opened before numbers its classes otherwise.
pub(super) fn notice(name: &str, classes: &[String]) {
    static SEEN: Mutex<VecDeque<Set>> = Mutex::new(VecDeque::new());
    if classes.is_empty() {
        return;
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.iter().any(|(other, have)| other == name && have == classes) {
        return;
    }
    let set = (name.to_owned(), classes.to_vec());
    // The same name with other classes is a set that has changed, or another source in memory.
    let others = seen.iter().filter(|(other, _)| other != name);
    if let Some(text) = others.rev().find_map(|other| disagree(other, &set)) {
        tracing::warn!("{text}");
    }
    if seen.len() == REMEMBERED {
        seen.pop_front();
    }
    seen.push_back(set);
}

/// How two sets that have a class in common number it, or another one, differently. Sets without a
/// common class have nothing to do with each other.
fn disagree((one, classes): &Set, (two, others): &Set) -> Option<String> {
    let numbers: HashMap<&String, usize> = others.iter().zip(0..).collect();
    let mut common = classes.iter().enumerate().filter_map(|(label, name)| Some((name, label, *numbers.get(name)?)));
    let moved = common.clone().find(|(_, label, other)| label != other);
    let place = match moved {
        Some((name, label, other)) => format!("class {name:?} is {label} in {one} and {other} in {two}"),
        None => {
            common.next()?;
            let label = classes.iter().zip(others).position(|(one, other)| one != other)?;
            format!("label {label} is {:?} in {one} and {:?} in {two}", classes[label], others[label])
        }
    };
    Some(format!(
        "{place}; if one run uses both, give each loader the same list: Loader::classes or Loader::classes_file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_disagree_about_a_class_or_a_label_if_they_have_one_in_common() {
        let set = |name: &str, classes: &[&str]| (name.to_owned(), classes.iter().map(|&c| c.to_owned()).collect());
        let train: Set = set("train", &["cat", "dog", "fox"]);
        let text = |classes: &[&str]| disagree(&train, &set("val", classes));
        assert!(text(&["dog", "fox"]).unwrap().starts_with("class \"dog\" is 1 in train and 0 in val; "));
        assert!(text(&["cat", "elk"]).unwrap().starts_with("label 1 is \"dog\" in train and \"elk\" in val; "));
        for agree in [&["cat", "dog", "fox"][..], &["cat"], &["cat", "dog", "fox", "owl"], &["ship", "plane"], &[]] {
            assert_eq!(text(agree), None, "{agree:?}");
        }
    }
}
