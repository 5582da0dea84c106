//! Splits a dataset into its frames and its other files, for `warpfeed pack --frames`.

use super::dataset_folder::{DatasetFolder, MAX_FILE_BYTES};
use super::episodes::episode_tables;
use super::features::{Feature, Kind, TASK, TASK_INDEX};
use super::packed::{PACKED_INFO, PackedInfo};
use super::stats;
use crate::error::{Error, Result, append};
use crate::model::value::npy_header;
use crate::model::{Source, SplitEpisodes, Value};

/// The files in the `meta` folder that are copied, apart from the tables of episodes.
const METADATA_FILES: [&str; 6] = [
    "meta/info.json",
    "meta/episodes.jsonl",
    "meta/tasks.jsonl",
    "meta/tasks.parquet",
    stats::DATASET_STATS,
    stats::EPISODE_STATS,
];

/// `episodes` are the indices of the episodes in `dataset`. `packed` is the name of the file that
/// will contain the frames.
pub(super) fn split_frames(
    dataset: &dyn Source,
    (root, features): (&DatasetFolder, &[Feature]),
    episodes: Vec<u64>,
    packed: &str,
) -> Result<SplitEpisodes> {
    if let Some(feature) = features.iter().find(|feature| feature.deltas.is_some()) {
        return Err(Error::config(format!(
            "feature {:?} has deltas, but packing stores each frame once; pack without deltas, and set them when you \
             open the packed dataset",
            feature.name
        )));
    }
    let is_selected = |name: &str| features.iter().any(|feature| feature.name == name && feature.kind != Kind::Task);
    if features.iter().any(|feature| feature.kind == Kind::Task) && !is_selected(TASK_INDEX) {
        return Err(Error::config(format!(
            "the features include {TASK:?} but not {TASK_INDEX:?}; a packed dataset needs both, so add {TASK_INDEX:?}"
        )));
    }
    let mut files = read_metadata_files(root)?;
    for feature in features.iter().filter(|feature| matches!(feature.kind, Kind::Numbers { .. })) {
        files.push((PackedInfo::numbers_path(&feature.name), npy_file(dataset, &feature.field)?));
    }
    let names = features.iter().filter(|feature| feature.kind != Kind::Task).map(|feature| feature.name.clone());
    let description = PackedInfo::new(packed, episodes, names.collect());
    files.push((PACKED_INFO.to_owned(), serde_json::to_vec(&description).expect("numbers and text")));
    let encoded = features.iter().filter(|feature| feature.kind.is_encoded());
    let encoded: Vec<String> = encoded.map(|feature| feature.field.clone()).collect();
    if encoded.is_empty() {
        return Err(Error::config("the dataset has no images or texts, so there are no frames to pack"));
    }
    let frames = dataset
        .select_fields(&encoded)
        .ok_or_else(|| Error::in_source("the source cannot read only the images and texts"))?;
    Ok(SplitEpisodes { frames, files })
}

fn read_metadata_files(root: &DatasetFolder) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in METADATA_FILES {
        if let Some(bytes) = root.storage.find(&root.path_of(name), MAX_FILE_BYTES)? {
            files.push((name.to_owned(), bytes));
        }
    }
    for path in episode_tables(root)? {
        let bytes = root.storage.read(&root.path_of(&path), MAX_FILE_BYTES)?;
        files.push((path, bytes));
    }
    Ok(files)
}

fn npy_file(dataset: &dyn Source, field: &str) -> Result<Vec<u8>> {
    let view = dataset
        .select_fields(&[field.to_owned()])
        .ok_or_else(|| Error::in_source("the source cannot read only this field"))?;
    let (mut file, mut scratch, mut header) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..view.len() {
        let sample = view.read(index, &mut scratch)?;
        let Some(Value::Numbers(numbers)) = sample.value(field) else {
            return Err(Error::in_source(format!("field {field:?}: sample {index} does not contain numbers")));
        };
        let mut record = Vec::new();
        npy_header(&mut record, numbers.element(), std::iter::once(view.len()).chain(numbers.dims()));
        if index == 0 {
            append(&mut file, &record)?;
            header = record;
        } else if record != header {
            return Err(Error::in_source(format!(
                "field {field:?}: samples 0 and {index} have different types or shapes"
            )));
        }
        append(&mut file, numbers.parts().2)?;
    }
    Ok(file)
}
