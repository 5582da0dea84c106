//! Recognizes TFRecord files by their names.

use std::path::Path;

/// Parses the shard's index and the number of shards from a name such as `train-00000-of-01024`.
fn shard_position(name: &str) -> Option<(usize, usize)> {
    let (rest, count) = name.rsplit_once("-of-")?;
    let (_, index) = rest.rsplit_once('-')?;
    let parsed = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    Some((parsed(index)?, parsed(count)?))
}

pub(super) fn is_records_name(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    let plain = extension.split_once('-').map_or(&*extension, |(plain, _)| plain);
    matches!(plain, "tfrecord" | "tfrecords" | "tfrec") || (extension.is_empty() && shard_position(name).is_some())
}
