use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::{Folder, Lmdb, Source, Tar, lmdb, tar};
use crate::error::{Error, ErrorKind, Result};

/// Opens whatever data set lies at `path`, found out from what is there and not from its name:
///
/// - a pattern such as `train-{000..099}.tar`: [`Tar`];
/// - a folder with `data.mdb`, or a file with LMDB's magic number: [`Lmdb`];
/// - a folder of `.tar` files, or a file that begins with a tar header: [`Tar`];
/// - any other folder: [`Folder`].
///
/// # Errors
/// If nothing is there, it is none of these (the message says what was looked for), a folder holds both shards and pictures, or the
/// source that it is cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    let path = path.as_ref();
    if tar::has_braces(path) && !path.exists() {
        return Ok(Arc::new(Tar::open(path)?));
    }
    if fs::metadata(path).map_err(|e| Error::io(path, &e))?.is_dir() { folder(path) } else { file(path) }
}

fn folder(path: &Path) -> Result<Arc<dyn Source>> {
    if path.join("data.mdb").exists() {
        return Ok(Arc::new(Lmdb::open(path)?));
    }
    let tars = tar::tars_in(path)?.len();
    match (Folder::open(path), tars) {
        (Ok(folder), 0) => Ok(Arc::new(folder)),
        (Ok(folder), _) => Err(Error::source(format!(
            "holds {tars} .tar files and {} images; open one of the two with `Tar::open` or `Folder::open`, or move them apart",
            folder.len()
        ))
        .at_path(path)),
        (Err(e), 0) if e.kind() == ErrorKind::Source => {
            Err(Error::source(format!("{}; no data.mdb, no .tar files", e.cause())).at_path(e.path().unwrap_or(path)))
        }
        (Err(e), 0) => Err(e),
        (Err(_), _) => Ok(Arc::new(Tar::open(path)?)),
    }
}

fn file(path: &Path) -> Result<Arc<dyn Source>> {
    let mut start = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, &e))?;
    file.take(512).read_to_end(&mut start).map_err(|e| Error::io(path, &e))?;
    // A name that promises one of them gets that one's message, which knows the offset.
    let named = |extensions: &[&str]| {
        path.extension().is_some_and(|have| extensions.iter().any(|want| have.eq_ignore_ascii_case(want)))
    };
    if lmdb::is_lmdb(&start) || named(&["lmdb", "mdb"]) {
        Ok(Arc::new(Lmdb::open(path)?))
    } else if tar::is_tar(&start) || named(&["tar", "tgz", "gz"]) {
        Ok(Arc::new(Tar::open(path)?))
    } else {
        let shown = &start[..start.len().min(8)];
        Err(Error::source(format!(
            "not a data set: neither an lmdb file (magic number at byte 16) nor a tar (checksum of the first header), \
             and no folder; it begins {shown:02x?}"
        ))
        .at_path(path))
    }
}
