// Device code of `warp.rs`, in the same order of operations.

// Computes the source position (x, y) of output pixel (column, row).
__device__ __forceinline__ void source_of(const Warp& warp, const Image& image, u32 column, u32 row, float& x, float& y) {
    const float across = 0.5f * float(image.width), down = 0.5f * float(image.height);
    const float* const m = warp.map;
    if (warp.mode & PERSPECTIVE) {
        const float left = float(column) + 0.5f, top = float(row) + 0.5f;
        const float under = (left * m[6] + top * m[7]) + 1.0f;
        x = __fdiv_rn((left * m[0] + top * m[1]) + m[2], under) - 1.0f;
        y = __fdiv_rn((left * m[3] + top * m[4]) + m[5], under) - 1.0f;
    } else {
        const float left = float(column) + (0.5f - across), top = float(row) + (0.5f - down);
        x = (left * m[0] + top * m[1]) + m[2];
        y = (left * m[3] + top * m[4]) + m[5];
    }
    x = (x + 1.0f) * across - 0.5f;
    y = (y + 1.0f) * down - 0.5f;
}

__device__ __forceinline__ bool inside(float v, u32 length) { return v >= 0.0f && v < float(length); }

__device__ __forceinline__ void run(const Warp& warp, const Image& image, Scratch&) {
    image.save();
    const u32 width = image.width, height = image.height;
    for (u32 i = threadIdx.x; i < image.pixels; i += blockDim.x) {
        float x, y;
        source_of(warp, image, i % width, i / width, x, y);
        u8* const to = image.data + size_t(i) * 3;
        if ((warp.mode & BILINEAR) == 0) {
            const float nearest_x = rintf(x), nearest_y = rintf(y);
            const bool shown = inside(nearest_x, width) && inside(nearest_y, height);
            const size_t at = shown ? size_t(u32(nearest_y)) * width + u32(nearest_x) : 0;
            #pragma unroll
            for (int c = 0; c < 3; c++) to[c] = shown ? image.copy[at * 3 + c] : u8(warp.mode >> (8 * c));
            continue;
        }
        const float left = floorf(x), top = floorf(y), right = x - left, below = y - top;
        const float weights[4] = {(1.0f - right) * (1.0f - below), right * (1.0f - below), (1.0f - right) * below, right * below};
        float sums[3] = {0.0f, 0.0f, 0.0f}, covered = 0.0f;
        #pragma unroll
        for (int p = 0; p < 4; p++) {
            const float column = p % 2 ? left + 1.0f : left, row = p / 2 ? top + 1.0f : top;
            if (!inside(column, width) || !inside(row, height)) continue;
            const u8* const from = image.copy + (size_t(u32(row)) * width + u32(column)) * 3;
            covered = covered + weights[p];
            #pragma unroll
            for (int c = 0; c < 3; c++) sums[c] = sums[c] + float(from[c]) * weights[p];
        }
        #pragma unroll
        for (int c = 0; c < 3; c++) {
            float value = sums[c];
            if (warp.mode & FILLED) {
                const float fill = float(warp.mode >> (8 * c) & 255);
                value = (value - fill) * covered + fill;
            }
            to[c] = u8(level(rintf(value)));
        }
    }
    __syncthreads();
}
