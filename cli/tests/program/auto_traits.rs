//! Tests that the public types of this crate and of `warpfeed-synth` are `Send`, `Sync` and
//! `Debug`.

use std::fmt::Debug;

use warpfeed_cli::occupancy;

fn assert_send_and_sync<T: Send + Sync + Debug>() {}

#[test]
fn the_library_types_are_send_sync_and_debug() {
    assert_send_and_sync::<warpfeed_synth::Synth>();
    assert_send_and_sync::<occupancy::Capability>();
    assert_send_and_sync::<occupancy::Factor>();
    assert_send_and_sync::<occupancy::Limits>();
    assert_send_and_sync::<occupancy::Occupancy>();
    assert_send_and_sync::<occupancy::Row>();
    assert_send_and_sync::<occupancy::Table>();
    assert_send_and_sync::<occupancy::Usage>();
}
