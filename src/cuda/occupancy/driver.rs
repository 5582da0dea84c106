#![allow(unsafe_code)]
//! The driver's own calculator, for kernels that are loaded.
//!
//! **Invariants**
//! 1. A `CUfunction` given here belongs to a module that is loaded, and its context is bound.

use cudarc::driver::result::{function, occupancy};
use cudarc::driver::{result, sys};

use super::{Capability, Usage};
use crate::cuda::Context;
use crate::cuda::driver::Doing;
use crate::error::Result;

/// The block size at which the driver puts most warps on a multiprocessor, at most `limit`; `limit`
/// itself if it does not say.
pub(in crate::cuda) fn driver_block(kernel: sys::CUfunction, limit: u32) -> u32 {
    // SAFETY: invariant 1; no callback is given because dynamic shared memory is not used.
    let chosen = unsafe { occupancy::max_potential_block_size(kernel, None, 0, limit as i32) };
    chosen.ok().and_then(|(_, block)| u32::try_from(block).ok()).filter(|&b| b >= 32).map_or(limit, |b| b / 32 * 32)
}

/// A kernel from PTX of the caller's, for comparing this module with the driver.
pub struct DriverKernel {
    module: sys::CUmodule,
    kernel: sys::CUfunction,
    context: Context,
}

impl DriverKernel {
    /// Loads entry point `name` of `ptx`.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub fn load(context: &Context, ptx: &std::ffi::CStr, name: &std::ffi::CStr) -> Result<Self> {
        let _here = context.enter()?;
        // SAFETY: a zero-terminated text, and the context is bound.
        let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) }.doing(|| "loading a module")?;
        // SAFETY: the module was just loaded.
        let kernel = unsafe { result::module::get_function(module, name.to_owned()) }
            .doing(|| format!("finding kernel {name:?}"));
        let kernel = kernel.inspect_err(|_| {
            // SAFETY: loaded above, and nobody else has it.
            let _ = unsafe { result::module::unload(module) };
        })?;
        Ok(DriverKernel { module, kernel, context: context.clone() })
    }

    /// Registers a thread, and the static shared memory of a block.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub fn usage(&self) -> Result<Usage> {
        let _here = self.context.enter()?;
        let get = |attribute| {
            // SAFETY: invariant 1.
            unsafe { function::get_function_attribute(self.kernel, attribute) }
                .doing(|| "asking for a kernel's attributes")
        };
        Ok(Usage {
            registers: get(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)? as u32,
            shared: get(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)? as usize,
        })
    }
}

impl Drop for DriverKernel {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: loaded by `load`, unloaded once.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// Blocks of `block` threads with `dynamic` bytes of dynamic shared memory that the driver says run
/// at once on a multiprocessor, and the device's compute capability.
///
/// # Errors
/// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
pub fn driver_occupancy(kernel: &DriverKernel, block: u32, dynamic: usize) -> Result<(u32, Capability)> {
    let _here = kernel.context.enter()?;
    if dynamic > 48 * 1024 {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: invariant 1.
        unsafe { function::set_function_attribute(kernel.kernel, attribute, dynamic as i32) }
            .doing(|| format!("opting in to {dynamic} bytes of shared memory"))?;
    }
    // SAFETY: invariant 1.
    let blocks = unsafe { occupancy::max_active_block_per_multiprocessor(kernel.kernel, block as i32, dynamic) }
        .doing(|| format!("asking for the occupancy of blocks of {block} threads"))?;
    let (major, minor) = kernel.context.cudarc().compute_capability().doing(|| "asking for the compute capability")?;
    Ok((blocks as u32, Capability { major: major as u32, minor: minor as u32 }))
}
