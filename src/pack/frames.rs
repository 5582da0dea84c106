//! Copies the metadata of a LeRobot dataset, and provides its frames as a source. The packed frames
//! and the metadata form a LeRobot dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open::open_destination;
use crate::error::{Error, Result};
use crate::source::{Location, Source, Stores};

/// JPEG quality that is used unless the user sets a [`Recode`](super::Recode).
pub(super) const DEFAULT_QUALITY: u8 = 95;
const FRAMES_NAME: &str = "frames.tar";

/// Returns the path of the frames. `target` is this path, or the folder of the dataset. Fails if
/// `target` ends in `.lmdb`.
pub(super) fn frames_target(target: &Path) -> Result<PathBuf> {
    let extension = target.extension().unwrap_or_default();
    if extension.eq_ignore_ascii_case("lmdb") {
        return Err(Error::config("frames are packed to tar files: use a folder, or the path of a .tar in a folder")
            .at_path(target));
    }
    if extension.eq_ignore_ascii_case("tar") {
        return Ok(target.to_owned());
    }
    Ok(match Location::parse(target) {
        Location::Path(path) => path.join(FRAMES_NAME),
        Location::Url(url) => format!("{}/{FRAMES_NAME}", url.trim_end_matches('/')).into(),
    })
}

/// Writes the metadata of `source` next to the frames at `target`, and returns the frames as a
/// source. Several processes may call this function at the same time. Fails if the name of `target`
/// is not UTF-8, if the source is not a LeRobot dataset, or if a file exists with a different
/// content.
pub(super) fn write_metadata(source: &dyn Source, target: &Path, stores: &Stores) -> Result<Arc<dyn Source>> {
    let name = target.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| Error::config("the name of the target is not UTF-8: use a different name").at_path(target))?;
    let Some(split_source) = source.split_episodes(name)? else {
        return Err(Error::config(format!(
            "frames requires a LeRobot dataset, but this is a dataset of the kind {:?}: remove frames, and set a \
             quality to re-encode its images",
            source.kind()
        )));
    };
    for (path, bytes) in &split_source.files {
        let path = match Location::parse(target) {
            Location::Path(target) => target.with_file_name("").join(path),
            Location::Url(url) => {
                let folder = url.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{path}").into()
            }
        };
        let file = open_destination(&path, stores)?;
        if !file.put("", bytes, true)? && file.get("")?.as_deref() != Some(&bytes[..]) {
            return Err(Error::config(
                "the file exists and belongs to a different dataset: pack to a different folder, or delete this file",
            )
            .at_path(path));
        }
    }
    Ok(split_source.frames)
}
