//! Detects LMDB files. This module does not depend on the `lmdb` feature.

/// The magic number of LMDB files, which is at byte offset 16.
pub(super) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// Returns whether `start` is the beginning of an LMDB file in this machine's byte order.
pub(super) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}
