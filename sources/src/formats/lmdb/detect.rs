//! Detects LMDB files. Like `row`, this module does not depend on the `lmdb` feature.

/// The magic number at byte 16 of an LMDB file.
pub(super) const LMDB_MAGIC: u32 = 0xbeef_c0de;

/// Returns whether a file that begins with `start` is an LMDB file in the byte order of this
/// machine.
pub(super) fn is_lmdb(start: &[u8]) -> bool {
    start.get(16..20).is_some_and(|magic| magic == LMDB_MAGIC.to_ne_bytes())
}
