use std::path::Path;

use crate::error::Error;

/// Creates the error for a file whose columns differ from those of the file `first`. The message
/// states the first difference. `same` returns whether the columns at an index, which have equal
/// names, also have the same type.
pub(crate) fn other_columns(first: &Path, wanted: &[String], found: &[String], same: impl Fn(usize) -> bool) -> Error {
    let lacked = wanted.iter().find(|name| !found.contains(name));
    let added = found.iter().find(|name| !wanted.contains(name));
    let mut pairs = wanted.iter().zip(found).enumerate();
    let difference = match (lacked, added) {
        (Some(name), _) => format!("{name:?} is missing"),
        (None, Some(name)) => format!("{name:?} is new"),
        (None, None) => match pairs.find(|(place, (wanted, found))| wanted != found || !same(*place)) {
            Some((_, (wanted, found))) if wanted != found => format!("{found:?} is in the position of {wanted:?}"),
            Some((_, (name, _))) => format!("{name:?} has a different type"),
            None => "a name is repeated".to_owned(),
        },
    };
    Error::in_source(format!(
        "its columns differ from those of {}: {difference}; Concat joins datasets with different columns",
        first.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_columns_is_named() {
        let told = |wanted: &[&str], found: &[&str], other: usize| {
            let [wanted, found] =
                [wanted, found].map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
            let error = other_columns(Path::new("a.parquet"), &wanted, &found, |place| place != other).to_string();
            let start = "source: its columns differ from those of a.parquet: ";
            let end = "; Concat joins datasets with different columns";
            error.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).unwrap().to_owned()
        };
        assert_eq!(told(&["a", "b"], &["a"], 9), "\"b\" is missing");
        assert_eq!(told(&["a"], &["a", "b"], 9), "\"b\" is new");
        assert_eq!(told(&["a", "b"], &["b", "a"], 9), "\"b\" is in the position of \"a\"");
        assert_eq!(told(&["a", "b"], &["a", "b"], 1), "\"b\" has a different type");
        assert_eq!(told(&["a", "a"], &["a"], 9), "a name is repeated");
    }
}
