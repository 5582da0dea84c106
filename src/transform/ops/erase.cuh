// Device code of `erase.rs`.

// A pixel at column x is inside if x - rect.x, as an unsigned number, is less than the width.
template <int P> __device__ __forceinline__ void run(const Erase& effect, u32 x, u32 y, float (&v)[3 * P]) {
    const u32 wide = reach<P>(effect.rect, x, y);
    if (wide == 0) return;
    #pragma unroll
    for (int p = 0; p < P; p++) {
        if (x + p - effect.rect.x < wide) {
            #pragma unroll
            for (int c = 0; c < 3; c++) v[p * 3 + c] = effect.value[c];
        }
    }
}
