//! Verifies whole files against the hashes in an index.

use std::collections::BTreeMap;
use std::hash::Hasher;

use md5::Md5;
use sha1::Sha1;
use sha1::digest::DynDigest;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

use crate::error::{Error, Result};
use crate::machine::cancel;
use crate::storage::OpenFile;

/// Number of bytes per read of a local file, and of a file in a store.
const READ_BYTES: [u64; 2] = [1 << 20, 16 << 20];

/// Names of the supported hashes in Python, fastest first.
const NAMES: [&str; 11] =
    ["xxh3_64", "xxh3_128", "xxh128", "xxh64", "xxh32", "sha1", "sha256", "sha512", "sha384", "sha224", "md5"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checksum {
    /// Name of the hash in Python's `hashlib` or `xxhash`.
    pub(crate) name: String,
    /// Expected hash in hexadecimal.
    pub(crate) expected: String,
}

enum RunningHash {
    Digest(Box<dyn DynDigest>),
    /// A hash of 32 or 64 bits, and its number of hexadecimal digits.
    Short(Box<dyn Hasher>, usize),
    Long(Box<XxHash3_128>),
}

impl RunningHash {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "xxh3_64" => RunningHash::Short(Box::new(XxHash3_64::new()), 16),
            "xxh3_128" | "xxh128" => RunningHash::Long(Box::new(XxHash3_128::new())),
            "xxh64" => RunningHash::Short(Box::new(XxHash64::with_seed(0)), 16),
            "xxh32" => RunningHash::Short(Box::new(XxHash32::with_seed(0)), 8),
            "sha1" => RunningHash::Digest(Box::new(Sha1::default())),
            "sha256" => RunningHash::Digest(Box::new(Sha256::default())),
            "sha512" => RunningHash::Digest(Box::new(Sha512::default())),
            "sha384" => RunningHash::Digest(Box::new(Sha384::default())),
            "sha224" => RunningHash::Digest(Box::new(Sha224::default())),
            "md5" => RunningHash::Digest(Box::new(Md5::default())),
            _ => return None,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            RunningHash::Digest(digest) => digest.update(bytes),
            RunningHash::Short(hasher, _) => hasher.write(bytes),
            RunningHash::Long(hasher) => hasher.write(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            RunningHash::Digest(digest) => digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
            RunningHash::Short(hasher, digits) => format!("{:0digits$x}", hasher.finish()),
            RunningHash::Long(hasher) => format!("{:032x}", hasher.finish_128()),
        }
    }
}

impl Checksum {
    /// Returns the fastest supported hash in `hashes`, which maps names to values. If none is
    /// supported, returns an unsupported hash. Returns `None` if there are no hashes.
    pub(crate) fn fastest(hashes: &BTreeMap<String, String>) -> Option<Self> {
        let checksum = NAMES.iter().find_map(|name| hashes.get_key_value(*name));
        let (name, expected) = checksum.or_else(|| hashes.first_key_value())?;
        Some(Checksum { name: name.clone(), expected: expected.to_lowercase() })
    }

    pub(crate) fn is_supported(&self) -> bool {
        NAMES.contains(&&*self.name)
    }

    /// Checks the hash of the whole file, if the hash is [supported](Checksum::is_supported).
    pub(crate) fn check(&self, file: &OpenFile) -> Result<()> {
        let Some(mut hash) = RunningHash::from_name(&self.name) else { return Ok(()) };
        let (mut offset, mut scratch) = (0, Vec::new());
        while offset < file.len() {
            cancel::check()?;
            let chunk = file.get(offset, READ_BYTES[usize::from(file.object().is_some())], &mut scratch)?;
            if chunk.is_empty() {
                return Err(Error::in_source(format!("the file ends at byte {offset}")).at_path(&file.path));
            }
            hash.update(chunk);
            offset += chunk.len() as u64;
        }
        let (actual, Checksum { name, expected }) = (hash.finish(), self);
        if actual == *expected {
            return Ok(());
        }
        Err(Error::in_source(format!("damaged: its {name} is {actual}, but the index lists {expected}"))
            .at_path(&file.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_python() {
        // The expected hashes come from hashlib and xxhash. The data is longer than one read.
        let bytes: Vec<u8> = (0..=255).cycle().take(256 * 5000).collect();
        let file = OpenFile::in_memory("memory".into(), bytes);
        for (name, expected) in HASHES {
            let check = |expected: &str| {
                Checksum::fastest(&[(name.to_owned(), expected.to_owned())].into()).unwrap().check(&file)
            };
            check(expected).unwrap();
            check(&expected.to_uppercase()).unwrap();
            let e = check("00").unwrap_err();
            assert_eq!(e.cause(), format!("damaged: its {name} is {expected}, but the index lists 00"));
        }
        assert_eq!(HASHES.len(), NAMES.len());
    }

    #[test]
    fn the_fastest_supported_hash_is_checked() {
        let fastest = |names: &[&str]| {
            let hashes = names.iter().map(|name| ((*name).to_owned(), "0".to_owned())).collect();
            Checksum::fastest(&hashes).map(|checksum| checksum.name)
        };
        assert_eq!(fastest(&["sha1", "blake2b", "xxh64"]).as_deref(), Some("xxh64"));
        assert_eq!(fastest(&["blake2b", "sha1"]).as_deref(), Some("sha1"));
        assert_eq!(fastest(&["sha3_256", "blake2b"]).as_deref(), Some("blake2b"));
        assert_eq!(fastest(&[]), None);
        let unknown = Checksum { name: "blake2b".to_owned(), expected: "0".to_owned() };
        assert!(!unknown.is_supported());
        unknown.check(&OpenFile::in_memory("memory".into(), vec![1])).unwrap();
    }

    const HASHES: [(&str, &str); 11] = [
        ("xxh3_64", "7daf22229bad219a"),
        ("xxh3_128", "f04a656f7c455c227daf22229bad219a"),
        ("xxh128", "f04a656f7c455c227daf22229bad219a"),
        ("xxh64", "5be3e9f963175041"),
        ("xxh32", "6891d153"),
        ("sha1", "6835966f35153e37157aec4ec3c48e5d5d831bbd"),
        ("sha256", "7d471e4af16db5a30ce10aebbc29f5178b2edbad6c7dc2e8ff8ee6e4848a726f"),
        (
            "sha512",
            "657ef9e3b434692d4e06a8bcae9b644bdc5a2070f31799751493d4109b0c22135de3a8d1a6dfb6a9c02de8b7fceed45c015609bac21457d51dbe1e2619243261",
        ),
        ("sha384", "6c3038472e340da1f515da478e89b64a2d49575b27d21b767d49136f6abd8fa2caedfd04f3d5e66b7939221fb4823195"),
        ("sha224", "7f7dee09fbab67ea6fb62f892020bfd30cc64108c0a17360373b2623"),
        ("md5", "4b7fc6acd4f7b48d23e38ebf35ed28af"),
    ];
}
