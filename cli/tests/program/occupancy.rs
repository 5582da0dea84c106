//! Tests that the occupancy calculator agrees with the driver, if there is one.
#![cfg(feature = "cuda")]

use warpfeed::cuda::cudarc::driver::sys::CUfunction_attribute;
use warpfeed::cuda::cudarc::nvrtc::Ptx;
use warpfeed_cli::occupancy::{Capability, Limits, Usage};

const PROBE: &str = include_str!("../../../examples/kernels/probe.ptx");

#[test]
fn the_calculator_agrees_with_the_driver() {
    let stream = match warpfeed::cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => return crate::require::missing("cuda", e),
    };
    let (major, minor) = stream.context().compute_capability().unwrap();
    let capability = Capability { major: major as u32, minor: minor as u32 };
    let Ok(limits) = Limits::of(capability) else {
        return crate::require::missing("capability", format_args!("{capability} is not in the table"));
    };
    let module = stream.context().load_module(Ptx::from_src(PROBE)).unwrap();
    let mut configurations = 0;
    for name in ["live_4", "live_16", "live_28", "live_44", "live_60", "live_92", "live_140", "live_220", "spin"] {
        let kernel = module.load_function(name).unwrap();
        let (registers, shared) = (kernel.num_regs().unwrap() as u32, kernel.shared_size_bytes().unwrap() as usize);
        for dynamic in [0, 1000, 8192, 20_000, 33_000, 48 << 10, 60_000, 99 << 10, 100_000] {
            if dynamic > limits.shared_per_block {
                continue;
            }
            if dynamic > 48 << 10 {
                let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                kernel.set_attribute(attribute, dynamic as i32).unwrap();
            }
            for block in (32..=1024).step_by(32) {
                let blocks = kernel.occupancy_max_active_blocks_per_multiprocessor(block, dynamic, None);
                let blocks = blocks.unwrap_or_else(|e| {
                    panic!("the driver refuses {name} with {block} threads and {dynamic} bytes: {e}");
                });
                let ours = limits.occupancy(Usage { registers, shared: shared + dynamic }, block);
                let what = format!("{name}: {registers} registers, {dynamic} bytes, {block} threads");
                assert_eq!(ours.blocks, blocks, "{what}");
                configurations += 1;
            }
        }
    }
    eprintln!("{configurations} configurations agree");
    assert!(configurations > 500);
}
