//! Generates episodes of a toy reaching task in LeRobot format, version 2.1, with images in Parquet
//! files.
//!
//! A hand, drawn as a dark disk, moves over a table with a red and a blue disk. The task names the
//! disk that the hand must reach, and the action of a frame is a step toward this disk. A policy
//! can therefore be learned from the image, the state and the task.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Value, json};

use super::write_atomically;
use warpfeed::sampler::Rng;
use warpfeed::{Error, ErrorKind, Result};

const CAMERA: &str = "observation.images.top";
const TASKS: [&str; 2] = ["reach the red disk", "reach the blue disk"];
/// Radius of the disks and of the hand, relative to the image's side.
const RADIUS: f64 = 0.08;
const FPS: usize = 10;

/// A generator of episodes of a reaching task: a hand, drawn as a dark disk, moves to a red or a
/// blue disk.
///
/// ```
/// use warpfeed_synth::Robot;
///
/// let folder = tempfile::tempdir()?;
/// Robot::new().episodes(2).side(32).write(folder.path().join("arm"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing is generated until `write` is called"]
pub struct Robot {
    episodes: usize,
    frames: usize,
    side: u32,
    seed: u64,
}

impl Default for Robot {
    fn default() -> Self {
        Self::new()
    }
}

/// A frame of an episode. Coordinates are relative to the image's side.
struct Frame {
    png: Vec<u8>,
    hand: [f32; 2],
    step: [f32; 2],
}

impl Robot {
    /// Returns a generator of 100 episodes of 20 frames, with 64x64 images and seed 0.
    pub fn new() -> Self {
        Robot { episodes: 100, frames: 20, side: 64, seed: 0 }
    }

    /// Sets the number of episodes. Odd and even episodes have different tasks.
    pub fn episodes(mut self, episodes: usize) -> Self {
        self.episodes = episodes;
        self
    }

    /// Sets the number of frames in each episode.
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }

    /// Sets the side of the images in pixels.
    pub fn side(mut self, side: u32) -> Self {
        self.side = side;
        self
    }

    /// Sets the seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Writes the dataset to the folder `dir`, which must be empty or not exist. The features are
    /// `observation.images.top`, `observation.state` (the position of the hand), `action` (the
    /// hand's next step), and the features that every LeRobot dataset has.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are no episodes or frames, if an image would be empty, or if
    /// `dir` exists and is not empty. [`ErrorKind::Io`] if `dir` cannot be written.
    pub fn write(&self, dir: impl AsRef<Path>) -> Result<()> {
        if self.episodes == 0 || self.frames == 0 || self.side == 0 {
            return Err(Error::new(ErrorKind::Config, format!("{self:?}: episodes, frames and side must be positive")));
        }
        write_atomically(dir.as_ref(), |partial_dir| {
            let data = partial_dir.join("data/chunk-000");
            for folder in [&data, &partial_dir.join("meta")] {
                fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
            }
            let (mut episodes, mut stats) = (String::new(), String::new());
            for episode in 0..self.episodes {
                let frames = self.episode(episode)?;
                self.write_table(episode, &frames, &data.join(format!("episode_{episode:06}.parquet")))?;
                let line = json!({"episode_index": episode, "tasks": [TASKS[episode % 2]], "length": self.frames});
                episodes += &format!("{line}\n");
                let stats_of =
                    |values: fn(&Frame) -> [f32; 2]| feature_stats(&frames.iter().map(values).collect::<Vec<_>>());
                let frame_stats =
                    json!({"observation.state": stats_of(|frame| frame.hand), "action": stats_of(|frame| frame.step)});
                stats += &format!("{}\n", json!({"episode_index": episode, "stats": frame_stats}));
            }
            let tasks =
                TASKS.iter().enumerate().map(|(i, task)| format!("{}\n", json!({"task_index": i, "task": task})));
            for (name, contents) in [
                ("info.json", self.info().to_string()),
                ("episodes.jsonl", episodes),
                ("episodes_stats.jsonl", stats),
                ("tasks.jsonl", tasks.collect()),
            ] {
                let path = partial_dir.join("meta").join(name);
                fs::write(&path, contents).map_err(|e| Error::io(&path, &e))?;
            }
            Ok(())
        })
    }

    fn info(&self) -> Value {
        let feature = |dtype: &str, shape: &[u32]| json!({"dtype": dtype, "shape": shape, "names": null});
        let mut features = BTreeMap::from([
            (
                CAMERA,
                json!({"dtype": "image", "shape": [self.side, self.side, 3], "names": ["height", "width", "channels"]}),
            ),
            ("observation.state", feature("float32", &[2])),
            ("action", feature("float32", &[2])),
            ("timestamp", feature("float32", &[1])),
        ]);
        for name in ["frame_index", "episode_index", "index", "task_index"] {
            features.insert(name, feature("int64", &[1]));
        }
        json!({
            "codebase_version": "v2.1", "robot_type": "drawn", "fps": FPS, "features": features,
            "total_episodes": self.episodes, "total_frames": self.episodes * self.frames, "total_tasks": TASKS.len(),
            "total_videos": 0, "total_chunks": 1, "chunks_size": self.episodes.max(1000),
            "splits": {"train": format!("0:{}", self.episodes)}, "video_path": null,
            "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        })
    }

    fn episode(&self, episode: usize) -> Result<Vec<Frame>> {
        let mut rng = Rng::new(self.seed, 0, episode as u64);
        let mut random_point = || [(); 2].map(|()| 0.15 + 0.7 * (rng.below(1 << 20) as f64 / f64::from(1 << 20)));
        let (disks, mut hand) = ([random_point(), random_point()], random_point());
        let target = disks[episode % 2];
        let mut frames = Vec::new();
        for _ in 0..self.frames {
            let step = [0, 1].map(|axis| 0.2 * (target[axis] - hand[axis]));
            let png = self.png(disks, hand)?;
            frames.push(Frame { png, hand: hand.map(|x| x as f32), step: step.map(|x| x as f32) });
            hand = [0, 1].map(|axis| hand[axis] + step[axis]);
        }
        Ok(frames)
    }

    fn png(&self, [red, blue]: [[f64; 2]; 2], hand: [f64; 2]) -> Result<Vec<u8>> {
        let side = self.side as usize;
        let mut pixels = vec![200_u8; side * side * 3];
        for ([x, y], color) in [(red, [220, 40, 40]), (blue, [40, 60, 220]), (hand, [20, 20, 20])] {
            for (index, pixel) in pixels.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                let center = |position: usize| (position as f64 + 0.5) / side as f64;
                let (dx, dy) = (center(index % side) - x, center(index / side) - y);
                if dx * dx + dy * dy <= RADIUS * RADIUS {
                    *pixel = color;
                }
            }
        }
        let encode_error = |e: png::EncodingError| Error::new(ErrorKind::Io, format!("png: {e}"));
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.side, self.side);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(encode_error)?;
        writer.write_image_data(&pixels).map_err(encode_error)?;
        writer.finish().map_err(encode_error)?;
        Ok(bytes)
    }

    /// Writes the columns in the order of [`schema`].
    fn write_table(&self, episode: usize, frames: &[Frame], path: &Path) -> Result<()> {
        let file = fs::File::create(path).map_err(|e| Error::io(path, &e))?;
        let write = || -> parquet::errors::Result<()> {
            let properties = Arc::new(WriterProperties::builder().build());
            let mut writer = SerializedFileWriter::new(file, schema()?, properties)?;
            let mut row_group = writer.next_row_group()?;
            let mut column = 0;
            while let Some(mut column_writer) = row_group.next_column()? {
                let count = frames.len();
                let index = |frame: usize| (episode * count + frame) as i64;
                match column_writer.untyped() {
                    ColumnWriter::ByteArrayColumnWriter(column_writer) if column == 0 => {
                        let images: Vec<ByteArray> = frames.iter().map(|frame| frame.png.clone().into()).collect();
                        column_writer.write_batch(&images, Some(&vec![2; count]), None)?;
                    }
                    // The `path` of each image is null.
                    ColumnWriter::ByteArrayColumnWriter(column_writer) => {
                        _ = column_writer.write_batch(&[], Some(&vec![1; count]), None)?
                    }
                    ColumnWriter::FloatColumnWriter(column_writer) if column == 4 => {
                        let times: Vec<f32> = (0..count).map(|frame| frame as f32 / FPS as f32).collect();
                        column_writer.write_batch(&times, Some(&vec![1; count]), None)?;
                    }
                    ColumnWriter::FloatColumnWriter(column_writer) => {
                        let feature_values = |frame: &Frame| if column == 2 { frame.hand } else { frame.step };
                        let values: Vec<f32> = frames.iter().flat_map(feature_values).collect();
                        let repetition_levels: Vec<i16> = (0..2 * count).map(|value| (value % 2) as i16).collect();
                        column_writer.write_batch(&values, Some(&vec![3; 2 * count]), Some(&repetition_levels))?;
                    }
                    ColumnWriter::Int64ColumnWriter(column_writer) => {
                        let value = |frame: usize| match column {
                            5 => frame as i64,
                            6 => episode as i64,
                            7 => index(frame),
                            _ => (episode % TASKS.len()) as i64,
                        };
                        let values: Vec<i64> = (0..count).map(value).collect();
                        column_writer.write_batch(&values, Some(&vec![1; count]), None)?;
                    }
                    _ => unreachable!("the schema has no other types"),
                }
                column_writer.close()?;
                column += 1;
            }
            row_group.close()?;
            writer.close()?;
            Ok(())
        };
        write().map_err(|e| Error::new(ErrorKind::Io, format!("parquet: {e}")).at_path(path))
    }
}

/// The schema that Hugging Face's `datasets` library writes for the features of this dataset.
fn schema() -> parquet::errors::Result<TypePtr> {
    let leaf = |name: &str, physical: Physical| {
        Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let group = |name: &str, repetition: Repetition, fields: Vec<TypePtr>, converted: ConvertedType| {
        let builder = Type::group_type_builder(name).with_repetition(repetition).with_fields(fields);
        builder.with_converted_type(converted).build().map(Arc::new)
    };
    let optional = Repetition::OPTIONAL;
    let list = |name: &str| {
        let element = leaf("element", Physical::FLOAT)?;
        let list = group("list", Repetition::REPEATED, vec![element], ConvertedType::NONE)?;
        group(name, optional, vec![list], ConvertedType::LIST)
    };
    let path = Type::primitive_type_builder("path", Physical::BYTE_ARRAY).with_repetition(optional);
    let path = path.with_converted_type(ConvertedType::UTF8).build()?;
    let image = vec![leaf("bytes", Physical::BYTE_ARRAY)?, Arc::new(path)];
    let mut fields = vec![group(CAMERA, optional, image, ConvertedType::NONE)?];
    fields.extend([list("observation.state")?, list("action")?, leaf("timestamp", Physical::FLOAT)?]);
    for name in ["frame_index", "episode_index", "index", "task_index"] {
        fields.push(leaf(name, Physical::INT64)?);
    }
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

fn feature_stats(values: &[[f32; 2]]) -> Value {
    let count = values.len() as f64;
    let axis_stats = |axis: usize| {
        let axis_values = || values.iter().map(|pair| f64::from(pair[axis]));
        let mean = axis_values().sum::<f64>() / count;
        let variance = axis_values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (
            axis_values().fold(f64::INFINITY, f64::min),
            axis_values().fold(f64::NEG_INFINITY, f64::max),
            mean,
            variance.sqrt(),
        )
    };
    let (x, y) = (axis_stats(0), axis_stats(1));
    json!({"min": [x.0, y.0], "max": [x.1, y.1], "mean": [x.2, y.2], "std": [x.3, y.3], "count": [values.len()]})
}
