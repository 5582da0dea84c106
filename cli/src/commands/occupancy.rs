use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use warpfeed::Error;
use warpfeed_cli::occupancy::{Capability, Limits, Table, Usage};

use crate::{Outcome, size};

/// Tell how many warps of a CUDA kernel a multiprocessor holds, for each block size
///
/// Calculates as the CUDA Occupancy Calculator does; needs neither a GPU nor a driver. Registers
/// and shared memory of a kernel are what `nvcc -Xptxas -v` or `cuobjdump --dump-resource-usage`
/// print.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed occupancy --regs 40
  warpfeed occupancy --regs 64 --smem 48KiB --cc 8.0
  warpfeed occupancy --regs 32 --cc 9.0 --out occupancy.svg    a plot beside the table")]
pub(crate) struct Args {
    /// Registers a thread
    #[arg(long, value_name = "N")]
    regs: u32,
    /// Shared memory a block, static and dynamic together, such as 4096 or 48KiB
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = shared)]
    smem: usize,
    /// Compute capability of the GPU; 9.0 is the H100's and the H200's
    #[arg(long, value_name = "X.Y", default_value = "9.0")]
    cc: Capability,
    /// SVG file for a plot
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn shared(text: &str) -> Result<usize, String> {
    match text {
        "0" => Ok(0),
        text => size::parse_bytes(text)?.try_into().map_err(|_| "larger than the address space".to_owned()),
    }
}

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let table = Table::new(Limits::of(self.cc)?, Usage { registers: self.regs, shared: self.smem });
        if let Some(path) = &self.out {
            std::fs::write(path, table.svg()).map_err(|e| Error::io(path, &e))?;
        }
        writeln!(std::io::stdout(), "{table}")?;
        Ok(ExitCode::SUCCESS)
    }
}
