//! Computes how many warps of a kernel can be resident on a multiprocessor, and which resource
//! limits their number.
//!
//! The calculation follows the table "Technical Specifications per Compute Capability" in the CUDA
//! C++ Programming Guide, and the allocation granularities of the CUDA Occupancy Calculator. It
//! needs neither a GPU nor a driver. On an H200, the results equal the driver's for every
//! configuration in `tests/program/occupancy.rs`.
//!
//! ```
//! use warpfeed_cli::occupancy::{Factor, Limits, Usage};
//! let hopper = Limits::of("9.0".parse()?)?;
//! let o = hopper.occupancy(Usage { registers: 40, shared: 0 }, 256);
//! assert_eq!((o.blocks, o.warps, o.limiting()), (6, 48, Factor::Registers));
//! # Ok::<(), warpfeed::Error>(())
//! ```

mod limits;
mod table;

pub use limits::{Capability, Limits};
pub use table::{Row, Table};

/// Resources used by a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Number of 32-bit registers per thread, as reported by `ptxas -v` or `cuFuncGetAttribute`.
    pub registers: u32,
    /// Shared memory per block in bytes, including both static and dynamic memory.
    pub shared: usize,
}

/// The resource that limits the number of blocks on a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Factor {
    /// The maximum number of warps (and therefore threads) per multiprocessor.
    Warps,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// The maximum number of blocks per multiprocessor.
    Blocks,
}

impl Factor {
    /// The name in English: `warps`, `registers`, `shared memory` or `blocks`.
    pub fn name(self) -> &'static str {
        match self {
            Factor::Warps => "warps",
            Factor::Registers => "registers",
            Factor::SharedMemory => "shared memory",
            Factor::Blocks => "blocks",
        }
    }
}

/// Occupancy of one multiprocessor at one block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Number of threads per block.
    pub block: u32,
    /// Number of resident blocks.
    pub blocks: u32,
    /// Number of resident warps.
    pub warps: u32,
    /// Maximum number of resident warps.
    pub max_warps: u32,
    /// Number of blocks that each resource alone would allow, in the order of [`Factor`], or
    /// `u32::MAX` if the resource does not limit the number.
    pub allowed: [(Factor, u32); 4],
}

impl Occupancy {
    /// Returns the number of resident warps divided by the maximum, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(self.warps) / f64::from(self.max_warps)
    }

    /// Returns the resource that allows the fewest blocks. Ties are resolved in the order of
    /// [`Factor`].
    pub fn limiting(&self) -> Factor {
        self.allowed.iter().min_by_key(|(_, blocks)| *blocks).map_or(Factor::Warps, |(factor, _)| *factor)
    }
}

impl Limits {
    /// Computes the occupancy of a kernel that is launched with `block` threads per block. If the
    /// launch would fail because a block has no threads, or too many threads, registers or bytes of
    /// shared memory, the result has 0 blocks.
    pub fn occupancy(&self, usage: Usage, block: u32) -> Occupancy {
        // Larger numbers give the same result, but could overflow.
        let usage = Usage {
            registers: usage.registers.min(self.registers_per_thread + 1),
            shared: usage.shared.min(self.shared_per_block + 1),
        };
        let warps = block.min(self.threads_per_block + 1).div_ceil(self.warp_size);
        let fits = block > 0 && block <= self.threads_per_block;
        let by_warps = if fits { self.warps / warps } else { 0 };

        // A warp gets its registers in units of 256. Each of the four partitions has a quarter of
        // the register file, so a launch requires registers for a multiple of four warps. If the
        // block with its number of warps rounded up does not fit into the register file, the launch
        // fails. If it fits, the number of blocks depends on the actual number of warps.
        let registers_per_warp = (usage.registers * self.warp_size).next_multiple_of(self.register_unit);
        let block_registers = registers_per_warp * warps.next_multiple_of(self.partitions);
        let by_registers = if usage.registers > self.registers_per_thread || block_registers > self.registers {
            0
        } else if registers_per_warp == 0 || warps == 0 {
            u32::MAX
        } else {
            self.registers / self.partitions / registers_per_warp * self.partitions / warps
        };

        let block_shared = (usage.shared + self.shared_reserved).next_multiple_of(self.shared_unit);
        let by_shared = if usage.shared > self.shared_per_block {
            0
        } else {
            self.shared.checked_div(block_shared).map_or(u32::MAX, |blocks| blocks as u32)
        };

        let allowed = [
            (Factor::Warps, by_warps),
            (Factor::Registers, by_registers),
            (Factor::SharedMemory, by_shared),
            (Factor::Blocks, self.blocks),
        ];
        let blocks = allowed.iter().map(|(_, n)| *n).min().unwrap_or(0);
        Occupancy { block, blocks, warps: blocks * warps, max_warps: self.warps, allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(cc: &str, registers: u32, shared: usize, block: u32) -> (u32, Factor) {
        let o = Limits::of(cc.parse().unwrap()).unwrap().occupancy(Usage { registers, shared }, block);
        (o.blocks, o.limiting())
    }

    /// Values computed by hand from the table in the programming guide.
    #[test]
    fn each_resource_can_be_the_limit() {
        assert_eq!(blocks("9.0", 32, 0, 256), (8, Factor::Warps));
        assert_eq!(blocks("9.0", 33, 0, 256), (6, Factor::Registers), "33 x 32 registers round up to 1280 per warp");
        assert_eq!(blocks("9.0", 16, 0, 32), (32, Factor::Blocks));
        assert_eq!(
            blocks("9.0", 16, 48 * 1024, 128),
            (4, Factor::SharedMemory),
            "49 KB per block including the driver's 1 KB, out of 228 KB"
        );
        assert_eq!(blocks("7.0", 16, 48 * 1024, 128), (2, Factor::SharedMemory), "nothing is reserved before 8.0");
        assert_eq!(blocks("7.5", 32, 0, 256), (4, Factor::Warps));
        assert_eq!(blocks("8.6", 32, 0, 64), (16, Factor::Blocks));
        assert_eq!(blocks("8.9", 32, 0, 64), (24, Factor::Warps));
        assert_eq!(blocks("12.0", 16, 50 * 1024, 64), (1, Factor::SharedMemory));
    }

    #[test]
    fn an_impossible_launch_has_no_blocks() {
        assert_eq!(blocks("9.0", 32, 0, 1056), (0, Factor::Warps));
        assert_eq!(blocks("9.0", 255, 0, 1024).0, 0, "1024 threads of 255 registers exceed 65536");
        assert_eq!(blocks("9.0", 32, 227 * 1024 + 1, 128), (0, Factor::SharedMemory));
        assert_eq!(blocks("9.0", 32, 227 * 1024, 128).0, 1);
        assert_eq!(blocks("9.0", 256, 0, 32), (0, Factor::Registers));
        assert_eq!(blocks("9.0", u32::MAX, usize::MAX, u32::MAX).0, 0);
    }

    #[test]
    fn the_last_warp_of_a_block_counts_in_full() {
        let o = Limits::of("8.0".parse().unwrap()).unwrap().occupancy(Usage { registers: 0, shared: 0 }, 33);
        assert_eq!((o.blocks, o.warps, o.max_warps), (32, 64, 64));
        assert!((o.fraction() - 1.0).abs() < 1e-12);
    }
}
