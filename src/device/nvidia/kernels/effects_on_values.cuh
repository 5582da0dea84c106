// Written by the tests of `device/nvidia/headers.rs` with WARPFEED_BLESS=1. Do not edit.
#include "../../../transform/ops/erase.cuh"
#include "../../../transform/ops/noise.cuh"

template <int P> __device__ __forceinline__ void run_effect(const Effect& effect, u32 x, u32 y, float (&v)[3 * P]) {
    switch (effect.code) {
        case 1: run<P>(reinterpret_cast<const Erase&>(effect), x, y, v); break;
        case 2: run<P>(reinterpret_cast<const Noise&>(effect), x, y, v); break;
    }
}
