//! The `occupancy` subcommand: prints the occupancy of a CUDA kernel.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::occupancy::{Capability, Limits, Table, Usage};

use crate::{Outcome, output, size};

/// Show the occupancy of a CUDA kernel for each block size
///
/// Occupancy is the number of warps that can be resident on a multiprocessor, relative to the
/// maximum. The calculation is the same as in the CUDA Occupancy Calculator and needs no GPU or
/// driver. `nvcc -Xptxas -v` and `cuobjdump --dump-resource-usage` print a kernel's registers and
/// shared memory.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed occupancy --regs 40
  warpfeed occupancy --regs 64 --smem 48KiB --cc 8.0
  warpfeed occupancy --regs 32 --cc 9.0 --out occupancy.svg   # with a plot")]
pub(crate) struct Args {
    /// Registers per thread
    #[arg(long, value_name = "N")]
    regs: u32,
    /// Shared memory per block, static plus dynamic, such as 4096 or 48KiB
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_shared_bytes)]
    smem: usize,
    /// Compute capability of the GPU; H100 and H200 have 9.0
    #[arg(long, value_name = "X.Y", default_value = "9.0")]
    cc: Capability,
    /// Write a plot to this SVG file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn parse_shared_bytes(text: &str) -> Result<usize, String> {
    match text {
        "0" => Ok(0),
        text => size::parse_bytes(text)?.try_into().map_err(|_| "larger than the address space".to_owned()),
    }
}

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let table = Table::new(Limits::of(self.cc)?, Usage { registers: self.regs, shared: self.smem });
        if let Some(path) = &self.out {
            output::write(path, table.svg().as_bytes())?;
        }
        writeln!(std::io::stdout(), "{table}")?;
        Ok(ExitCode::SUCCESS)
    }
}
