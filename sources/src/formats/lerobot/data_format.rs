//! The [`DataFormat`] of LeRobot datasets.

use crate::error::Result;
use crate::options::{DataFormat, with_feature};
use crate::storage::tree::Tree;

pub(crate) const DATA_FORMAT: DataFormat = DataFormat {
    is_folder,
    has_splits: true,
    ..DataFormat::new(
        "lerobot",
        "a folder with `meta/info.json` and the list of episodes or tasks next to it",
        &[],
        |location, options| {
            with_feature!("parquet", "a LeRobot dataset", location, options => {
                let _ = options;
                let lerobot_options = super::LeRobotOptions::of_split(location.split.clone());
                super::LeRobot::open_at(location, &lerobot_options)?
            })
        },
    )
};

/// Versions before 2.0 are not supported. Their metadata is in the folder `meta_data`.
fn is_folder(folder: Tree<'_>) -> Result<bool> {
    if !folder.has_folder("meta")? {
        return Ok(false);
    }
    folder.in_subfolder("meta", |meta| {
        let lists = ["episodes.jsonl", "tasks.jsonl", "tasks.parquet"];
        Ok(meta.has_file("info.json")?
            && (meta.has_folder("episodes")?
                || lists
                    .iter()
                    .try_fold(false, |any, name| Ok::<_, crate::error::Error>(any || meta.has_file(name)?))?))
    })
}
