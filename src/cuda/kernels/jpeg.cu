// Baseline JPEGs to u8 (H, W, 3): Huffman decoding, inverse DCT, upsampling, colour, crop, resize
// and flip.
//
// Four entry points, one after the other in a stream. blockIdx.y is the sample; samples whose
// pixels are in place already are skipped.
//   jpeg_axes      the resize filter of each axis, as tables
//   jpeg_huffman   the entropy-coded segments to coefficients, a thread a segment
//   jpeg_idct      coefficients to samples, a thread a block
//   jpeg_resize    samples to pixels of the output, a block eight rows
//
// All arithmetic is the host's, in its order, so both give the same bits:
// `decode/jpeg/kernels/scalar.rs` and `decode/jpeg/rows.rs` from coefficients to pixels,
// `transform/resize/axis.rs` and `transform/resize/scalar.rs` from there on. The file is compiled
// with contraction off. `jpeg.ptx` beside it is what NVRTC 12.8 makes of it for compute_70 (see
// kernels/README.md).
//
// Records are the host's and are trusted. Entropy-coded bytes are not: whatever they are, decoding
// ends, stays inside of its memory, and marks the sample in `faults` if they make no sense. The
// host then decodes that sample itself.

typedef signed short i16;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum Upsampling { NONE, H2V1, H1V2, H2V2, REPLICATE };
enum Colour { GREY, YCBCR, RGB };

// One component on the grid of MCUs.
struct Part {
    u32 h, v;           // blocks in an MCU, across and down
    u32 first;          // its first block's place in an MCU
    u32 across, down;   // pixels that a sample stands for
    u32 upsampling;
    u32 width, height;  // samples that hold pixels of the picture
};

// One sample's part, written by the host: `cuda/decode_ops.rs` is the same struct.
struct __align__(16) DecodeOps {
    u32 kind;           // 0: its pixels are in place
    u32 segments;
    u32 at, bytes;      // its head and data in the arena
    u32 block;          // its first block in the scratch of coefficients and of planes
    u32 mcus;           // in a row of the whole picture
    u32 column, columns, row, rows;     // the window, in MCUs
    u32 blocks;         // in an MCU
    u32 colour;
    u32 count;          // of parts
    u32 tables;         // Huffman tables in the head
    u32 unused[2];
    Part parts[3];
    u32 choice[3];      // of each part: DC table | AC table << 8
    u32 unused_too;
    uint4 region;       // what the resize may read of the stored picture: x, y, width, height
    uint4 shown;        // where in the output the picture lands, after flips
    u32 mirrored, flipped;
    u32 fill;           // red | green << 8 | blue << 16
    u32 unused_three;
    double2 across, down;   // the part of the region that becomes the output: start, end
};

// The head: quantisation tables, Huffman tables, segments.
struct Spec { u8 counts[16], symbols[256]; };
struct Segment { u32 byte, bytes, first, count; };

__device__ __forceinline__ const Spec* specs_of(const DecodeOps& o, const u8* arena) {
    return reinterpret_cast<const Spec*>(arena + o.at + o.count * 128);
}

// --- the resize filter -----------------------------------------------------------------------------------------------------------

enum { MOST_TAPS = 32 };

// A table of the filter along one axis of `n` outputs: what follows is n (start, taps), then
// MOST_TAPS / 2 rows of n pairs of coefficients; an odd tap's pair ends with 0.
// `DecodeOps::axes_bytes` counts the same bytes.
struct __align__(16) Axis { u32 precision, start, end, unused; };
__device__ __forceinline__ u32 axis_bytes(u32 n) { return (16 + n * (8 + MOST_TAPS * 2) + 15) / 16 * 16; }
__device__ __forceinline__ u8* axis_of(u8* axes, u32 sample, u32 axis, u32 width, u32 height) {
    const u32 across = axis_bytes(width);
    return axes + size_t(sample) * (across + axis_bytes(height)) + (axis ? across : 0);
}

// Calls `each` with every positive weight of an output, not yet scaled to a sum of 1, and returns
// the first position.
template <class Each>
__device__ __forceinline__ u32 weigh(double middle, double radius, double narrow, u32 length, Each each) {
    const u32 low = u32(fmax(middle - radius, 0.0));
    const double top = fmin(middle + radius, double(length));
    u32 high = u32(top), first = low, taps = 0;
    if (double(high) < top) high++;
    for (u32 x = low; x < high; x++) {
        const double weight = 1.0 - fabs((double(x) - (middle - 0.5)) * narrow);
        if (weight > 0.0) {
            each(taps++, weight);
        } else if (taps == 0) {
            first = x + 1;
        }
    }
    return first;
}

// blockIdx.x is the axis.
extern "C" __global__ void __launch_bounds__(128)
jpeg_axes(u8* axes, u32* faults, const DecodeOps* all, u32 count, u32 height, u32 width) {
    __shared__ u64 largest;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind == 0) continue;
        const bool down = blockIdx.x != 0;
        u8* const at = axis_of(axes, n, down, width, height);
        Axis& head = *reinterpret_cast<Axis*>(at);
        uint2* const starts = reinterpret_cast<uint2*>(at + sizeof(Axis));
        const u32 outputs = down ? o.shown.w : o.shown.z, length = down ? o.region.w : o.region.z;
        i16* const coefficients = reinterpret_cast<i16*>(starts + (down ? height : width));
        const double start = down ? o.down.x : o.across.x, end = down ? o.down.y : o.across.y;
        const bool reversed = down ? o.flipped : o.mirrored;
        const double scale = (end - start) / double(outputs);
        const double radius = fmax(scale, 1.0), narrow = 1.0 / radius;
        __syncthreads();
        if (threadIdx.x == 0) largest = 0;
        __syncthreads();
        for (u32 output = threadIdx.x; output < outputs; output += blockDim.x) {
            double sum = 0.0, most = 0.0;
            u32 taps = 0;
            const double middle = start + (double(output) + 0.5) * scale;
            const u32 first = weigh(middle, radius, narrow, length, [&](u32, double weight) {
                sum += weight, most = fmax(most, weight), taps++;
            });
            // Division keeps the order, so the largest quotient is that of the largest weight.
            // Numbers that are not negative have the order of their bits.
            atomicMax(&largest, u64(__double_as_longlong(most / sum)));
            if (output == 0) head.start = first;
            if (output == outputs - 1) head.end = first + taps;
            if (taps > MOST_TAPS) faults[n] = 1;
            starts[reversed ? outputs - 1 - output : output] = make_uint2(first, min(taps, u32(MOST_TAPS)));
        }
        __syncthreads();
        // Halves go up where the host rounds this product, so less than 32767.5 is what it rounds
        // to less than 32768.
        u32 precision = 0;
        const double most = __longlong_as_double((long long)largest);
        while (precision < 21 && most * double(2u << precision) < 32767.5) precision++;
        if (threadIdx.x == 0) head.precision = precision;
        const double unit = double(1u << precision);
        for (u32 output = threadIdx.x; output < outputs; output += blockDim.x) {
            const double middle = start + (double(output) + 0.5) * scale;
            double sum = 0.0;
            weigh(middle, radius, narrow, length, [&](u32, double weight) { sum += weight; });
            i16* const to = coefficients + (reversed ? outputs - 1 - output : output) * 2;
            u32 taps = 0;
            weigh(middle, radius, narrow, length, [&](u32 tap, double weight) {
                if (tap < MOST_TAPS) to[tap / 2 * outputs * 2 + tap % 2] = i16(weight / sum * unit + 0.5);
                taps = tap + 1;
            });
            if (taps % 2 && taps < MOST_TAPS) to[taps / 2 * outputs * 2 + 1] = 0;
        }
    }
}

// --- Huffman decoding ------------------------------------------------------------------------------------------------------------

// Bits that are looked up at once.
enum { LOOK = 10, MOST_TABLES = 6, MOST_BLOCKS = 10 };

// What a code stands for: bits of the code and of the value behind it | bits of the value << 8 |
// places in the block that it goes on by << 16 | bits of the code << 24. 0 in a table says that the
// code is longer than LOOK bits.
enum { END = 128, WRONG = 192 };    // goes on by so many: the block ends; there is no such code
__device__ __forceinline__ u32 meaning(u32 length, u32 symbol) {
    const u32 size = symbol & 15, run = symbol >> 4;
    const u32 advance = size == 0 && run < 15 ? u32(END) : run + 1;
    return (length + size) | size << 8 | advance << 16 | length << 24;
}

struct Tables {
    u32 look[MOST_TABLES << LOOK];
    // Of each length: one past its last code, at the top of 16 bits; and what to add to a code for
    // its symbol's index.
    u32 limit[MOST_TABLES][17];
    u32 offset[MOST_TABLES][17];
    u8 symbols[MOST_TABLES][256];
    u32 choice[MOST_BLOCKS];    // of each block in an MCU: DC table | AC table << 8 | part << 16
};

// The code that 16 bits begin with, if it has `from` to `to` bits; or 0.
__device__ __forceinline__ u32 find(const Tables& tables, u32 table, u32 window, u32 from, u32 to) {
    #pragma unroll 1
    for (u32 length = from; length <= to; length++) {
        if (window < tables.limit[table][length]) {
            const u32 index = (window >> (16 - length)) + tables.offset[table][length];
            return meaning(length, tables.symbols[table][index & 255]);
        }
    }
    return 0;
}

// All threads of a block.
__device__ __forceinline__ void build(Tables& tables, const DecodeOps& o, const u8* arena) {
    const Spec* const specs = specs_of(o, arena);
    const u32 count = min(o.tables, u32(MOST_TABLES));
    for (u32 i = threadIdx.x; i < count * 256; i += blockDim.x) {
        tables.symbols[i / 256][i % 256] = specs[i / 256].symbols[i % 256];
    }
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        u32 code = 0, index = 0;
        for (u32 length = 1; length <= 16; length++) {
            const u32 codes = specs[i].counts[length - 1];
            tables.offset[i][length] = index - code;
            code += codes, index += codes;
            tables.limit[i][length] = code << (16 - length);
            code <<= 1;
        }
    }
    for (u32 i = threadIdx.x; i < MOST_BLOCKS; i += blockDim.x) {
        const u32 part = o.count == 3 && i >= o.parts[1].first ? (i >= o.parts[2].first ? 2 : 1) : 0;
        tables.choice[i] = o.choice[part] | part << 16;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < count << LOOK; i += blockDim.x) {
        tables.look[i] = find(tables, i >> LOOK, i % (1 << LOOK) << (16 - LOOK), 1, LOOK);
    }
    __syncthreads();
}

// The bits of one segment: `high` holds the next 32, `low` some of those behind them. The word
// after them is asked for in advance, and waited for where it is used.
struct Bits {
    const u32* words;
    u32 last;           // no word behind this one is read
    u32 next;           // the word in `ahead`
    u32 high, low, ahead;
    u32 held;

    __device__ __forceinline__ Bits(const u8* from, u32 byte, u32 last_word) {
        words = reinterpret_cast<const u32*>(from);
        last = last_word;
        next = byte / 4;
        high = low = 0;
        held = 0;
        ahead = __ldg(words + min(next, last));
        refill();
        const u32 skip = byte % 4 * 8;
        high <<= skip;
        held -= skip;
        refill();
    }
    // To 32 bits or more.
    __device__ __forceinline__ void refill() {
        if (held < 32) {
            const u32 word = __byte_perm(ahead, 0, 0x0123);
            high |= word >> held;
            low = word << 1 << (31 - held);
            held += 32;
            next++;
            ahead = __ldg(words + min(next, last));
        }
    }
    // At most 31.
    __device__ __forceinline__ void take(u32 count) {
        high = __funnelshift_l(low, high, count);
        low <<= count;
        held -= count;
    }
    // Bits from `words` on to the next one.
    __device__ __forceinline__ u64 position() const { return u64(next) * 32 - held; }
    __device__ __forceinline__ u32 look(const Tables& tables, u32 table) const { return tables.look[(table << LOOK) + (high >> (32 - LOOK))]; }
    // For a code of more than LOOK bits.
    __device__ __forceinline__ u32 look_further(const Tables& tables, u32 table) const {
        const u32 found = find(tables, table, high >> 16, LOOK + 1, 16);
        return found ? found : u32(WRONG) << 16;
    }
    // The value behind the code (EXTEND in T.81 F.2.2.1).
    __device__ __forceinline__ u32 value(u32 found) const {
        const u32 size = found >> 8 & 15, behind = __funnelshift_l(low, high, found >> 24);
        const u32 negative = ~u32(int(behind) >> 31);
        return (behind >> 1 >> (31 - size)) + (negative & (1 - (1u << size)));
    }
};

// Decodes one segment; false if its bytes make no sense. Coefficients are stored in zigzag order,
// in which `jpeg_idct` reads them.
__device__ __forceinline__ bool decode(const Tables& tables, const DecodeOps& o, const Segment& segment, const u8* arena,
                                       i16* coefficients) {
    Bits bits(arena + o.at, segment.byte, (o.bytes + 32) / 4 - 1);
    const u64 end = u64(segment.byte + segment.bytes) * 8;
    const u32 blocks = o.blocks, mcus = o.mcus;
    u32 y = segment.first / mcus, x = segment.first - y * mcus;
    u32 dc[3] = {0, 0, 0};
    for (u32 mcu = 0; mcu < segment.count; mcu++) {
        const u32 row = y - o.row, column = x - o.column;
        const bool inside = row < o.rows && column < o.columns;
        i16* to = coefficients + size_t(o.block + (row * o.columns + column) * blocks) * 64;
        for (u32 b = 0; b < blocks; b++) {
            const u32 choice = tables.choice[b], table = choice >> 8 & 255, part = choice >> 16;
            u32 found = bits.look(tables, choice & 255);
            if (found == 0) found = bits.look_further(tables, choice & 255);
            if (found >> 16 == WRONG) return false;
            const u32 difference = bits.value(found);
            bits.take(found & 31);
            bits.refill();
            found = bits.look(tables, table);
            const u32 level = (part == 0 ? dc[0] : part == 1 ? dc[1] : dc[2]) + difference;
            if (part == 0) dc[0] = level; else if (part == 1) dc[1] = level; else dc[2] = level;
            if (inside) to[0] = i16(level);
            // The place of the latest coefficient. The next look-up begins before it is known
            // whether the block ends with this one.
            u32 k = 0;
            do {
                if (found == 0) found = bits.look_further(tables, table);
                const u32 value = bits.value(found);
                k += found >> 16 & 255;
                bits.take(found & 31);
                bits.refill();
                found = bits.look(tables, table);
                if (inside && k < 64) to[k] = i16(value);
            } while (k < 63);
            // Behind the last place: the block's end, or too long a run, or no code.
            if (k > 63 && (k < END || k >= WRONG)) return false;
            to += 64;
        }
        if (bits.position() > end) return false;
        if (++x == mcus) x = 0, y++;
    }
    return true;
}

// `spread` threads of each warp decode a segment each: threads of a warp wait for each other, and a
// multiprocessor that has few warps waits for each of them.
extern "C" __global__ void __launch_bounds__(128)
jpeg_huffman(i16* coefficients, u32* faults, const u8* arena, const DecodeOps* all, u32 count, u32 spread) {
    __shared__ Tables tables;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = blockDim.x / 32 * spread;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind == 0 || blockIdx.x * group >= o.segments) continue;
        __syncthreads();
        build(tables, o, arena);
        const Segment* const segments = reinterpret_cast<const Segment*>(specs_of(o, arena) + o.tables);
        for (u32 first = blockIdx.x * group; first < o.segments; first += gridDim.x * group) {
            const u32 i = first + warp * spread + lane;
            if (lane < spread && i < o.segments && !decode(tables, o, segments[i], arena, coefficients)) faults[n] = 1;
        }
    }
}

// --- the inverse transform -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ int narrow(int sum) { return i16(sum); }

template <int Shift> __device__ __forceinline__ int scaled(u32 sum) {
    return min(max(int(sum + (1u << (Shift - 1))) >> Shift, -32768), 32767);
}

// One dimension of the transform of eight values `Step` apart, in place (Loeffler, Ligtenberg and
// Moschytz, 1989; 13-bit constants).
template <int Shift, int Step> __device__ __forceinline__ void transform(int* x) {
    const int x0 = x[0], x1 = x[Step], x2 = x[2 * Step], x3 = x[3 * Step];
    const int x4 = x[4 * Step], x5 = x[5 * Step], x6 = x[6 * Step], x7 = x[7 * Step];
    const int even2 = x2 * 4433 + x6 * (4433 - 15137), even3 = x2 * (4433 + 6270) + x6 * 4433;
    const int even0 = narrow(x0 + x4) * 8192, even1 = narrow(x0 - x4) * 8192;
    const int even[4] = {even0 + even3, even1 + even2, even1 - even2, even0 - even3};
    const int z3 = narrow(x7 + x3), z4 = narrow(x5 + x1);
    const int z50 = z3 * (9633 - 16069) + z4 * 9633, z51 = z3 * 9633 + z4 * (9633 - 3196);
    const int odd[4] = {
        x7 * -7373 + x1 * (12299 - 7373) + z51,
        x5 * -20995 + x3 * (25172 - 20995) + z50,
        x5 * (16819 - 20995) + x3 * -20995 + z51,
        x7 * (2446 - 7373) + x1 * -7373 + z50,
    };
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i * Step] = scaled<Shift>(u32(even[i]) + u32(odd[i]));
        x[(7 - i) * Step] = scaled<Shift>(u32(even[i]) - u32(odd[i]));
    }
}

// Place in the block, row by row, of each coefficient in zigzag order.
#define ZIGZAG                                                                                                                          \
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49,    \
    56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63

// The planes of a sample: one component behind the other.
struct Plane {
    u32 first;          // its first block
    u32 wide, high;     // in blocks
    __device__ __forceinline__ Plane(const DecodeOps& o, u32 part) {
        const Part& p = o.parts[part];
        first = o.block + o.columns * o.rows * p.first;
        wide = o.columns * p.h, high = o.rows * p.v;
    }
};

extern "C" __global__ void __launch_bounds__(128)
jpeg_idct(u8* planes, const i16* coefficients, const u8* arena, const DecodeOps* all, u32 count) {
    __shared__ u16 quant[3 * 64];
    constexpr u8 zigzag[64] = {ZIGZAG};
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind == 0) continue;
        __syncthreads();
        for (u32 i = threadIdx.x; i < o.count * 64; i += blockDim.x) quant[i] = reinterpret_cast<const u16*>(arena + o.at)[i];
        __syncthreads();
        const u32 blocks = o.columns * o.rows * o.blocks;
        for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < blocks; i += gridDim.x * blockDim.x) {
            // Neighbouring threads take neighbouring blocks of a component.
            u32 part = 0;
            if (o.count == 3) part = (i >= o.columns * o.rows * o.parts[1].first) + (i >= o.columns * o.rows * o.parts[2].first);
            const Part& p = o.parts[part];
            const Plane plane(o, part);
            const u32 j = i - (plane.first - o.block), y = j / plane.wide, x = j - y * plane.wide;
            const u32 row = y / p.v, column = x / p.h;
            const u32 b = p.first + (y - row * p.v) * p.h + (x - column * p.h);
            const size_t block = o.block + (row * o.columns + column) * o.blocks + b;
            const uint4* const from = reinterpret_cast<const uint4*>(coefficients + block * 64);
            int values[64];
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                const uint4 eight = __ldg(from + k);
                const u32 pairs[4] = {eight.x, eight.y, eight.z, eight.w};
                #pragma unroll
                for (int l = 0; l < 8; l++) {
                    const int place = zigzag[k * 8 + l];
                    values[place] = narrow(int(i16(pairs[l / 2] >> (l % 2 * 16))) * int(quant[part * 64 + place]));
                }
            }
            #pragma unroll
            for (int k = 0; k < 8; k++) transform<11, 8>(values + k);
            u8* to = planes + size_t(plane.first) * 64 + size_t(y) * 8 * plane.wide * 8 + x * 8;
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                transform<18, 1>(values + k * 8);
                u32 half[2] = {0, 0};
                #pragma unroll
                for (int l = 0; l < 8; l++) half[l / 4] |= u32(min(max(values[k * 8 + l], -128), 127) + 128) << (l % 4 * 8);
                *reinterpret_cast<uint2*>(to) = make_uint2(half[0], half[1]);
                to += plane.wide * 8;
            }
        }
    }
}

// --- pixels ----------------------------------------------------------------------------------------------------------------------

enum { ROWS = 8 };  // of the output, a block
enum { GROUP = 4 }; // rows that share the weights of the sums across
enum { ANY = 255 }; // for a template's parameters: the record says which

__device__ __forceinline__ u32 word(const u8* at) { return __ldg(reinterpret_cast<const u32*>(at)); }

// Bytes 0 and 2, or 1 and 3, of a word as two numbers of 16 bits; and back. Numbers are cut to 8
// bits. Weighted sums of two or four bytes are made of two such numbers at once.
__device__ __forceinline__ u32 evens(u32 bytes) { return bytes & 0x00ff00ff; }
__device__ __forceinline__ u32 odds(u32 bytes) { return bytes >> 8 & 0x00ff00ff; }
__device__ __forceinline__ u32 interleave(u32 even, u32 odd) { return (even & 0x00ff00ff) | (odd & 0x00ff00ff) << 8; }
__device__ __forceinline__ u32 both(u32 value) { return value | value << 16; }

// One component's samples, seen at four neighbouring pixels of the stored picture. Where `up` is a
// constant the compiler leaves one case.
struct Four {
    const u8* zero;     // row 0 of the component, at a multiple of 4 bytes
    u32 stride;
    u32 down, last;     // pixels of a column that a sample stands for; the last row
    // The triangle filter reads bytes from two words. `pick` chooses the sample left of the first
    // pixel's, both pixels', and the one at the right. REPLICATE: the first pixel and the number of
    // pixels that a sample stands for.
    u32 behind, pick;

    // `x` is a multiple of 4. All of its row of the plane is memory.
    __device__ __forceinline__ void stand(const DecodeOps& o, const u8* planes, u32 part, u32 up, u32 x) {
        const Part& p = o.parts[part];
        const Plane plane(o, part);
        const int left = o.column * p.h * 8, top = o.row * p.v * 8;
        stride = plane.wide * 8;
        zero = planes + size_t(plane.first) * 64 - (long long)(top) * stride - left;
        down = p.down, last = p.height - 1;
        behind = pick = 0;
        if (up == NONE || up == H1V2) {
            zero += x;
        } else if (up == REPLICATE) {
            behind = x, pick = p.across;
        } else {
            // The filter weighs an edge sample's missing neighbour as the sample itself.
            const int own = x / 2, from = (own - 1) & ~3, right = p.width - 1;
            const int low = max(from, left), high = min(from + 4, left + int(stride) - 4);
            pick = u32(max(own - 1, left) - from) | u32(own - from) << 4 | u32(max(min(own + 1, right) - from, 0)) << 8 |
                   u32(max(min(own + 2, right) - from, 0)) << 12;
            zero += low, behind = high - low;
        }
        // The compiler would add up this address anew for each row.
        asm("" : "+l"(zero));
    }
    __device__ __forceinline__ u32 around(u32 row) const {
        const u8* const at = zero + u64(row) * stride;
        return __byte_perm(word(at), word(at + behind), pick);
    }
    // The four values at row `y`.
    __device__ __forceinline__ u32 at(u32 up, u32 y) const {
        if (up == NONE) return word(zero + u64(y) * stride);
        if (up == REPLICATE) {
            const u8* const row = zero + u64(y / down) * stride;
            u32 four = 0;
            #pragma unroll
            for (u32 i = 0; i < 4; i++) four |= u32(__ldg(row + (behind + i) / pick)) << (8 * i);
            return four;
        }
        const u32 near = y / 2, far = y % 2 ? min(near + 1, last) : near - min(near, 1u);
        if (up == H1V2) {
            const u32 a = word(zero + u64(near) * stride), b = word(zero + u64(far) * stride), bias = both(1 + y % 2);
            return interleave((3 * evens(a) + evens(b) + bias) >> 2, (3 * odds(a) + odds(b) + bias) >> 2);
        }
        const u32 a = around(up == H2V1 ? y : near);
        u32 even = evens(a), odd = odds(a);
        if (up == H2V2) {
            const u32 b = around(far);
            even = 3 * even + evens(b), odd = 3 * odd + odds(b);
        }
        // The samples of the first two pixels and of the other two, those at the left and at the
        // right of them.
        const u32 own = __byte_perm(even, odd, 0x3254), before = __byte_perm(even, odd, 0x5410), after = __byte_perm(even, odd, 0x7632);
        const u32 shift = up == H2V1 ? 2 : 4;
        return interleave((3 * own + before + both(up == H2V1 ? 1 : 8)) >> shift, (3 * own + after + both(up == H2V1 ? 2 : 7)) >> shift);
    }
};

// Byte `i` of a word of bytes with a sign.
__device__ __forceinline__ int signed_byte(u32 bytes, int i) { return (signed char)(bytes >> (8 * i)); }
__device__ __forceinline__ u32 byte(int value) { return u32(max(min(value, 255), 0)); }

// A pixel is red | green << 8 | blue << 16; its top byte may be any. Weights are not negative. No
// sum rounds to more than a byte: its at most 32 weights sum to 1 and 16 units of 2^-14 or less.
struct Sums {
    u32 red, green, blue;
    __device__ __forceinline__ void clear(u32 precision) { red = green = blue = 1u << (precision - 1); }
    __device__ __forceinline__ void add(u32 r, u32 g, u32 b, u32 weight) { red += r * weight, green += g * weight, blue += b * weight; }
    // Two pixels; their weights are a pair of 16 bits.
    __device__ __forceinline__ void add_pair(u32 first, u32 second, u32 weights) {
        const u32 red_green = __byte_perm(first, second, 0x5140), blues = __byte_perm(first, second, 0x0062);
        red = __dp2a_lo(weights, red_green, red), green = __dp2a_hi(weights, red_green, green), blue = __dp2a_lo(weights, blues, blue);
    }
    __device__ __forceinline__ u32 pixel(u32 precision) const {
        return red >> precision | green >> precision << 8 | blue >> precision << 16;
    }
    // For a precision of 24.
    __device__ __forceinline__ u32 tops() const { return __byte_perm(__byte_perm(red, green, 0x0073), blue, 0x0710); }
};

// Rows of the output in the order of the rows that they are made of, which the sums down go
// through once.
struct Strip {
    u32 rows;
    bool reversed;      // the lines come in the output's order, which is the other one
    u32 starts[ROWS], ends[ROWS];
    // Of each row that a row of the output is made of: its weight there, and in the next row of the
    // output. Of a precision of 24.
    uint2 weights[ROWS][MOST_TAPS];
};

// For each row of the strip a line of sums down the columns, rounded to bytes. A thread takes four
// columns from `x` on. It converts a source pixel once for the two rows of the output that it is
// part of where the picture shrinks.
template <u32 Luma, u32 Chroma, u32 Colours>
__device__ __forceinline__ void sum_down(uint4* lines, u32 quads, u32 x, const Strip& strip, const DecodeOps& o, const u8* planes) {
    const u32 first = Luma == ANY ? o.parts[0].upsampling : Luma;
    const u32 second = Chroma == ANY ? o.parts[1].upsampling : Chroma, third = Chroma == ANY ? o.parts[2].upsampling : Chroma;
    const u32 colour = Colours == ANY ? o.colour : Colours;
    const u32 rows = strip.rows;
    for (u32 quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        Four a, b, c;
        a.stand(o, planes, 0, first, x + quad * 4);
        if (colour != GREY) b.stand(o, planes, 1, second, x + quad * 4), c.stand(o, planes, 2, third, x + quad * 4);
        u32 y = strip.starts[0], begin = y, half = 32768;
        asm("" : "+r"(half));      // as a constant it would take the place of others
        const auto clear = [&](Sums (&sums)[4]) {
            #pragma unroll
            for (int i = 0; i < 4; i++) sums[i].clear(24);
        };
        // Row `k` of the output, whose sums are `now`; `next` are those of the row behind it.
        const auto step = [&](Sums (&now)[4], Sums (&next)[4], u32 k) {
            const u32 end = strip.ends[k], following = k + 1 < rows ? strip.starts[k + 1] : end;
            u32 tap = y - strip.starts[k];
            #pragma unroll 1
            for (; y < end; y++, tap++) {
                const u32 one = a.at(first, y), two = colour == GREY ? 0 : b.at(second, y), three = colour == GREY ? 0 : c.at(third, y);
                const uint2 weights = strip.weights[k][tap];
                const u32 cbs = two ^ 0x80808080, crs = three ^ 0x80808080;
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 red, green, blue;
                    if (colour == YCBCR) {
                        // The factors of JFIF 1.02 times 2^16; the luma times 2^16, and a half.
                        const int luma = __byte_perm(one, half, 0x4054 | i << 8), cb = signed_byte(cbs, i), cr = signed_byte(crs, i);
                        red = byte((luma + 91881 * cr) >> 16);
                        green = byte((luma - 22554 * cb - 46802 * cr) >> 16);
                        blue = byte((luma + 116130 * cb) >> 16);
                    } else {
                        red = one >> (8 * i) & 255;
                        green = colour == GREY ? red : two >> (8 * i) & 255;
                        blue = colour == GREY ? red : three >> (8 * i) & 255;
                    }
                    now[i].add(red, green, blue, weights.x);
                    next[i].add(red, green, blue, weights.y);
                }
            }
            lines[(strip.reversed ? rows - 1 - k : k) * quads + quad] =
                make_uint4(now[0].tops(), now[1].tops(), now[2].tops(), now[3].tops());
            clear(now);
            // What the next row has is its sum so far, unless it needs rows from before `begin`.
            if (begin <= following && following <= y) {
                begin = y;
            } else if (k + 1 < rows) {
                clear(next);
                begin = y = following;
            }
        };
        Sums even[4], odd[4];
        clear(even), clear(odd);
        #pragma unroll 1
        for (u32 k = 0; k < rows; k += 2) {
            step(even, odd, k);
            if (k + 1 < rows) step(odd, even, k + 1);
        }
    }
}

// Sums down go to lines in dynamic shared memory, and sums across read them. It holds `words`
// pixels and 16 bytes more. The widest region's line fits, with its ends at multiples of 4.
// Fewer than 7 blocks a multiprocessor hide less of the waiting; more of them spill too much
// (measured on an H200).
extern "C" __global__ void __launch_bounds__(128, 7)
jpeg_resize(u8* out, const u8* planes, const u8* axes, const DecodeOps* all, u32 count, u32 height, u32 width, u32 words) {
    extern __shared__ uint4 lines[];
    __shared__ Strip strip;
    const u32 top = blockIdx.x * ROWS, bottom = min(height, top + ROWS);
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind == 0) continue;
        const u8* const wide = axis_of(const_cast<u8*>(axes), n, 0, width, height);
        const u8* const tall = axis_of(const_cast<u8*>(axes), n, 1, width, height);
        const Axis across = *reinterpret_cast<const Axis*>(wide), down = *reinterpret_cast<const Axis*>(tall);
        const uint2* const across_starts = reinterpret_cast<const uint2*>(wide + sizeof(Axis));
        const uint2* const down_starts = reinterpret_cast<const uint2*>(tall + sizeof(Axis));
        const u32* const across_pairs = reinterpret_cast<const u32*>(across_starts + width);
        const u16* const down_taps = reinterpret_cast<const u16*>(down_starts + height);
        const uint4 shown = o.shown;
        const bool flipped = o.flipped, ycc = o.colour == YCBCR && o.parts[0].upsampling == NONE;
        const u32 second = o.parts[1].upsampling, third = o.parts[2].upsampling;
        // The lines begin at a multiple of four pixels of the stored picture.
        const u32 left = (o.region.x + across.start) / 4 * 4, origin = left - o.region.x;
        const u32 quads = (across.end - origin + 3) / 4;
        const u32 most = max(min(words / 4 / quads, u32(ROWS)), 1u), fill = o.fill;
        for (u32 from = top; from < bottom; from += most) {
            // The rows of the output that show the picture.
            const u32 low = max(from, shown.y), high = min(min(from + most, bottom), shown.y + shown.w);
            __syncthreads();
            if (low < high) {
                if (threadIdx.x == 0) strip.rows = high - low, strip.reversed = flipped;
                for (u32 k = threadIdx.x / MOST_TAPS; k < high - low; k += blockDim.x / MOST_TAPS) {
                    const u32 tap = threadIdx.x % MOST_TAPS;
                    const auto row = [&](u32 k) { return (flipped ? high - 1 - k : low + k) - shown.y; };
                    const auto weight = [&](u32 row, u32 tap, u32 taps) {
                        return tap < taps ? u32(down_taps[(tap / 2 * shown.w + row) * 2 + tap % 2]) << (24 - down.precision) : 0;
                    };
                    const uint2 reach = down_starts[row(k)], next = k + 1 < high - low ? down_starts[row(k + 1)] : make_uint2(0, 0);
                    if (tap == 0) strip.starts[k] = reach.x + o.region.y, strip.ends[k] = reach.x + reach.y + o.region.y;
                    strip.weights[k][tap] = make_uint2(weight(row(k), tap, reach.y), weight(row(k + 1), reach.x + tap - next.x, next.y));
                }
                __syncthreads();
                if (ycc && second == NONE && third == NONE) {
                    sum_down<NONE, NONE, YCBCR>(lines, quads, left, strip, o, planes);
                } else if (ycc && second == H2V2 && third == H2V2) {
                    sum_down<NONE, H2V2, YCBCR>(lines, quads, left, strip, o, planes);
                } else {
                    sum_down<ANY, ANY, ANY>(lines, quads, left, strip, o, planes);
                }
                __syncthreads();
            }
            // A warp stays together, as its threads put their pixels together.
            const u32 lane = threadIdx.x % 32, end = min(from + most, bottom);
            for (u32 x = threadIdx.x; x - lane < width; x += blockDim.x) {
                const u32 column = x - shown.x;
                const bool inside = column < shown.z;
                const uint2 reach = inside ? across_starts[column] : make_uint2(origin, 0);
                u8* to = out + ((size_t(n) * height + from) * width + x) * 3;
                for (u32 group = from; group < end; group += GROUP) {
                    Sums sums[GROUP];
                    const u32* line[GROUP];
                    #pragma unroll
                    for (u32 i = 0; i < GROUP; i++) {
                        sums[i].clear(across.precision);
                        line[i] = reinterpret_cast<const u32*>(lines + (min(max(group + i, low), high - 1) - low) * quads) +
                                  (reach.x - origin);
                    }
                    const u32* pairs = across_pairs + column;
                    const u32 taps = low < high && group < high && group + GROUP > low ? reach.y : 0;
                    #pragma unroll 1
                    for (u32 tap = 0; tap < taps; tap += 2) {
                        const u32 weights = __ldg(pairs);
                        pairs += shown.z;
                        #pragma unroll
                        for (u32 i = 0; i < GROUP; i++) sums[i].add_pair(line[i][0], line[i][1], weights), line[i] += 2;
                    }
                    #pragma unroll
                    for (u32 i = 0; i < GROUP; i++) {
                        const u32 y = group + i;
                        if (y >= end) break;
                        const u32 pixel = inside && y >= low && y < high ? sums[i].pixel(across.precision) : fill;
                        if (width % 4 == 0) {
                            // Three of four threads store a word of the four's 12 bytes.
                            const u32 part = lane % 4, other = __shfl_down_sync(~0u, pixel, 1);
                            if (part < 3 && x < width) *reinterpret_cast<u32*>(to + part) = pixel >> (8 * part) | other << (24 - 8 * part);
                        } else if (x < width) {
                            to[0] = u8(pixel), to[1] = u8(pixel >> 8), to[2] = u8(pixel >> 16);
                        }
                        to += width * 3;
                    }
                }
            }
        }
    }
}
