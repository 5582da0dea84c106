// Applies pixel effects to u8 (N, H, W, 3), in place, before normalization.
//
// A thread block applies a sample's effects one after the other. So an effect that reads the whole
// image, such as equalize, needs only `__syncthreads()`. The device code of each effect is next to
// its host code, in `src/transform/ops`.
//
// `copies` points to memory for a copy of each image. It is the output of the conversion, which
// runs next and overwrites it.
//
// The pixels are bit-identical to the host's. This file is compiled without contraction of
// multiply-adds (see README.md).

#include "records.cuh"
#include "image.cuh"
#include "effects_on_pixels.cuh"

enum { RETOUCH_THREADS = 512 };

extern "C" __global__ void __launch_bounds__(RETOUCH_THREADS)
retouch(u8* copies, u8* images, const SampleOps* all, u32 count, u32 height, u32 width) {
    __shared__ Scratch scratch;
    const u32 pixels = height * width;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const u32 effects = all[n].effects & 0xffff;
        const size_t at = size_t(n) * pixels * 3;
        const Image image = {images + at, copies + at, height, width, pixels};
        for (u32 i = 0; i < effects; i++) run_effect(all[n].pixels[i], image, scratch);
    }
}
