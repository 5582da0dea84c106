//! [`ParquetReader`]: builds samples from the values of Parquet columns.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::content::{Content, SampleBuilder, field_names, key, time_error};
use super::episodes::read_seconds;
use super::features::{Feature, Kind, TIMESTAMP};
use super::frames::{Frame, FrameIndex, NeededRows};
#[cfg(feature = "video")]
use super::video::{EpisodeVideo, NeededFrames, Video};
use crate::error::{Result, append};
use crate::format;
use crate::formats::parquet::{Rows, SampleRows};
#[cfg(feature = "video")]
use crate::model::Prefetchers;
use crate::model::value::Element;
use crate::model::{Frames, Lookahead, Prefetcher, Sample, VideoInfo};
use crate::stats::NetworkStats;
#[cfg(feature = "video")]
use crate::storage::prefetch::MAX_PREFETCH_BYTES;
use crate::values::record::ColumnValue;

/// The columns that are compared with the metadata when a sample is read: the episode index, the
/// index of the frame within the episode, and, if features have deltas, the time in seconds.
pub(super) const CHECKED_COLUMNS: [&str; 3] = ["episode_index", "frame_index", TIMESTAMP];

struct EpisodeImages {
    /// The episode's part of a video file, or `None` if the images are not frames of a video.
    #[cfg(feature = "video")]
    video: Option<EpisodeVideo>,
}

impl EpisodeImages {
    #[cfg_attr(not(feature = "video"), expect(unused_variables, reason = "only videos need it"))]
    fn open(feature: &Feature, frame: Frame) -> Result<Self> {
        Ok(EpisodeImages {
            #[cfg(feature = "video")]
            video: feature.video.as_ref().map(|video| video.open_episode(frame.episode.index)).transpose()?,
        })
    }
}

pub(super) struct ParquetReader {
    rows: Rows,
    pub(super) features: Vec<Feature>,
    tasks: Arc<BTreeMap<i64, String>>,
    fps: f64,
    tolerance_s: f64,
    /// The column index of each of [`CHECKED_COLUMNS`], or `None` if the column does not exist.
    checked_columns: [Option<usize>; 3],
    /// The smallest and the largest delta of the features that samples contain, if any has deltas.
    delta_range: Option<(i64, i64)>,
}

impl ParquetReader {
    pub(super) fn new(
        rows: Rows,
        features: Vec<Feature>,
        tasks: BTreeMap<i64, String>,
        (fps, tolerance_s): (f64, f64),
    ) -> Result<Self> {
        let checked_columns = CHECKED_COLUMNS.map(|name| rows.column_index(name));
        let reader = ParquetReader {
            rows,
            features: Vec::new(),
            tasks: Arc::new(tasks),
            fps,
            tolerance_s,
            checked_columns,
            delta_range: None,
        };
        reader.with_features(features)
    }

    pub(super) fn with_features(&self, features: Vec<Feature>) -> Result<Self> {
        let read_features = || features.iter().filter(|feature| feature.has_field);
        let deltas = || read_features().filter_map(|feature| feature.deltas.as_ref()).flatten().copied();
        let delta_range = deltas().min().zip(deltas().max());
        let mut columns: Vec<usize> = self.key_columns().chain(read_features().map(|feature| feature.column)).collect();
        columns.extend(self.checked_columns[2].filter(|_| delta_range.is_some()));
        columns.sort_unstable();
        columns.dedup();
        Ok(ParquetReader {
            rows: self.rows.select_columns(columns)?,
            features,
            tasks: self.tasks.clone(),
            fps: self.fps,
            tolerance_s: self.tolerance_s,
            checked_columns: self.checked_columns,
            delta_range,
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        #[cfg(feature = "video")]
        for video in self.features.iter().filter_map(|feature| feature.video.as_ref()) {
            video.check()?;
        }
        self.rows.check()
    }

    pub(super) fn fps(&self) -> f64 {
        self.fps
    }

    pub(super) fn field_names(&self) -> Vec<String> {
        field_names(&self.features)
    }

    /// Returns the needed columns, each with the needed frames relative to the sample's frame.
    fn needed_columns(&self) -> Vec<(usize, Vec<i64>)> {
        let read_features = self.features.iter().filter(|feature| feature.has_field);
        let feature_columns =
            read_features.map(|feature| (feature.column, feature.deltas.clone().unwrap_or_else(|| vec![0])));
        let time_columns = self.checked_columns[2]
            .zip(self.delta_range)
            .map(|(column, (min_delta, max_delta))| (column, vec![min_delta, max_delta]));
        feature_columns.chain(self.key_columns().map(|column| (column, vec![0]))).chain(time_columns).collect()
    }

    /// Returns the columns of the episode index and of the frame index.
    fn key_columns(&self) -> impl Iterator<Item = usize> {
        self.checked_columns.into_iter().take(2).flatten()
    }

    pub(super) fn prefetcher(&self, frames: &Arc<FrameIndex>, order: &Lookahead) -> Option<Box<dyn Prefetcher>> {
        let needed_rows = NeededRows::new(frames.clone(), &self.rows, self.needed_columns());
        let needed_rows = Arc::new(needed_rows) as Arc<dyn SampleRows>;
        #[cfg(feature = "video")]
        {
            let samples = 0..frames.len() as u64;
            let video_budget =
                order.budget_bytes() as u128 * self.video_bytes() as u128 / self.prefetch_bytes().max(1) as u128;
            let video_budget = video_budget as usize;
            let rows = self
                .rows
                .prefetcher(&order.restricted(order.budget_bytes() - video_budget, samples.clone()), &needed_rows);
            let deltas = |feature: &Feature| feature.deltas.clone().unwrap_or_else(|| vec![0]);
            let videos = self.read_videos().map(|(feature, video)| (video.clone(), deltas(feature))).collect();
            let videos =
                NeededFrames::prefetcher(frames.clone(), self.fps, videos, &order.restricted(video_budget, samples));
            Some(Box::new(Prefetchers([Some(rows), videos].into_iter().flatten().collect())))
        }
        #[cfg(not(feature = "video"))]
        Some(self.rows.prefetcher(order, &needed_rows))
    }

    #[cfg(feature = "video")]
    fn read_videos(&self) -> impl Iterator<Item = (&Feature, &Arc<Video>)> {
        let read_features = self.features.iter().filter(|feature| feature.has_field);
        read_features.filter_map(|feature| Some((feature, feature.video.as_ref()?)))
    }

    #[cfg(feature = "video")]
    fn video_bytes(&self) -> usize {
        self.read_videos()
            .fold(0, |all: usize, (_, video)| all.saturating_add(video.prefetch_bytes()))
            .min(MAX_PREFETCH_BYTES)
    }

    pub(super) fn prefetch_bytes(&self) -> usize {
        let bytes = self.rows.prefetch_bytes();
        #[cfg(feature = "video")]
        let bytes = bytes.saturating_add(self.video_bytes());
        bytes
    }

    pub(super) fn video_info(&self) -> Option<VideoInfo> {
        #[cfg(feature = "video")]
        return self.read_videos().filter_map(|(_, video)| video.info()).reduce(VideoInfo::join);
        #[cfg(not(feature = "video"))]
        None
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.rows.is_unchanged()
    }

    pub(super) fn network_stats(&self) -> Option<NetworkStats> {
        let row_stats = self.rows.network_stats();
        #[cfg(feature = "video")]
        if let Some(videos) = self.read_videos().find_map(|(_, video)| video.network_stats()) {
            return Some(row_stats.map_or(videos.clone(), |row_stats| row_stats.plus(&videos)));
        }
        row_stats
    }

    pub(super) fn path(&self, row: usize) -> Option<PathBuf> {
        Some(self.rows.path(row).to_owned())
    }

    /// Reads the sample of `frame`, and compares its values with `meta/info.json` and with the
    /// metadata of the episode.
    pub(super) fn read<'a>(&'a self, frame: Frame, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.rows.check_once(frame.row())?;
        let mut builder = SampleBuilder::new(frame, &self.features, scratch);
        self.check_row(frame, scratch)?;
        for feature in &self.features {
            if feature.has_field {
                let content = self.content(feature, frame, scratch)?;
                builder.push(&feature.field, content)?;
            }
            builder.push_pad_field(feature, frame, scratch)?;
        }
        builder.build(scratch)
    }

    /// Reads the content of the feature's field. If the feature has deltas, stacks the values of
    /// several frames.
    fn content<'a>(&'a self, feature: &Feature, frame: Frame, scratch: &mut Vec<u8>) -> Result<Content<'a>> {
        let start = scratch.len();
        let (column, row) = (feature.column, frame.row());
        match &feature.kind {
            Kind::Task => {
                let index = self.rows.read_integer(row, column, scratch)?;
                let task = self.tasks.get(&index).ok_or_else(|| {
                    self.rows.error(row, column, format_args!("holds {index}, which is not among the tasks in meta"))
                })?;
                Ok(Content::Task(task))
            }
            Kind::Text => match self.rows.append_value(row, column, scratch)? {
                ColumnValue::Text(_) => Ok(Content::Text(start..scratch.len())),
                other => Err(self.rows.error(row, column, format_args!("holds {}: expected text", other.kind()))),
            },
            Kind::Image | Kind::Video => {
                let mut images = EpisodeImages::open(feature, frame)?;
                let Some(deltas) = &feature.deltas else {
                    self.append_image(feature, &mut images, row, scratch)?;
                    return Ok(Content::Bytes(start..scratch.len()));
                };
                let mut ends = Vec::with_capacity(deltas.len());
                for &delta in deltas {
                    self.append_image(feature, &mut images, frame.row_at(delta).0, scratch)?;
                    ends.push(scratch.len());
                }
                let starts = std::iter::once(start).chain(ends.iter().copied());
                let images: Vec<&[u8]> = starts.zip(&ends).map(|(start, &end)| &scratch[start..end]).collect();
                let encoded = Frames::encode(&images);
                scratch.truncate(start);
                append(scratch, &encoded)?;
                Ok(Content::Bytes(start..scratch.len()))
            }
            Kind::Numbers { shape, element } => {
                let mut row_element = None;
                for &delta in feature.deltas.as_deref().unwrap_or(&[0]) {
                    let row = frame.row_at(delta).0;
                    let element = self.append_numbers(row, column, (shape, *element), scratch)?;
                    if *row_element.get_or_insert(element) != element {
                        return Err(self.rows.error(
                            row,
                            column,
                            "has different types of numbers in the stacked frames",
                        ));
                    }
                }
                let frames = feature.deltas.iter().map(Vec::len);
                let shape = frames.chain(shape.iter().copied()).collect();
                Ok(Content::Numbers { element: row_element.unwrap_or(*element), shape, data: start..scratch.len() })
            }
        }
    }

    /// Appends the image in `row`. `images` must belong to the episode of this row.
    fn append_image(
        &self,
        feature: &Feature,
        #[cfg_attr(not(feature = "video"), expect(unused_variables, reason = "only videos need it"))]
        images: &mut EpisodeImages,
        row: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        #[cfg(feature = "video")]
        if let Some(video) = &mut images.video {
            let seconds = self.seconds(row, feature.column, scratch)?;
            return video.append_record(seconds, self.tolerance_s, scratch);
        }
        self.append_stored_image(row, feature.column, scratch)
    }

    fn append_stored_image(&self, row: usize, column: usize, scratch: &mut Vec<u8>) -> Result<()> {
        let start = scratch.len();
        let cause = match self.rows.append_value(row, column, scratch)? {
            ColumnValue::Bytes(_) if format::detect(&scratch[start..]).is_some() => return Ok(()),
            ColumnValue::Bytes(_) => "holds bytes that are not an image in a known format".to_owned(),
            ColumnValue::Path(_) => {
                let path = String::from_utf8_lossy(&scratch[start..]);
                format!("holds the path {path:?} instead of an image: store the images in the data files")
            }
            other => format!("holds {}: expected an image", other.kind()),
        };
        Err(self.rows.error(row, column, cause))
    }

    fn append_numbers(
        &self,
        row: usize,
        column: usize,
        (shape, json_element): (&[usize], Element),
        scratch: &mut Vec<u8>,
    ) -> Result<Element> {
        let (start, expected) = (scratch.len(), shape.iter().product::<usize>());
        let content = self.rows.append_value(row, column, scratch)?;
        let shape_error = |what: String| {
            Err(self.rows.error(
                row,
                column,
                format_args!("{what}: expected the shape {shape:?}, as in meta/info.json"),
            ))
        };
        match content {
            ColumnValue::Numbers { element, shape: row_shape, .. } => match row_shape.iter().product::<usize>() {
                count if count == expected => Ok(element),
                count => shape_error(format!("holds {count} numbers")),
            },
            ColumnValue::Json(_) => {
                let text = scratch.split_off(start);
                match serde_json::from_slice(&text).is_ok_and(|value| flatten(&value, shape, json_element, scratch)) {
                    true => Ok(json_element),
                    false => shape_error("holds lists of a different shape, or values of a different type".to_owned()),
                }
            }
            other => shape_error(format!("holds {}", other.kind())),
        }
    }

    /// Checks that the row contains the expected episode and frame, and that the time between the
    /// first and the last frame of the sample matches `fps`. Skips checks for which the data files
    /// lack the column.
    fn check_row(&self, frame: Frame, scratch: &mut Vec<u8>) -> Result<()> {
        let row = frame.row();
        let expected = [
            (self.checked_columns[0], frame.episode.index as i64),
            (self.checked_columns[1], frame.frame_index as i64),
        ];
        for (column, expected) in expected {
            let Some(column) = column else { continue };
            let actual = self.rows.read_integer(row, column, scratch)?;
            if actual != expected {
                let cause = format!("holds {actual} in the row of {}, but the metadata lists {expected}", key(frame));
                return Err(self.rows.error(row, column, cause));
            }
        }
        let (Some(column), Some((min_delta, max_delta))) = (self.checked_columns[2], self.delta_range) else {
            return Ok(());
        };
        let rows = [frame.row_at(min_delta).0, frame.row_at(max_delta).0];
        let mut seconds = [0.0; 2];
        for (seconds, row) in seconds.iter_mut().zip(rows) {
            *seconds = self.seconds(row, column, scratch)?;
        }
        match time_error(frame, rows, seconds, (self.fps, self.tolerance_s)) {
            Some(cause) => Err(self.rows.error(row, column, cause)),
            None => Ok(()),
        }
    }

    fn seconds(&self, row: usize, column: usize, scratch: &mut Vec<u8>) -> Result<f64> {
        read_seconds(&self.rows, row, column, scratch)
    }
}

/// Appends the numbers in nested lists as elements of type `element`. Returns whether all lists
/// have the lengths in `shape` and all values can be converted to this type.
fn flatten(value: &serde_json::Value, shape: &[usize], element: Element, out: &mut Vec<u8>) -> bool {
    let Some((&len, inner_shape)) = shape.split_first() else { return number(value, element, out) };
    let items = value.as_array().filter(|items| items.len() == len);
    items.is_some_and(|items| items.iter().all(|item| flatten(item, inner_shape, element, out)))
}

fn number(value: &serde_json::Value, element: Element, out: &mut Vec<u8>) -> bool {
    fn append_number<const N: usize>(bytes: Option<[u8; N]>, out: &mut Vec<u8>) -> bool {
        bytes.is_some_and(|bytes| append(out, &bytes).is_ok())
    }
    let truth = value.as_bool().map(i64::from);
    let signed = || value.as_i64().or(truth);
    let unsigned = || value.as_u64().or(truth.map(|truth| truth as u64));
    match element {
        Element::F32 => append_number(value.as_f64().map(|number| (number as f32).to_ne_bytes()), out),
        Element::F64 => append_number(value.as_f64().map(f64::to_ne_bytes), out),
        Element::U8 => append_number(unsigned().and_then(|n| u8::try_from(n).ok()).map(u8::to_ne_bytes), out),
        Element::U16 => append_number(unsigned().and_then(|n| u16::try_from(n).ok()).map(u16::to_ne_bytes), out),
        Element::U32 => append_number(unsigned().and_then(|n| u32::try_from(n).ok()).map(u32::to_ne_bytes), out),
        Element::U64 => append_number(unsigned().map(u64::to_ne_bytes), out),
        Element::I8 => append_number(signed().and_then(|n| i8::try_from(n).ok()).map(i8::to_ne_bytes), out),
        Element::I16 => append_number(signed().and_then(|n| i16::try_from(n).ok()).map(i16::to_ne_bytes), out),
        Element::I32 => append_number(signed().and_then(|n| i32::try_from(n).ok()).map(i32::to_ne_bytes), out),
        Element::I64 => append_number(signed().map(i64::to_ne_bytes), out),
    }
}
