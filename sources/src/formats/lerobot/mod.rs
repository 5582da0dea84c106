//! Reads LeRobot datasets, which contain recorded robot episodes, in versions 2.0, 2.1 and 3.0.
//!
//! <https://huggingface.co/docs/lerobot/lerobot-dataset-v3> describes the format.

#[cfg(feature = "parquet")]
mod choice;
#[cfg(feature = "parquet")]
mod content;
mod data_format;
#[cfg(feature = "parquet")]
mod dataset_folder;
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
mod split_frames;
#[cfg(feature = "parquet")]
mod stats;
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
