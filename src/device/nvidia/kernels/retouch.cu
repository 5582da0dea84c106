// Applies pixel effects to u8 (N, H, W, 3), in place, before normalization.
//
// One block per sample applies the sample's effects one after the other. So an effect that reads
// the whole image, such as equalize, needs only `__syncthreads()`. Each effect's device code is
// next to its host code, in `transform/ops`.
//
// `copies` points to memory for a copy of each image. This is the output of the conversion, which
// runs next and overwrites it.
//
// All arithmetic is the same as on the host, in the same order, so both produce the same bits. The
// file is compiled without contraction of multiply-adds (see README.md).

#include "records.cuh"
#include "image.cuh"
#include "effects_on_pixels.cuh"

enum { RETOUCHERS = 512 };

extern "C" __global__ void __launch_bounds__(RETOUCHERS)
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
