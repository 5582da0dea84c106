use std::collections::{BTreeMap, BTreeSet};

use super::destination::{self as dest, Destination, Leftovers};
use super::merge::{Merge, missing, read_parts};
use super::names::number;
use super::place::destination;
use super::plan::{Cut, Plan};
use crate::error::{Error, Result};

/// The progress of all parts of a set, as returned by [`Merge::progress`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Number of samples in the complete shards of all parts.
    pub samples: u64,
    /// Number of samples in the whole set.
    pub total: u64,
    /// Number of parts. `None` if the set has already been merged, or if not enough has been packed
    /// to know it: no complete shard (in a folder) or no complete part (in a store).
    pub parts: Option<u64>,
    /// Numbers of the incomplete parts, in the syntax of SLURM arrays: `1,3-9,17`.
    pub missing: String,
    /// Whether the set has been merged.
    pub merged: bool,
}

impl Merge {
    /// Returns the progress of all parts, even while they are being packed. This lists the files of
    /// the set and reads the small ones.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if no parts and no set with this name exist.
    /// If a file cannot be read, the error names it.
    pub fn progress(&self) -> Result<Overview> {
        let place = destination(&self.target, &self.stores)?;
        let place = &*place;
        // The order matters: a merge writes the set before it removes the plan.
        let ends = place.ends()?;
        let plan = dest::read_plan(place)?;
        if let Some(set) = dest::read_set(place)?
            && plan.as_ref().is_none_or(|plan| *plan == set.plan)
        {
            return Ok(Overview { samples: set.samples, total: set.samples, merged: true, ..Overview::default() });
        }
        let plan = match plan {
            Some(plan) => plan,
            None => match read_parts(place, &ends)?.into_iter().next() {
                Some((_, part)) => part.plan,
                None => return Err(Error::config("no parts and no set of this name").at_path(&self.target)),
            },
        };
        let samples = packed(place, &plan, &ends)?;
        let (parts, missing) = division(&plan.id(), &ends);
        Ok(Overview { samples, total: plan.samples, parts, missing, merged: false })
    }
}

/// Returns the number of samples in the complete shards of `plan`.
fn packed(place: &dyn Destination, plan: &Plan, ends: &[String]) -> Result<u64> {
    let id = plan.id();
    let Cut::Samples(each) = plan.cut else {
        // This is the case for a pack without parts.
        let shards = match dest::read_part(place, (0, 1), &id)? {
            Some(part) => part.shards,
            None => place.noted((0, 1), 0..u64::MAX, &id)?,
        };
        return Ok(shards.iter().map(|entry| entry.samples).sum());
    };
    let staged = Leftovers::of(ends).staged;
    let mine = staged.iter().filter(|end| dest::id(end) == Some(&id));
    let mut shards: BTreeSet<u64> = mine.filter_map(|end| number(end.split_once(".tar.")?.0)).collect();
    // An interrupted or running merge has renamed some shards.
    if dest::is_renaming(place, plan)? {
        shards.extend(dest::existing(ends));
    }
    Ok(shards.iter().map(|shard| each.min(plan.samples.saturating_sub(shard.saturating_mul(each)))).sum())
}

/// Returns the number of parts into which the plan `id` is divided, and the numbers of the
/// incomplete parts.
fn division(id: &str, ends: &[String]) -> (Option<u64>, String) {
    let Leftovers { parts, journals, .. } = Leftovers::of(ends);
    let mut divisions = BTreeMap::<u64, BTreeSet<u64>>::new();
    for end in journals.iter().chain(&parts).filter(|end| dest::id(end) == Some(id)) {
        let Some((part, parts)) = dest::part_of(end) else { continue };
        let complete = divisions.entry(parts).or_default();
        if end.ends_with(".json") {
            complete.insert(part);
        }
    }
    // If the set was divided in several ways, prefer a complete division, which is the one that a
    // merge uses.
    let share = |(parts, complete): &(&u64, &BTreeSet<u64>)| (complete.len() as u64 == **parts, complete.len());
    match divisions.iter().max_by_key(share) {
        Some((&parts, complete)) => (Some(parts), missing(complete.iter().copied(), parts)),
        None => (None, String::new()),
    }
}
