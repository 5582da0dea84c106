//! [`Plan`] identifies the samples that are packed, and records how images are recoded and where
//! shards begin. All processes that pack parts of a dataset must have equal plans.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::member;
use super::pipeline::{Pipeline, Selection};
use super::recode::{RawSize, Recode};
use crate::decode::Codecs;
use crate::error::{Error, Result};
use crate::source::Hash;

/// Maximum number of samples that are read and recoded to compare sources and to estimate sizes.
const PROBE_COUNT: usize = 64;

/// Describes how a dataset is packed. Parts can be merged only if their plans are equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Version of the library. Different versions may encode images differently.
    writer: String,
    pub(super) samples: u64,
    source: SourceId,
    recode: Value,
    pub(super) cut: ShardLimit,
    /// How many times the complete dataset has been packed again with a plan that is otherwise
    /// equal.
    pub(super) repeated: u64,
}

/// Properties and hashes that identify the samples of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SourceId {
    kind: String,
    samples: u64,
    /// Hash of the source's list of samples, if there is one.
    list: Option<String>,
    /// Hash of the selected indices, or `None` if all samples are selected.
    chosen: Option<String>,
    classes: String,
    /// Hash of a few recoded samples and their indices.
    probes: String,
}

/// Determines where shards begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShardLimit {
    /// Number of samples per shard. The last shard may contain fewer.
    Samples(u64),
    /// Maximum size of a shard in bytes. Only a shard of a single sample may be larger.
    Bytes(u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ShardSize {
    Samples(u64),
    Bytes(u64),
    /// Approximate size of a shard in bytes. It is converted to a number of samples, so that the
    /// boundaries of a shard do not depend on the sizes of earlier shards.
    AboutBytes(u64),
}

impl Plan {
    /// Reads and recodes a few samples to identify the source and to estimate sizes.
    pub(super) fn new(pipeline: &Pipeline<'_>, selection: &Selection, size: ShardSize) -> Result<Plan> {
        let probe_count = selection.len().min(PROBE_COUNT);
        let probe_index = |probe: usize| {
            selection.index((probe as u128 * selection.len() as u128 / probe_count as u128) as usize) as u64
        };
        let probes = Selection::Listed((0..probe_count).map(probe_index).collect());
        let (mut hash, mut probe_bytes, mut member) = (Hash::default(), 0, Vec::new());
        let lenient_pipeline = Pipeline { keep_undecodable: true, ..*pipeline };
        lenient_pipeline.for_each(&probes, 0..probe_count, &mut |index, prepared, _| {
            member.clear();
            member::append_sample(&prepared.sample()?, "", &mut member, |_, _| {})?;
            hash = hash.number(index).bytes(&member);
            probe_bytes += member.len() as u64;
            Ok(())
        })?;
        let cut = match size {
            ShardSize::Samples(samples) => ShardLimit::Samples(samples),
            ShardSize::Bytes(limit) => ShardLimit::Bytes(limit),
            ShardSize::AboutBytes(limit) => {
                ShardLimit::Samples((limit / probe_bytes.div_ceil(probe_count.max(1) as u64).max(1)).max(1))
            }
        };
        let source = SourceId {
            kind: pipeline.source.kind().to_owned(),
            samples: pipeline.source.len() as u64,
            list: pipeline.source.fingerprint().map(to_hex),
            chosen: match selection {
                Selection::All(_) => None,
                Selection::Listed(indices) => {
                    Some(to_hex(indices.iter().fold(Hash::default(), |h, &i| h.number(i)).finish()))
                }
            },
            classes: to_hex(
                pipeline.source.classes().iter().fold(Hash::default(), |hash, name| hash.text(name)).finish(),
            ),
            probes: to_hex(hash.finish()),
        };
        let writer = concat!("warpfeed ", env!("CARGO_PKG_VERSION")).to_owned();
        Ok(Plan {
            writer,
            samples: selection.len() as u64,
            source,
            recode: describe_recoding(pipeline.recode, pipeline.codecs),
            cut,
            repeated: 0,
        })
    }

    /// Returns whether the plans are equal, ignoring `repeated`.
    pub(super) fn repeats(&self, other: &Plan) -> bool {
        *self == Plan { repeated: self.repeated, ..other.clone() }
    }

    pub(super) fn id(&self) -> String {
        to_hex(Hash::default().bytes(&serde_json::to_vec(self).expect("a plan serializes to JSON")).finish())
    }

    /// Returns the numbers of a part's shards. If shards are limited by their size in bytes, the
    /// number of shards is not known in advance. In that case, there must be a single part, and the
    /// returned range contains all numbers.
    pub(super) fn shard_numbers(&self, part: u64, parts: u64) -> Range<u64> {
        match self.cut {
            ShardLimit::Samples(samples) => {
                let shards = u128::from(self.samples.div_ceil(samples));
                let start = |part: u64| (shards * u128::from(part) / u128::from(parts)) as u64;
                start(part)..start(part + 1)
            }
            ShardLimit::Bytes(_) => 0..u64::MAX,
        }
    }

    pub(super) fn sample_positions(&self, part: u64, parts: u64) -> Range<u64> {
        match self.cut {
            ShardLimit::Samples(samples) => {
                let shards = self.shard_numbers(part, parts);
                (shards.start * samples).min(self.samples)..(shards.end * samples).min(self.samples)
            }
            ShardLimit::Bytes(_) => 0..self.samples,
        }
    }

    /// Fails if the plans differ. The error names the first difference.
    pub(super) fn check_equal(&self, other: &Plan, own_name: &str, other_name: &str) -> Result<()> {
        let [own_value, other_value] =
            [self, other].map(|plan| serde_json::to_value(plan).expect("a plan serializes to JSON"));
        let Some((name, own_value, other_value)) = difference("", &own_value, &other_value) else { return Ok(()) };
        Err(Error::config(format!(
            "the plans differ in {name}: {own_name} has {own_value}, but {other_name} has {other_value}"
        )))
    }
}

fn difference<'a>(name: &str, value: &'a Value, other: &'a Value) -> Option<(String, &'a Value, &'a Value)> {
    match (value, other) {
        (Value::Object(fields), Value::Object(others)) => fields.keys().chain(others.keys()).find_map(|key| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            let [value, other] = [fields, others].map(|fields| fields.get(key).unwrap_or(&Value::Null));
            difference(&name, value, other)
        }),
        _ => (value != other).then(|| (name.to_owned(), value, other)),
    }
}

fn to_hex(number: u64) -> String {
    format!("{number:016x}")
}

fn describe_recoding(recode: Recode, codecs: &Codecs) -> Value {
    let mut description = match recode {
        Recode::KeepBytes => json!({"how": "keep_bytes"}),
        Recode::Lossless => json!({"how": "lossless"}),
        Recode::Quality { quality, max_side } => json!({"how": "quality", "quality": quality, "max_side": max_side}),
        Recode::MaxSide(max_side) => json!({"how": "max_side", "max_side": max_side}),
        Recode::Raw(RawSize::Shorter(shorter)) => json!({"how": "raw", "shorter": shorter}),
        Recode::Raw(RawSize::Exact(size)) => json!({"how": "raw", "width": size.width, "height": size.height}),
    };
    let (background, convert_to_u8) = codecs.conversion();
    if let Some(color) = background {
        description["background"] = json!(color);
    }
    if convert_to_u8 {
        description["convert_to_u8"] = json!(true);
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(samples: u64, cut: ShardLimit) -> Plan {
        let (hash, kind) = (to_hex(1), "memory".to_owned());
        let source = SourceId { kind, samples, list: None, chosen: None, classes: hash.clone(), probes: hash };
        Plan {
            writer: "w".into(),
            samples,
            source,
            recode: describe_recoding(Recode::Lossless, &Codecs::new()),
            cut,
            repeated: 0,
        }
    }

    #[test]
    fn parts_are_contiguous_and_complete() {
        for (samples, shard_samples) in [(1, 1), (1000, 7), (5, 9), (12, 4), (u64::MAX / 2, 3)] {
            let plan = plan(samples, ShardLimit::Samples(shard_samples));
            for parts in [1, 2, 3, 64, 1000] {
                let (mut sample, mut shard) = (0, 0);
                for part in 0..parts {
                    let (range, shards) = (plan.sample_positions(part, parts), plan.shard_numbers(part, parts));
                    assert_eq!((range.start, shards.start), (sample, shard), "part {part} of {parts}");
                    assert_eq!(range.start % shard_samples.min(samples), 0, "a part must begin with a whole shard");
                    (sample, shard) = (range.end, shards.end);
                }
                assert_eq!((sample, shard), (samples, samples.div_ceil(shard_samples)), "{parts} parts");
            }
        }
    }

    #[test]
    fn errors_state_the_difference_between_plans() {
        let (own_plan, mut other_plan) = (plan(10, ShardLimit::Samples(3)), plan(10, ShardLimit::Samples(3)));
        assert!(own_plan.check_equal(&other_plan, "x", "y").is_ok() && own_plan.id() == other_plan.id());
        other_plan.source.samples = 11;
        let e = own_plan.check_equal(&other_plan, "x.plan", "this run").unwrap_err();
        assert_eq!(e.cause(), "the plans differ in source.samples: x.plan has 10, but this run has 11");
        assert_ne!(own_plan.id(), other_plan.id());
        other_plan = plan(10, ShardLimit::Bytes(3));
        assert!(own_plan.check_equal(&other_plan, "x", "y").unwrap_err().cause().contains("cut"));
        other_plan = plan(10, ShardLimit::Samples(3));
        other_plan.recode["background"] = json!([1, 2, 3]);
        for (own, other) in [(&own_plan, &other_plan), (&other_plan, &own_plan)] {
            let e = own.check_equal(other, "x", "y").unwrap_err();
            assert!(e.cause().starts_with("the plans differ in recode.background: "), "{e}");
        }
    }
}
