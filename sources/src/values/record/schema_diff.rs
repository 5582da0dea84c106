//! Describes how the columns of two files of a dataset differ.

use std::path::Path;

use crate::error::Error;

/// Returns the error for a file with the columns `actual` instead of `expected`, the columns of the
/// `first` file. The message states the first difference. `is_same` returns whether the two columns
/// at an index, which have the same name, have the same type.
pub(crate) fn columns_error(
    first: &Path,
    expected: &[String],
    actual: &[String],
    is_same: impl Fn(usize) -> bool,
) -> Error {
    let lacked = expected.iter().find(|name| !actual.contains(name));
    let added = actual.iter().find(|name| !expected.contains(name));
    let mut pairs = expected.iter().zip(actual).enumerate();
    let difference = match (lacked, added) {
        (Some(name), _) => format!("{name:?} is missing"),
        (None, Some(name)) => format!("{name:?} is new"),
        (None, None) => match pairs.find(|(index, (expected, actual))| expected != actual || !is_same(*index)) {
            Some((_, (expected, actual))) if expected != actual => format!("found {actual:?} instead of {expected:?}"),
            Some((_, (name, _))) => format!("{name:?} has a different type"),
            None => "a name is repeated".to_owned(),
        },
    };
    Error::in_source(format!(
        "its columns differ from the columns of {}: {difference}; use Concat to join datasets with different columns",
        first.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_columns_is_named() {
        let difference = |expected: &[&str], actual: &[&str], other: usize| {
            let [expected, actual] =
                [expected, actual].map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
            let error = columns_error(Path::new("a.parquet"), &expected, &actual, |index| index != other).to_string();
            let start = "source: its columns differ from the columns of a.parquet: ";
            let end = "; use Concat to join datasets with different columns";
            error.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).unwrap().to_owned()
        };
        assert_eq!(difference(&["a", "b"], &["a"], 9), "\"b\" is missing");
        assert_eq!(difference(&["a"], &["a", "b"], 9), "\"b\" is new");
        assert_eq!(difference(&["a", "b"], &["b", "a"], 9), "found \"b\" instead of \"a\"");
        assert_eq!(difference(&["a", "b"], &["a", "b"], 1), "\"b\" has a different type");
        assert_eq!(difference(&["a", "a"], &["a"], 9), "a name is repeated");
    }
}
