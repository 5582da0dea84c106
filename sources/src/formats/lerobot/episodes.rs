//! The episodes and the tasks of a dataset.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::dataset_folder::DatasetFolder;
use super::info::{INFO, Info, Version};
use crate::error::{Error, Result, counted, push};
use crate::formats::parquet::Rows;
use crate::model::value::Element;
use crate::storage::DatasetLocation;
use crate::values::record::ColumnValue;

// In version 2: the files that list the episodes and the tasks.
const EPISODES_LINES: &str = "meta/episodes.jsonl";
const TASKS_LINES: &str = "meta/tasks.jsonl";
// In version 3: the folder that contains the tables of episodes, and the file that contains the
// table of tasks.
const EPISODES_FOLDER: &str = "meta/episodes";
const TASKS_TABLE: &str = "meta/tasks.parquet";

const COLUMNS: [&str; 5] =
    ["episode_index", "data/chunk_index", "data/file_index", "dataset_from_index", "dataset_to_index"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Episode {
    pub(super) index: u64,
    pub(super) len: u64,
    /// Folder number and file number in the path of the data file. In version 2, the numbers only
    /// identify the file: they are 0 and the episode index.
    pub(super) file: (u64, u64),
    /// Row of the episode's first frame in the data file.
    pub(super) first_row: u64,
}

#[derive(Debug)]
pub(super) struct Episodes {
    pub(super) list: Vec<Episode>,
    /// Number of frames in each data file.
    pub(super) frame_counts: BTreeMap<(u64, u64), u64>,
}

impl Episodes {
    pub(super) fn read(root: &DatasetFolder, info: &Info) -> Result<Self> {
        let (listing, listed_in) = match info.version()? {
            Version::Two => (read_lines(root)?, root.path_of(EPISODES_LINES)),
            Version::Three => (read_tables(root)?, root.path_of(EPISODES_FOLDER)),
        };
        let episodes =
            listing.into_episodes().map_err(|e| if e.path().is_some() { e } else { e.at_path(&listed_in) })?;
        if episodes.list.len() as u64 != info.total_episodes {
            return Err(Error::in_source(format!(
                "this list contains {}, but {INFO} contains total_episodes={}; download the dataset again",
                counted(episodes.list.len() as u64, "episode", "episodes"),
                info.total_episodes
            ))
            .at_path(listed_in));
        }
        Ok(episodes)
    }
}

/// Returns the path of an episode's data file, relative to the dataset.
pub(super) fn data_path(info: &Info, episode: &Episode) -> Result<String> {
    match info.version()? {
        Version::Two => info.episode_path(episode.index),
        Version::Three => info.data_file_path(episode.file.0, episode.file.1),
    }
}

/// Episodes as the metadata lists them. In version 3, `first_row` counts from the start of the
/// dataset instead of from the start of the data file.
#[derive(Default)]
struct EpisodeList(Vec<Episode>);

impl EpisodeList {
    /// Sorts the episodes, makes each `first_row` relative to the data file, and counts the frames
    /// in each file. Fails if an episode is listed twice, or if the episodes of a file overlap or
    /// leave gaps.
    fn into_episodes(self) -> Result<Episodes> {
        let mut episodes = self.0;
        episodes.sort_unstable_by_key(|episode| (episode.file, episode.first_row, episode.len));
        let mut extents = BTreeMap::<(u64, u64), (u64, u64)>::new();
        for episode in &mut episodes {
            let (start, frame_count) = extents.entry(episode.file).or_insert((episode.first_row, 0));
            if episode.first_row - *start != *frame_count {
                return Err(Error::in_source(format!(
                    "episode {} starts at frame {}, but the episodes before it in the same file end at {}",
                    episode.index,
                    episode.first_row,
                    *start + *frame_count
                )));
            }
            episode.first_row = *frame_count;
            *frame_count = frame_count.checked_add(episode.len).ok_or_else(|| Error::in_source("too many frames"))?;
        }
        episodes.sort_unstable_by_key(|episode| episode.index);
        if let Some(duplicate) = episodes.windows(2).find(|pair| pair[0].index == pair[1].index) {
            return Err(Error::in_source(format!("episode {} is listed twice", duplicate[0].index)));
        }
        Ok(Episodes {
            list: episodes,
            frame_counts: extents.into_iter().map(|(file, (_, frame_count))| (file, frame_count)).collect(),
        })
    }
}

/// Reads the list of episodes in version 2, where each episode has its own data file.
fn read_lines(root: &DatasetFolder) -> Result<EpisodeList> {
    #[derive(Deserialize)]
    struct Line {
        episode_index: u64,
        length: u64,
    }
    let mut listed = EpisodeList::default();
    root.for_each_line(EPISODES_LINES, |line: Line| {
        let Line { episode_index: index, length: len } = line;
        push(&mut listed.0, Episode { index, len, file: (0, index), first_row: 0 })
    })?;
    // `EpisodeList::into_episodes` also detects duplicates, but here it would first report a
    // misleading error: two entries for one episode have the same data file, and both start at
    // frame 0.
    let mut seen: Vec<u64> = listed.0.iter().map(|episode| episode.index).collect();
    seen.sort_unstable();
    match seen.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(duplicate) => {
            Err(Error::in_source(format!("episode {} is listed twice", duplicate[0]))
                .at_path(root.path_of(EPISODES_LINES)))
        }
        None => Ok(listed),
    }
}

/// Returns the paths of the tables of episodes, relative to the dataset. In version 2, there are
/// none.
pub(super) fn episode_tables(root: &DatasetFolder) -> Result<Vec<String>> {
    if Info::read(root)?.version()? == Version::Two {
        return Ok(Vec::new());
    }
    let location = DatasetLocation { path: root.path_of(EPISODES_FOLDER), split: None, storage: root.storage.clone() };
    Ok(location.tree().files("parquet")?.iter().map(|name| format!("{EPISODES_FOLDER}/{name}")).collect())
}

fn read_tables(root: &DatasetFolder) -> Result<EpisodeList> {
    let (rows, columns) = episode_rows(root, &COLUMNS)?;
    let mut listed = EpisodeList::default();
    let mut scratch = Vec::new();
    let [index, chunk, file, first_row, end_row] = columns[..] else { unreachable!("each column has an index") };
    for row in 0..rows.len() {
        let mut number = |column| {
            let number = rows.read_integer(row, column, &mut scratch)?;
            u64::try_from(number)
                .map_err(|_| rows.error(row, column, format_args!("holds {number}: expected 0 or more")))
        };
        let (first, end) = (number(first_row)?, number(end_row)?);
        let episode = Episode {
            index: number(index)?,
            len: end.checked_sub(first).ok_or_else(|| {
                rows.error(row, end_row, format_args!("holds {end}, but the episode starts at {first}"))
            })?,
            file: (number(chunk)?, number(file)?),
            first_row: first,
        };
        push(&mut listed.0, episode)?;
    }
    Ok(listed)
}

#[cfg(feature = "video")]
#[derive(Debug, Clone, Copy)]
pub(super) struct VideoLocation {
    /// Folder number and file number in the path of the video file, as in [`Episode::file`].
    pub(super) file: (u64, u64),
    /// Time in the file at which the episode starts, in seconds.
    pub(super) start: f64,
}

/// Returns the location of each episode in the files of the video feature `name`. The keys are
/// episode indices. For version 3 only.
#[cfg(feature = "video")]
pub(super) fn video_locations(
    root: &DatasetFolder,
    name: &str,
) -> Result<std::collections::HashMap<u64, VideoLocation>> {
    let columns = ["chunk_index", "file_index", "from_timestamp"].map(|column| format!("videos/{name}/{column}"));
    let columns = [COLUMNS[0].to_owned()].into_iter().chain(columns).collect::<Vec<_>>();
    let (rows, column_indices) = episode_rows(root, &columns)?;
    let mut videos = std::collections::HashMap::new();
    let mut scratch = Vec::new();
    for row in 0..rows.len() {
        let mut number = |column: usize| {
            let number = rows.read_integer(row, column, &mut scratch)?;
            u64::try_from(number)
                .map_err(|_| rows.error(row, column, format_args!("holds {number}: expected 0 or more")))
        };
        let (episode, file) = (number(column_indices[0])?, (number(column_indices[1])?, number(column_indices[2])?));
        videos
            .insert(episode, VideoLocation { file, start: read_seconds(&rows, row, column_indices[3], &mut scratch)? });
    }
    Ok(videos)
}

fn episode_rows(root: &DatasetFolder, columns: &[impl AsRef<str>]) -> Result<(Rows, Vec<usize>)> {
    let folder = root.path_of(EPISODES_FOLDER);
    let files: Vec<PathBuf> = episode_tables(root)?.iter().map(|path| root.path_of(path)).collect();
    let rows = Rows::open(&folder, &root.storage, &files, |name| columns.iter().any(|column| column.as_ref() == name))?;
    let index_of = |column: &str| {
        rows.column_index(column)
            .ok_or_else(|| Error::in_source(format!("the table has no column {column:?}")).at_path(&files[0]))
    };
    let column_indices = columns.iter().map(|column| index_of(column.as_ref())).collect::<Result<_>>()?;
    Ok((rows, column_indices))
}

pub(super) fn read_seconds(rows: &Rows, row: usize, column: usize, scratch: &mut Vec<u8>) -> Result<f64> {
    let start = scratch.len();
    let content = rows.append_value(row, column, scratch)?;
    let bytes = &scratch[start..];
    let seconds = match content {
        ColumnValue::Numbers { element: Element::F32, .. } => {
            bytes.try_into().ok().map(f32::from_ne_bytes).map(f64::from)
        }
        ColumnValue::Numbers { element: Element::F64, .. } => bytes.try_into().ok().map(f64::from_ne_bytes),
        _ => None,
    };
    scratch.truncate(start);
    seconds.filter(|seconds| seconds.is_finite()).ok_or_else(|| rows.error(row, column, "is not a time in seconds"))
}

pub(super) fn tasks(root: &DatasetFolder, info: &Info) -> Result<BTreeMap<i64, String>> {
    let mut tasks = BTreeMap::new();
    let mut add = |index: i64, task: String| match tasks.insert(index, task) {
        Some(_) => Err(Error::in_source(format!("task {index} is listed twice"))),
        None => Ok(()),
    };
    if info.version()? == Version::Two {
        #[derive(Deserialize)]
        struct Line {
            task_index: i64,
            task: String,
        }
        root.for_each_line(TASKS_LINES, |line: Line| add(line.task_index, line.task))?;
        return Ok(tasks);
    }
    let path = root.path_of(TASKS_TABLE);
    let rows = Rows::open(&path, &root.storage, std::slice::from_ref(&path), |_| true)?;
    let find_column = |matches: &dyn Fn(&str) -> bool, content: &str| {
        let position = rows.names().position(matches);
        position.ok_or_else(|| Error::in_source(format!("the table has no column {content}")).at_path(&path))
    };
    // LeRobot stores the texts of the tasks as the row index of a pandas DataFrame. The name of
    // this column varies.
    let (index, text) = (
        find_column(&|name| name == "task_index", "\"task_index\"")?,
        find_column(&|name| name != "task_index", "that contains the texts of the tasks")?,
    );
    let mut scratch = Vec::new();
    for row in 0..rows.len() {
        let number = rows.read_integer(row, index, &mut scratch)?;
        scratch.clear();
        let content = rows.append_value(row, text, &mut scratch)?;
        let ColumnValue::Text(_) = content else {
            return Err(rows.error(row, text, format_args!("holds {}: expected the text of a task", content.kind())));
        };
        add(number, String::from_utf8_lossy(&scratch).into_owned()).map_err(|e| e.at_path(&path))?;
    }
    Ok(tasks)
}
