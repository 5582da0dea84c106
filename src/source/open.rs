use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::lmdb::{image_format, is_lmdb};
use super::{Folder, Lmdb, Source, Tar, tar};
use crate::error::{Error, ErrorKind, Result};

/// Opens whatever data set lies at `path`, found out from what is there and not from its name:
///
/// - a pattern such as `train-{000..099}.tar`: [`Tar`];
/// - a folder with `data.mdb`, or a file with LMDB's magic number: [`Lmdb`];
/// - a folder of `.tar` files, or a file that begins with a tar header: [`Tar`];
/// - any other folder: [`Folder`].
///
/// # Errors
/// If nothing is there, it is none of these (the message says what was looked for), a folder holds
/// both shards and pictures, or the source that it is cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    any(path.as_ref(), true)
}

/// The same without memory maps: whatever happens to the files is an error, never a signal. Tar
/// shards are opened by [`Tar::open_unmapped`], which says what that costs; the files of a folder
/// are read in any case.
///
/// # Errors
/// As [`open`]; for an LMDB, which its library can read in no other way.
pub fn open_unmapped(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    any(path.as_ref(), false)
}

fn any(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    if tar::has_braces(path) && !path.exists() {
        return shards(path, mapped);
    }
    if path.as_os_str().is_empty() {
        return Err(Error::config("the path of the data set is empty"));
    }
    // In full, so that a relative one says relative to what.
    let metadata =
        fs::metadata(path).map_err(|e| Error::io(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), &e))?;
    if metadata.is_dir() { folder(path, mapped) } else { file(path, mapped) }
}

fn shards(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    Ok(Arc::new(if mapped { Tar::open(path)? } else { Tar::open_unmapped(path)? }))
}

fn lmdb(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    if !mapped {
        return Err(Error::config(
            "an lmdb is always memory-mapped, by its library; open it mapped, or pack it as tar shards (warpfeed pack --from x.lmdb --to x.tar)",
        )
        .at_path(path));
    }
    Ok(Arc::new(Lmdb::open(path)?))
}

fn folder(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    if path.join("data.mdb").exists() {
        return lmdb(path, mapped);
    }
    let tars = tar::tars_in(path)?.len();
    match (Folder::open(path), tars) {
        (Ok(folder), 0) => Ok(Arc::new(folder)),
        (Ok(folder), _) => Err(Error::in_source(format!(
            "holds {tars} .tar files and {} images; open one of the two with `Tar::open` or `Folder::open`, or move them apart",
            folder.len()
        ))
        .at_path(path)),
        (Err(e), 0) if e.kind() == ErrorKind::Source => {
            Err(Error::in_source(format!("{}; no data.mdb, no .tar files", e.cause())).at_path(e.path().unwrap_or(path)))
        }
        (Err(e), 0) => Err(e),
        (Err(_), _) => shards(path, mapped),
    }
}

fn file(path: &Path, mapped: bool) -> Result<Arc<dyn Source>> {
    let mut start = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, &e))?;
    file.take(512).read_to_end(&mut start).map_err(|e| Error::io(path, &e))?;
    // A name that promises one of them gets that one's message, which knows the offset.
    let named = |extensions: &[&str]| {
        path.extension().is_some_and(|have| extensions.iter().any(|want| have.eq_ignore_ascii_case(want)))
    };
    if is_lmdb(&start) || named(&["lmdb", "mdb"]) {
        lmdb(path, mapped)
    } else if tar::is_tar(&start) || named(&["tar", "tgz", "gz"]) {
        shards(path, mapped)
    } else {
        Err(Error::in_source(not_a_data_set(&start)).at_path(path))
    }
}

/// What is wrong with a file that begins with `start`.
fn not_a_data_set(start: &[u8]) -> String {
    if start.is_empty() {
        return "not a data set: the file is empty".to_owned();
    }
    if let Some(format) = image_format(start) {
        return format!("not a data set: this is one picture ({format}); give the folder it lies in");
    }
    let shown = &start[..start.len().min(16)];
    let shown = match std::str::from_utf8(shown) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => format!("the text {text:?}"),
        _ => format!("{:02x?}", &shown[..shown.len().min(8)]),
    };
    format!(
        "not a data set: neither an lmdb file (magic number at byte 16) nor a tar (checksum of the first header), \
         and no folder; it begins with {shown}"
    )
}
