//! Tests that the public types of the library are `Send`, `Sync` and `Debug`.

use std::fmt::Debug;

use warpfeed_cli::occupancy;

fn both<T: Send + Sync + Debug>() {}

#[test]
fn the_library_types_are_send_sync_and_debug() {
    both::<warpfeed_synth::Synth>();
    both::<occupancy::Capability>();
    both::<occupancy::Factor>();
    both::<occupancy::Limits>();
    both::<occupancy::Occupancy>();
    both::<occupancy::Row>();
    both::<occupancy::Table>();
    both::<occupancy::Usage>();
}
