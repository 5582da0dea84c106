//! The features that the options select, and the frames that each feature needs.

use std::collections::BTreeSet;
#[cfg(feature = "video")]
use std::sync::Arc;

use super::dataset_folder::DatasetFolder;
use super::episodes::Episode;
use super::info::{FeatureInfo, Info};
use super::options::{Deltas, LeRobotOptions};
#[cfg(feature = "video")]
use super::video::Video;
use crate::error::{Error, Result};
use crate::formats::parquet::Rows;
use crate::model::value::{Element, MAX_NUMBERS_AXES};

/// Name of the feature with the text of a frame's task. The data files only contain the task's
/// index, in the column [`TASK_INDEX`].
pub(super) const TASK: &str = "task";
pub(super) const TASK_INDEX: &str = "task_index";
/// Column with the time of a frame since the start of its episode, in seconds.
pub(super) const TIMESTAMP: &str = "timestamp";

/// Maximum number of frames of a feature in one sample.
const MAX_FRAMES: usize = 4096;

/// Maximum number of values of a feature in one frame.
const MAX_VALUES: usize = 1 << 28;

#[derive(Clone)]
pub(super) struct Feature {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) column: usize,
    /// The frames to stack, relative to the sample's frame. `None` stands for the sample's frame
    /// alone.
    pub(super) deltas: Option<Vec<i64>>,
    pub(super) field: String,
    pub(super) pad_field: String,
    pub(super) has_field: bool,
    pub(super) has_pad_field: bool,
    #[cfg(feature = "video")]
    pub(super) video: Option<Arc<Video>>,
}

impl Feature {
    /// Returns the column with the feature's numbers, which are task indices for [`TASK`].
    pub(super) fn number_column(&self) -> &str {
        if self.kind == Kind::Task { TASK_INDEX } else { &self.name }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Image,
    /// A video. Its column in the data files contains the time of the frame.
    Video,
    Text,
    Task,
    /// An array. `shape` is its shape in one frame. `element` is the element type of numbers that
    /// are stored as nested lists. All other numbers have the type of their column.
    Numbers {
        shape: Vec<usize>,
        element: Element,
    },
}

impl Kind {
    /// Returns whether the values become files in packed shards. Other values are stored as
    /// numbers.
    pub(super) fn is_encoded(&self) -> bool {
        matches!(self, Kind::Image | Kind::Video | Kind::Text)
    }

    pub(super) fn is_camera(&self) -> bool {
        self.is_encoded() && *self != Kind::Text
    }

    fn from_info(name: &str, FeatureInfo { dtype, shape }: &FeatureInfo) -> std::result::Result<Self, String> {
        let element = match &**dtype {
            "image" => return Ok(Kind::Image),
            "string" | "str" => return Ok(Kind::Text),
            "video" if cfg!(feature = "video") => return Ok(Kind::Video),
            "video" => {
                return Err(format!(
                    "feature {name:?} is a video, and this build of warpfeed lacks the Cargo feature \"video\" that \
                     reads it: select other features, or build with this Cargo feature"
                ));
            }
            "float16" | "float32" => Element::F32,
            "float64" => Element::F64,
            "bool" | "uint8" => Element::U8,
            "uint16" => Element::U16,
            "uint32" => Element::U32,
            "uint64" => Element::U64,
            "int8" => Element::I8,
            "int16" => Element::I16,
            "int32" => Element::I32,
            "int64" => Element::I64,
            _ => return Err(format!("feature {name:?} has dtype={dtype:?}: expected image, string, bool or numbers")),
        };
        // The `lerobot` library stores an array of shape (1,) as a scalar.
        let shape = if *shape == [1] { Vec::new() } else { shape.clone() };
        let count = shape.iter().try_fold(1, |count: usize, &side| count.checked_mul(side.max(1)));
        if shape.len() > MAX_NUMBERS_AXES || count.is_none_or(|count| count > MAX_VALUES) {
            return Err(format!(
                "feature {name:?} has the shape {shape:?}: expected at most {MAX_NUMBERS_AXES} axes and {MAX_VALUES} \
                 numbers"
            ));
        }
        Ok(Kind::Numbers { shape, element })
    }
}

/// A selected feature, before the data files are opened.
#[derive(Debug)]
pub(super) struct SelectedFeature {
    name: String,
    kind: Kind,
    deltas: Option<Vec<i64>>,
    /// Whether the options name the feature.
    #[cfg_attr(not(feature = "video"), allow(dead_code))]
    is_named: bool,
}

impl SelectedFeature {
    pub(super) fn is_task(&self) -> bool {
        self.kind == Kind::Task
    }

    pub(super) fn column(&self) -> &str {
        match self.kind {
            Kind::Task => TASK_INDEX,
            Kind::Video => TIMESTAMP,
            _ => &self.name,
        }
    }

    #[cfg(feature = "video")]
    fn video(
        &self,
        index: usize,
        (root, info, episodes): (&DatasetFolder, &Info, &[Episode]),
    ) -> Result<Option<Arc<Video>>> {
        match self.kind {
            Kind::Video => Video::open(root, info, (index, &self.name), episodes).map(|video| Some(Arc::new(video))),
            _ => Ok(None),
        }
    }

    /// Finds the feature's column. For a video, also finds its files and opens the first one.
    /// `index` is the index of the feature. Returns `None` for an unreadable video that the options
    /// do not name.
    pub(super) fn bind(
        self,
        rows: &Rows,
        #[cfg_attr(not(feature = "video"), expect(unused_variables, reason = "only videos need it"))]
        (index, dataset): (usize, (&DatasetFolder, &Info, &[Episode])),
    ) -> Result<Option<Feature>> {
        #[cfg(feature = "video")]
        let video = match self.video(index, dataset) {
            Ok(video) => video,
            Err(e) if self.is_named => return Err(e),
            Err(e) => {
                tracing::warn!("skipping feature {:?}: {e}", self.name);
                return Ok(None);
            }
        };
        let name = self.column();
        let column_index = rows.column_index(name).ok_or_else(|| {
            let path = rows.files().next().map(|(path, _)| path.to_owned()).unwrap_or_default();
            Error::in_source(format!("the file has no column {name:?}, but meta/info.json lists this feature"))
                .at_path(path)
        })?;
        let feature = self.into_feature(column_index);
        #[cfg(feature = "video")]
        let feature = Feature { video, ..feature };
        Ok(Some(feature))
    }

    /// `column` is the index of the column in the data files. Its value does not matter for packed
    /// datasets, which have no such files.
    pub(super) fn into_feature(self, column: usize) -> Feature {
        let SelectedFeature { name, kind, deltas, .. } = self;
        let field = match kind {
            // The field of an image has no extension, because the image format is known only when
            // the image is read.
            Kind::Image | Kind::Video => name.clone(),
            Kind::Text | Kind::Task => format!("{name}.txt"),
            Kind::Numbers { .. } => format!("{name}.npy"),
        };
        let has_pad_field = deltas.is_some();
        Feature {
            kind,
            column,
            deltas,
            field,
            pad_field: format!("{name}_is_pad.npy"),
            has_field: true,
            has_pad_field,
            name,
            #[cfg(feature = "video")]
            video: None,
        }
    }
}

pub(super) fn select_features(info: &Info, options: &LeRobotOptions) -> Result<Vec<SelectedFeature>> {
    options.check()?;
    let mut available: Vec<&str> = info.features.keys().map(|name| &**name).collect();
    if info.features.contains_key(TASK_INDEX) && !info.features.contains_key(TASK) {
        available.push(TASK);
    }
    let kind = |name: &str| match info.features.get(name) {
        Some(feature) => Kind::from_info(name, feature),
        None => Ok(Kind::Task),
    };
    let check_available = |option: &str, name: &str| match available.contains(&name) {
        true => Ok(()),
        false => Err(Error::config(format!("{option}: no feature {name:?} among {available:?}"))),
    };
    let mut selected = Vec::new();
    if let Some(names) = &options.features {
        let mut seen = BTreeSet::new();
        for name in names {
            check_available("features", name)?;
            if !seen.insert(name) {
                return Err(Error::config(format!("features: {name:?} is listed twice; remove one")));
            }
            selected.push(SelectedFeature {
                name: name.clone(),
                kind: kind(name).map_err(Error::config)?,
                deltas: None,
                is_named: true,
            });
        }
    } else {
        for name in available.iter().copied() {
            let is_video = info.features.get(name).is_some_and(|feature| feature.dtype == "video");
            match kind(name) {
                Ok(kind) => {
                    selected.push(SelectedFeature { name: name.to_owned(), kind, deltas: None, is_named: false })
                }
                Err(_) if is_video => tracing::info!("skipping feature {name:?}: this build does not read videos"),
                Err(cause) => tracing::warn!("skipping a feature: {cause}"),
            }
        }
    }
    for (name, deltas) in &options.deltas {
        check_available("deltas", name)?;
        let kind = kind(name).map_err(Error::config)?;
        let feature = selected.iter_mut().find(|feature| feature.name == *name);
        let feature = feature
            .ok_or_else(|| Error::config(format!("deltas: feature {name:?} is not selected; add it to features")))?;
        check_stacked(name, &kind)?;
        feature.is_named = true;
        feature.deltas = Some(frame_offsets(name, deltas, info.fps, options.tolerance_s)?);
    }
    if selected.is_empty() {
        return Err(Error::config(format!("features: expected at least one of {available:?}")));
    }
    Ok(selected)
}

fn check_stacked(name: &str, kind: &Kind) -> Result<()> {
    match kind {
        Kind::Text | Kind::Task => {
            Err(Error::config(format!("deltas: feature {name:?} is text, which cannot be stacked")))
        }
        Kind::Numbers { shape, .. } if shape.len() >= MAX_NUMBERS_AXES => Err(Error::config(format!(
            "deltas: feature {name:?} has the shape {shape:?} in each frame: with an axis for the frames, an array has \
             at most {MAX_NUMBERS_AXES} axes"
        ))),
        _ => Ok(()),
    }
}

/// Converts deltas to frame offsets. Each time must coincide with a frame, within `tolerance_s`
/// seconds.
fn frame_offsets(name: &str, deltas: &Deltas, fps: f64, tolerance_s: f64) -> Result<Vec<i64>> {
    let frames = match deltas {
        Deltas::Frames(frames) => frames.clone(),
        Deltas::Seconds(seconds) => {
            let frame = |&delta: &f64| {
                let frame = (delta * fps).round_ties_even();
                if (delta * fps - frame).abs() / fps <= tolerance_s && frame.abs() <= i32::MAX.into() {
                    return Ok(frame as i64);
                }
                Err(Error::config(format!(
                    "delta_timestamps: feature {name:?}: {delta} s is not a multiple of 1/{fps} s, the duration of a \
                     frame at fps={fps}, within tolerance_s={tolerance_s}; the nearest is {} s",
                    frame / fps
                )))
            };
            seconds.iter().map(frame).collect::<Result<_>>()?
        }
    };
    if let Some(far) = frames.iter().find(|frame| frame.unsigned_abs() > i32::MAX as u64) {
        return Err(Error::config(format!(
            "delta_indices: feature {name:?}: {far} frames is too far away: expected at most {}",
            i32::MAX
        )));
    }
    match frames.len() {
        1..=MAX_FRAMES => Ok(frames),
        count => {
            Err(Error::config(format!("deltas: feature {name:?} has {count} deltas: expected from 1 to {MAX_FRAMES}")))
        }
    }
}
