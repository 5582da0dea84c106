// Device code of `noise.rs`, in the same order of operations.

__device__ __forceinline__ u32 mixed(u32 bits) {
    bits = (bits ^ (bits >> 16)) * 0x7feb352du;
    bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
    return bits ^ (bits >> 16);
}

// The loop is not unrolled, because noise is rare and its code is in many kernels.
template <int P> __device__ __forceinline__ void run(const Noise& noise, u32 x, u32 y, float (&v)[3 * P]) {
    const u32 wide = reach<P>(noise.rect, x, y);
    if (wide == 0) return;
    const u32 row = mixed(y ^ noise.seed[0]) + noise.seed[1];
    u32 bits = 0;
    #pragma unroll 1
    for (u32 i = 0; i < 3 * P; i++) {
        const u32 p = i / 3, c = i - 3 * p;
        if (c == 0) bits = mixed((x + p) ^ row);
        u32 sum = 0;
        #pragma unroll
        for (int k = 0; k < 3; k++) {
            bits += 0x9e3779b9u;
            sum = __dp4a(mixed(bits), 0x01010101u, sum); // adds the four bytes
        }
        const float z = __fmul_rn(float(int(sum) - 1530), 0.00390628f);
        const float mean = c == 0 ? noise.mean[0] : c == 1 ? noise.mean[1] : noise.mean[2];
        const float value = __fadd_rn(__fmul_rn(z, noise.deviation), mean);
        // Registers cannot be indexed at run time, so every index is compared with `i`.
        const bool inside = x + p - noise.rect.x < wide;
        #pragma unroll
        for (u32 j = 0; j < 3 * P; j++) v[j] = inside && i == j ? value : v[j];
    }
}
