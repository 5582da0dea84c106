//! How many warps of a kernel a multiprocessor holds at once, and what limits the number.
//!
//! The calculation follows the rules that NVIDIA publishes: the technical specifications per
//! compute capability in the CUDA C++ Programming Guide, and the allocation granularities of the
//! CUDA Occupancy Calculator. It needs no GPU and no driver; on the H200 it gives the driver's
//! answer for every configuration of `tests/occupancy.rs`.
//!
//! 1. `limits`: what a multiprocessor has, by compute capability: [`Limits`].
//! 2. `table`: occupancy over block sizes, as text and as a plot: [`Table`].
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

/// What a kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// 32-bit registers a thread, as `ptxas -v` or `cuFuncGetAttribute` report them.
    pub registers: u32,
    /// Bytes of shared memory a block, static and dynamic together.
    pub shared: usize,
}

/// What limits the number of blocks on a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Factor {
    /// Warps (threads) a multiprocessor can hold.
    Warps,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// Blocks a multiprocessor can hold.
    Blocks,
}

impl Factor {
    /// In words: `warps`, `registers`, `shared memory`, `blocks`.
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
    /// Threads a block.
    pub block: u32,
    /// Blocks that run at once.
    pub blocks: u32,
    /// Warps that run at once.
    pub warps: u32,
    /// Warps that could run at once.
    pub max_warps: u32,
    /// Blocks that each resource alone would allow, in the order of [`Factor`]; `u32::MAX` where
    /// none of it is used.
    pub allowed: [(Factor, u32); 4],
}

impl Occupancy {
    /// Warps that run over warps that could, 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(self.warps) / f64::from(self.max_warps)
    }

    /// The resource that allows the fewest blocks; the first of [`Factor`]'s order where several
    /// do.
    pub fn limiting(&self) -> Factor {
        self.allowed.iter().min_by_key(|(_, blocks)| *blocks).map_or(Factor::Warps, |(factor, _)| *factor)
    }
}

impl Limits {
    /// Occupancy of blocks of `block` threads of a kernel that needs `usage`. A kernel that cannot
    /// be launched this way (too many threads, registers or bytes in a block) has 0 blocks.
    pub fn occupancy(&self, usage: Usage, block: u32) -> Occupancy {
        let warps = block.div_ceil(self.warp_size);
        let fits = block > 0 && block <= self.threads_per_block;
        let by_warps = if fits { self.warps / warps } else { 0 };

        // Registers go to whole warps in units of 256, and each of the four partitions has a
        // quarter of the file. A launch is refused when a block with its warps rounded up to the
        // partitions would not fit the file.
        let per_warp = (usage.registers * self.warp_size).next_multiple_of(self.register_unit);
        let assumed = per_warp * warps.next_multiple_of(self.partitions);
        let by_registers = if usage.registers > self.registers_per_thread || assumed > self.registers {
            0
        } else if per_warp == 0 || warps == 0 {
            u32::MAX
        } else {
            self.registers / self.partitions / per_warp * self.partitions / warps
        };

        // From 8.0 on the driver keeps 1 KB a block for itself.
        let bytes = (usage.shared + self.shared_reserved).next_multiple_of(self.shared_unit);
        let by_shared = if usage.shared > self.shared_per_block {
            0
        } else {
            self.shared.checked_div(bytes).map_or(u32::MAX, |blocks| blocks as u32)
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

    /// Worked by hand from the programming guide's table.
    #[test]
    fn each_resource_can_be_the_limit() {
        assert_eq!(blocks("9.0", 32, 0, 256), (8, Factor::Warps));
        assert_eq!(blocks("9.0", 33, 0, 256), (6, Factor::Registers), "33 x 32 registers round up to 1280 a warp");
        assert_eq!(blocks("9.0", 16, 0, 32), (32, Factor::Blocks));
        assert_eq!(
            blocks("9.0", 16, 48 * 1024, 128),
            (4, Factor::SharedMemory),
            "49 KB a block with the driver's own, of 228"
        );
        assert_eq!(blocks("7.0", 16, 48 * 1024, 128), (2, Factor::SharedMemory), "nothing is reserved before 8.0");
        assert_eq!(blocks("7.5", 32, 0, 256), (4, Factor::Warps));
        assert_eq!(blocks("8.6", 32, 0, 64), (16, Factor::Blocks));
        assert_eq!(blocks("8.9", 32, 0, 64), (24, Factor::Warps));
        assert_eq!(blocks("12.0", 16, 50 * 1024, 64), (1, Factor::SharedMemory));
    }

    #[test]
    fn what_cannot_be_launched_has_no_blocks() {
        assert_eq!(blocks("9.0", 32, 0, 1056), (0, Factor::Warps));
        assert_eq!(blocks("9.0", 255, 0, 1024).0, 0, "1024 threads of 255 registers do not fit 65536");
        assert_eq!(blocks("9.0", 32, 227 * 1024 + 1, 128), (0, Factor::SharedMemory));
        assert_eq!(blocks("9.0", 32, 227 * 1024, 128).0, 1);
        assert_eq!(blocks("9.0", 256, 0, 32), (0, Factor::Registers));
    }

    #[test]
    fn the_last_warp_of_a_block_counts_in_full() {
        let o = Limits::of("8.0".parse().unwrap()).unwrap().occupancy(Usage { registers: 0, shared: 0 }, 33);
        assert_eq!((o.blocks, o.warps, o.max_warps), (32, 64, 64));
        assert!((o.fraction() - 1.0).abs() < 1e-12);
    }
}
