//! Reads the datasets that `warpfeed pack --frames` writes. [`PackedInfo`] describes such a
//! dataset, and [`PackedReader`] reads its frames.
//!
//! A packed dataset is a folder with these files:
//!
//! | file | content |
//! |---|---|
//! | `meta/...` | the metadata of the original dataset, unchanged |
//! | `meta/packed.json` | [`PackedInfo`] |
//! | `numbers/<feature>.npy` | the numbers of a feature, with one row for each frame |
//! | the tar shards that [`PackedInfo`] names | the images and the texts of each frame |
//!
//! Each frame is stored once, in the order of the episodes. A sample of several frames therefore
//! reads several shard samples. Number files are read only for the selected features and for
//! `timestamp`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use super::content::{Content, SampleBuilder, field_names, key, time_error};
use super::dataset_folder::DatasetFolder;
use super::episodes::Episodes;
use super::features::{Feature, Kind, TIMESTAMP};
use super::frames::{Frame, FrameIndex};
use super::info::Info;
use super::numbers::NumberFile;
use crate::error::{Error, Result, append};
use crate::formats::tar::Tar;
use crate::model::value::{Element, MAX_NUMBERS_AXES};
use crate::model::{Frames, Lookahead, Prefetcher, Prefetchers, Sample, Source, Value};
use crate::stats::NetworkStats;
use crate::storage::DatasetLocation;

pub(super) const PACKED_INFO: &str = "meta/packed.json";
const VERSION: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PackedInfo {
    warpfeed_frames: u64,
    /// Name of the tar file, or of the set of shards, in the folder of the dataset.
    frames: String,
    pub(super) episodes: Vec<u64>,
    pub(super) features: Vec<String>,
}

impl PackedInfo {
    pub(super) fn new(frames: &str, episodes: Vec<u64>, features: Vec<String>) -> Self {
        PackedInfo { warpfeed_frames: VERSION, frames: frames.to_owned(), episodes, features }
    }

    pub(super) fn find(root: &DatasetFolder) -> Result<Option<Self>> {
        let Some(packed) = root.find_json::<PackedInfo>(PACKED_INFO)? else { return Ok(None) };
        if packed.warpfeed_frames != VERSION || packed.frames.contains('/') || packed.frames.is_empty() {
            let PackedInfo { warpfeed_frames, frames, .. } = packed;
            return Err(Error::in_source(format!(
                "warpfeed_frames={warpfeed_frames} with frames={frames:?}: expected version {VERSION} and a \
                 file name"
            ))
            .at_path(root.path_of(PACKED_INFO)));
        }
        Ok(Some(packed))
    }

    /// Restricts the metadata to the packed episodes and features. In a packed dataset, videos have
    /// become images, and all episodes form one sequence of rows.
    pub(super) fn restrict(&self, info: &mut Info, episodes: &mut Episodes, root: &DatasetFolder) -> Result<()> {
        info.features.retain(|name, _| self.features.contains(name));
        for feature in info.features.values_mut().filter(|feature| feature.dtype == "video") {
            "image".clone_into(&mut feature.dtype);
        }
        let mut selected = self.episodes.clone();
        selected.sort_unstable();
        episodes.list.retain(|episode| selected.binary_search(&episode.index).is_ok());
        if episodes.list.len() != selected.len() {
            let cause = "the file lists episodes that are missing in the metadata; pack the dataset again";
            return Err(Error::in_source(cause).at_path(root.path_of(PACKED_INFO)));
        }
        let mut row = 0;
        for episode in &mut episodes.list {
            (episode.file, episode.first_row) = ((0, 0), row);
            row += episode.len;
        }
        Ok(())
    }

    /// Returns the path of the file with the numbers of a column, relative to the dataset.
    pub(super) fn numbers_path(column: &str) -> String {
        format!("numbers/{column}.npy")
    }
}

/// Encoded features with the same deltas. A sample reads the same frames for all of them.
struct DeltaGroup {
    deltas: Option<Vec<i64>>,
    features: Vec<usize>,
    frames: Tar,
}

impl DeltaGroup {
    /// Returns the rows that the sample of `frame` reads, without consecutive duplicates.
    fn rows(&self, frame: Frame) -> impl Iterator<Item = usize> {
        let mut last = None;
        let deltas = self.deltas.as_deref().unwrap_or(&[0]);
        deltas.iter().map(move |&delta| frame.row_at(delta).0).filter(move |&row| last.replace(row) != Some(row))
    }
}

pub(super) struct PackedReader {
    frames: Tar,
    numbers: Arc<BTreeMap<String, NumberFile>>,
    pub(super) features: Vec<Feature>,
    groups: Vec<DeltaGroup>,
    tasks: Arc<BTreeMap<i64, String>>,
    fps: f64,
    tolerance_s: f64,
    /// The smallest and the largest delta of the features that samples contain, if any has deltas.
    delta_range: Option<(i64, i64)>,
}

impl PackedReader {
    /// `rows` is the number of frames in the dataset.
    pub(super) fn open(
        root: &DatasetFolder,
        (packed, rows): (&PackedInfo, usize),
        features: Vec<Feature>,
        tasks: BTreeMap<i64, String>,
        (fps, tolerance_s): (f64, f64),
    ) -> Result<Self> {
        let path = root.path_of(&packed.frames);
        let location = DatasetLocation { path: path.clone(), split: None, storage: root.storage.clone() };
        let frames = Tar::open_at(&location)?;
        if frames.len() != rows {
            return Err(Error::in_source(format!(
                "the file has {} frames, but {PACKED_INFO} lists {rows}; pack the dataset again",
                frames.len()
            ))
            .at_path(path));
        }
        let columns = features.iter().filter(|feature| !feature.kind.is_encoded()).map(Feature::number_column);
        let mut columns: Vec<&str> = columns.collect();
        columns.extend(packed.features.iter().map(|name| &**name).filter(|name| *name == TIMESTAMP));
        columns.sort_unstable();
        columns.dedup();
        let opened = root.storage.in_parallel(&columns, |column| {
            NumberFile::open(&root.storage, &root.path_of(&PackedInfo::numbers_path(column)), rows)
        })?;
        let numbers = columns.into_iter().map(str::to_owned).zip(opened).collect();
        check_shapes(&features, &numbers)?;
        let (numbers, tasks) = (Arc::new(numbers), Arc::new(tasks));
        let empty = PackedReader {
            frames,
            numbers,
            features: Vec::new(),
            groups: Vec::new(),
            tasks,
            fps,
            tolerance_s,
            delta_range: None,
        };
        Ok(empty.with_features(features))
    }

    pub(super) fn with_features(&self, features: Vec<Feature>) -> Self {
        let read_features = || features.iter().filter(|feature| feature.has_field);
        let deltas = || read_features().filter_map(|feature| feature.deltas.as_ref()).flatten().copied();
        let delta_range = deltas().min().zip(deltas().max());
        let mut by_deltas = BTreeMap::<Option<&Vec<i64>>, Vec<usize>>::new();
        for (index, feature) in features.iter().enumerate().filter(|(_, it)| it.has_field && it.kind.is_encoded()) {
            by_deltas.entry(feature.deltas.as_ref()).or_default().push(index);
        }
        let group = |(deltas, indices): (Option<&Vec<i64>>, Vec<usize>)| {
            let fields = indices.iter().map(|&index| features[index].field.clone());
            DeltaGroup { deltas: deltas.cloned(), frames: self.frames.view(Some(fields.collect())), features: indices }
        };
        let groups = by_deltas.into_iter().map(group).collect();
        PackedReader {
            frames: self.frames.view(None),
            numbers: self.numbers.clone(),
            features,
            groups,
            tasks: self.tasks.clone(),
            fps: self.fps,
            tolerance_s: self.tolerance_s,
            delta_range,
        }
    }

    pub(super) fn fps(&self) -> f64 {
        self.fps
    }

    pub(super) fn field_names(&self) -> Vec<String> {
        field_names(&self.features)
    }

    pub(super) fn read<'a>(&'a self, frame: Frame, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let mut builder = SampleBuilder::new(frame, &self.features, scratch);
        self.check_times(frame)?;
        let mut encoded: Vec<Option<Content<'a>>> = Vec::new();
        encoded.resize_with(self.features.len(), || None);
        for group in &self.groups {
            self.read_group(group, frame, scratch, &mut encoded)?;
        }
        for (feature, encoded) in self.features.iter().zip(encoded) {
            if feature.has_field {
                let content = match encoded {
                    Some(content) => content,
                    None => self.content(feature, frame, scratch)?,
                };
                builder.push(&feature.field, content)?;
            }
            builder.push_pad_field(feature, frame, scratch)?;
        }
        builder.build(scratch)
    }

    fn read_group<'a>(
        &self,
        group: &DeltaGroup,
        frame: Frame,
        scratch: &mut Vec<u8>,
        contents: &mut [Option<Content<'a>>],
    ) -> Result<()> {
        let (mut shard_scratch, mut frame_bytes, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for row in group.rows(frame) {
            let sample = group.frames.read(row, &mut shard_scratch)?;
            let expected = key(Frame { frame_index: row - frame.episode.first_row, ..frame });
            if sample.key() != expected {
                return Err(self.error(row, format!("contains {}, but the metadata lists {expected}", sample.key())));
            }
            for &index in &group.features {
                let field = &*self.features[index].field;
                let Some(Value::Bytes(bytes)) = sample.value(field) else {
                    return Err(self.error(row, format!("does not contain the field {field:?}")));
                };
                let start = frame_bytes.len();
                append(&mut frame_bytes, bytes)?;
                ranges.push((row, start..frame_bytes.len()));
            }
        }
        for (position, &index) in group.features.iter().enumerate() {
            let rows = || ranges.iter().skip(position).step_by(group.features.len());
            let start = scratch.len();
            if let Some(deltas) = &group.deltas {
                let image_for = |delta: i64| {
                    let target = frame.row_at(delta).0;
                    let range = rows().find(|(row, _)| *row == target).map(|(_, range)| range.clone());
                    &frame_bytes[range.expect("`rows` lists every frame")]
                };
                let images: Vec<&[u8]> = deltas.iter().map(|&delta| image_for(delta)).collect();
                append(scratch, &Frames::encode(&images))?;
            } else {
                let (_, range) = rows().next().expect("the group has at least one row");
                append(scratch, &frame_bytes[range.clone()])?;
            }
            contents[index] = Some(match self.features[index].kind {
                Kind::Text if std::str::from_utf8(&scratch[start..]).is_ok() => Content::Text(start..scratch.len()),
                Kind::Text => return Err(self.error(frame.row(), "contains text that is not UTF-8".to_owned())),
                _ => Content::Bytes(start..scratch.len()),
            });
        }
        Ok(())
    }

    fn content<'a>(&'a self, feature: &Feature, frame: Frame, scratch: &mut Vec<u8>) -> Result<Content<'a>> {
        let numbers = &self.numbers[feature.number_column()];
        let start = scratch.len();
        if feature.kind == Kind::Task {
            let row = frame.row();
            numbers.append_row(row, scratch)?;
            let index = <[u8; 8]>::try_from(&scratch[start..]).ok().filter(|_| numbers.element == Element::I64);
            let task = index.map(i64::from_ne_bytes).and_then(|index| self.tasks.get(&index));
            return task
                .map(|task| Content::Task(task))
                .ok_or_else(|| numbers.error(row, "contains the index of a task that the metadata does not list"));
        }
        for &delta in feature.deltas.as_deref().unwrap_or(&[0]) {
            numbers.append_row(frame.row_at(delta).0, scratch)?;
        }
        let shape: ArrayVec<usize, MAX_NUMBERS_AXES> =
            feature.deltas.iter().map(Vec::len).chain(numbers.shape.iter().copied()).collect();
        Ok(Content::Numbers { element: numbers.element, shape, data: start..scratch.len() })
    }

    fn check_times(&self, frame: Frame) -> Result<()> {
        let (Some(times), Some((min_delta, max_delta))) = (self.numbers.get(TIMESTAMP), self.delta_range) else {
            return Ok(());
        };
        let rows = [frame.row_at(min_delta).0, frame.row_at(max_delta).0];
        let mut seconds = [0.0; 2];
        for (seconds, row) in seconds.iter_mut().zip(rows) {
            let mut bytes = Vec::new();
            times.append_row(row, &mut bytes)?;
            let values = match times.element {
                Element::F32 => bytes.try_into().ok().map(f32::from_ne_bytes).map(f64::from),
                Element::F64 => bytes.try_into().ok().map(f64::from_ne_bytes),
                _ => None,
            };
            *seconds = values
                .filter(|seconds| seconds.is_finite())
                .ok_or_else(|| times.error(row, "does not contain a time in seconds"))?;
        }
        match time_error(frame, rows, seconds, (self.fps, self.tolerance_s)) {
            Some(cause) => Err(times.error(frame.row(), cause)),
            None => Ok(()),
        }
    }

    fn error(&self, row: usize, cause: String) -> Error {
        let error = Error::in_source(format!("sample {row} {cause}; pack the dataset again"));
        match self.frames.path(row) {
            Some(path) => error.at_path(path),
            None => error,
        }
    }

    /// Returns a prefetcher for the frames in `order`, or `None` if the files are local or no
    /// images and texts are read.
    pub(super) fn prefetcher(&self, frames: &Arc<FrameIndex>, order: &Lookahead) -> Option<Box<dyn Prefetcher>> {
        let count = self.groups.len().max(1);
        let prefetcher_of = |group: &DeltaGroup| {
            let rows =
                DeltaGroup { deltas: group.deltas.clone(), features: Vec::new(), frames: group.frames.view(None) };
            let (batches, samples, frames) = (order.clone(), order.clone(), frames.clone());
            let rows_of = move |sample: u64| -> Vec<u64> {
                rows.rows(frames.locate(sample as usize)).map(|row| row as u64).collect()
            };
            let rows = move |index| Some(samples.samples(index)?.into_iter().flat_map(&rows_of).collect());
            let order = Lookahead::new(order.budget_bytes() / count, move |epoch| batches.batch_count(epoch), rows);
            group.frames.prefetcher(order)
        };
        let prefetchers: Vec<_> = self.groups.iter().filter_map(prefetcher_of).collect();
        (!prefetchers.is_empty()).then(|| Box::new(Prefetchers(prefetchers)) as Box<dyn Prefetcher>)
    }

    pub(super) fn prefetch_bytes(&self) -> usize {
        self.frames.prefetch_bytes()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.frames.check()?;
        self.numbers.values().try_for_each(NumberFile::check)
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.frames.is_unchanged()
    }

    pub(super) fn network_stats(&self) -> Option<NetworkStats> {
        self.frames.network_stats()
    }

    pub(super) fn path(&self, row: usize) -> Option<std::path::PathBuf> {
        self.frames.path(row)
    }
}

fn check_shapes(features: &[Feature], numbers: &BTreeMap<String, NumberFile>) -> Result<()> {
    for feature in features {
        let (Kind::Numbers { shape, .. }, Some(file)) = (&feature.kind, numbers.get(&feature.name)) else { continue };
        if *shape != file.shape {
            let actual = &file.shape;
            return Err(file.error(0, format_args!("has the shape {actual:?}, but meta/info.json lists {shape:?}")));
        }
    }
    Ok(())
}
