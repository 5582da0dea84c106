//! Checks that the source has the fields that the loader reads.

use warpfeed_sources::format::is_image_field;

use crate::error::{Error, Result};
use crate::field::{AnyFieldType, FieldWriter};
use crate::source::{Source, are_same_field};

/// Suffixes of field names that specify the encoding of the field.
const SUFFIXES: [&str; 5] = [".npy", ".json", ".txt", ".bin", ".img"];

const MAX_SHOWN: usize = 20;

/// Returns the names of the sample fields that `field_types` declare to read. The default image and
/// the label need no name. Returns `None` if a field type does not declare what it reads.
pub(super) fn required_names(field_types: &[(String, AnyFieldType)]) -> Option<Vec<String>> {
    let mut all_names = Vec::new();
    for (field, AnyFieldType(kind)) in field_types {
        let names = kind.required_fields(field);
        if names.is_empty() && kind.writer() == FieldWriter::Write && !kind.reads_stored_image() {
            return None;
        }
        all_names.extend(names);
    }
    Some(all_names)
}

/// Checks that the source has each field that `field_types` read, so that a misspelled name is
/// reported once, when the loader is opened. Checks nothing if the source does not know its fields.
/// Names with the extension of an image format are not checked.
pub(super) fn check_names(field_types: &[(String, AnyFieldType)], source: &dyn Source) -> Result<()> {
    let Some(fields) = source.fields() else { return Ok(()) };
    for (field, AnyFieldType(kind)) in field_types {
        for required in kind.required_fields(field) {
            // The name of an encoded image's field depends on the format of each image.
            let extension = required.rsplit_once('.').map_or(&*required, |(_, extension)| extension);
            if is_image_field(extension) || fields.iter().any(|name| are_same_field(name, &required)) {
                continue;
            }
            let mut stems: Vec<&str> = fields.iter().map(|name| stem(name)).collect();
            let suggestion =
                closest(stem(&required), &stems).map_or(String::new(), |name| format!("; did you mean {name:?}?"));
            let rest_count = stems.len().saturating_sub(MAX_SHOWN);
            stems.truncate(MAX_SHOWN);
            let rest_text = if rest_count > 0 { format!(" and {rest_count} more") } else { String::new() };
            let prefix = if required == *field { String::new() } else { format!("field {field:?}: ") };
            return Err(Error::config(match stems.is_empty() {
                true => format!("{prefix}no field {required:?}: the samples have only an image or a label"),
                false => format!("{prefix}no field {required:?} among {stems:?}{rest_text}{suggestion}"),
            }));
        }
    }
    Ok(())
}

fn stem(name: &str) -> &str {
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

fn closest<'a>(requested: &str, names: &[&'a str]) -> Option<&'a str> {
    let (distance, name) =
        names.iter().map(|name| (edit_distance(requested, name), *name)).min_by_key(|candidate| candidate.0)?;
    (distance <= requested.chars().count().div_ceil(3)).then_some(name)
}

/// Returns the optimal string alignment distance: the number of edits that turn one name into the
/// other. An edit inserts, removes or replaces a character, or swaps two adjacent characters.
fn edit_distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, &a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in other.iter().enumerate() {
            let mut distance = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == other[j - 1] && one[i - 1] == b {
                distance = distance.min(rows[i - 1][j - 1] + 1);
            }
            row.push(distance);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_found() {
        let names = ["age", "caption", "boxes.class", "boxes"];
        for (requested, expected) in
            [("aeg", Some("age")), ("captoin", Some("caption")), ("boxes.clas", Some("boxes.class")), ("xyz", None)]
        {
            assert_eq!(closest(requested, &names), expected, "{requested}");
        }
        assert_eq!(closest("a", &[]), None);
        assert_eq!((edit_distance("", "abc"), edit_distance("abcd", "acbd"), edit_distance("é", "e")), (3, 1, 1));
    }
}
