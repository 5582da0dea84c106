//! Opens the data set at a URL, by the rules for files and folders of this machine.

use std::path::Path;
use std::sync::Arc;

use super::formats::{no_annotations, of_pattern};
use crate::error::{Error, ErrorKind};
use crate::formats::{Arrow, DATA_FORMATS, Folder, Tar, parquet, tar};
use crate::medium::ahead::Remote;
use crate::medium::tree::Tree;
use crate::model::Object;
use crate::options::{DataFormat, Opened, Options};

/// Opens the data set at `url`: a file whose extension determines the format, a pattern of shards,
/// or the shards or pictures below the URL.
///
/// # Errors
/// If the URL has no store, its format cannot be read from stores, or both shards and pictures lie
/// below it.
pub(crate) fn open_at(url: &str, options: &Options) -> Opened {
    if tar::is_named_manifest(Path::new(url)) {
        return of_pattern().open_url(url, options);
    }
    if url.ends_with("/index.json") {
        let (asked, remote) = (url.to_owned(), Remote::new(options.stores.of(url)?.clone()));
        let object = remote.repeated(move |store| store.object(&asked))?;
        let start = remote.bytes(&object, 0, object.len.min(512))?;
        if let Some(format) = DATA_FORMATS.iter().find(|format| (format.is_file)(Path::new(url), &start)) {
            return format.open_url(url, options);
        }
    }
    let by_extension = DATA_FORMATS.iter().find(|format| format.has_extension(Path::new(url)));
    if let Some(format) = by_extension {
        return format.open_url(url, options);
    }
    if tar::has_braces(Path::new(url)) {
        return of_pattern().open_url(url, options);
    }
    let remote = Remote::new(options.stores.of(url)?.clone());
    let objects = match remote.list(url) {
        Ok(objects) => objects,
        // A store that does not answer has been asked often enough.
        Err(e) if e.kind() == ErrorKind::Io => return Err(e),
        // Some stores refuse to list what does not exist.
        Err(e) => return split_at(url, options).unwrap_or(Err(e)),
    };
    if objects.is_empty()
        && let Some(opened) = split_at(url, options)
    {
        return opened;
    }
    open_listing(url, objects, remote, options)
}

/// Opens `objects`, which lie below `url`, by the rules of
/// [`open_folder`](super::formats::open_folder).
fn open_listing(url: &str, objects: Vec<Object>, remote: Remote, options: &Options) -> Opened {
    let tree = Tree::Stored(url, &objects, &remote);
    if let Some(format) = DATA_FORMATS.iter().find(|format| (format.is_folder)(tree)) {
        return format.open_url(url, options);
    }
    let tars = tree.entries().filter(|(name, is_folder)| !is_folder && tar::is_shard(name)).count();
    let (pictures, folders) = Folder::survey(url, &objects, &options.formats);
    match (tars, pictures) {
        (0, 0) => {
            if !tree.files_in("arrow").is_empty() {
                return DataFormat::named("arrow")?.open_url(url, options);
            }
            if !tree.files("parquet")?.is_empty() {
                return parquet::open_at(url, Some((objects, None)), options);
            }
            let nested = objects.iter().filter(|object| tar::is_shard(&object.url)).count();
            let nested = match nested {
                0 => String::new(),
                count => format!("; {count} .tar objects lie in folders below it: give the URL of one of the folders"),
            };
            let cause =
                format!("no .tar objects and no pictures among {} objects below this URL{nested}", objects.len());
            Err(Error::in_source(cause).at_path(url))
        }
        (0, _) => {
            no_annotations(tree, folders.into_iter()).map_err(|e| e.at_path(url))?;
            Ok(Arc::new(Folder::of_objects(url, objects, remote, options.formats.clone())?))
        }
        (_, 0) => Ok(Arc::new(Tar::in_store(url, remote, Some(objects))?)),
        _ => Err(Error::in_source(format!(
            "{tars} .tar objects and {pictures} pictures lie below this URL; give the URL of one of the two, or the format"
        ))
        .at_path(url)),
    }
}

/// Opens the Parquet files of a split: nothing lies at `url`, but its last part may name a split of
/// the data set before it.
fn split_at(url: &str, options: &Options) -> Option<Opened> {
    let (set, split) = url.trim_end_matches('/').rsplit_once('/')?;
    // A bucket is not a split.
    set.split_once("://").filter(|(_, rest)| !rest.is_empty())?;
    if let Some(format) = DATA_FORMATS.iter().find(|format| format.has_extension(Path::new(set)))
        && format.has_parts
    {
        return Some(format.open_url(url, options));
    }
    let remote = Remote::new(options.stores.of(url).ok()?.clone());
    // The error of the URL itself is clearer.
    let objects = remote.list(set).ok()?;
    let tree = Tree::Stored(set, &objects, &remote);
    if Arrow::is_saved(tree) || !tree.files_in("arrow").is_empty() {
        return Some(DataFormat::named("arrow").and_then(|format| format.open_url(url, options)));
    }
    match tree.files("parquet") {
        Ok(files) if files.is_empty() => None,
        Ok(_) => Some(parquet::open_at(set, Some((objects, Some(split))), options)),
        Err(e) => Some(Err(e)),
    }
}
