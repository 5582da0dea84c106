// Device code of `blur.rs`, in the same order of operations.

__device__ __forceinline__ u32 reflected(int at, int length) {
    const int period = max(2 * (length - 1), 1);
    at %= period;
    if (at < 0) at += period;
    return u32(max(min(min(at, period - at), length - 1), 0));
}

// A thread block processes the tiles of an image one after the other. For each tile, shared memory
// contains the vertical sums of the tile and of the `radius` columns on either side.
__device__ __forceinline__ void run(const Blur& blur, const Image& image, Scratch& scratch) {
    const int radius = int(blur.radius);
    float* const weights = scratch.weights;
    if (threadIdx.x == 0) {
        double weight = 1.0, ratio = blur.near, sum = 0.0;
        for (int i = 0; i <= radius; i++) {
            sum += i == 0 ? weight : 2.0 * weight;
            weight *= ratio;
            ratio *= blur.near * blur.near;
        }
        weight = 1.0, ratio = blur.near;
        for (int i = 0; i <= radius; i++) {
            weights[i] = float(weight / sum);
            weight *= ratio;
            ratio *= blur.near * blur.near;
        }
    }
    image.save();
    const int width = int(image.width), height = int(image.height);
    const int wide = BLURRED_COLUMNS + 2 * radius;
    for (int top = 0; top < height; top += BLURRED_ROWS) {
        for (int left = 0; left < width; left += BLURRED_COLUMNS) {
            const int rows = min(int(BLURRED_ROWS), height - top), columns = min(int(BLURRED_COLUMNS), width - left);
            for (int i = int(threadIdx.x); i < rows * wide; i += int(blockDim.x)) {
                const int y = top + i / wide, x = int(reflected(left + i % wide - radius, width));
                float sums[3] = {0.0f, 0.0f, 0.0f};
                for (int tap = -radius; tap <= radius; tap++) {
                    const u8* const from = image.copy + (size_t(reflected(y + tap, height)) * width + x) * 3;
                    const float weight = weights[abs(tap)];
                    #pragma unroll
                    for (int c = 0; c < 3; c++) sums[c] += weight * float(from[c]);
                }
                #pragma unroll
                for (int c = 0; c < 3; c++) scratch.sums[i * 3 + c] = sums[c];
            }
            __syncthreads();
            for (int i = int(threadIdx.x); i < rows * columns; i += int(blockDim.x)) {
                const int y = i / columns, x = i % columns;
                float sums[3] = {0.0f, 0.0f, 0.0f};
                for (int tap = 0; tap <= 2 * radius; tap++) {
                    const float weight = weights[abs(tap - radius)];
                    #pragma unroll
                    for (int c = 0; c < 3; c++) sums[c] += weight * scratch.sums[(y * wide + x + tap) * 3 + c];
                }
                u8* const to = image.data + (size_t(top + y) * width + left + x) * 3;
                #pragma unroll
                for (int c = 0; c < 3; c++) to[c] = u8(level(rintf(sums[c])));
            }
            __syncthreads();
        }
    }
}
