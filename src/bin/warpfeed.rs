//! The warpfeed program.
fn main() {}
