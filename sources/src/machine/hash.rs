//! The 64-bit FNV-1a hash. It detects accidental damage but does not protect against forgery.

pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    Hash::default().bytes(bytes).finish()
}

/// An incremental 64-bit FNV-1a hash.
#[derive(Clone, Copy)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds bytes to the hash.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Hash(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
    }

    /// Adds the little-endian bytes of a number to the hash.
    pub fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Adds the length of a string and then its bytes to the hash, so that `"a"`, `"bc"` and
    /// `"ab"`, `"c"` have different hashes.
    pub fn text(self, text: &str) -> Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    /// Returns the hash.
    pub fn finish(self) -> u64 {
        self.0
    }
}
