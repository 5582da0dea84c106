//! Converts the path separators of the operating system to `/`.

use std::borrow::Cow;
use std::path::Path;

use crate::error::{Error, Result};

/// Returns a local path with `/` between its components, so that keys and layouts are the same on
/// every operating system. On Windows, removes the prefix `\\?\` of a canonical path, because `/`
/// is not a separator after this prefix.
pub(crate) fn normalize_separators(path: &str) -> Cow<'_, str> {
    if cfg!(windows) { with_slashes(path).into() } else { path.into() }
}

/// Returns `folder` as a string to which file names can be appended.
pub(crate) fn with_trailing_slash(folder: &Path) -> Result<String> {
    let Some(text) = folder.to_str() else {
        return Err(Error::in_source("the path is not UTF-8").at_path(folder));
    };
    let text = normalize_separators(text);
    // An empty path means the current folder.
    let slash = if text.is_empty() || text.ends_with('/') { "" } else { "/" };
    Ok(format!("{text}{slash}"))
}

fn with_slashes(path: &str) -> String {
    let Some(verbatim) = path.strip_prefix(r"\\?\") else { return path.replace('\\', "/") };
    match verbatim.strip_prefix(r"UNC\") {
        Some(share) => format!("//{share}").replace('\\', "/"),
        None if verbatim.as_bytes().get(1) == Some(&b':') => verbatim.replace('\\', "/"),
        // Keep the prefix, because the path of a device or a volume is invalid without it.
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_paths_are_converted_to_slashes() {
        for (path, expected) in [
            (r"C:\data\images", "C:/data/images"),
            (r"data\images/train", "data/images/train"),
            (r"\\?\C:\data", "C:/data"),
            (r"\\?\UNC\server\share\data", "//server/share/data"),
            (r"\\server\share", "//server/share"),
            (r"\\?\Volume{0}\data", r"\\?\Volume{0}\data"),
        ] {
            assert_eq!(with_slashes(path), expected);
        }
        assert_eq!(
            normalize_separators(r"a\b/c"),
            if cfg!(windows) { "a/b/c" } else { r"a\b/c" },
            "on other systems, a backslash is part of a name"
        );
    }
}
