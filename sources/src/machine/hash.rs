/// 64-bit FNV-1a. Detects accidental damage, not forgery.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    Hash::default().bytes(bytes).end()
}

/// 64-bit FNV-1a of several pieces.
#[derive(Clone, Copy)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds bytes.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Hash(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
    }

    /// Adds a number.
    pub fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Text with its length, so that neighboring texts cannot be confused.
    pub fn text(self, text: &str) -> Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    /// The hash of all that was added.
    pub fn end(self) -> u64 {
        self.0
    }
}
