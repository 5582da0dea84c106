//! Detects TFRecord files by their names.

use std::path::Path;

/// Parses the shard number and the number of shards from a name such as `train-00000-of-01024`.
fn shard_number(name: &str) -> Option<(usize, usize)> {
    let (rest, of) = name.rsplit_once("-of-")?;
    let (_, number) = rest.rsplit_once('-')?;
    let parsed = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    Some((parsed(number)?, parsed(of)?))
}

/// Returns whether `name` looks like the name of a TFRecord file.
pub(super) fn is_records_name(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    let plain = extension.split_once('-').map_or(&*extension, |(plain, _)| plain);
    matches!(plain, "tfrecord" | "tfrecords" | "tfrec") || (extension.is_empty() && shard_number(name).is_some())
}
