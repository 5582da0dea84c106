//! Pictures below a URL of a store, with the classes, labels and order of a local folder.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Folder;
use super::names::Names;
use crate::error::{Error, Result, counted, push, reserve};
use crate::format::{self, FORMATS, Format};
use crate::medium::ahead::Remote;
use crate::model::{Location, Object, Store};

/// The path of an object below `root`, a URL that ends with a slash. On web servers, URLs encode the
/// characters of names, so that classes and keys would not be those of the same local folder.
fn path_below(root: &str, url: &str) -> Option<String> {
    let path = url.strip_prefix(root)?;
    let is_web = Location::of(root).scheme().is_some_and(|scheme| scheme.to_ascii_lowercase().starts_with("http"));
    Some(if is_web { decoded(path) } else { path.to_owned() })
}

/// `text` with its percent-encoded bytes decoded, or as it is if they are not UTF-8.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => bytes.extend([&[byte], &part.as_bytes()[2..]].concat()),
            None => bytes.extend([b"%", part.as_bytes()].concat()),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Whether an object is a picture by its name.
fn is_picture(object: &Object, formats: &[Format]) -> bool {
    let name = object.url.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    !name.starts_with('.') && extension.is_some_and(|extension| format::field_of_file(extension, formats).is_some())
}

impl Folder {
    /// Number of pictures among `objects`, which lie below `url`, and the folders of those that do
    /// not lie directly below it.
    pub(crate) fn survey<'o>(url: &str, objects: &'o [Object], formats: &[Format]) -> (usize, BTreeSet<&'o str>) {
        let root = format!("{}/", url.trim_end_matches('/'));
        let hidden = |path: &&str| path.split('/').any(|part| part.starts_with('.'));
        let pictures = objects.iter().filter(|object| is_picture(object, formats));
        let (mut count, mut folders) = (0, BTreeSet::new());
        for path in pictures.filter_map(|object| object.url.strip_prefix(&root)).filter(|path| !hidden(path)) {
            count += 1;
            folders.extend(path.rsplit_once('/').map(|(folder, _)| folder));
        }
        (count, folders)
    }

    /// The pictures among `objects`, all of which lie below `url`.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn of_objects(url: &str, objects: Vec<Object>, remote: Remote, formats: Vec<Format>) -> Result<Self> {
        let root = format!("{}/", url.trim_end_matches('/'));
        let below = |object: &Object| path_below(&root, &object.url);
        let hidden = |path: &str| path.split('/').any(|part| part.starts_with('.'));
        let count = objects.len();
        // Also a folder without pictures is a class.
        let tops: BTreeSet<String> = objects
            .iter()
            .filter_map(|object| Some(below(object)?.split_once('/')?.0.to_owned()))
            .filter(|top| !hidden(top))
            .collect();
        let pictures = objects.into_iter().filter(|object| is_picture(object, &formats));
        let mut pictures: Vec<(String, Object)> =
            pictures.filter_map(|object| Some((below(&object)?, object))).filter(|(path, _)| !hidden(path)).collect();
        if pictures.iter().any(|(path, _)| path.contains('/')) {
            let all = pictures.len();
            pictures.retain(|(path, _)| path.contains('/'));
            if pictures.len() < all {
                let found = counted(all - pictures.len(), "picture", "pictures");
                tracing::warn!("{url}: left out {found} next to the class folders");
            }
        }
        // The classes by name, then the folders of a class by path, then the files of each by name.
        let split = |path: &str| {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            (folder.split('/').next().unwrap_or_default().to_owned(), folder.to_owned(), name.to_owned())
        };
        pictures.sort_by_cached_key(|(path, _)| split(path));
        let (mut names, classes) = (Names::default(), tops.into_iter().collect::<Vec<_>>());
        let mut all = Vec::new();
        reserve(&mut all, pictures.len())?;
        for (path, object) in pictures {
            let (top, folder, name) = split(&path);
            names.push(&folder, &name, false)?;
            if !folder.is_empty() {
                let label = classes.binary_search(&top).expect("the folder of a picture is listed");
                push(&mut names.labels, label as u32)?;
            }
            all.push(object);
        }
        if all.is_empty() {
            let looked: Vec<_> = FORMATS.iter().chain(&formats).flat_map(|format| format.extensions).copied().collect();
            let cause = format!("no pictures among {count} objects below this URL; looked for .{}", looked.join(", ."));
            return Err(Error::in_source(cause).at_path(url));
        }
        if !names.labels.is_empty() {
            names.classes = classes;
        }
        Ok(Folder::in_store(names, all, remote, formats))
    }

    /// Lists the pictures below `url`.
    ///
    /// # Errors
    /// If they cannot be listed, or there is none.
    pub(crate) fn at_url(url: &str, store: &Arc<dyn Store>, formats: Vec<Format>) -> Result<Self> {
        let remote = Remote::new(store.clone());
        let objects = remote.list(url)?;
        Self::of_objects(url, objects, remote, formats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_web_servers_are_decoded() {
        for (url, path) in [
            ("https://h/set/c%202/e%27%2541.jpg", "c 2/e'%41.jpg"),
            ("HTTP://h/set/%C3%BC/100%.jpg", "ü/100%.jpg"),
            ("http://h/set/%ff/%4", "%ff/%4"),
            ("s3://h/set/c%202/a.jpg", "c%202/a.jpg"),
            ("hf://h/set/c 2/a%.jpg", "c 2/a%.jpg"),
        ] {
            let root = &url[..url.find("/set/").unwrap() + 5];
            assert_eq!(path_below(root, url).as_deref(), Some(path), "{url}");
        }
    }
}
