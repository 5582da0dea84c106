// Steps on pixels: u8 (N, H, W, 3), changed in place before they are normalised.
//
// One block retouches one sample. It runs the sample's steps one after the other, so a step may
// look at the whole image. The device code of a step is next to its host code, in `transform/ops`.
//
// All arithmetic is the host's, in its order, so both give the same bits. The file is compiled with
// contraction off. `retouch.ptx` is the compiled form (see README.md).

#include "records.cuh"
#include "image.cuh"
#include "steps_on_pixels.cuh"

enum { RETOUCHERS = 512 };

extern "C" __global__ void __launch_bounds__(RETOUCHERS)
retouch(u8* out, const u8* in, const SampleOps* all, u32 count, u32 height, u32 width) {
    __shared__ Scratch scratch;
    const u32 pixels = height * width;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const u32 steps = all[n].steps & 0xffff;
        const Image image = {out + size_t(n) * pixels * 3, height, width, pixels};
        for (u32 i = 0; i < steps; i++) run_step(all[n].pixels[i], image, scratch);
    }
}
