//! Finds file extensions that the paths in a table omit.

use crate::error::{Error, Result};
use crate::format::{self, Format};

pub(super) fn extension(path: &str) -> (&str, &str) {
    let path = path.strip_prefix("./").unwrap_or(path);
    path.rsplit_once('.').filter(|(_, extension)| !extension.contains('/')).unwrap_or((path, ""))
}

/// Returns whether a path ends with the extension of an image format or of NumPy files, so that no
/// extension is missing.
pub(super) fn is_whole(path: &str, formats: &[Format]) -> bool {
    let end = extension(path).1;
    format::field_of_file(end, formats).is_some() || end.eq_ignore_ascii_case("npy")
}

/// Finds the image extension that the paths `values` omit: the extension that turns them into paths
/// of existing files. Includes the dot. Fails if several extensions match.
pub(super) fn find_extension(
    values: &[String],
    is_file: impl Fn(&str) -> Result<bool>,
    formats: &[Format],
) -> Result<Option<String>> {
    let mut extensions: Vec<(String, &String)> = Vec::new();
    let endings: Vec<&str> =
        format::FORMATS.iter().chain(formats).flat_map(|format| format.extensions).copied().collect();
    for value in values.iter().filter(|value| !is_whole(value, formats)) {
        if is_file(value)? {
            continue;
        }
        for end in &endings {
            for end in [format!(".{end}"), format!(".{}", end.to_uppercase())] {
                if is_file(&format!("{value}{end}"))? {
                    if !extensions.iter().any(|(other, _)| *other == end) {
                        extensions.push((end, value));
                    }
                    break;
                }
            }
        }
    }
    match &extensions[..] {
        [] => Ok(None),
        [(end, _)] => Ok(Some(end.clone())),
        [(one, first), (two, second), ..] => Err(Error::config(format!(
            "the paths have no extension, but files with different extensions exist ({first}{one} and {second}{two}): \
             write the paths with their extensions"
        ))),
    }
}
