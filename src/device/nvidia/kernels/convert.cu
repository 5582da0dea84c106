// Converts u8 (N, H, W, 3) to f32, f16, bf16 or u8 in (N, 3, H, W) or (N, H, W, 3). A single pass
// normalizes, applies the effects that operate on normalized values, and mixes samples. The record
// of a sample (SampleOps) lists its effects and its mixing.
//
// A thread converts one or two groups of P adjacent pixels of a row. It reads the 3 * P bytes of a
// group in three loads, and the stores of a warp are contiguous (except in `_nhwc_any`). One
// template provides three entry points per type and layout (two for u8 NHWC):
//   f16_nchw      without records; P pixels fill 16 bytes of a plane (4 f32, 8 f16), or 8 (u8)
//   f16_nchw_ops  with one record per sample, or a null pointer; two groups of P pixels per thread
//   f16_nchw_any  like f16_nchw_ops, but with P = 1, for widths that are not a multiple of P
// blockIdx.y selects the sample, so all threads of a thread block take the same branches on a
// record. Records are loaded 16 bytes at a time: loading the fields one by one would take twice as
// long as loading the pixels.
//
// The results are bit-identical to the host's: intrinsics with explicit rounding run in the same
// order. This file is compiled without contraction of multiply-adds (see README.md).

#include "records.cuh"

struct Normalize { float scale[3], bias[3]; };

// --- one value -------------------------------------------------------------------------------------------------------------------

struct F32 { typedef u32 Bits; static __device__ __forceinline__ u32 bits(float v) { return __float_as_uint(v); } };

struct F16 {
    typedef u16 Bits;
    static __device__ __forceinline__ u32 bits(float v) {
        u16 h;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
        return h;
    }
};

// compute_70 has no instruction that converts to bf16, so round the bits to nearest even, and keep
// NaN.
struct Bf16 {
    typedef u16 Bits;
    static __device__ __forceinline__ u32 bits(float v) {
        u32 b = __float_as_uint(v);
        u32 rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
        return v == v ? rounded : (b >> 16) | 0x40u;
    }
};

// Rounds ties up, like Rust's `round` for positive values. The addition rounds toward zero, so the
// sum reaches an integer only if the exact sum does.
struct U8 {
    typedef u8 Bits;
    static __device__ __forceinline__ u32 bits(float v) {
        u32 b;
        asm("cvt.rzi.sat.u8.f32 %0, %1;" : "=r"(b) : "f"(__fadd_rz(v, 0.5f)));
        return b;
    }
};

// --- a group of P pixels ---------------------------------------------------------------------------------------------------------

template <int Bytes> struct Word;
template <> struct Word<4> { typedef u32 Type; };
template <> struct Word<8> { typedef uint2 Type; };
template <> struct Word<16> { typedef uint4 Type; };

// The 3 * P bytes of P pixels, as three words of P bytes.
template <int P> struct Raw {
    typedef typename Word<P>::Type W;
    union { W word[3]; u32 part[3 * P / 4]; } u;
    __device__ __forceinline__ void fetch(const u8* from) {
        #pragma unroll
        for (int i = 0; i < 3; i++) u.word[i] = __ldg(reinterpret_cast<const W*>(from) + i);
    }
    __device__ __forceinline__ u32 byte(int i) const { return (u.part[i / 4] >> (8 * (i % 4))) & 0xffu; }
    // Returns byte `i` as a float, 0 to 255. Inserting the byte into the mantissa of 2^23 takes one
    // instruction at full rate, whereas a conversion runs at a quarter of that rate.
    __device__ __forceinline__ float value(int i) const {
        return __fsub_rn(__uint_as_float(__byte_perm(u.part[i / 4], 0x4b000000u, 0x7440 + i % 4)), 8388608.0f);
    }
};
template <> struct Raw<1> {
    u8 bytes[3];
    __device__ __forceinline__ void fetch(const u8* from) {
        #pragma unroll
        for (int i = 0; i < 3; i++) bytes[i] = __ldg(from + i);
    }
    __device__ __forceinline__ u32 byte(int i) const { return bytes[i]; }
    __device__ __forceinline__ float value(int i) const { return float(bytes[i]); }
};

// Returns the width of `rect` if it overlaps the P pixels that start at column `x` of row `y`,
// otherwise 0. The caller tests whether a column is inside with the unsigned comparison
// column - rect.x < width, which is false for every pixel if the width is 0.
template <int P> __device__ __forceinline__ u32 reach(const Rect& rect, u32 x, u32 y) {
    return y - rect.y < rect.height && x + P > rect.x && x < rect.x + rect.width ? rect.width : 0;
}

#include "effects_on_values.cuh"

// A copy of a value as an array of 16-byte words, so that it is loaded 16 bytes at a time. `T` must
// be aligned to 16 bytes.
template <class T> union Words {
    uint4 word[sizeof(T) / 16];
    T value;
    __device__ __forceinline__ Words(const T& from) {
        #pragma unroll
        for (int i = 0; i < sizeof(T) / 16; i++) word[i] = reinterpret_cast<const uint4*>(&from)[i];
    }
};

// Computes P output pixels of one sample, before mixing, from column `x` of row `y`.
template <int P>
__device__ __forceinline__ void normalize_with_effects(const Raw<P>& raw, const SampleOps* ops, u32 effects, u32 x, u32 y,
                                                       const Normalize& norm, float (&v)[3 * P]) {
    #pragma unroll
    for (int i = 0; i < 3 * P; i++) v[i] = __fmaf_rn(norm.scale[i % 3], raw.value(i), norm.bias[i % 3]);
    #pragma unroll 1
    for (u32 i = 0; i < effects >> 16; i++) run_effect<P>(Words<Effect>(ops->values[i]).value, x, y, v);
}

// P values of type T, packed into the word that holds them.
template <class T, int P> struct Packed {
    typedef typename T::Bits Bits;
    typedef typename Word<P * sizeof(Bits)>::Type W;
    union { W word; u32 part[P * sizeof(Bits) / 4]; } u;
    __device__ __forceinline__ void set(int i, u32 value) {
        const int per_word = 4 / sizeof(Bits);
        const u32 bits = value << (8 * sizeof(Bits) * (i % per_word));
        u.part[i / per_word] = i % per_word ? u.part[i / per_word] | bits : bits;
    }
};

// A thread converts G groups of one sample, at a distance of `blockDim.x` groups. It requests the
// bytes of all groups before it processes any, because saturating the memory takes many requests.
template <class T, int P, int G, bool Nchw, bool Ops>
__device__ __forceinline__ void convert(typename T::Bits* out, const u8* in, const SampleOps* all, u32 count, u32 height, u32 width,
                                        const Normalize& norm) {
    typedef typename T::Bits Bits;
    const u32 groups_per_row = width / P, groups = groups_per_row * height;   // groups of P pixels
    const u32 pixels = width * height;
    const u32 first = blockIdx.x * blockDim.x * G + threadIdx.x;
    u32 x[G], y[G];
    if constexpr (Ops) {
        const u32 down = blockDim.x / groups_per_row, across = blockDim.x - down * groups_per_row;
        y[0] = first / groups_per_row, x[0] = first - y[0] * groups_per_row;
        #pragma unroll
        for (int g = 1; g < G; g++) {
            x[g] = x[g - 1] + across, y[g] = y[g - 1] + down;
            if (x[g] >= groups_per_row) x[g] -= groups_per_row, y[g]++;
        }
    }
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const SampleOps* ops = Ops && all ? all + n : nullptr;
        const uint4 head = ops ? *reinterpret_cast<const uint4*>(ops) : make_uint4(0, 0, 0, 0);
        const u32 mixing = head.x, effects = head.w;
        const u8* const image = in + size_t(n) * pixels * 3;
        Raw<P> own[G], partner_raw[G];
        const SampleOps* partner_ops = nullptr;
        u32 partner_effects = 0;
        #pragma unroll
        for (int g = 0; g < G; g++) {
            const u32 group = first + g * blockDim.x;
            if (group < groups) own[g].fetch(image + group * P * 3);
        }
        if (mixing) {
            partner_ops = all + head.y;
            partner_effects = partner_ops->effects;
            const u8* const partner = in + size_t(head.y) * pixels * 3;
            #pragma unroll
            for (int g = 0; g < G; g++) {
                const u32 group = first + g * blockDim.x;
                if (group < groups) partner_raw[g].fetch(partner + group * P * 3);
            }
        }
        Bits* const to = out + size_t(n) * pixels * 3;
        #pragma unroll
        for (int g = 0; g < G; g++) {
            const u32 group = first + g * blockDim.x;
            const bool active = group < groups;
            float v[3 * P];
            if constexpr (Ops) {
                if (active) normalize_with_effects<P>(own[g], ops, effects, x[g] * P, y[g], norm, v);
                if (active && mixing) {
                    float w[3 * P];
                    normalize_with_effects<P>(partner_raw[g], partner_ops, partner_effects, x[g] * P, y[g], norm, w);
                    if (mixing == CUT) {
                        const Rect cut = Words<Rect>(ops->cut).value;
                        const u32 cut_width = reach<P>(cut, x[g] * P, y[g]);
                        #pragma unroll
                        for (int p = 0; p < P; p++) {
                            if (x[g] * P + p - cut.x < cut_width) {
                                #pragma unroll
                                for (int c = 0; c < 3; c++) v[p * 3 + c] = w[p * 3 + c];
                            }
                        }
                    } else {
                        const float a = __uint_as_float(head.z), b = __fsub_rn(1.0f, a);
                        #pragma unroll
                        for (int i = 0; i < 3 * P; i++) v[i] = __fadd_rn(__fmul_rn(w[i], b), __fmul_rn(v[i], a));
                    }
                }
            } else if (active) {
                #pragma unroll
                for (int i = 0; i < 3 * P; i++) v[i] = __fmaf_rn(norm.scale[i % 3], own[g].value(i), norm.bias[i % 3]);
            }
            const auto bits = [&](int i) { return !Ops && sizeof(Bits) == 1 ? own[g].byte(i) : T::bits(v[i]); };
            if constexpr (P == 1) {
                if (active) {
                    #pragma unroll
                    for (int c = 0; c < 3; c++) to[Nchw ? c * pixels + group : group * 3 + c] = Bits(bits(c));
                }
            } else if constexpr (Nchw) {
                if (active) {
                    #pragma unroll
                    for (int c = 0; c < 3; c++) {
                        Packed<T, P> packed;
                        #pragma unroll
                        for (int p = 0; p < P; p++) packed.set(p, bits(p * 3 + c));
                        *reinterpret_cast<typename Packed<T, P>::W*>(to + c * pixels + group * P) = packed.u.word;
                    }
                }
            } else {
                // In this layout, the three words of a thread are adjacent, so direct stores would
                // leave gaps between the lanes of a warp. The warp passes the words through shared
                // memory, and stores 32 adjacent words at a time. A stride of three words does not
                // cause bank conflicts.
                typedef typename Packed<T, P>::W W;
                __shared__ W stage[4][96];
                W* const warp_stage = stage[threadIdx.x / 32];
                const u32 lane = threadIdx.x % 32, start = group - lane;
                if (active) {
                    #pragma unroll
                    for (int k = 0; k < 3; k++) {
                        Packed<T, P> packed;
                        #pragma unroll
                        for (int i = 0; i < P; i++) packed.set(i, bits(k * P + i));
                        warp_stage[lane * 3 + k] = packed.u.word;
                    }
                }
                __syncwarp();
                const u32 words = start < groups ? min(32u, groups - start) * 3 : 0;
                W* const warp_out = reinterpret_cast<W*>(to) + size_t(start) * 3;
                #pragma unroll
                for (int k = 0; k < 3; k++) {
                    const u32 at = k * 32 + lane;
                    if (at < words) warp_out[at] = warp_stage[at];
                }
                __syncwarp();
            }
        }
    }
}

// BOUNDS is the maximum number of threads per block, and the minimum number of blocks per
// multiprocessor. The minimum limits the registers per thread: more registers would cost more in
// occupancy than they gain (on an H200, f16 with records runs at 90% of the speed of a plain copy
// with the limit, and at 82% without).
#define ENTRY(name, T, P, G, BOUNDS, nchw, with_ops)                                                                                    \
    extern "C" __global__ void __launch_bounds__ BOUNDS                                                                                 \
        name(T::Bits* out, const u8* in, const SampleOps* ops, u32 count, u32 height, u32 width, Normalize norm) {                      \
        convert<T, P, G, nchw, with_ops>(out, in, ops, count, height, width, norm);                                                     \
    }
#define ENTRIES(dtype, T, P, G, BOUNDS)                                                                                                 \
    ENTRY(dtype##_nchw, T, P, G, (128), true, false)                                                                                    \
    ENTRY(dtype##_nchw_ops, T, P, 2, BOUNDS, true, true)                                                                                \
    ENTRY(dtype##_nhwc_ops, T, P, 2, BOUNDS, false, true)                                                                               \
    ENTRY(dtype##_nchw_any, T, 1, 2, (128), true, true)                                                                                 \
    ENTRY(dtype##_nhwc_any, T, 1, 2, (128), false, true)

ENTRIES(f32, F32, 4, 2, (128))
ENTRIES(f16, F16, 8, 1, (128, 5))
ENTRIES(bf16, Bf16, 8, 1, (128, 5))
ENTRIES(u8, U8, 8, 1, (128, 5))
// Without records, u8 in (N, H, W, 3) is only copied, so it needs no entry point.
ENTRY(f32_nhwc, F32, 4, 2, (128), false, false)
ENTRY(f16_nhwc, F16, 8, 1, (128), false, false)
ENTRY(bf16_nhwc, Bf16, 8, 1, (128), false, false)

// Writes soft labels with `classes` columns. The sample's class gets `weight`, and the partner's
// class gets 1 - `weight`. Then a fraction `smoothing` of the total is spread evenly over the
// classes, as in torchvision's MixUp of one-hot labels followed by label smoothing. A label outside
// 0..classes contributes nothing.
extern "C" __global__ void __launch_bounds__(128)
soft_labels(float* out, const long long* labels, const SampleOps* ops, u32 count, u32 classes, float smoothing) {
    const u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= classes) return;
    const float low = __fdiv_rn(smoothing, float(classes)), high = __fsub_rn(1.0f, smoothing);
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        float probability = labels[n] == k ? 1.0f : 0.0f;
        if (ops && ops[n].mixing) {
            const float a = ops[n].weight, other = labels[ops[n].partner] == k ? 1.0f : 0.0f;
            probability = __fadd_rn(__fmul_rn(other, __fsub_rn(1.0f, a)), __fmul_rn(probability, a));
        }
        out[size_t(n) * classes + k] = __fmaf_rn(high, probability, low);
    }
}
