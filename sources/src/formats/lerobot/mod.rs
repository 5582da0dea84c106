//! Reads LeRobot datasets, which contain recorded robot episodes, in versions 2.0, 2.1 and 3.0.
//!
//! 1. `options`: [`LeRobotOptions`], which determine what a sample contains.
//! 2. `info`: `meta/info.json`.
//! 3. `text`: reads the JSON and JSON Lines files in `meta`. Errors name the file.
//! 4. `episodes`: the episodes and the tasks, from JSON Lines in 2.x and from Parquet in 3.0.
//!    `choice`: the episodes that the options select.
//! 5. `stats`: the statistics of each feature.
//! 6. `features`: the features that the options select, and the frames that each feature needs.
//! 7. `frames`: the frames of the selected episodes, as samples and as rows of Parquet files.
//! 8. `video`: the video files of a feature, with the `video` Cargo feature.
//! 9. `content`: builds a sample from the contents of its fields. `read` reads the contents from
//!    Parquet files, and `packed` from packed datasets. `numbers` reads the `.npy` files of packed
//!    datasets.
//! 10. `source`: [`LeRobot`], the source. `divide` splits it for packing.
//!
//! <https://huggingface.co/docs/lerobot/lerobot-dataset-v3> describes the format. `data_format`
//! registers it.

#[cfg(feature = "parquet")]
mod choice;
#[cfg(feature = "parquet")]
mod content;
mod data_format;
#[cfg(feature = "parquet")]
mod divide;
#[cfg(feature = "parquet")]
mod episodes;
#[cfg(feature = "parquet")]
mod features;
#[cfg(feature = "parquet")]
mod frames;
#[cfg(feature = "parquet")]
mod info;
#[cfg(feature = "parquet")]
mod numbers;
#[cfg(feature = "parquet")]
mod options;
#[cfg(feature = "parquet")]
mod packed;
#[cfg(feature = "parquet")]
mod read;
#[cfg(feature = "parquet")]
mod source;
#[cfg(feature = "parquet")]
mod stats;
#[cfg(feature = "parquet")]
mod text;
#[cfg(all(feature = "parquet", feature = "video"))]
mod video;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "parquet")]
pub use options::LeRobotOptions;
#[cfg(feature = "parquet")]
pub use source::LeRobot;
#[cfg(feature = "parquet")]
pub use stats::FeatureStats;

#[cfg(all(test, feature = "parquet"))]
#[path = "../../../tests/fuzz/lerobot.rs"]
mod fuzz;
