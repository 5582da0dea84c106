//! Stores the index of `x.tar` in `x.tar.index`, so that the tar's headers are scanned only once.
//!
//! [`index_file`] adds a magic number and a hash to the content, which is:
//! 1. eight `u64`s: the tar's length, its modification time in ns (or a hash of its ETag, in the
//!    cache of a store), the numbers of samples, fields, field names and classes, the total length
//!    of the keys, and the number of skipped links;
//! 2. for each sample, the ends of its key and of its fields, as `u64`s;
//! 3. for each field, its offset and its length as `u64`s, and the index of its name as a `u32`,
//!    with the highest bit set for a link;
//! 4. the field names, the class names, the path of the first skipped link, and the keys.
//!
//! The counts are untrusted and must not control allocations. `serde` would not make these checks
//! unnecessary, so the decoder is written by hand.
//!
//! The tar contains everything in the sidecar, so if the sidecar is invalid in any way, the tar is
//! scanned instead.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use super::index::{Field, Index, IndexBuilder, SampleEnd};
use super::links::UnresolvedLinks;
use crate::error::push;
use crate::machine::index_file::{self, Decoder, Encoder, modification_ns};

/// Bit of a field's name index that marks a link.
const LINK_FLAG: u32 = 1 << 31;

const MAGIC: [u8; 8] = *b"wfindex\x02";

/// Minimum size of a shard for which an index is stored, in bytes. Smaller shards are scanned fast
/// enough on a local disk. A larger shard may be copied to an object store together with its index,
/// which saves a slow scan there.
pub(super) const MIN_INDEXED_BYTES: u64 = 1 << 20;

pub(super) fn sidecar_path(tar: &Path) -> PathBuf {
    let mut path = tar.as_os_str().to_owned();
    path.push(".index");
    path.into()
}

/// Reads a sidecar without decoding it. Returns `None` if the sidecar cannot be read or has a
/// different magic number.
pub(super) fn load_bytes(path: &Path) -> Option<Vec<u8>> {
    index_file::load(path, MAGIC)
}

/// Reads the index of the shard `tar` from its sidecar. Returns `None` if the sidecar cannot be
/// read, is damaged or is stale.
pub(super) fn load(tar: &Path, metadata: &Metadata) -> Option<Index> {
    let bytes = load_bytes(&sidecar_path(tar))?;
    let index = decode(&bytes, metadata.len(), modification_ns(metadata));
    if index.is_none() {
        tracing::info!("{}: the index is stale or damaged; scanning the tar instead", sidecar_path(tar).display());
    }
    index
}

pub(super) fn store(tar: &Path, metadata: &Metadata, index: &Index) -> std::io::Result<()> {
    index_file::store(&sidecar_path(tar), &encode(index, metadata.len(), modification_ns(metadata)))
}

impl IndexBuilder {
    /// Returns the content of the `NAME.tar.index` for the finished shard, which has `tar_len` bytes.
    /// Returns `None` if the shard is so small that reading an index takes as long.
    pub fn finish(&self, tar_len: u64) -> Option<Vec<u8>> {
        (tar_len >= MIN_INDEXED_BYTES).then(|| encode(&self.index, tar_len, 0))
    }
}

pub(super) fn encode(index: &Index, tar_len: u64, modified: u64) -> Vec<u8> {
    let mut out = Encoder::new(MAGIC);
    let counts = [index.samples.len(), index.fields.len(), index.names.len(), index.classes.len(), index.keys.len()];
    let counts = counts.map(|count| count as u64);
    [tar_len, modified]
        .into_iter()
        .chain(counts)
        .chain([index.unresolved_links.count])
        .for_each(|number| out.long(number));
    for end in &index.samples {
        out.long(end.key_end);
        out.long(end.field_end);
    }
    for field in &index.fields {
        out.long(field.offset());
        out.long(field.len());
        out.word(field.name() as u32 | if field.is_linked() { LINK_FLAG } else { 0 });
    }
    index.names.iter().chain(&index.classes).for_each(|name| out.text(name));
    out.text(&index.unresolved_links.first_path);
    out.bytes(index.keys.as_bytes());
    out.finish()
}

pub(super) fn decode(bytes: &[u8], tar_len: u64, modified: u64) -> Option<Index> {
    decode_for(bytes, tar_len, Some(modified))
}

/// Decodes a sidecar. Returns `None` if the sidecar is damaged, or if it belongs to a tar of a
/// different length. If `modified` is given, it must equal the second number of the sidecar: the
/// modification time or the hash of the ETag.
///
/// The bytes are untrusted: memory is reserved only for entries that exist, and every offset must
/// be inside the tar.
pub(super) fn decode_for(bytes: &[u8], tar_len: u64, modified: Option<u64>) -> Option<Index> {
    let mut decoder = Decoder::new(bytes, MAGIC)?;
    let [len, time, samples, fields, names, classes, keys, unresolved] = decoder.longs()?;
    if len != tar_len || modified.is_some_and(|modified| time != modified) {
        return None;
    }
    let mut index = Index::default();
    for _ in 0..samples {
        let [key, field] = decoder.longs()?;
        let previous = index.samples.last().copied().unwrap_or_default();
        if key < previous.key_end || field <= previous.field_end {
            return None;
        }
        push(&mut index.samples, SampleEnd { key_end: key, field_end: field }).ok()?;
    }
    for _ in 0..fields {
        let ([offset, len], word) = (decoder.longs()?, decoder.word()?);
        let name = word & !LINK_FLAG;
        if offset.checked_add(len)? > tar_len || u64::from(name) >= names {
            return None;
        }
        let field = Field::new(offset, len, name)?;
        push(&mut index.fields, if word == name { field } else { field.as_link() }).ok()?;
    }
    for _ in 0..names {
        push(&mut index.names, decoder.text()?.to_owned()).ok()?;
    }
    for _ in 0..classes {
        push(&mut index.classes, decoder.text()?.to_owned()).ok()?;
    }
    index.unresolved_links = UnresolvedLinks { count: unresolved, first_path: decoder.text()?.to_owned() };
    let text = decoder.rest()?;
    index.keys.try_reserve_exact(text.len()).ok()?;
    index.keys.push_str(text);
    let last = index.samples.last().copied().unwrap_or_default();
    let is_complete = last == SampleEnd { key_end: keys, field_end: fields } && index.keys.len() as u64 == keys;
    index.shrink();
    let ends_are_char_boundaries = index.samples.iter().all(|end| index.keys.is_char_boundary(end.key_end as usize));
    (is_complete && ends_are_char_boundaries).then_some(index)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::hash::fnv1a;

    /// Returns an index that uses every part of the file format.
    pub(in super::super) fn index() -> Index {
        Index {
            keys: "a/1é2".into(),
            samples: vec![SampleEnd { key_end: 3, field_end: 2 }, SampleEnd { key_end: 6, field_end: 3 }],
            fields: vec![
                Field::new(512, 9, 0).unwrap(),
                Field::new(1536, 1, 1).unwrap().as_link(),
                Field::new(2560, 0, 0).unwrap(),
            ],
            names: vec!["jpg".into(), "cls".into()],
            classes: vec!["cat".into(), "dög".into()],
            unresolved_links: UnresolvedLinks { count: 3, first_path: "ö.jpg".into() },
        }
    }

    #[test]
    fn sidecar_is_valid_only_for_the_same_tar() {
        let bytes = encode(&index(), 4096, 77);
        assert_eq!(decode(&bytes, 4096, 77), Some(index()));
        assert_eq!(decode(&bytes, 4097, 77), None, "the tar had a different length");
        assert_eq!(decode(&bytes, 4096, 78), None, "the tar had a different modification time");
        assert_eq!(decode(&[], 4096, 77), None);
    }

    #[test]
    fn every_bit_flip_invalidates_a_sidecar() {
        let bytes = encode(&index(), 4096, 77);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped, 4096, 77), None, "bit {bit}");
        }
    }

    proptest! {
        /// Changes some bytes, and then recomputes the hash. Decoding must not panic, and all
        /// ranges in the result must be inside the tar and the keys.
        #[test]
        fn a_forged_sidecar_cannot_reach_outside(changes in prop::collection::vec((8_usize..250, any::<u8>()), 1..6)) {
            let mut bytes = encode(&index(), 4096, 77);
            let body = bytes.len() - 8;
            for (offset, byte) in changes {
                bytes[offset % body] = byte;
            }
            let hash = fnv1a(&bytes[..body]);
            bytes[body..].copy_from_slice(&hash.to_le_bytes());
            if let Some(index) = decode(&bytes, 4096, 77) {
                for i in 0..index.len() {
                    let (_, fields) = index.sample(i);
                    prop_assert!(!fields.is_empty());
                    prop_assert!(fields.iter().all(|f| f.end() <= 4096 && f.name() < index.names.len()));
                }
            }
        }
    }
}
