//! Finds an entry point in the committed PTX, loads it, and queues launches.
//!
//! **Invariants**
//! 1. A module outlives its function: both are private to a struct that unloads the module in
//!    `drop`.
//! 2. The PTX is the compiled form of the source next to it (`tests/gpu/ptx.rs` compares them).
//!    Code that queues an entry point passes the parameters that the source declares.

#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::sync::LazyLock;

use cudarc::driver::{result, sys};

use super::driver::{Context, Doing};
use super::memory::DeviceBuffer;
use super::stream::Stream;
use crate::error::{Error, ErrorKind, Result};

/// PTX from NVRTC 12.8, which needs driver 570 or later. It targets compute capability 7.0, and the
/// driver compiles it for later devices. Entry points have unique names.
const PTX: [&str; 3] =
    [include_str!("kernels/convert.ptx"), include_str!("kernels/retouch.ptx"), include_str!("kernels/jpeg.ptx")];

/// Maximum number of blocks along y. With more samples than this, some blocks process several.
const MAX_GRID_Y: usize = 65535;

/// Returns the PTX of a module with only the entry point `name`, or `None` if there is no such
/// entry point. The driver compiles whole modules, and compiling all entry points would take a
/// second.
pub(super) fn entry_text(name: &str) -> Option<String> {
    static PARTS: LazyLock<[(&str, Vec<&str>); 3]> = LazyLock::new(|| {
        PTX.map(|text| {
            let head = text.find(".visible .entry ").unwrap_or(text.len());
            let body = &text[head..];
            let starts = body.match_indices(".visible .entry ").map(|(offset, _)| offset);
            let starts = starts.chain([body.len()]).collect::<Vec<_>>();
            (&text[..head], starts.windows(2).map(|w| &body[w[0]..w[1]]).collect())
        })
    });
    let opening = format!(".visible .entry {name}(");
    PARTS.iter().find_map(|(head, entries)| {
        entries.iter().find(|text| text.starts_with(&opening)).map(|text| format!("{head}{text}"))
    })
}

pub(super) struct Grid {
    /// Blocks per row of the grid.
    pub(super) blocks: u32,
    /// Threads per block.
    pub(super) block: u32,
    /// Number of rows: one per sample, and one per additional share of a large sample.
    pub(super) count: usize,
    /// Dynamic shared memory per block, in bytes.
    pub(super) shared: u32,
}

pub(super) struct Kernel {
    name: String,
    module: sys::CUmodule,
    function: sys::CUfunction,
    context: Context,
}

// SAFETY: both handles are addresses in the driver, and are only read, by threads that have bound
// the context.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Loads the entry point `name`. The first time on a machine, the driver compiles the PTX,
    /// which takes tens of milliseconds, and caches the result.
    pub(super) fn load(context: &Context, name: String) -> Result<Self> {
        let _entered = context.enter()?;
        let error = |cause: String| Error::new(ErrorKind::Cuda, cause);
        let text = entry_text(&name).ok_or_else(|| error(format!("kernel {name} is not in the PTX")))?;
        let text = CString::new(text).map_err(|_| error("the PTX contains a zero byte".into()))?;
        let symbol = CString::new(name.as_str()).map_err(|_| error("the kernel name contains a zero byte".into()))?;
        // SAFETY: the text is zero-terminated PTX, and the context is bound.
        let module =
            unsafe { result::module::load_data(text.as_ptr().cast()) }.doing(|| format!("loading kernel {name}"))?;
        let mut kernel = Kernel { name, module, function: std::ptr::null_mut(), context: context.clone() };
        // SAFETY: the module is loaded and its context bound.
        kernel.function = unsafe { result::module::get_function(module, symbol) }
            .doing(|| format!("finding kernel {}", kernel.name))?;
        Ok(kernel)
    }

    /// Returns the block size up to `limit` with the highest estimated occupancy, or `limit` if the
    /// driver gives no estimate.
    pub(super) fn best_block(&self, limit: u32) -> Result<u32> {
        let _entered = self.context.enter()?;
        // SAFETY: the function is loaded, and its context is bound. The callback may be omitted,
        // because the kernel uses no dynamic shared memory.
        let chosen = unsafe { result::occupancy::max_potential_block_size(self.function, None, 0, limit as i32) };
        let block = chosen.ok().and_then(|(_, block)| u32::try_from(block).ok()).filter(|&block| block >= 32);
        Ok(block.map_or(limit, |block| block / 32 * 32))
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// `parameters` must point to values of the types that the entry point declares. All bytes that
    /// the kernel accesses through addresses in `parameters` must be inside `memory`. Streams and
    /// events must order this work with all other accesses to these bytes. `self` must not be
    /// dropped before the work is done.
    pub(super) unsafe fn queue(
        &self,
        stream: &Stream,
        memory: &DeviceBuffer,
        Grid { blocks, block, count, shared }: Grid,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let _entered = stream.same_context(memory.context())?;
        let grid = (blocks, count.min(MAX_GRID_Y) as u32, 1);
        // SAFETY: invariant 1, and guaranteed by the caller. The driver copies the parameters
        // before it returns.
        unsafe { result::launch_kernel(self.function, grid, (block, 1, 1), shared, stream.handle(), parameters) }
            .doing(|| format!("launching kernel {} on {count} samples", self.name))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: `load` loaded the module, and it is unloaded once.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}
