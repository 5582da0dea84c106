//! Checks that the generated headers of the kernels match the records and the effects in Rust.

use warpfeed_jpeg::bitstream::OrientationFlags;

use crate::batch::SampleOps;
use crate::batch::records::{Component, DecodeOps, YuvHead};
use crate::decode::Rect;
use crate::generated_files;
use crate::transform::{Effect, Record, c_constants, declarations, dispatch};

const NOTE: &str = "// Written by the tests of `device/nvidia/headers.rs` with WARPFEED_BLESS=1. Do not edit.\n";

fn compare(name: &str, text: &str) {
    generated_files::check_file(&format!("src/device/nvidia/kernels/{name}"), text);
}

#[test]
fn kernel_headers_match_the_records_in_rust() {
    let types = "typedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned int u32;\n\
                 typedef unsigned long long u64;\n";
    let declared = [
        Rect::declaration(),
        Effect::declaration(),
        SampleOps::declaration(),
        format!("enum {{ MIX = {}, CUT = {} }};\n", SampleOps::MIX, SampleOps::CUT),
        format!(
            "enum {{ TRANSPOSED = {}, MIRRORED = {}, FLIPPED = {} }};\n",
            OrientationFlags::TRANSPOSED,
            OrientationFlags::MIRRORED,
            OrientationFlags::FLIPPED
        ),
        Component::declaration(),
        DecodeOps::declaration(),
        format!("enum {{ JPEG = {}, YUV = {} }};\n", DecodeOps::JPEG, DecodeOps::YUV),
        YuvHead::declaration(),
        c_constants(),
    ];
    compare("records.cuh", &format!("{NOTE}{types}\n{}{}", declared.join("\n"), declarations()));
    assert_eq!((SampleOps::BYTES, DecodeOps::BYTES), (944, 256));
}

#[test]
fn the_kernels_call_the_device_code_of_each_operation() {
    compare("effects_on_pixels.cuh", &format!("{NOTE}{}", dispatch(false)));
    compare("effects_on_values.cuh", &format!("{NOTE}{}", dispatch(true)));
}
