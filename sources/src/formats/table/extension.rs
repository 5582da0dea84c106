//! Finds file extensions that the paths in a table omit.

use crate::error::{Error, Result};
use crate::format::{self, Format};

/// Splits off the extension, without the dot. Strips a leading `./`.
pub(super) fn split_extension(path: &str) -> (&str, &str) {
    let path = path.strip_prefix("./").unwrap_or(path);
    path.rsplit_once('.').filter(|(_, extension)| !extension.contains('/')).unwrap_or((path, ""))
}

/// Returns whether a path has the extension of an image format or `.npy`.
pub(super) fn has_known_extension(path: &str, formats: &[Format]) -> bool {
    let extension = split_extension(path).1;
    format::field_for_extension(extension, formats).is_some() || extension.eq_ignore_ascii_case("npy")
}

/// Finds the image extension that the paths `values` omit. Returns the extension, with its dot,
/// that turns some of these paths into paths of existing files, or `None` if no extension does.
/// Fails if several extensions match.
pub(super) fn find_extension(
    values: &[String],
    is_file: impl Fn(&str) -> Result<bool>,
    formats: &[Format],
) -> Result<Option<String>> {
    let mut extensions: Vec<(String, &String)> = Vec::new();
    let known_extensions: Vec<&str> =
        format::FORMATS.iter().chain(formats).flat_map(|format| format.extensions).copied().collect();
    for value in values.iter().filter(|value| !has_known_extension(value, formats)) {
        if is_file(value)? {
            continue;
        }
        for extension in &known_extensions {
            for extension in [format!(".{extension}"), format!(".{}", extension.to_uppercase())] {
                if is_file(&format!("{value}{extension}"))? {
                    if !extensions.iter().any(|(other, _)| *other == extension) {
                        extensions.push((extension, value));
                    }
                    break;
                }
            }
        }
    }
    match &extensions[..] {
        [] => Ok(None),
        [(extension, _)] => Ok(Some(extension.clone())),
        [(extension, path), (other_extension, other_path), ..] => Err(Error::config(format!(
            "the paths have no extension, but files with different extensions exist ({path}{extension} and \
             {other_path}{other_extension}): write the paths with their extensions"
        ))),
    }
}
