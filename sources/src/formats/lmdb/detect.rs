//! Recognizes an LMDB file. Compiled with every set of features, as are the rows of the formats.

/// Magic number of an LMDB file, at byte 16.
pub(super) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// Whether a file that begins with `start` is an LMDB file in this machine's byte order.
pub(super) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}
