//! Detects LMDB files. Like `row`, this module does not depend on the `lmdb` feature.

/// LMDB files contain this number at byte 16.
pub(super) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// Accepts only files in this machine's byte order.
pub(super) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}
