//! The [`DataFormat`] of folders of videos.

use crate::error::Result;
use crate::format::VIDEO_FILES;
use crate::machine::file::has_extension;
use crate::options::{DataFormat, with_feature};
use crate::storage::tree::Tree;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    files,
    ..DataFormat::new(
        "clips",
        "a folder of videos (`.mp4`, `.m4v`, `.mov`, `.mkv`, `.webm`), in one subfolder per class or flat",
        &[],
        |location, options| {
            with_feature!("video", "a folder of videos", location, options => {
                let _ = options;
                super::Clips::open_at(location, &super::ClipsOptions::default())?
            })
        },
    )
};

/// Returns 1 if there is a video in the folder or directly in a subfolder, and 0 if not.
fn files(folder: Tree<'_>) -> Result<usize> {
    let mut folders = Vec::new();
    for entry in folder.entries() {
        match entry? {
            (name, true) => folders.push(name),
            (name, false) if is_video(&name) => return Ok(1),
            _ => {}
        }
    }
    for name in folders {
        let has_video = folder.in_subfolder(&name, |folder| {
            folder.entries().try_fold(false, |has_video, entry| {
                let (name, is_folder) = entry?;
                Ok::<_, crate::error::Error>(has_video || (!is_folder && is_video(&name)))
            })
        })?;
        if has_video {
            return Ok(1);
        }
    }
    Ok(0)
}

fn is_video(name: &str) -> bool {
    VIDEO_FILES.iter().any(|extension| has_extension(name, extension))
}
