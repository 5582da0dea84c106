//! [`Limits`], the resources of a multiprocessor by compute capability.

use std::fmt;
use std::str::FromStr;

use warpfeed::{Error, Result};

/// A compute capability, such as 9.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// Major version, which identifies the architecture.
    pub major: u32,
    /// Minor version, which identifies the variant.
    pub minor: u32,
}

impl FromStr for Capability {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (major, minor) = parts
            .ok_or_else(|| Error::config(format!("compute capability {text:?}: expected two numbers, such as 9.0")))?;
        Ok(Capability { major, minor })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Resources of one multiprocessor. They come from the table "Technical Specifications per Compute
/// Capability" in the CUDA C++ Programming Guide, and from the allocation units in the CUDA
/// Occupancy Calculator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Compute capability to which these limits apply.
    pub capability: Capability,
    /// Name of the architecture, and an example of a device.
    pub name: &'static str,
    /// Number of threads per warp.
    pub warp_size: u32,
    /// Maximum number of threads per block.
    pub threads_per_block: u32,
    /// Maximum number of warps per multiprocessor.
    pub warps: u32,
    /// Maximum number of blocks per multiprocessor.
    pub blocks: u32,
    /// Number of 32-bit registers per multiprocessor, which is also the maximum per block.
    pub registers: u32,
    /// Maximum number of registers per thread.
    pub registers_per_thread: u32,
    /// Registers are allocated to warps in multiples of this number.
    pub register_unit: u32,
    /// Number of partitions per multiprocessor. Each partition has its own registers and scheduler.
    pub partitions: u32,
    /// Bytes of shared memory per multiprocessor.
    pub shared: usize,
    /// Maximum number of bytes of shared memory per block. A kernel must opt in to use more than 48
    /// KB.
    pub shared_per_block: usize,
    /// Bytes of shared memory that the driver reserves per block.
    pub shared_reserved: usize,
    /// Shared memory is allocated to blocks in multiples of this number of bytes.
    pub shared_unit: usize,
}

/// Major version, minor version, name, number of warps, number of blocks, and KB of shared memory
/// per multiprocessor.
type Specification = (u32, u32, &'static str, u32, u32, usize);

const TABLE: [Specification; 13] = [
    (7, 0, "Volta, V100", 64, 32, 96),
    (7, 2, "Volta, Xavier", 64, 32, 96),
    (7, 5, "Turing, T4", 32, 16, 64),
    (8, 0, "Ampere, A100", 64, 32, 164),
    (8, 6, "Ampere, A10", 48, 16, 100),
    (8, 7, "Ampere, Orin", 48, 16, 164),
    (8, 9, "Ada, L4", 48, 24, 100),
    (9, 0, "Hopper, H100", 64, 32, 228),
    (10, 0, "Blackwell, B200", 64, 32, 228),
    (10, 3, "Blackwell, B300", 64, 32, 228),
    (11, 0, "Blackwell, Thor", 48, 24, 228),
    (12, 0, "Blackwell, RTX 5090", 48, 24, 100),
    (12, 1, "Blackwell, GB10", 48, 24, 100),
];

impl Limits {
    /// Returns the limits of `capability`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](warpfeed::ErrorKind::Config) if `capability` is not in the table. The
    /// error lists the supported compute capabilities.
    pub fn of(capability: Capability) -> Result<Self> {
        let limits = Self::all().find(|limits| limits.capability == capability);
        limits.ok_or_else(|| {
            let capabilities = Self::all().map(|l| l.capability.to_string()).collect::<Vec<_>>().join(", ");
            Error::config(format!("compute capability {capability} is not supported: expected one of {capabilities}"))
        })
    }

    /// Iterates over the limits of all supported compute capabilities, in ascending order.
    pub fn all() -> impl Iterator<Item = Limits> {
        TABLE.into_iter().map(|(major, minor, name, warps, blocks, kilobytes)| {
            // For compute capability 8.0 and later, the driver reserves 1 KB per block, and the
            // allocation unit is smaller.
            let (shared_reserved, shared_unit) = if major >= 8 { (1024, 128) } else { (0, 256) };
            Limits {
                capability: Capability { major, minor },
                name,
                warp_size: 32,
                threads_per_block: 1024,
                warps,
                blocks,
                registers: 65536,
                registers_per_thread: 255,
                register_unit: 256,
                partitions: 4,
                shared: kilobytes * 1024,
                shared_per_block: kilobytes * 1024 - shared_reserved,
                shared_reserved,
                shared_unit,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_parsed_from_two_numbers() {
        assert_eq!("12.0".parse::<Capability>().unwrap(), Capability { major: 12, minor: 0 });
        for invalid in ["9", "9.", "sm_90", ""] {
            let text = invalid.parse::<Capability>().unwrap_err().to_string();
            assert_eq!(text, format!("config: compute capability {invalid:?}: expected two numbers, such as 9.0"));
        }
    }

    #[test]
    fn the_error_for_an_unknown_capability_lists_the_known_ones() {
        let text = Limits::of("6.1".parse().unwrap()).unwrap_err().to_string();
        assert!(
            text.starts_with("config: compute capability 6.1 is not supported: expected one of 7.0, 7.2, 7.5, 8.0"),
            "{text}"
        );
    }
}
