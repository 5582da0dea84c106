// Written by the tests of `cuda/headers.rs` with WARPFEED_BLESS=1. Do not edit.
#include "../../transform/ops/jitter.cuh"

__device__ __forceinline__ void run_effect(const Effect& effect, const Image& image, Scratch& scratch) {
    switch (effect.code) {
        case 1: run(reinterpret_cast<const Jitter&>(effect), image, scratch); break;
    }
}
