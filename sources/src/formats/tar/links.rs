//! Resolves hard and symbolic links within a shard.

use std::collections::HashMap;

/// Maximum number of links in a chain to a file.
const MAX_HOPS: usize = 16;

#[derive(Default)]
pub(super) struct Links {
    paths: String,
    files: Vec<File>,
    links: Vec<Link>,
}

struct File {
    /// End of the path in [`Links::paths`]. The path starts at the end of the previous file's path.
    path_end: usize,
    start: u64,
    len: u64,
}

struct Link {
    path: String,
    /// Path of the target in the archive. `None` if the target is not UTF-8, or is outside the
    /// archive, like the target of an absolute symbolic link.
    target: Option<String>,
    /// Index of the link's field, or `None` if the link is not a field.
    field: Option<usize>,
}

/// Counts the links that were omitted because they do not refer to a file in their shard.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct UnresolvedLinks {
    pub(super) count: u64,
    pub(super) first_path: String,
}

/// Offset and length of a file.
type Extent = (u64, u64);

impl Links {
    pub(super) fn add_file(&mut self, path: &str, start: u64, len: u64) {
        self.paths.push_str(path);
        self.files.push(File { path_end: self.paths.len(), start, len });
    }

    /// Adds a link. The target of a hard link is relative to the root of the archive, and the
    /// target of a symbolic link is relative to the folder of the link.
    pub(super) fn add_link(&mut self, path: &str, target: &[u8], is_hard: bool, field: Option<usize>) {
        let target = std::str::from_utf8(target).ok();
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let target = target.and_then(|target| match (is_hard, target.starts_with('/')) {
            (true, _) => normalize(target),
            (false, true) => None,
            (false, false) => normalize(&format!("{folder}/{target}")),
        });
        self.links.push(Link { path: path.to_owned(), target, field });
    }

    /// Resolves all links that are fields. For each of these links, returns the index of the field,
    /// the path of the link, and the location of the file if the file is in the shard.
    pub(super) fn resolve(&self) -> Vec<(usize, &str, Option<Extent>)> {
        if self.links.is_empty() {
            return Vec::new();
        }
        let (mut files, mut path_start) = (HashMap::new(), 0);
        for file in &self.files {
            // If several files have the same path, the last one wins, as when the archive is
            // unpacked.
            files.extend(normalize(&self.paths[path_start..file.path_end]).map(|path| (path, (file.start, file.len))));
            path_start = file.path_end;
        }
        let links: HashMap<String, &Link> =
            self.links.iter().filter_map(|link| Some((normalize(&link.path)?, link))).collect();
        let follow = |link: &Link| {
            let mut target = link.target.as_ref();
            for _ in 0..MAX_HOPS {
                if let Some(&file) = files.get(target?) {
                    return Some(file);
                }
                target = links.get(target?)?.target.as_ref();
            }
            None
        };
        self.links.iter().filter_map(|link| Some((link.field?, &*link.path, follow(link)))).collect()
    }
}

/// Resolves `..`, and removes `.` and empty components. Returns `None` if the path points outside
/// the archive.
fn normalize(path: &str) -> Option<String> {
    let mut components = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => drop(components.pop()?),
            component => components.push(component),
        }
    }
    Some(components.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_only_within_the_shard() {
        let mut links = Links::default();
        links.add_file("./a/1.jpg", 512, 9);
        links.add_file("blobs/7", 2048, 3);
        let cases = [
            ("a/2.jpg", "a/1.jpg", true, Some(512)),
            ("a/3.jpg", "./a/1.jpg", true, Some(512)),
            ("a/4.jpg", "1.jpg", true, None),
            ("a/5.jpg", "1.jpg", false, Some(512)),
            ("a/6.jpg", "../blobs/7", false, Some(2048)),
            ("a/7.jpg", "./6.jpg", false, Some(2048)),
            ("a/8.jpg", "../../blobs/7", false, None),
            ("a/9.jpg", "/blobs/7", false, None),
            ("a/10.jpg", "10.jpg", false, None),
            ("a/11.jpg", "12.jpg", false, None),
            ("a/12.jpg", "11.jpg", false, None),
            ("a/13.jpg", "a/7.jpg", true, Some(2048)),
            ("a/14.jpg", "../blobs", false, None),
        ];
        for (field, (path, target, hard, _)) in cases.iter().enumerate() {
            links.add_link(path, target.as_bytes(), *hard, Some(field));
        }
        links.add_link("a/no-field", b"1.jpg", false, None);
        let resolved = links.resolve();
        assert_eq!(resolved.len(), cases.len());
        for ((field, path, target), (expected_path, _, _, start)) in resolved.iter().zip(&cases) {
            assert_eq!((*path, target.map(|(start, _)| start)), (*expected_path, *start), "field {field}");
        }
    }
}
