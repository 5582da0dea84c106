// Written by the tests of `device/nvidia/headers.rs` with WARPFEED_BLESS=1. Do not edit.
#include "../../../transform/ops/tone.cuh"
#include "../../../transform/ops/tint.cuh"
#include "../../../transform/ops/sharpen.cuh"
#include "../../../transform/ops/blur.cuh"
#include "../../../transform/ops/warp.cuh"

__device__ __forceinline__ void run_effect(const Effect& effect, const Image& image, Scratch& scratch) {
    switch (effect.code) {
        case 1: run(reinterpret_cast<const Tone&>(effect), image, scratch); break;
        case 2: run(reinterpret_cast<const Tint&>(effect), image, scratch); break;
        case 3: run(reinterpret_cast<const Sharpen&>(effect), image, scratch); break;
        case 4: run(reinterpret_cast<const Blur&>(effect), image, scratch); break;
        case 5: run(reinterpret_cast<const Warp&>(effect), image, scratch); break;
    }
}
