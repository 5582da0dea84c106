// Written by the tests of `cuda/headers.rs` with WARPFEED_BLESS=1. Do not edit.
#include "../../transform/ops/jitter.cuh"

__device__ __forceinline__ void run_step(const Step& step, const Image& image, Scratch& scratch) {
    switch (step.code) {
        case 1: run(reinterpret_cast<const Jitter&>(step), image, scratch); break;
    }
}
