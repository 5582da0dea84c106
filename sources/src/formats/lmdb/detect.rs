//! Detects LMDB files. This module does not depend on a feature, just like `row`, which registers
//! the format.

/// Magic number of an LMDB file, stored at byte 16.
pub(super) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// Returns whether `start` begins an LMDB file in the byte order of this machine.
pub(super) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}
