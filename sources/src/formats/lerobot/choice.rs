//! Selects the episodes of a dataset.

use super::dataset_folder::DatasetFolder;
use super::episodes::{Episode, Episodes};
use super::info::{INFO, Info};
use super::options::LeRobotOptions;
use crate::error::{Error, Result, counted};

/// Returns the selected episodes, sorted by index. Fails if the split does not exist, or if a
/// requested episode does not exist, is requested twice, or is not in the split.
pub(super) fn choose_episodes(
    episodes: &Episodes,
    info: &Info,
    root: &DatasetFolder,
    options: &LeRobotOptions,
) -> Result<Vec<Episode>> {
    let split = match &options.split {
        Some(name) => Some((name, info.split(name).map_err(|e| e.at_path(root.path_of(INFO)))?)),
        None => None,
    };
    let Some(requested) = &options.episodes else {
        let is_in_split = |episode: &&Episode| split.as_ref().is_none_or(|(_, range)| range.contains(&episode.index));
        return Ok(episodes.list.iter().filter(is_in_split).copied().collect());
    };
    let mut requested = requested.clone();
    requested.sort_unstable();
    if let Some(duplicate) = requested.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::config(format!("episodes: {} is listed twice; remove one", duplicate[0])));
    }
    let find = |&index: &u64| {
        if let Some((name, range)) = split.as_ref().filter(|(_, range)| !range.contains(&index)) {
            let content = if range.is_empty() {
                "is empty".to_owned()
            } else {
                format!("contains the episodes {} to {}", range.start, range.end - 1)
            };
            return Err(Error::config(format!("episodes: {index} is not in the split {name:?}, which {content}")));
        }
        let position = episodes.list.binary_search_by_key(&index, |episode| episode.index);
        position.map(|position| episodes.list[position]).map_err(|_| {
            let (first, last) = (episodes.list.first(), episodes.list.last());
            let range = first.zip(last).map_or_else(
                || "the dataset has no episodes".to_owned(),
                |(first, last)| {
                    let count = counted(episodes.list.len(), "episode", "episodes");
                    format!("the dataset has {count}, with indices from {} to {}", first.index, last.index)
                },
            );
            Error::config(format!("episodes: there is no episode {index}; {range}"))
        })
    };
    requested.iter().map(find).collect()
}
