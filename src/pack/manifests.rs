//! The manifests of parts and datasets.

use serde::{Deserialize, Serialize};

use super::bad_images::MAX_LISTED;
use super::plan::Plan;
use super::report::Counts;
use crate::source::MANIFEST_VERSION;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ShardEntry {
    pub(super) name: String,
    /// Position of the first sample among the packed samples.
    pub(super) first: u64,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    pub(super) crc32: String,
    pub(super) counts: Counts,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PartManifest {
    warpfeed_part: u64,
    pub(super) plan: Plan,
    pub(super) part: u64,
    pub(super) parts: u64,
    /// The first and last key of the part, and the keys before and after it.
    pub(super) keys: Keys,
    pub(super) shards: Vec<ShardEntry>,
}

/// Keys at the boundaries of a part, which must match the keys of the adjacent parts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Keys {
    pub(super) before: Option<String>,
    pub(super) first: Option<String>,
    pub(super) last: Option<String>,
    pub(super) after: Option<String>,
}

/// The manifest of a dataset. Readers use only the version, and each shard's name, number of
/// samples and size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    warpfeed_set: u64,
    pub(super) samples: u64,
    pub(super) plan: Plan,
    pub(super) shards: Vec<ShardEntry>,
}

impl PartManifest {
    pub(super) fn new(plan: Plan, (part, parts): (u64, u64), keys: Keys, shards: Vec<ShardEntry>) -> Self {
        PartManifest { warpfeed_part: MANIFEST_VERSION, plan, part, parts, keys, shards: limit_lists(shards) }
    }
}

impl Manifest {
    pub(super) fn new(plan: Plan, shards: Vec<ShardEntry>) -> Self {
        Manifest { warpfeed_set: MANIFEST_VERSION, samples: plan.samples, plan, shards: limit_lists(shards) }
    }
}

/// Caps the total length of each list of images. A full list per shard could make the manifest too
/// large to open.
fn limit_lists(mut shards: Vec<ShardEntry>) -> Vec<ShardEntry> {
    let mut room = [MAX_LISTED; 2];
    for ShardEntry { counts, .. } in &mut shards {
        for (list, room) in [&mut counts.not_recoded, &mut counts.damaged].into_iter().zip(&mut room) {
            list.truncate(*room);
            *room -= list.len();
        }
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::bad_images::ImageIssue;

    #[test]
    fn manifests_list_as_many_images_as_reports() {
        let image = |index: usize| ImageIssue { index: index as u64, key: "k".into(), reason: "r".into() };
        let shard = |number: usize| {
            let counts = Counts {
                not_recoded: (0..4_000).map(|i| image(4_000 * number + i)).collect(),
                not_recoded_count: 4_000,
                damaged: vec![image(number)],
                ..Counts::default()
            };
            ShardEntry { name: String::new(), first: 0, samples: 0, bytes: 0, crc32: String::new(), counts }
        };
        let shards = limit_lists((0..4).map(shard).collect());
        let listed: Vec<u64> = shards.iter().flat_map(|s| s.counts.not_recoded.iter().map(|r| r.index)).collect();
        assert_eq!(listed, (0..10_000).collect::<Vec<u64>>());
        assert_eq!(
            shards.iter().map(|s| (s.counts.not_recoded_count, s.counts.damaged.len())).collect::<Vec<_>>(),
            [(4_000, 1); 4]
        );
    }
}
