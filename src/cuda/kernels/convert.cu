// u8 (N, H, W, 3) to f32, f16, bf16 or u8 in (N, 3, H, W) or (N, H, W, 3): mirror, colour, normalise, erase and mix in one pass.
//
// A thread takes P neighbouring pixels of a row: its 3 P bytes are read in three words, and a warp's stores are contiguous. One code,
// three entry points a type and layout:
//   f16_nchw      no per-sample parameters; P such that a thread stores 16 bytes a colour plane (4 f32, 8 f16; 8 u8)
//   f16_nchw_ops  with them (or null); P = 4, since a second sample to mix with takes registers
//   f16_nchw_any  with them (or null); P = 1, for widths that 4 does not divide
// blockIdx.y is the sample, so everything that a sample's parameters decide is decided alike by a whole block.
//
// Arithmetic is spelled out in round-to-nearest intrinsics, in the order of the host path, so both give the same bits; the file is
// compiled with contraction off. `convert.ptx` beside it is what NVRTC 12.8 makes of it for compute_70 (see kernels/README.md).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

// One sample's part, written by the host: `device::SampleOps` is the same struct. Boxes are half open, in pixels of the output.
struct SampleOps {
    u32 flags;
    u32 partner;        // the sample of this batch it is mixed with
    float weight;       // MIX: this sample's share; its label's share with CUT too
    u32 reserved;
    u32 erase[4];       // x0, y0, x1, y1
    u32 cut[4];         // CUT: the box that shows the partner
    float fill[4];      // what an erased box holds, in output units; the fourth is unused
    float colour[12];   // rows of a 3x4 matrix on (r, g, b, 1), pixels on a scale of 0 to 255; clamped to that scale after
};
enum { FLIP = 1, ERASE = 2, MIX = 4, CUT = 8, COLOUR = 16 };

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

// compute_70 has no bf16 conversion: round to nearest even on the bits, a NaN stays one.
struct Bf16 {
    typedef u16 Bits;
    static __device__ __forceinline__ u32 bits(float v) {
        u32 b = __float_as_uint(v);
        u32 rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
        return v == v ? rounded : (b >> 16) | 0x40u;
    }
};

// Halves go up, as in Rust's `round`; pixels that nothing changed are whole numbers anyway.
struct U8 {
    typedef u8 Bits;
    static __device__ __forceinline__ u32 bits(float v) {
        const float whole = truncf(v);
        const float rounded = v - whole >= 0.5f ? whole + 1.0f : whole;
        u32 b;
        asm("cvt.rzi.sat.u8.f32 %0, %1;" : "=r"(b) : "f"(rounded));
        return b;
    }
};

// --- a group of P pixels ---------------------------------------------------------------------------------------------------------

template <int Bytes> struct Word;
template <> struct Word<4> { typedef u32 Type; };
template <> struct Word<8> { typedef uint2 Type; };
template <> struct Word<16> { typedef uint4 Type; };

// The 3 P bytes at `from`, as floats of 0 to 255, pixel by pixel.
template <int P> __device__ __forceinline__ void load(const u8* from, float (&v)[3 * P]) {
    typedef typename Word<P>::Type W;
    union { W word[3]; u32 part[3 * P / 4]; } raw;
    #pragma unroll
    for (int i = 0; i < 3; i++) raw.word[i] = __ldg(reinterpret_cast<const W*>(from) + i);
    #pragma unroll
    for (int i = 0; i < 3 * P; i++) v[i] = float((raw.part[i / 4] >> (8 * (i % 4))) & 0xffu);
}
template <> __device__ __forceinline__ void load<1>(const u8* from, float (&v)[3]) {
    #pragma unroll
    for (int i = 0; i < 3; i++) v[i] = float(__ldg(from + i));
}

__device__ __forceinline__ bool inside(const u32 (&box)[4], u32 x, u32 y) {
    return x >= box[0] && y >= box[1] && x < box[2] && y < box[3];
}

// P output pixels of one sample from column `x`, row `y`, before mixing.
template <int P>
__device__ __forceinline__ void sample(const u8* image, const SampleOps* ops, u32 x, u32 y, u32 width, const Normalize& norm,
                                       float (&v)[3 * P]) {
    const u32 flags = ops ? ops->flags : 0;
    const u32 column = flags & FLIP ? width - P - x : x;
    load<P>(image + (y * width + column) * 3, v);
    if (flags & FLIP) {
        #pragma unroll
        for (int p = 0; p < P / 2; p++) {
            #pragma unroll
            for (int c = 0; c < 3; c++) {
                float swap = v[p * 3 + c];
                v[p * 3 + c] = v[(P - 1 - p) * 3 + c];
                v[(P - 1 - p) * 3 + c] = swap;
            }
        }
    }
    if (flags & COLOUR) {
        #pragma unroll
        for (int p = 0; p < P; p++) {
            const float r = v[p * 3], g = v[p * 3 + 1], b = v[p * 3 + 2];
            #pragma unroll
            for (int c = 0; c < 3; c++) {
                const float* m = ops->colour + c * 4;
                float t = __fmaf_rn(m[0], r, __fmaf_rn(m[1], g, __fmaf_rn(m[2], b, m[3])));
                v[p * 3 + c] = fminf(fmaxf(t, 0.0f), 255.0f);
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < 3 * P; i++) v[i] = __fmaf_rn(norm.scale[i % 3], v[i], norm.bias[i % 3]);
    if (flags & ERASE) {
        #pragma unroll
        for (int p = 0; p < P; p++) {
            if (inside(ops->erase, x + p, y)) {
                #pragma unroll
                for (int c = 0; c < 3; c++) v[p * 3 + c] = ops->fill[c];
            }
        }
    }
}

// P values of type T, packed into the word that holds them.
template <class T, int P> struct Packed {
    typedef typename T::Bits Bits;
    typedef typename Word<P * sizeof(Bits)>::Type W;
    union { W word; u32 part[P * sizeof(Bits) / 4]; } u;
    __device__ __forceinline__ void set(int i, float v) {
        const int per = 4 / sizeof(Bits);
        const u32 bits = T::bits(v) << (8 * sizeof(Bits) * (i % per));
        u.part[i / per] = i % per ? u.part[i / per] | bits : bits;
    }
};

template <class T, int P, bool Nchw, bool Ops>
__device__ __forceinline__ void convert(typename T::Bits* out, const u8* in, const SampleOps* all, u32 count, u32 height, u32 width,
                                        const Normalize& norm) {
    typedef typename T::Bits Bits;
    const u32 row = width / P, groups = row * height;   // groups of P pixels
    const u32 pixels = width * height;
    const u32 group = blockIdx.x * blockDim.x + threadIdx.x;
    const bool active = group < groups;
    const u32 y = group / row, x = (group - y * row) * P;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        float v[3 * P];
        if (active) {
            const SampleOps* ops = Ops && all ? all + n : nullptr;
            sample<P>(in + size_t(n) * pixels * 3, ops, x, y, width, norm, v);
            const u32 flags = ops ? ops->flags : 0;
            if (flags & (MIX | CUT)) {
                const u32 partner = ops->partner;
                float w[3 * P];
                sample<P>(in + size_t(partner) * pixels * 3, all + partner, x, y, width, norm, w);
                if (flags & CUT) {
                    #pragma unroll
                    for (int p = 0; p < P; p++) {
                        if (inside(ops->cut, x + p, y)) {
                            #pragma unroll
                            for (int c = 0; c < 3; c++) v[p * 3 + c] = w[p * 3 + c];
                        }
                    }
                } else {
                    const float a = ops->weight, b = __fsub_rn(1.0f, a);
                    #pragma unroll
                    for (int i = 0; i < 3 * P; i++) v[i] = __fadd_rn(__fmul_rn(w[i], b), __fmul_rn(v[i], a));
                }
            }
        }
        Bits* const image = out + size_t(n) * pixels * 3;
        if constexpr (P == 1) {
            if (active) {
                #pragma unroll
                for (int c = 0; c < 3; c++) {
                    image[Nchw ? c * pixels + group : group * 3 + c] = Bits(T::bits(v[c]));
                }
            }
        } else if constexpr (Nchw) {
            if (active) {
                #pragma unroll
                for (int c = 0; c < 3; c++) {
                    Packed<T, P> packed;
                    #pragma unroll
                    for (int p = 0; p < P; p++) packed.set(p, v[p * 3 + c]);
                    *reinterpret_cast<typename Packed<T, P>::W*>(image + c * pixels + group * P) = packed.u.word;
                }
            }
        } else {
            // A thread's three words are neighbours here, so storing them would leave gaps between the lanes of a warp: the warp passes
            // them through shared memory and stores 32 neighbouring words at a time. Strides of three words meet no bank twice.
            typedef typename Packed<T, P>::W W;
            __shared__ W stage[8][96];
            W* const mine = stage[threadIdx.x / 32];
            const u32 lane = threadIdx.x % 32, first = group - lane;
            if (active) {
                #pragma unroll
                for (int k = 0; k < 3; k++) {
                    Packed<T, P> packed;
                    #pragma unroll
                    for (int i = 0; i < P; i++) packed.set(i, v[k * P + i]);
                    mine[lane * 3 + k] = packed.u.word;
                }
            }
            __syncwarp();
            const u32 words = first < groups ? min(32u, groups - first) * 3 : 0;
            W* const to = reinterpret_cast<W*>(image) + size_t(first) * 3;
            #pragma unroll
            for (int k = 0; k < 3; k++) {
                const u32 at = k * 32 + lane;
                if (at < words) to[at] = mine[at];
            }
            __syncwarp();
        }
    }
}

#define ENTRY(name, T, P, nchw, with_ops)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                                                   \
        name(T::Bits* out, const u8* in, const SampleOps* ops, u32 count, u32 height, u32 width, Normalize norm) {                      \
        convert<T, P, nchw, with_ops>(out, in, ops, count, height, width, norm);                                                        \
    }
#define ENTRIES(dtype, T, P)                                                                                                            \
    ENTRY(dtype##_nchw, T, P, true, false)                                                                                              \
    ENTRY(dtype##_nhwc, T, P, false, false)                                                                                             \
    ENTRY(dtype##_nchw_ops, T, 4, true, true)                                                                                           \
    ENTRY(dtype##_nhwc_ops, T, 4, false, true)                                                                                          \
    ENTRY(dtype##_nchw_any, T, 1, true, true)                                                                                           \
    ENTRY(dtype##_nhwc_any, T, 1, false, true)

ENTRIES(f32, F32, 4)
ENTRIES(f16, F16, 8)
ENTRIES(bf16, Bf16, 8)
ENTRIES(u8, U8, 8)

// Labels as rows of `classes` shares: the sample's own class gets `weight`, its partner's the rest, and `smoothing` of it all is spread
// evenly over the classes (torchvision's MixUp on one-hot labels, then label smoothing). A label outside 0..classes adds nothing.
extern "C" __global__ void __launch_bounds__(256)
soft_labels(float* out, const long long* labels, const SampleOps* ops, u32 count, u32 classes, float smoothing) {
    const u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= classes) return;
    const float low = __fdiv_rn(smoothing, float(classes)), high = __fsub_rn(1.0f, smoothing);
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        float share = labels[n] == k ? 1.0f : 0.0f;
        if (ops && ops[n].flags & (MIX | CUT)) {
            const float a = ops[n].weight, other = labels[ops[n].partner] == k ? 1.0f : 0.0f;
            share = __fadd_rn(__fmul_rn(other, __fsub_rn(1.0f, a)), __fmul_rn(share, a));
        }
        out[size_t(n) * classes + k] = __fmaf_rn(high, share, low);
    }
}
