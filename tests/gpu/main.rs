//! Tests of batches and decoders on a device. Without a GPU, tests that need one are skipped, or
//! fail if `WARPFEED_REQUIRE` lists `cuda`. To find memory errors, run
//! `compute-sanitizer --tool memcheck target/debug/deps/gpu-*`.

#[path = "../support/device/mod.rs"]
mod device;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/reference.rs"]
mod reference;
#[path = "../support/require.rs"]
mod require;
#[path = "../support/warnings.rs"]
mod warnings;

mod batches;
mod clips;
mod decode;
mod decoder;
mod dynamic_batching;
mod kernels;
mod ptx;
mod ranks;
