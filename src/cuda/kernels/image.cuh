// An image on the device, as the effects on pixels see it: u8 (H, W, 3). One block works on one
// image. All of its threads call each method together, and return together when the image is done.

// Shared memory of the block.
struct Scratch {
    u8 table[256];
    u64 sum;
};

struct Image {
    u8* data;
    u32 height, width;
    u32 pixels;

    // Calls `f` with red, green and blue of each pixel of this thread. If `Store`, stores the
    // values that `f` leaves there. Four pixels are three words.
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

    // Changes each pixel on its own.
    template <class F> __device__ __forceinline__ void map(F f) const { visit<true>(f); }

    // Replaces each level by `f` of it. `f` is called once for each of the 256 levels.
    template <class F> __device__ __forceinline__ void map_levels(Scratch& scratch, F f) const {
        for (u32 v = threadIdx.x; v < 256; v += blockDim.x) scratch.table[v] = u8(f(v));
        __syncthreads();
        visit<true>([&](u32 (&rgb)[3]) {
            #pragma unroll
            for (int c = 0; c < 3; c++) rgb[c] = scratch.table[rgb[c]];
        });
    }

    // Sum of `f` over all pixels.
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
