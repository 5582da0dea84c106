//! [`Overview`] describes the progress of all parts.

use std::collections::{BTreeMap, BTreeSet};

use super::destination::{self as dest, Destination, TemporaryFiles};
use super::merge::{Merge, missing_ranges, read_parts};
use super::names::parse_shard_number;
use super::open::open_destination;
use super::plan::{Plan, ShardLimit};
use crate::error::{Error, Result};

/// The progress of all parts of a dataset, returned by [`Merge::progress`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Number of samples in the complete shards of all parts.
    pub samples: u64,
    /// Number of samples in the whole dataset.
    pub total: u64,
    /// Number of parts. `None` if the dataset has already been merged, or if the number is unknown
    /// because no shard (in a folder) or no part (in a store) is complete.
    pub parts: Option<u64>,
    /// Indices of the incomplete parts, in the syntax of SLURM arrays, such as `1,3-9,17`.
    pub missing: String,
    /// Whether the dataset has been merged.
    pub merged: bool,
}

impl Merge {
    /// Returns the progress of all parts, even while parts are being packed. The method lists the
    /// files of the dataset, and reads manifests and journals.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if neither parts nor a dataset with this
    /// name exist. If a file cannot be read, the error names the file.
    pub fn progress(&self) -> Result<Overview> {
        let destination = open_destination(&self.target, &self.stores)?;
        let destination = &*destination;
        // A merge writes the manifest before it removes the plan, so read the plan first.
        let suffixes = destination.suffixes()?;
        let plan = dest::read_plan(destination)?;
        if let Some(manifest) = dest::read_manifest(destination)?
            && plan.as_ref().is_none_or(|plan| *plan == manifest.plan)
        {
            return Ok(Overview {
                samples: manifest.samples,
                total: manifest.samples,
                merged: true,
                ..Overview::default()
            });
        }
        let plan = match plan {
            Some(plan) => plan,
            None => match read_parts(destination, &suffixes)?.into_iter().next() {
                Some((_, part)) => part.plan,
                None => {
                    return Err(
                        Error::config("there are neither parts nor a dataset with this name").at_path(&self.target)
                    );
                }
            },
        };
        let samples = count_packed_samples(destination, &plan, &suffixes)?;
        let (parts, missing) = find_division(&plan.id(), &suffixes);
        Ok(Overview { samples, total: plan.samples, parts, missing, merged: false })
    }
}

fn count_packed_samples(destination: &dyn Destination, plan: &Plan, suffixes: &[String]) -> Result<u64> {
    let plan_id = plan.id();
    let ShardLimit::Samples(samples_per_shard) = plan.cut else {
        // The pack is not divided into parts.
        let shards = match dest::read_part(destination, (0, 1), &plan_id)? {
            Some(part) => part.shards,
            None => destination.recorded_shards((0, 1), 0..u64::MAX, &plan_id)?,
        };
        return Ok(shards.iter().map(|entry| entry.samples).sum());
    };
    let staged = TemporaryFiles::from_suffixes(suffixes).staged_shards;
    let own_suffixes = staged.iter().filter(|suffix| dest::plan_id(suffix) == Some(&plan_id));
    let mut shards: BTreeSet<u64> =
        own_suffixes.filter_map(|suffix| parse_shard_number(suffix.split_once(".tar.")?.0)).collect();
    // A merge that is running or was interrupted has renamed some shards.
    if dest::is_renaming(destination, plan)? {
        shards.extend(dest::existing_shards(suffixes));
    }
    Ok(shards
        .iter()
        .map(|shard| samples_per_shard.min(plan.samples.saturating_sub(shard.saturating_mul(samples_per_shard))))
        .sum())
}

/// Returns the number of parts, and the indices of the incomplete parts.
fn find_division(plan_id: &str, suffixes: &[String]) -> (Option<u64>, String) {
    let TemporaryFiles { part_manifests, journals, .. } = TemporaryFiles::from_suffixes(suffixes);
    let mut divisions = BTreeMap::<u64, BTreeSet<u64>>::new();
    for suffix in journals.iter().chain(&part_manifests).filter(|suffix| dest::plan_id(suffix) == Some(plan_id)) {
        let Some((part, part_count)) = dest::part_numbers(suffix) else { continue };
        let complete_parts = divisions.entry(part_count).or_default();
        if suffix.ends_with(".json") {
            complete_parts.insert(part);
        }
    }
    // If several divisions exist, prefer a complete one, as a merge does.
    let completeness = |(part_count, complete_parts): &(&u64, &BTreeSet<u64>)| {
        (complete_parts.len() as u64 == **part_count, complete_parts.len())
    };
    match divisions.iter().max_by_key(completeness) {
        Some((&part_count, complete_parts)) => {
            (Some(part_count), missing_ranges(complete_parts.iter().copied(), part_count))
        }
        None => (None, String::new()),
    }
}
