// A u8 image (H, W, 3) on the device, and the operations on its pixels. A thread block works on one
// image. All of its threads must call each method of `Image` together, and each method returns once
// the whole image has been processed.

// Size of a tile of the blur, and the maximum blur radius, in pixels.
enum { BLURRED_COLUMNS = 64, BLURRED_ROWS = 16, MAX_RADIUS = 31 };

struct Scratch {
    // For each channel, the new value of each old value.
    u8 table[3][256];
    // For each channel, the number of pixels with each value.
    u32 counts[3][256];
    u64 sum;
    // Weights of a blur, and the row sums of a tile.
    float weights[MAX_RADIUS + 1];
    float sums[BLURRED_ROWS * (BLURRED_COLUMNS + 2 * MAX_RADIUS) * 3];
};

// NaN becomes 0, as in Rust.
__device__ __forceinline__ u32 level(float v) { return u32(fminf(fmaxf(v, 0.0f), 255.0f)); }

// Rounds `a * b + c` to a double and then to a float.
__device__ __forceinline__ float fused(float a, float b, float c) { return float(double(a) * double(b) + double(c)); }

// The host adds doubles, in which every sum is exact, so a fused multiply-add rounds identically.
__device__ __forceinline__ u32 gray(const u32 (&rgb)[3]) {
    return u32(__fmaf_rn(float(rgb[2]), 0.114f, __fmaf_rn(float(rgb[1]), 0.587f, float(rgb[0]) * 0.2989f)));
}

__device__ __forceinline__ float blend(float value, float other, const float (&shares)[2]) {
    return fused(other, shares[1], value * shares[0]);
}

struct Image {
    u8* data;
    u8* copy;
    u32 height, width;
    u32 pixels;

    // Calls `f` with the red, green and blue of each pixel that this thread processes. With
    // `Store`, stores the values that `f` assigns. Four pixels are loaded and stored as three
    // words.
    template <bool Store, class F> __device__ __forceinline__ void visit(F f) const {
        const u32 fours = reinterpret_cast<size_t>(data) % 4 == 0 ? pixels / 4 : 0;
        u32* const words = reinterpret_cast<u32*>(data);
        for (u32 i = threadIdx.x; i < fours; i += blockDim.x) {
            u32 word[3];
            #pragma unroll
            for (int k = 0; k < 3; k++) word[k] = words[i * 3 + k];
            #pragma unroll
            for (int p = 0; p < 4; p++) {
                u32 rgb[3];
                #pragma unroll
                for (int c = 0; c < 3; c++) rgb[c] = word[(p * 3 + c) / 4] >> ((p * 3 + c) % 4 * 8) & 255;
                f(rgb);
                #pragma unroll
                for (int c = 0; c < 3; c++) {
                    const int at = p * 3 + c;
                    word[at / 4] = word[at / 4] & ~(255u << (at % 4 * 8)) | rgb[c] << (at % 4 * 8);
                }
            }
            if (Store) {
                #pragma unroll
                for (int k = 0; k < 3; k++) words[i * 3 + k] = word[k];
            }
        }
        for (u32 i = fours * 4 + threadIdx.x; i < pixels; i += blockDim.x) {
            u8* const at = data + size_t(i) * 3;
            u32 rgb[3] = {at[0], at[1], at[2]};
            f(rgb);
            if (Store) at[0] = u8(rgb[0]), at[1] = u8(rgb[1]), at[2] = u8(rgb[2]);
        }
        __syncthreads();
    }

    template <class F> __device__ __forceinline__ void map(F f) const { visit<true>(f); }

    // Replaces each channel value by its entry in the table. There is one table for all channels,
    // or one per channel.
    __device__ __forceinline__ void look_up(Scratch& scratch, u32 tables) const {
        visit<true>([&](u32 (&rgb)[3]) {
            #pragma unroll
            for (int c = 0; c < 3; c++) rgb[c] = scratch.table[tables == 1 ? 0 : c][rgb[c]];
        });
    }

    // Replaces each channel value `v` by `f(v)`. Calls `f` only once for each of the 256 values.
    template <class F> __device__ __forceinline__ void map_levels(Scratch& scratch, F f) const {
        for (u32 v = threadIdx.x; v < 256; v += blockDim.x) scratch.table[0][v] = u8(f(v));
        __syncthreads();
        look_up(scratch, 1);
    }

    // Counts the pixels with each value, per channel.
    __device__ __forceinline__ void count_levels(Scratch& scratch) const {
        for (u32 i = threadIdx.x; i < 3 * 256; i += blockDim.x) scratch.counts[i / 256][i % 256] = 0;
        __syncthreads();
        visit<false>([&](u32 (&rgb)[3]) {
            #pragma unroll
            for (int c = 0; c < 3; c++) atomicAdd(&scratch.counts[c][rgb[c]], 1);
        });
    }

    // Copies the image for an effect that reads surrounding pixels.
    __device__ __forceinline__ void save() const {
        const u32 bytes = pixels * 3;
        const bool even = (reinterpret_cast<size_t>(data) | reinterpret_cast<size_t>(copy)) % 4 == 0;
        const u32 words = even ? bytes / 4 : 0;
        const u32* const from = reinterpret_cast<const u32*>(data);
        u32* const to = reinterpret_cast<u32*>(copy);
        for (u32 i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
        for (u32 i = words * 4 + threadIdx.x; i < bytes; i += blockDim.x) copy[i] = data[i];
        __syncthreads();
    }

    template <class F> __device__ __forceinline__ u64 sum(Scratch& scratch, F f) const {
        if (threadIdx.x == 0) scratch.sum = 0;
        __syncthreads();
        u64 own = 0;
        visit<false>([&](u32 (&rgb)[3]) { own += f(rgb); });
        #pragma unroll
        for (int other = 16; other > 0; other /= 2) own += __shfl_down_sync(~0u, own, other);
        if (threadIdx.x % 32 == 0) atomicAdd(&scratch.sum, own);
        __syncthreads();
        const u64 all = scratch.sum;
        __syncthreads();
        return all;
    }
};
