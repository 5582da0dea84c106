use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::lmdb::is_lmdb;
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
/// If nothing is there, it is none of these (the message says what was looked for), a folder holds both shards and pictures, or the
/// source that it is cannot be opened.
pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Source>> {
    any(path.as_ref(), true)
}

/// The same without memory maps: whatever happens to the files is an error, never a signal. Tar shards are opened by [`Tar::open_unmapped`], which says what that
/// costs; the files of a folder are read in any case.
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
    let metadata = fs::metadata(path).map_err(|e| Error::io(path, &e))?;
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
        let shown = &start[..start.len().min(8)];
        Err(Error::in_source(format!(
            "not a data set: neither an lmdb file (magic number at byte 16) nor a tar (checksum of the first header), \
             and no folder; it begins {shown:02x?}"
        ))
        .at_path(path))
    }
}
