// Device code of `sharpen.rs`, in the same order of operations.

__device__ __forceinline__ void run(const Sharpen& effect, const Image& image, Scratch&) {
    if (image.width <= 2 || image.height <= 2) return;
    image.save();
    const u32 stride = image.width * 3, inner = stride - 6;
    for (u32 i = threadIdx.x; i < inner * (image.height - 2); i += blockDim.x) {
        const u32 at = (i / inner + 1) * stride + i % inner + 3;
        const u8* const from = image.copy + at;
        int sum = 0;
        #pragma unroll
        for (int row = -1; row <= 1; row++) {
            const u8* const of = from + row * int(stride);
            sum += int(of[-3]) + int(of[0]) + int(of[3]);
        }
        const int value = from[0];
        const int smooth = (2 * (sum + 4 * value) + 13) / 26;
        image.data[at] = u8(level(fused(float(smooth - value), effect.share, float(value))));
    }
    __syncthreads();
}
