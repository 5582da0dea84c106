//! Finds the images or videos under a URL in an object store, with the classes, labels and order
//! that a local copy would have.

use std::collections::BTreeSet;

use super::listing::Listing;
use super::walk::{self, FileKind};
use crate::error::{Error, Result, counted, push, reserve};
use crate::model::{Location, Object};

/// Returns the path of the object at `url` relative to `root`, a URL that ends in a slash. Paths on
/// web servers are percent-decoded, so that classes and keys are the same as for a local copy.
fn path_below(root: &str, url: &str) -> Option<String> {
    let path = url.strip_prefix(root)?;
    let is_web = Location::parse(root).scheme().is_some_and(|scheme| scheme.to_ascii_lowercase().starts_with("http"));
    Some(if is_web { percent_decode(path) } else { path.to_owned() })
}

/// Percent-decodes `text`. Returns `text` unchanged if the result is not UTF-8.
fn percent_decode(text: &str) -> String {
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

fn is_sample(object: &Object, kind: FileKind<'_>) -> bool {
    let name = object.url.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    !name.starts_with('.') && extension.is_some_and(|extension| kind.matches(extension))
}

/// Returns the listing of the samples under `url`, and the index in `objects` of each sample's
/// object.
pub(crate) fn select_samples(url: &str, objects: &[Object], kind: FileKind<'_>) -> Result<(Listing, Vec<u32>)> {
    let root = format!("{url}/");
    let is_hidden = |path: &str| path.split('/').any(|part| walk::is_hidden(part.as_bytes()));
    let mut samples: Vec<(String, u32)> = Vec::new();
    // A top-level folder is a class even without images.
    let mut classes = BTreeSet::new();
    for (object, index) in objects.iter().zip(0..) {
        let Some(path) = path_below(&root, &object.url) else { continue };
        if let Some((top, _)) = path.split_once('/').filter(|(top, _)| !is_hidden(top)) {
            classes.insert(top.to_owned());
        }
        if is_sample(object, kind) && !is_hidden(&path) {
            push(&mut samples, (path, index))?;
        }
    }
    if samples.iter().any(|(path, _)| path.contains('/')) {
        let total = samples.len();
        samples.retain(|(path, _)| path.contains('/'));
        if samples.len() < total {
            let [singular, many] = kind.nouns();
            let ignored = counted(total - samples.len(), singular, many);
            tracing::warn!("{url}: ignored {ignored} next to the class folders");
        }
    }
    if samples.is_empty() {
        let count = counted(objects.len(), "object", "objects");
        let ([_, nouns], extensions) = (kind.nouns(), kind.extensions());
        return Err(Error::in_source(format!(
            "found no {nouns} among {count} under this URL; looked for {extensions}"
        )));
    }
    // Sort by class, then by the path of the folder within the class, then by file name.
    let sort_key = |path: &str| {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        (folder.split('/').next().unwrap_or_default().to_owned(), folder.to_owned(), name.to_owned())
    };
    samples.sort_by_cached_key(|(path, _)| sort_key(path));
    let (mut listing, classes) = (Listing::default(), classes.into_iter().collect::<Vec<_>>());
    let mut indices = Vec::new();
    reserve(&mut indices, samples.len())?;
    for (path, index) in samples {
        let (top, folder, name) = sort_key(&path);
        listing.push(&folder, &name, false)?;
        if !folder.is_empty() {
            let label = classes.binary_search(&top).expect("`classes` contains the top-level folder of every image");
            push(&mut listing.labels, label as u32)?;
        }
        indices.push(index);
    }
    if !listing.labels.is_empty() {
        listing.classes = classes;
    }
    Ok((listing, indices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_urls_are_percent_decoded() {
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
