//! Tests that observe the whole process or device, so they run one at a time. Without a GPU, they
//! are skipped, or fail if `WARPFEED_REQUIRE` lists `cuda`.

#[path = "../support/device/mod.rs"]
mod device;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/reference.rs"]
mod reference;
#[path = "../support/require.rs"]
mod require;

mod pinned_handoff;
mod program;
mod trace;
