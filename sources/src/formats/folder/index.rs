//! Caches the listing of a folder `x` in the index file `x.warpfeed-index` next to it.
//!
//! [`index_file`] adds a magic number and a hash to the content, which is:
//! 1. seven `u64`s: a hash of the extensions of the custom formats, the numbers of folders,
//!    samples, classes, labels and names that are not UTF-8, and the total length of all paths;
//! 2. for each folder, its modification time in ns as a `u64`, and its path;
//! 3. for each sample, the end of its path as a `u64`;
//! 4. for each label, its value as a `u32`;
//! 5. for each name that is not UTF-8, the index of its sample as a `u64`;
//! 6. the names of the classes;
//! 7. the concatenated paths.
//!
//! The modification time of a folder changes when an entry is added, removed or renamed, so the
//! index is up to date if the times of all folders are unchanged. Overwriting an image in place
//! changes neither its name nor this time, so the index stays valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::listing::{Listing, Visited};
use super::walk::modification_time;
use crate::error::push;
use crate::format::Format;
use crate::machine::hash::fnv1a;
use crate::machine::index_file::{self, Decoder, Encoder};

const MAGIC: [u8; 8] = *b"wffoldr\x01";

/// Minimum time since the last change to any folder before an index is written. File systems round
/// times, so a folder that was changed more recently could change again without a new modification
/// time.
const MIN_AGE: Duration = Duration::from_secs(2);

fn index_path(path: &Path) -> Option<PathBuf> {
    // Paths such as `.` and `x/..` have no file name.
    let path = fs::canonicalize(path).ok()?;
    let mut name = path.file_name()?.to_owned();
    name.push(".warpfeed-index");
    Some(path.with_file_name(name))
}

pub(super) fn load(path: &Path, formats: &[Format]) -> Option<Listing> {
    let file = index_path(path)?;
    let bytes = index_file::load(&file, MAGIC)?;
    let is_current = |(below, time): &(&str, u64)| nanoseconds(modification_time(&path.join(below))) == Some(*time);
    let listing = decode(&bytes, hash_formats(formats)).filter(|(_, folders)| folders.iter().all(is_current));
    if listing.is_none() {
        tracing::info!("{}: the index is stale or damaged; listing the folder instead", file.display());
    }
    listing.map(|(listing, _)| listing)
}

/// Writes the index atomically, unless a folder was changed too recently or has a name that is not
/// UTF-8. Failures are only logged, because without an index the folder is simply listed again.
pub(super) fn store(path: &Path, formats: &[Format], listing: &Listing, visited: &Visited) {
    let Some(target) = index_path(path) else { return };
    let is_settled = |time: &Option<SystemTime>| {
        time.is_some_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > MIN_AGE))
    };
    if visited.iter().any(|(name, time)| name.is_invalid || !is_settled(time)) {
        return tracing::info!(
            "{}: not written, because a folder was changed less than 2 seconds ago or has a name that is not UTF-8",
            target.display()
        );
    }
    if let Err(e) = index_file::store(&target, &encode(listing, visited, hash_formats(formats))) {
        tracing::warn!(
            "{}: cannot write the index ({e}), so the folder is listed each time it is opened",
            target.display()
        );
    }
}

fn hash_formats(formats: &[Format]) -> u64 {
    let names: Vec<&str> = formats.iter().flat_map(|format| format.extensions).copied().collect();
    fnv1a(names.join(",").as_bytes())
}

fn nanoseconds(time: Option<SystemTime>) -> Option<u64> {
    Some(time?.duration_since(UNIX_EPOCH).ok()?.as_nanos() as u64)
}

fn encode(listing: &Listing, visited: &Visited, formats: u64) -> Vec<u8> {
    let mut out = Encoder::new(MAGIC);
    let counts = [
        visited.len(),
        listing.path_ends.len(),
        listing.classes.len(),
        listing.labels.len(),
        listing.invalid_names.len(),
    ];
    let counts = counts.into_iter().chain([listing.paths.len()]).map(|count| count as u64);
    std::iter::once(formats).chain(counts).for_each(|number| out.long(number));
    for (name, time) in visited {
        out.long(nanoseconds(*time).unwrap_or(0));
        out.text(&name.text);
    }
    listing.path_ends.iter().for_each(|&end| out.long(end as u64));
    listing.labels.iter().for_each(|&label| out.word(label));
    listing.invalid_names.iter().for_each(|&index| out.long(index as u64));
    listing.classes.iter().for_each(|class| out.text(class));
    out.bytes(listing.paths.as_bytes());
    out.finish()
}

/// Decodes an index into the listing, and the folders with their modification times. The bytes are
/// untrusted: memory is reserved only for entries that exist, and every offset and index is
/// checked.
fn decode(bytes: &[u8], formats: u64) -> Option<(Listing, Vec<(&str, u64)>)> {
    let mut decoder = Decoder::new(bytes, MAGIC)?;
    let [formats_hash, folders, samples, classes, labels, invalid_count, length] = decoder.longs()?;
    if formats_hash != formats || (labels != 0 && labels != samples) || samples == 0 {
        return None;
    }
    let mut visited = Vec::new();
    for _ in 0..folders {
        let time = decoder.long()?;
        push(&mut visited, (decoder.text()?, time)).ok()?;
    }
    let mut listing = Listing::default();
    for _ in 0..samples {
        let end = usize::try_from(decoder.long()?).ok()?;
        if end < listing.path_ends.last().copied().unwrap_or(0) {
            return None;
        }
        push(&mut listing.path_ends, end).ok()?;
    }
    for _ in 0..labels {
        let label = decoder.word()?;
        if u64::from(label) >= classes {
            return None;
        }
        push(&mut listing.labels, label).ok()?;
    }
    for _ in 0..invalid_count {
        let sample = usize::try_from(decoder.long()?).ok()?;
        if sample >= listing.path_ends.len() || listing.invalid_names.last().is_some_and(|&last| last >= sample) {
            return None;
        }
        push(&mut listing.invalid_names, sample).ok()?;
    }
    for _ in 0..classes {
        push(&mut listing.classes, decoder.text()?.to_owned()).ok()?;
    }
    let paths = decoder.rest()?;
    listing.paths.try_reserve_exact(paths.len()).ok()?;
    listing.paths.push_str(paths);
    let is_complete = listing.paths.len() as u64 == length && listing.path_ends.last() == Some(&listing.paths.len());
    // The ends ascend, so all of them are inside the text if the last one is.
    let ends_are_char_boundaries = listing.path_ends.iter().all(|&end| listing.paths.is_char_boundary(end));
    (is_complete && ends_are_char_boundaries).then_some((listing, visited))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::formats::folder::walk::Name;

    fn listing() -> (Listing, Visited) {
        let listing = Listing {
            paths: "a/1.jpgb/é.png".into(),
            path_ends: vec![7, 15],
            labels: vec![0, 1],
            classes: vec!["a".into(), "b".into()],
            invalid_names: vec![1],
        };
        let time = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        let name = |text: &str| Name { text: text.into(), is_invalid: false };
        (listing, vec![(name(""), time(5)), (name("a"), time(6)), (name("b"), time(7))])
    }

    #[test]
    fn decoding_restores_an_index_and_detects_every_bit_flip() {
        let (listing, visited) = listing();
        let bytes = encode(&listing, &visited, 3);
        let (read, folders) = decode(&bytes, 3).unwrap();
        assert_eq!((read, folders), (listing, vec![("", 5_000_000_000), ("a", 6_000_000_000), ("b", 7_000_000_000)]));
        assert!(decode(&bytes, 4).is_none(), "an index for different formats is stale");
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped, 3).is_none(), "bit {bit}");
        }
    }

    proptest! {
        /// Damages an index and corrects its hash. Decoding it must neither panic nor return paths
        /// and labels that are out of range.
        #[test]
        fn a_forged_index_cannot_reach_outside(changes in prop::collection::vec((8_usize..250, any::<u8>()), 1..6)) {
            let (listing, visited) = listing();
            let mut bytes = encode(&listing, &visited, 3);
            let body = bytes.len() - 8;
            for (offset, byte) in changes {
                bytes[offset % body] = byte;
            }
            let hash = fnv1a(&bytes[..body]);
            bytes[body..].copy_from_slice(&hash.to_le_bytes());
            if let Some((listing, _)) = decode(&bytes, 3) {
                for index in 0..listing.len() {
                    listing.path(index);
                    prop_assert!(listing.labels.get(index).is_none_or(|&label| (label as usize) < listing.classes.len()));
                }
            }
        }
    }
}
