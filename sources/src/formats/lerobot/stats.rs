//! Reads the statistics of each feature, for normalization.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dataset_folder::DatasetFolder;
use crate::error::{Error, Result};

/// Path of the statistics of the whole dataset, in versions 2.0 and 3.0.
pub(super) const DATASET_STATS: &str = "meta/stats.json";
/// Path of the statistics of each episode, in version 2.1.
pub(super) const EPISODE_STATS: &str = "meta/episodes_stats.jsonl";

/// The statistics of a feature, with one number per component, or per channel of an image. Image
/// values range from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeatureStats {
    /// Minimum.
    pub min: Vec<f64>,
    /// Maximum.
    pub max: Vec<f64>,
    /// Mean.
    pub mean: Vec<f64>,
    /// Standard deviation.
    pub std: Vec<f64>,
    /// Number of frames that the statistics were computed from, or `None` if the dataset does not
    /// store the number, as in version 2.0.
    pub count: Option<u64>,
}

pub(super) type Stats = BTreeMap<String, FeatureStats>;

/// If the dataset has statistics for each episode, as in version 2.1, combines the statistics of
/// the episodes for which `is_selected` returns true. If not, the statistics describe the whole
/// dataset.
pub(super) fn read(root: &DatasetFolder, is_selected: impl Fn(u64) -> bool) -> Result<Stats> {
    type Raw = BTreeMap<String, BTreeMap<String, Value>>;
    #[derive(Deserialize)]
    struct Line {
        episode_index: u64,
        stats: Raw,
    }
    let mut combined = BTreeMap::<String, StatsCombiner>::new();
    let by_episode = root.for_each_line_if_exists(EPISODE_STATS, |line: Line| {
        if is_selected(line.episode_index) {
            for (name, stats) in parse_stats(&line.stats)? {
                match combined.get_mut(&name) {
                    Some(combined) => combined.add(&name, stats)?,
                    None => _ = combined.insert(name.clone(), StatsCombiner::new(&name, stats)?),
                }
            }
        }
        Ok(())
    })?;
    match by_episode {
        true => Ok(combined.into_iter().map(|(name, combined)| (name, combined.finish())).collect()),
        false => {
            parse_stats(&root.read_json::<Raw>(DATASET_STATS)?).map_err(|e| e.at_path(root.path_of(DATASET_STATS)))
        }
    }
}

fn parse_stats(raw: &BTreeMap<String, BTreeMap<String, Value>>) -> Result<Stats> {
    let mut stats_by_name = Stats::new();
    for (name, stats) in raw {
        let numbers = |key: &str| {
            let mut numbers = Vec::new();
            match stats.get(key).map(|value| flatten(value, &mut numbers)) {
                Some(true) => Ok(numbers),
                _ => Err(Error::in_source(format!("feature {name:?}: {key:?} is missing or does not contain numbers"))),
            }
        };
        let (min, max, mean, std) = (numbers("min")?, numbers("max")?, numbers("mean")?, numbers("std")?);
        if [min.len(), max.len(), std.len()].iter().any(|&len| len != mean.len()) {
            return Err(Error::in_source(format!("feature {name:?}: min, max, mean and std have different lengths")));
        }
        let count =
            if stats.contains_key("count") { numbers("count")?.first().map(|&count| count as u64) } else { None };
        stats_by_name.insert(name.clone(), FeatureStats { min, max, mean, std, count });
    }
    Ok(stats_by_name)
}

/// Appends the numbers in nested lists to `out`. Booleans become 0 and 1. Returns whether the lists
/// contain nothing else.
fn flatten(value: &Value, out: &mut Vec<f64>) -> bool {
    match value {
        Value::Array(items) => items.iter().all(|item| flatten(item, out)),
        Value::Bool(flag) => {
            out.push(f64::from(u8::from(*flag)));
            true
        }
        Value::Number(number) => {
            out.extend(number.as_f64());
            true
        }
        _ => false,
    }
}

struct StatsCombiner {
    stats: Vec<FeatureStats>,
}

impl StatsCombiner {
    fn new(name: &str, stats: FeatureStats) -> Result<Self> {
        let mut combined = StatsCombiner { stats: Vec::new() };
        combined.add(name, stats)?;
        Ok(combined)
    }

    fn add(&mut self, name: &str, stats: FeatureStats) -> Result<()> {
        if stats.count.is_none_or(|count| count == 0) {
            return Err(Error::in_source(format!("feature {name:?}: expected a positive \"count\"")));
        }
        if self.stats.first().is_some_and(|first| first.mean.len() != stats.mean.len()) {
            return Err(Error::in_source(format!("feature {name:?}: the statistics of the episodes differ in length")));
        }
        self.stats.push(stats);
        Ok(())
    }

    /// Combines the means and the variances, weighted by the number of frames.
    fn finish(self) -> FeatureStats {
        let len = self.stats[0].mean.len();
        let weight = |stats: &FeatureStats| stats.count.unwrap_or(0) as f64;
        let total: f64 = self.stats.iter().map(weight).sum();
        let per_component = |value_of: &dyn Fn(usize) -> f64| (0..len).map(value_of).collect::<Vec<_>>();
        let weighted_mean = |value_of: &dyn Fn(&FeatureStats) -> f64| {
            self.stats.iter().map(|stats| value_of(stats) * weight(stats)).sum::<f64>() / total
        };
        let mean = per_component(&|index| weighted_mean(&|stats| stats.mean[index]));
        let variance =
            |index: usize| weighted_mean(&|stats| stats.std[index].powi(2) + (stats.mean[index] - mean[index]).powi(2));
        FeatureStats {
            min: per_component(&|index| self.stats.iter().map(|stats| stats.min[index]).fold(f64::INFINITY, f64::min)),
            max: per_component(&|index| {
                self.stats.iter().map(|stats| stats.max[index]).fold(f64::NEG_INFINITY, f64::max)
            }),
            std: per_component(&|index| variance(index).sqrt()),
            count: Some(total as u64),
            mean,
        }
    }
}
