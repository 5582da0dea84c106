// Decodes baseline JPEGs to u8 (H, W, 3): Huffman decoding, inverse DCT, upsampling, color
// conversion, crop, resize and flip. Video frames, which workers decode, are only converted to RGB,
// cropped, resized and flipped.
//
// Eight entry points run one after the other, and skip samples that a worker has decoded.
// blockIdx.y is the sample; the grid has more rows than samples if some samples are large (see
// `Share`).
//   jpeg_axes     computes the resize filter of each axis
//   jpeg_tables   builds the Huffman tables for the next three kernels
//   jpeg_follow   finds the decoder state at each line of the long segments, one thread per line
//   jpeg_starts   finds the blocks that begin in each line, from these states
//   jpeg_huffman  decodes bytes to coefficients, one thread per short segment or line
//   jpeg_idct     transforms coefficients to component samples, one thread per block
//   jpeg_turn     writes upright RGB pixels of images with an EXIF orientation and of video frames
//   jpeg_resize   resizes to the output, one thread block per eight rows or fewer
//
// Huffman decoding is serial within a segment, so a JPEG without restart markers would occupy a
// single thread. But Huffman codes are self-synchronizing. `jpeg_follow` cuts the segment into
// lines of 128 bytes, decodes all of them in parallel from guessed states, and repeats this until
// the states agree (Weissenberger and Schmidt, "Massively Parallel Huffman Decoding on GPUs",
// 2018). The result is exact. The cost is that each line is decoded at least twice: once for its
// state, and once for its coefficients. Images that do not synchronize are left to the host.
//
// A line is LINE_BYTES bytes of a sample's data. A piece is the part of a segment that one thread
// decodes: a short segment as a whole, and about one line of a long segment. A tile is the group of
// lines that one thread block of `jpeg_follow` decodes. A share is the part of a large sample that
// one row of the grid processes. A lane is a thread of a warp.
//
// All arithmetic is the same as on the host, in the same order, so both produce the same bits. The
// host's code is in `jpeg/src/kernels/scalar.rs` and `jpeg/src/rows.rs` up to the pixels, and in
// `transform/resize/axis.rs` and `transform/resize/scalar.rs` from there. The file is compiled
// without contraction of multiply-adds (see README.md).
//
// Records come from the host and are trusted. Entropy-coded bytes are not trusted. For arbitrary
// bytes, decoding ends in bounded time and stays inside its memory. If the bytes are invalid or
// cannot be decoded in parallel, the sample's flag in `faults` is set. Later kernels then skip the
// sample, and the host decodes it.

#include "records.cuh"

typedef signed short i16;

// The samples of a launch, `first..end`. A sample gets one more share per `heavy` units of work, or
// only one share if `heavy` is 0.
struct Samples { u32 end, first, heavy; };

// What counts as a sample's work: bytes in the kernels that process entropy-coded data, and blocks
// in the others.
struct Bytes { static __device__ __forceinline__ u32 of(const DecodeOps& o) { return o.kind == JPEG ? o.bytes : 0; } };
struct Blocks { static __device__ __forceinline__ u32 of(const DecodeOps& o) { return o.kept; } };

// The samples that a thread block processes, and its share of each.
//
// The number of thread blocks per sample fits a sample of average size. A photograph of 24
// megapixels is a hundred times the work, and the whole batch would wait for it. So the grid has
// more rows than samples: row `y` is the first share of sample `y`, and the rows after the last
// sample are further shares of heavy samples, in order. All samples together have at most (sum of
// the work) / heavy further shares, and the host launches that many rows.
struct Share {
    u32 n;              // the sample, or `end` if there is none
    u32 index, count;   // this share of `count`

    template <class Work>
    __device__ __forceinline__ static u32 more(const DecodeOps* all, const Samples& samples, u32 n) {
        return samples.heavy == 0 || all[n].kind == 0 ? 0 : Work::of(all[n]) / samples.heavy;
    }
    template <class Work>
    __device__ __forceinline__ static Share begin(const DecodeOps* all, const Samples& samples) {
        const u32 rows = samples.end - samples.first, lane = threadIdx.x % 32;
        if (blockIdx.y < rows) {
            const u32 n = samples.first + blockIdx.y;
            return {n, 0, 1 + more<Work>(all, samples, n)};
        }
        u32 before = 0;     // shares of the samples before `from`
        const u32 wanted = blockIdx.y - rows;
        for (u32 from = samples.first; from < samples.end; from += 32) {
            const u32 n = from + lane, own = n < samples.end ? more<Work>(all, samples, n) : 0;
            u32 sum = own;
            #pragma unroll
            for (u32 distance = 1; distance < 32; distance *= 2) {
                const u32 other = __shfl_up_sync(~0u, sum, distance);
                if (lane >= distance) sum += other;
            }
            const u32 found = __ballot_sync(~0u, wanted - before < sum);
            if (found != 0) {
                const u32 first = __ffs(found) - 1;
                const u32 ended = __shfl_sync(~0u, sum - own, first), count = __shfl_sync(~0u, own, first);
                return {from + first, 1 + wanted - before - ended, 1 + count};
            }
            before += __shfl_sync(~0u, sum, 31);
        }
        return {samples.end, 0, 1};
    }
    // Advances to this thread block's next sample, if there are more samples than grid rows. No
    // sample is heavy in this case.
    __device__ __forceinline__ void next() { n += gridDim.y; }
    // Index of this thread block among the thread blocks of the sample.
    __device__ __forceinline__ u32 block() const { return index * gridDim.x + blockIdx.x; }
    __device__ __forceinline__ u32 blocks() const { return count * gridDim.x; }
};

enum Upsampling { NONE, H2V1, H1V2, H2V2, REPLICATE };
enum Color { GRAY, YCBCR, RGB };

// The head of a sample's data: quantization tables, Huffman tables (`Spec`), and segments.
struct Spec { u8 counts[16], symbols[256]; };
struct Segment {
    u32 byte, bytes, first, counted;
    enum : u32 { CUT = 1u << 31 };      // flag in `counted`: the segment continues after the needed MCUs
    __device__ __forceinline__ u32 count() const { return counted & ~CUT; }
    // Maximum number of bits after the last needed MCU. After the last MCU of a complete segment,
    // only padding up to the next byte is allowed.
    __device__ __forceinline__ u32 most_left() const { return counted & CUT ? ~0u : 7; }
};

__device__ __forceinline__ const Spec* specs_of(const DecodeOps& o, const u8* arena) {
    return reinterpret_cast<const Spec*>(arena + o.at + o.count * 128);
}

__device__ __forceinline__ const Segment* segments_of(const DecodeOps& o, const u8* arena) {
    return reinterpret_cast<const Segment*>(specs_of(o, arena) + o.tables);
}

// --- the resize filter -----------------------------------------------------------------------------------------------------------

enum { MAX_TAPS = 64 };

// The start of the table with the resize filter along one axis of the output, which has `n` pixels.
// It is followed by memory for n pairs (start, taps), and by MAX_TAPS / 2 rows of at most n pairs
// of coefficients: only pixels in which the image is visible have a filter. An odd last tap is
// paired with a zero. The sample's record for `jpeg_resize` precedes its two tables.
// `DecodeOps::axes_bytes` computes the same size.
struct __align__(16) Axis { u32 precision, start, end, unused; };
__device__ __forceinline__ u32 axis_bytes(u32 n) { return (16 + n * (8 + MAX_TAPS * 2) + 15) / 16 * 16; }
__device__ __forceinline__ u8* axis_of(u8* axes, u32 sample, u32 axis, u32 width, u32 height) {
    const u32 across = axis_bytes(width);
    return axes + size_t(sample) * (sizeof(DecodeOps) + across + axis_bytes(height)) + sizeof(DecodeOps) + (axis ? across : 0);
}

// Returns the record for `jpeg_resize`. The planes start `planes` times 64 bytes after the start of
// the coefficients. If `jpeg_turn` has written the upright pixels, they are in the memory of the
// coefficients, as one plane per color.
__device__ __forceinline__ DecodeOps* view_of(u8* axes, u32 sample, u32 width, u32 height) {
    return reinterpret_cast<DecodeOps*>(axis_of(axes, sample, 0, width, height)) - 1;
}
__device__ __forceinline__ void write_view(DecodeOps* to, const DecodeOps& o, u32 planes) {
    *to = o;
    to->block = planes + o.block;
    if (o.turned == 0 && o.kind != YUV) return;
    to->block = o.block * 2;
    to->columns = (o.region.width + 7) / 8, to->rows = (o.region.height + 7) / 8;
    to->column = to->row = to->region.x = to->region.y = 0;
    to->color = o.color == GRAY ? GRAY : RGB;
    for (u32 i = 0; i < o.count; i++) to->parts[i] = {1, 1, i, 1, 1, NONE, o.region.width, o.region.height};
}

// Calls `each` with every positive weight of an output. The weights are not yet normalized to a sum
// of 1. Returns the position of the first weight.
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

extern "C" __global__ void __launch_bounds__(128)
jpeg_axes(u8* axes, u32* faults, const DecodeOps* all, u32 count, u32 height, u32 width, u32 planes) {
    __shared__ u64 largest;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (blockIdx.x == 0 && threadIdx.x == 0) write_view(view_of(axes, n, width, height), o, planes);
        if (o.kind == 0) continue;
        const bool down = blockIdx.x != 0;
        u8* const at = axis_of(axes, n, down, width, height);
        Axis& head = *reinterpret_cast<Axis*>(at);
        uint2* const starts = reinterpret_cast<uint2*>(at + sizeof(Axis));
        const u32 outputs = down ? o.shown.height : o.shown.width, length = down ? o.region.height : o.region.width;
        i16* const coefficients = reinterpret_cast<i16*>(starts + (down ? height : width));
        const double start = down ? o.down[0] : o.across[0], end = down ? o.down[1] : o.across[1];
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
            // Division is monotonic, so dividing the largest weight is enough. `atomicMax` works
            // because non-negative doubles compare like their bit patterns.
            atomicMax(&largest, u64(__double_as_longlong(most / sum)));
            if (output == 0) head.start = first;
            if (output == outputs - 1) head.end = first + taps;
            if (taps > MAX_TAPS) faults[n] = 1;
            starts[reversed ? outputs - 1 - output : output] = make_uint2(first, min(taps, u32(MAX_TAPS)));
        }
        __syncthreads();
        // The host rounds this product with ties up, so its limit of 32768 corresponds to 32767.5
        // before rounding.
        u32 precision = 0;
        const double most = __longlong_as_double((long long)largest);
        while (precision < 21 && most * double(2u << precision) < 32767.5) precision++;
        if (threadIdx.x == 0) head.precision = precision, head.unused = 0;
        const double unit = double(1u << precision);
        for (u32 output = threadIdx.x; output < outputs; output += blockDim.x) {
            const double middle = start + (double(output) + 0.5) * scale;
            double sum = 0.0;
            weigh(middle, radius, narrow, length, [&](u32, double weight) { sum += weight; });
            i16* const to = coefficients + (reversed ? outputs - 1 - output : output) * 2;
            u32 taps = 0;
            weigh(middle, radius, narrow, length, [&](u32 tap, double weight) {
                if (tap < MAX_TAPS) to[tap / 2 * outputs * 2 + tap % 2] = i16(weight / sum * unit + 0.5);
                taps = tap + 1;
            });
            if (taps % 2 && taps < MAX_TAPS) to[taps / 2 * outputs * 2 + 1] = 0;
        }
    }
}

// --- Huffman decoding ------------------------------------------------------------------------------------------------------------

// Only segments of at least LONG bytes are cut into pieces, and only in samples with a segment of
// at least MIN_SPLIT_BYTES. In smaller segments and samples, finding the pieces takes longer than
// decoding in parallel saves.
enum { LONG = 1024, MIN_SPLIT_BYTES = 2048 };

enum { MAX_TABLES = 4, MOST_BLOCKS = 10 };     // two tables of DC differences, two of AC coefficients
// Bits per table lookup.
enum { DC_BITS = 9, AC_BITS = 11 };
// Codes of this length or longer may not fit into one lookup.
enum { LONG_CODE = 9 };

// A position in a block is 1 + the index of the latest coefficient, or 0 before the DC difference.
// From DONE on, the block is complete; a valid one ends exactly at DONE or with an end-of-block
// code. Lanes write values that are not coefficients to ASIDE, which avoids a branch.
enum { DONE = 64, ASIDE = 65, ENDED = 128, STUCK = 192 };

// Creates the table entry for the next bits: length of the code and its value in bits | advance of
// the position in the block << 8 | offset from these bits to the value << 16.
//
// The looked-up bits must cover the code and the first bit of its value, which is the sign. The
// entry is STUCK if the code is too long for this. The decoder then tries one code length after the
// other.
__device__ __forceinline__ u32 entry(u32 length, u32 symbol, u32 bits, u32 looked, bool dc) {
    const u32 size = symbol & 15, run = dc ? 0 : symbol >> 4;
    if (length + (size != 0) > bits) return STUCK << 8;
    const u32 advance = size == 0 && run < 15 && !dc ? u32(ENDED) : run + 1;
    const u32 code = looked >> (bits - length), negative = size != 0 && !(looked >> (bits - length - 1) & 1);
    return (length + size) | advance << 8 | (negative * (1 - (1u << size)) - (code << size)) << 16;
}

// The tables of a sample. `jpeg_tables` writes them, and later kernels copy them to shared memory.
struct __align__(16) Tables {
    // For each code length from LONG_CODE on: `limit` is one past the last code, left-aligned in 16
    // bits, and `offset` is the difference between a code and the index of its symbol.
    u32 limit[MAX_TABLES][17 - LONG_CODE];
    u32 offset[MAX_TABLES][17 - LONG_CODE];
    u8 symbols[MAX_TABLES][256];
    // For each block in an MCU: offset of its table in `dc` | offset in `ac` << 12 | indices of
    // both tables << 24 and << 26 | component << 28
    u32 choice[12];
    u32 dc[2 << DC_BITS];
    u32 ac[2 << AC_BITS];

    __device__ __forceinline__ static u32 dc_of(u32 choice) { return choice & 4095; }
    __device__ __forceinline__ static u32 ac_of(u32 choice) { return choice >> 12 & 4095; }
    __device__ __forceinline__ static u32 part_of(u32 choice) { return choice >> 28; }
    __device__ __forceinline__ static u32 number_of(u32 choice, bool dc) { return choice >> (dc ? 24 : 26) & 3; }

    // Finds the code of at least LONG_CODE bits at the start of the 16-bit `window`. Returns its
    // length | symbol << 8, or 0 if no code matches.
    __device__ __forceinline__ u32 find(u32 table, u32 window) const {
        u32 length = LONG_CODE;
        #pragma unroll
        for (u32 i = 0; i < 17 - LONG_CODE; i++) length += window >= limit[table][i];
        if (length > 16) return 0;
        const u32 index = (window >> (16 - length)) + offset[table][length - LONG_CODE];
        return length | u32(symbols[table][index & 255]) << 8;
    }
};

struct __align__(16) Built {
    Tables tables;
    // These tables replace `dc` and `ac` in kernels that do not need the coefficients.
    //
    // An entry of `dc_twice` is like an entry of `dc`. But if an end-of-block code directly follows
    // the DC difference, the entry skips both, and bits 5 to 7 contain the length of the
    // end-of-block code.
    u32 dc_twice[2 << DC_BITS];
    // The lower 16 bits contain one symbol, as in `ac`. The upper 16 bits contain two symbols if
    // the looked-up bits contain both, and otherwise the same symbol again.
    u32 twice[2 << AC_BITS];

    // All threads of a block copy the tables together.
    template <bool Twice> __device__ __forceinline__ void copy(Tables& to) const {
        enum { ALL = sizeof(Tables) / 16, LOOKED_UP = (sizeof(tables.dc) + sizeof(tables.ac)) / 16 };
        for (u32 i = threadIdx.x; i < ALL; i += blockDim.x) {
            const uint4* const from = reinterpret_cast<const uint4*>(this) + i + (Twice && i >= ALL - LOOKED_UP ? LOOKED_UP : 0);
            reinterpret_cast<uint4*>(&to)[i] = __ldg(from);
        }
        __syncthreads();
    }
};

static_assert(sizeof(Built) == 42288, "as DecodeOps::TABLES_BYTES");
// Maximum length of an end-of-block code that `dc_twice` covers.
enum { SHORT_END = 7 };

// blockIdx.x is the index of the table. A missing table is written without codes, because kernels
// copy all of `Tables` and must not read unwritten memory.
extern "C" __global__ void __launch_bounds__(128)
jpeg_tables(Built* all_built, const u8* arena, const DecodeOps* all, u32 count) {
    __shared__ u32 limits[17], offsets[17];
    __shared__ u32 end_index, end_code, end_length;     // end-of-block code
    const u32 table = blockIdx.x;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind != JPEG) continue;
        Tables& tables = all_built[n].tables;
        const Spec& spec = specs_of(o, arena)[table];
        u32 dc = 0;     // one bit per table of DC differences
        for (u32 part = 0; part < o.count; part++) dc |= 1u << (o.choice[part] & 3);
        // There are always two tables for DC differences, and two for AC coefficients.
        if (__popc(dc) == 1) dc |= 1u << o.tables;
        const bool exists = table < o.tables;
        // The AC table that is used after this DC table, if it is unique.
        u32 follower = ~0u;
        for (u32 part = 0; part < o.count; part++) {
            const u32 ac = o.choice[part] >> 8 & 3;
            if ((o.choice[part] & 3) == table) follower = follower == ~0u || follower == ac ? ac : MAX_TABLES;
        }
        const auto begin_of = [&](u32 table) {
            const u32 before = (1u << table) - 1;
            return dc >> table & 1 ? __popc(dc & before) << DC_BITS : __popc(~dc & before) << AC_BITS;
        };
        __syncthreads();
        if (threadIdx.x == 0) end_index = 256;
        __syncthreads();
        if (table == 0 && threadIdx.x < sizeof(tables.choice) / 4) {
            const u32 i = threadIdx.x,
                      part = o.count == 3 && i >= o.parts[1].first ? (i >= o.parts[2].first ? 2 : 1) : 0;
            const u32 dc_table = o.choice[part] & 3, ac_table = o.choice[part] >> 8 & 3;
            tables.choice[i] = begin_of(dc_table) | begin_of(ac_table) << 12 | dc_table << 24 |
                              ac_table << 26 | part << 28;
        }
        for (u32 i = threadIdx.x; i < 256; i += blockDim.x) {
            tables.symbols[table][i] = exists ? spec.symbols[i] : 0;
            if (follower < o.tables && specs_of(o, arena)[follower].symbols[i] == 0) atomicMin(&end_index, i);
        }
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) {
            u32 code = 0, index = 0;
            end_length = 0;
            for (u32 length = 1; length <= SHORT_END && follower < o.tables; length++) {
                const u32 codes = specs_of(o, arena)[follower].counts[length - 1];
                if (end_index - index < codes) end_length = length, end_code = code + end_index - index;
                code = (code + codes) << 1, index += codes;
            }
        }
        if (threadIdx.x == 0) {
            u32 code = 0, index = 0;
            for (u32 length = 1; length <= 16; length++) {
                const u32 codes = exists ? spec.counts[length - 1] : 0;
                offsets[length] = index - code;
                code += codes, index += codes;
                limits[length] = code << (16 - length);
                code <<= 1;
            }
        }
        __syncthreads();
        if (threadIdx.x < 17 - LONG_CODE) {
            tables.offset[table][threadIdx.x] = offsets[LONG_CODE + threadIdx.x];
            tables.limit[table][threadIdx.x] = limits[LONG_CODE + threadIdx.x];
        }
        const bool is_dc = dc >> table & 1;
        const u32 bits = is_dc ? DC_BITS : AC_BITS;
        const auto find = [&](u32 looked) {
            const u32 window = looked << (16 - bits);
            u32 length = 1;
            #pragma unroll
            for (u32 shorter = 1; shorter <= AC_BITS; shorter++) length += window >= limits[shorter];
            if (length > bits) return u32(STUCK << 8);
            const u32 index = (window >> (16 - length)) + offsets[length];
            return entry(length, spec.symbols[index & 255], bits, looked, is_dc);
        };
        u32* const look = (is_dc ? tables.dc : tables.ac) + begin_of(table);
        u32* const twice = (is_dc ? all_built[n].dc_twice : all_built[n].twice) + begin_of(table);
        const bool skips = o.longest >= MIN_SPLIT_BYTES;
        for (u32 i = threadIdx.x; i < 1u << bits; i += blockDim.x) {
            const u32 found = find(i), one = found & 0xffff, taken = found & 31;
            look[i] = found;
            if (!skips) continue;
            if (is_dc) {
                const u32 all = taken + end_length;
                const bool ends = one >> 8 < STUCK && end_length != 0 && all <= bits &&
                                  (i >> (bits - all) & ((1u << end_length) - 1)) == end_code;
                twice[i] = found + (ends ? end_length | end_length << 5 | ENDED << 8 : 0);
                continue;
            }
            u32 two = one;
            if (one >> 8 < ENDED && taken < bits) {
                const u32 next = find(i << taken & ((1u << bits) - 1)) & 0xffff;
                if (next >> 8 < STUCK && taken + (next & 31) <= bits) two += next;
            }
            twice[i] = one | two << 16;
        }
    }
}

// Reads the bits of a lane's piece. A lane that waits for memory stalls its whole warp, so it reads
// 16 bytes at a time, early, into a ring buffer in shared memory.
struct Bits {
    enum { RING = 16 };     // words
    // Maximum number of bits between two calls of `fill` or `prefetch`: three words by lookup, then
    // one code by search.
    enum { LOOKED_UP = 96, MAX_BITS = LOOKED_UP + 31 };

    const uint4* chunks;
    u32 last;           // last chunk that is read
    u32* ring;          // word i is at ring[i % RING * 32]
    u32 filled;         // number of words put into the ring so far
    uint4 ahead;        // the next words
    u32 origin;         // the first bit of the first chunk
    u32 position;       // bits from there

    __device__ __forceinline__ Bits() {}
    // Starts at bit `bit` of the sample's data.
    __device__ __forceinline__ Bits(const DecodeOps& o, const u8* arena, u32 bit, u32* ring) : ring(ring) {
        chunks = reinterpret_cast<const uint4*>(arena + o.at) + bit / 128;
        last = (o.bytes + 32) / 16 - 1 - bit / 128;
        origin = bit / 128 * 128;
        position = bit % 128;
        filled = 0;
        // Prefetch the later chunks into the cache while loading the first one.
        asm volatile("prefetch.global.L1 [%0];" :: "l"(chunks + min(2u, last)));
        ahead = __ldg(chunks);
        put();
        put();
        fill();
    }
    __device__ __forceinline__ u32& at(u32 i) { return ring[i % RING * 32]; }
    __device__ __forceinline__ void put() {
        at(filled) = __byte_perm(ahead.x, 0, 0x0123);
        at(filled + 1) = __byte_perm(ahead.y, 0, 0x0123);
        at(filled + 2) = __byte_perm(ahead.z, 0, 0x0123);
        at(filled + 3) = __byte_perm(ahead.w, 0, 0x0123);
        filled += 4;
        ahead = __ldg(chunks + min(filled / 4, last));
    }
    // A lane consumes at most four words between two calls, so the ring never runs empty.
    __device__ __forceinline__ void fill() {
        static_assert(31 + MAX_BITS < 5 * 32 && 6 + 3 <= RING, "the ring has what is needed, and room for a chunk");
        if (filled - position / 32 < 6) put();
    }
    // Like `fill`, for a lane that has already copied the next words out of the ring, but has not
    // yet advanced `position`. The words that this call loads arrive while the lane decodes.
    __device__ __forceinline__ void prefetch() {
        static_assert(31 + MAX_BITS < 5 * 32 && 9 + 3 <= RING, "as in `fill`, after the next four words");
        if (filled - position / 32 < 9) put();
    }
    __device__ __forceinline__ u32 peek() {
        const u32 i = position / 32;
        return __funnelshift_l(at(i + 1), at(i), position);
    }
};

// Words in shared memory, with the address in a register. With an ordinary array, the compiler
// reloads the address in each iteration, which takes about as long as the load itself (compute
// capability 9.0).
struct Shared {
    u32 at;
    __device__ __forceinline__ explicit Shared(const u32* words) : at(u32(__cvta_generic_to_shared(words))) {
        asm("" : "+r"(at));
    }
    __device__ __forceinline__ Shared(const Shared& from, u32 words) : at(from.at + words * 4) {}
    __device__ __forceinline__ u32 operator[](u32 i) const {
        u32 word;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at + i * 4));
        return word;
    }
};

// State of a lane's decoder between two calls of `fill`: the next bits, and the position in the
// block.
struct Rounds {
    enum { WORDS = 4 };
    // A table entry contains the number of bits to shift out, at most 25.
    u32 words[WORDS];
    // 128 - the remaining bit budget | position in the block << 8
    u32 progress;
    u32 budget;
    // Maximum number of bits that one lookup consumes.
    enum { MAX_BITS = 25 };
    static_assert(Bits::LOOKED_UP - 1 + MAX_BITS <= WORDS * 32, "the words have all bits that are taken");

    __device__ __forceinline__ Rounds(Bits& bits, u32 place, u32 left) {
        const u32 first = bits.position / 32;
        u32 high = bits.at(first);
        #pragma unroll
        for (u32 i = 0; i < WORDS; i++) {
            const u32 low = bits.at(first + i + 1);
            words[i] = __funnelshift_l(low, high, bits.position);
            high = low;
        }
        budget = min(u32(Bits::LOOKED_UP), left);
        progress = 128 - budget | place << 8;
    }
    __device__ __forceinline__ bool on() const { return (progress & 0xc080) == 0; }
    __device__ __forceinline__ void step(u32 found) {
        #pragma unroll
        for (u32 i = 0; i < WORDS; i++) words[i] = __funnelshift_l(i + 1 < WORDS ? words[i + 1] : 0, words[i], found);
        progress += found & 0xff1f;
    }
    // Decodes one symbol, unless the block or the bits have ended. Returns the 1-based position of
    // the value, or ASIDE.
    __device__ __forceinline__ u32 round(const u32* look, u32 shift, u32& value) {
        const bool was_on = on();
        const u32 looked = look[words[0] >> shift], found = was_on ? looked : 0;
        value = __funnelshift_l(words[0], 0, found) + (found >> 16);
        step(found);
        return was_on && progress < ASIDE << 8 ? progress >> 8 : ASIDE;
    }
    // Returns a DC difference found in `dc_twice`, or 0 if its code is not in the table. Also skips
    // an end-of-block code after the difference, unless the bits end before that code.
    __device__ __forceinline__ u32 difference(const Shared& look) {
        const u32 found = look[words[0] >> (32 - DC_BITS)], end = found >> 5 & 7, own = (found & 31) - end;
        const u32 value = __funnelshift_l(words[0], 0, own) + (found >> 16);
        const bool stops = end != 0 && ((progress + own) & 128) != 0;
        step(stops ? own | 1 << 8 : found);
        return progress < STUCK << 8 ? value : 0;
    }
    // Skips one or two symbols without computing their values. Skips only one near the end of the
    // block or of the bits.
    __device__ __forceinline__ void skip(const Shared& look) {
        const bool near = ((progress + (17 << 8 | AC_BITS)) & 0xc080) != 0;
        const u32 looked = look[words[0] >> (32 - AC_BITS)] >> (near ? 0 : 16);
        step(on() ? looked : 0);
    }
    __device__ __forceinline__ void begin() { progress &= 255; }
    __device__ __forceinline__ u32 place() const { return progress >> 8; }
    __device__ __forceinline__ u32 taken() const { return (progress & 255) - (128 - budget); }
};

// Number of symbols that are decoded between two calls of `fill`: FEW if that finishes the blocks
// of all lanes, otherwise ROUNDS.
enum { FEW = 2, ROUNDS = 12 };

// Finds a code by search, and reads the value after it. Returns false if no code matches.
__device__ __forceinline__ bool find_one(const Tables& tables, Bits& bits, u32 choice, u32& place, u32& value) {
    place -= STUCK;
    const u32 window = bits.peek(), found = tables.find(Tables::number_of(choice, place == 0), window >> 16);
    if (found == 0) return false;
    const u32 length = found & 255, size = found >> 8 & 15, run = place == 0 ? 0 : found >> 12;
    // EXTEND in T.81 F.2.2.1.
    const u32 behind = window << length, negative = ~u32(int(behind) >> 31);
    value = (behind >> 1 >> (31 - size)) + (negative & (1 - (1u << size)));
    place += size == 0 && run < 15 && place != 0 ? u32(ENDED) : run + 1;
    bits.position += length + size;
    return true;
}

// Decodes up to ROUNDS symbols of a block, and writes the coefficients to `own`. Returns false if a
// code is invalid.
__device__ __forceinline__ bool decode_some(const Tables& tables, Bits& bits, u32 choice, u32& place, i16* own) {
    const bool dc = place == 0;
    const u32* const ac = tables.ac + Tables::ac_of(choice);
    const auto keep = [&](u32 place, u32 value) { own[int(place) - 1] = i16(value); };
    Rounds rounds(bits, place, ~0u);
    bits.prefetch();
    u32 value = 0, at = rounds.round(dc ? tables.dc + Tables::dc_of(choice) : ac, 32 - (dc ? DC_BITS : AC_BITS), value);
    keep(at, value);
    const auto some = [&](u32 rest) {
        #pragma unroll
        for (u32 i = 0; i < rest; i++) at = rounds.round(ac, 32 - AC_BITS, value), keep(at, value);
    };
    some(FEW - 1);
    if (__any_sync(~0u, rounds.on())) some(ROUNDS - FEW);
    place = rounds.place();
    bits.position += rounds.taken();
    if (place < STUCK) return true;
    const bool sense = find_one(tables, bits, choice, place, value);
    keep(sense ? min(place, u32(ASIDE)) : ASIDE, value);
    return sense;
}

// Returns whether a block may end at this position. A run of zeros past the end is invalid.
__device__ __forceinline__ bool is_sound(u32 place) { return place == DONE || place >= ENDED; }

// A piece of a segment: consecutive blocks with known first bit and known preceding DC
// coefficients.
struct __align__(16) Start {
    u32 bit, end;       // start of the first block, end of the segment; relative to the sample's first byte
    u32 block, count;   // index of the first block in the image, and number of blocks
    u32 dc[3];
    u32 most_left;      // maximum number of bits after the last of these blocks
};

// --- starts of the pieces of long segments

// Bytes per line. The scratch memory contains one Start per line of the arena. Longer lines need
// fewer passes, but each pass lasts until the line with the most symbols is decoded. On compute
// capability 9.0, batches of photographs take 12 % less time than with 256 bytes.
enum { LINE_BYTES = 128 };

__device__ __forceinline__ u32 first_line(const DecodeOps& o) {
    return (o.count * 128 + o.tables * u32(sizeof(Spec)) + o.segments * u32(sizeof(Segment))) / LINE_BYTES;
}

// The part of a line that belongs to a piece.
struct Extent { u32 from, to; };    // bits
struct Line {
    Segment segment;
    Extent extent;
    bool any, first;    // whether the line contains a piece, and whether it is the first of its segment

    // Each piece begins at the start of a line, except the first piece of a segment: it begins with
    // the segment, and extends to the end of the first whole line.
    __device__ __forceinline__ Line(const DecodeOps& o, const Segment* segments, u32 line) {
        u32 low = 0, high = o.segments;
        while (high - low > 1) {
            const u32 middle = (low + high) / 2;
            if (segments[middle].byte <= line * LINE_BYTES) low = middle; else high = middle;
        }
        segment = segments[low];
        const u32 begin = (segment.byte + LINE_BYTES - 1) / LINE_BYTES, end = segment.byte + segment.bytes;
        any = segment.bytes >= LONG && line >= begin && line * LINE_BYTES < end;
        first = any && line == begin;
        extent = {(first ? segment.byte : line * LINE_BYTES) * 8, min((line + 1) * LINE_BYTES, end) * 8};
    }
};

// Decoder state at the end of a piece: bits past the end | index of the block in the MCU << 8 |
// position in the block << 16. The state 0 is the start of an MCU.
struct State {
    u32 ahead, b, place;
    __device__ __forceinline__ State(u32 code) : ahead(code & 255), b(code >> 8 & 255), place(code >> 16) {}
    __device__ __forceinline__ State(u32 ahead, u32 b, u32 place) : ahead(ahead), b(b), place(place) {}
    __device__ __forceinline__ u32 code() const { return ahead | b << 8 | place << 16; }
};

// The number of blocks that begin in a piece, and the sums of their DC differences.
struct Gain {
    u32 count, dc[3];
    __device__ __forceinline__ Gain operator+(const Gain& other) const {
        return {count + other.count, {dc[0] + other.dc[0], dc[1] + other.dc[1], dc[2] + other.dc[2]}};
    }
};

__device__ __forceinline__ void add(Gain& sums, u32 part, u32 difference) {
    sums.dc[0] += part == 0 ? difference : 0;
    sums.dc[1] += part == 1 ? difference : 0;
    sums.dc[2] += part == 2 ? difference : 0;
}

enum { TURNS = 2, SKIPS = 6 };

// Decodes a piece without storing coefficients. Returns its exit state, and writes its gain to
// `sums` and the start of its first block to `first`. After invalid bits, continues as if an MCU
// began there.
__device__ __forceinline__ u32 follow(const Tables& tables, const DecodeOps& o, const u8* arena, u32* ring, const Extent& piece,
                                      u32 entry, Gain& sums, u32& first) {
    const u32 blocks = o.blocks;
    const State state(entry);
    Bits bits(o, arena, piece.from + state.ahead, ring);
    const u32 limit = piece.to - bits.origin;
    const Shared choices(tables.choice), dcs(tables.dc), acs(tables.ac);
    u32 place = state.place, b = state.b, choice = choices[b];
    sums = {0, {0, 0, 0}};
    while (bits.position < limit) {
        bits.fill();
        Rounds rounds(bits, place, limit - bits.position);
        // Each iteration decodes a small block or a part of a large one.
        #pragma unroll 1
        for (u32 turn = 0; turn < TURNS; turn++) {
            place = rounds.place();
            if (place == 0 && rounds.on()) {
                if (sums.count++ == 0) first = bits.origin + bits.position + rounds.taken();
                add(sums, Tables::part_of(choice), rounds.difference(Shared(dcs, Tables::dc_of(choice))));
            }
            if (rounds.on()) {
                const Shared ac(acs, Tables::ac_of(choice));
                #pragma unroll
                for (u32 i = 0; i < SKIPS; i++) rounds.skip(ac);
            }
            place = rounds.place();
            if (place >= DONE && place < STUCK) {
                b = is_sound(place) && b + 1 < blocks ? b + 1 : 0;
                choice = choices[b];
                place = 0;
                rounds.begin();
            }
        }
        bits.position += rounds.taken();
        if (place >= STUCK) {
            const bool dc = place == STUCK;
            u32 value = 0;
            const bool sense = find_one(tables, bits, choice, place, value);
            if (!sense) bits.position++;
            if (dc && sense) add(sums, Tables::part_of(choice), value);
            if (!sense || place >= DONE) {
                b = sense && is_sound(place) && b + 1 < blocks ? b + 1 : 0;
                choice = choices[b];
                place = 0;
            }
        }
    }
    return State(bits.position - limit, b, place).code();
}

// Properties of a line that do not depend on the gains of the previous lines. `jpeg_follow` writes
// them, and `jpeg_starts` overwrites them with a Start.
struct __align__(16) Followed {
    u32 entry, exit;    // states
    u32 first;          // the bit at which the first block begins
    u32 unused;
    Gain gain;
};

static_assert(sizeof(Followed) == sizeof(Start), "a Start overwrites a Followed");

// A thread block decodes TILE consecutive lines. The first OVERLAP of them are also the last lines
// of the previous tile, so that the codes have usually synchronized where the tile's own lines
// begin.
enum { TILE = 128, OVERLAP = 16, STEP = TILE - OVERLAP };

// Codes of regular patterns may never synchronize: each pass then fixes only one more line. So a
// sample is left to the host after PASSES passes of `jpeg_follow` over a tile, or CHAIN lines at
// the start of a tile in `jpeg_starts`. CHAIN is less than the number of lines in a tile, so
// `jpeg_starts` never changes a tile's last line.
enum { PASSES = 96, CHAIN = 64 };
static_assert(CHAIN < STEP, "tiles do not wait for each other");

__device__ __forceinline__ u32 own_line(const DecodeOps& o, u32 i) {
    return first_line(o) + i * STEP + (i == 0 ? 0 : OVERLAP);
}

// Finds the decoder state at each line. First, each line is decoded as if an MCU began at its
// start. Then the lines are decoded again, each from the exit state of the previous line, until no
// exit state changes. After that, only lines before the tile can still change the tile's states.
// Between passes, lines with a new entry state are compacted onto the first threads, so that most
// warps are idle.
//
// Where codes synchronize late, which is typical of high quality, a line's entry state often
// alternates between a few values. So the last two decodings of each line are stored, and never
// repeated. Of 500 photographs from ImageNet, the median needs 5 passes, and the slowest 31.
extern "C" __global__ void __launch_bounds__(TILE)
jpeg_follow(Followed* followed, u32* faults, const Built* built, const u8* arena, const DecodeOps* all, Samples samples) {
    __shared__ Tables tables;
    __shared__ u32 rings[TILE * Bits::RING];
    __shared__ Extent extents[TILE];
    __shared__ u32 entries[TILE], exits[TILE], list[TILE];
    __shared__ u32 listed;
    const u32 lane = threadIdx.x % 32;
    u32* const ring = rings + threadIdx.x / 32 * 32 * Bits::RING + lane;
    for (Share share = Share::begin<Bytes>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind != JPEG || o.longest < MIN_SPLIT_BYTES || o.place != n) continue;
        const Segment* const segments = segments_of(o, arena);
        const u32 lines = o.bytes / LINE_BYTES + 1;
        bool copied = false, lost = false;      // uniform across the threads
        for (u32 tile = share.block(); own_line(o, tile) < lines && !lost; tile += share.blocks()) {
            const u32 begin = first_line(o) + tile * STEP;
            const Line line(o, segments, begin + threadIdx.x);
            if (!__syncthreads_or(line.any)) continue;
            Followed* const results = followed + o.at / LINE_BYTES + begin;
            const bool is_own = begin + threadIdx.x >= own_line(o, tile);
            if (!copied) built[n].copy<true>(tables);
            copied = true;
            const bool exact = line.first || threadIdx.x == 0;
            // The last two decodings of this thread's line. `written` is whether the last one is
            // stored in `followed`.
            Followed now = {~0u, 0, 0, 0, {0, {0, 0, 0}}}, earlier = now;
            bool written = true;
            extents[threadIdx.x] = line.extent;
            exits[threadIdx.x] = 0;
            for (u32 pass = 0;; pass++) {
                if (threadIdx.x == 0) listed = 0;
                u32 entry;
                for (;;) {
                    __syncthreads();
                    entry = exact ? 0 : exits[threadIdx.x - 1];
                    const bool repeats = line.any && entry != now.entry && entry == earlier.entry;
                    if (!__syncthreads_or(repeats)) break;
                    if (repeats) {
                        const Followed other = now;
                        now = earlier, earlier = other, written = !written;
                        exits[threadIdx.x] = now.exit;
                    }
                }
                const bool changed = line.any && entry != now.entry;
                const u32 lanes = __ballot_sync(~0u, changed);
                u32 at = 0;
                if (lane == 0) at = atomicAdd(&listed, __popc(lanes));
                at = __shfl_sync(~0u, at, 0) + __popc(lanes & ((1u << lane) - 1));
                if (changed) list[at] = threadIdx.x, entries[threadIdx.x] = entry;
                __syncthreads();
                if (listed == 0) break;
                if (pass == PASSES) {
                    lost = true;
                    break;
                }
                if (threadIdx.x < listed) {
                    const u32 i = list[threadIdx.x];
                    Followed own = {entries[i], 0, 0, 0, {0, {0, 0, 0}}};
                    exits[i] = own.exit = follow(tables, o, arena, ring, extents[i], own.entry, own.gain, own.first);
                    if (begin + i >= own_line(o, tile)) results[i] = own;
                }
                __syncthreads();
                if (changed) {
                    earlier = now, written = true;
                    if (is_own) now = results[threadIdx.x]; else now.entry = entry, now.exit = exits[threadIdx.x];
                }
            }
            if (line.any && is_own && !written) results[threadIdx.x] = now;
            __syncthreads();
        }
        if (lost && threadIdx.x == 0) faults[n] = 1;
    }
}

enum { SUMMERS = 256 };

// Returns the sum over all lines that precede this thread's line in its segment. `carried` is the
// sum before the first thread's line. On return, it is the sum before the next tile.
__device__ __forceinline__ Gain sum_before(const Gain& own, bool first, Gain* sums, bool* firsts, Gain& carried) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Gain sum = own;
    bool cut = first;
    #pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        Gain other;
        other.count = __shfl_up_sync(~0u, sum.count, distance);
        for (u32 i = 0; i < 3; i++) other.dc[i] = __shfl_up_sync(~0u, sum.dc[i], distance);
        const bool other_cut = __shfl_up_sync(~0u, cut, distance);
        if (lane >= distance && !cut) sum = sum + other, cut = other_cut;
    }
    sums[threadIdx.x] = sum;
    firsts[threadIdx.x] = cut;
    __syncthreads();
    Gain before = carried;      // sum of all previous warps
    for (u32 i = 0; i < warp; i++) before = firsts[i * 32 + 31] ? sums[i * 32 + 31] : before + sums[i * 32 + 31];
    if (!cut) sum = before + sum;
    __syncthreads();
    sums[threadIdx.x] = sum;
    __syncthreads();
    Gain result = threadIdx.x == 0 ? carried : sums[threadIdx.x - 1];
    if (first) result = {0, {0, 0, 0}};
    carried = sums[SUMMERS - 1];
    __syncthreads();
    return result;
}

// Decodes the first lines of each tile again, until they agree with the end of the previous tile. A
// prefix sum over the lines then gives the blocks that begin each piece.
extern "C" __global__ void __launch_bounds__(SUMMERS)
jpeg_starts(Start* starts, u32* faults, const Built* built, const u8* arena, const DecodeOps* all, Samples samples) {
    __shared__ Tables tables;
    __shared__ u32 rings[SUMMERS * Bits::RING];
    __shared__ Gain sums[SUMMERS];
    __shared__ bool firsts[SUMMERS];
    u32* const ring = rings + threadIdx.x / 32 * 32 * Bits::RING + threadIdx.x % 32;
    for (u32 n = samples.first + blockIdx.y; n < samples.end; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind != JPEG || o.longest < MIN_SPLIT_BYTES || o.place != n || faults[n] != 0) continue;
        const Segment* const segments = segments_of(o, arena);
        const u32 begin = first_line(o), lines = o.bytes / LINE_BYTES + 1;
        Start* const own_starts = starts + o.at / LINE_BYTES;
        Followed* const followed = reinterpret_cast<Followed*>(own_starts);
        // One thread per tile decodes lines again while the previous line's exit state differs from
        // the assumed one. The previous tile's last line is final, because no thread changes it.
        bool changed = false, lost = false;
        const u32 from = own_line(o, 1 + threadIdx.x);
        for (u32 tile = from; tile < lines; tile += SUMMERS * STEP) {
            const Line line(o, segments, tile);
            changed |= line.any && !line.first && followed[tile - 1].exit != followed[tile].entry;
        }
        if (__syncthreads_or(changed)) {
            built[n].copy<true>(tables);
            for (u32 tile = from; tile < lines; tile += SUMMERS * STEP) {
                for (u32 i = tile; i < min(tile + STEP, lines); i++) {
                    const Line line(o, segments, i);
                    if (!line.any || line.first || followed[i - 1].exit == followed[i].entry) break;
                    lost = i == tile + CHAIN;
                    if (lost) break;
                    Followed own = {followed[i - 1].exit, 0, 0, 0, {0, {0, 0, 0}}};
                    own.exit = follow(tables, o, arena, ring, line.extent, own.entry, own.gain, own.first);
                    followed[i] = own;
                }
                if (lost) break;
            }
        }
        if (__syncthreads_or(lost)) {
            if (threadIdx.x == 0) faults[n] = 1;
            continue;
        }
        Gain carried = {0, {0, 0, 0}};
        for (u32 i = begin + threadIdx.x; i - threadIdx.x < lines; i += SUMMERS) {
            const Line line(o, segments, i);
            Followed own = {0, 0, 0, 0, {0, {0, 0, 0}}};
            if (line.any) own = followed[i];
            const Gain before = sum_before(own.gain, line.first, sums, firsts, carried);
            const Segment& s = line.segment;
            const u32 total = s.count() * o.blocks, rest = line.any ? total - min(total, before.count) : 0;
            const u32 end = (s.byte + s.bytes) * 8;
            if (i < lines) {
                own_starts[i] = {own.first, end, s.first * o.blocks + before.count, min(own.gain.count, rest),
                                 {before.dc[0], before.dc[1], before.dc[2]},
                                 own.gain.count < rest ? ~0u : s.most_left()};
            }
            // If the segment ends before its last block begins, the data is invalid.
            if (line.any && line.extent.to == end && own.gain.count < rest) faults[n] = 1;
        }
    }
}

// --- coefficients

struct __align__(16) Lanes {
    enum { STRIDE = 36 }; // in words: lanes access blocks 16 bytes at a time, in different banks
    // Per lane: the 32 words of its block of coefficients, initially 0; ASIDE; the index of the
    // block in the scratch memory; an entry of a list of lanes.
    enum { INDEX = 33, LISTED = 34 };
    u32 blocks[32 * STRIDE];
    u32 ring[Bits::RING * 32];
};

// Marks blocks outside the window, which are not stored.
enum : u32 { NOWHERE = ~0u };

// Computes the index of a block in the scratch memory. Fields of the record are kept in registers.
struct Place {
    u32 x, y, b;
    u32 mcus, blocks, row, rows, column, columns, first;
    __device__ __forceinline__ Place(const DecodeOps& o, u32 block)
        : mcus(o.mcus), blocks(o.blocks), row(o.row), rows(o.rows), column(o.column), columns(o.columns), first(o.block) {
        const u32 mcu = block / blocks;
        b = block - mcu * blocks;
        y = mcu / mcus, x = mcu - y * mcus;
    }
    __device__ __forceinline__ u32 block() const {
        const u32 down = y - row, across = x - column;
        return down < rows && across < columns ? first + (down * columns + across) * blocks + b : u32(NOWHERE);
    }
    __device__ __forceinline__ void next() {
        if (++b == blocks) {
            b = 0;
            if (++x == mcus) x = 0, y++;
        }
    }
};

// Starts of a sample's pieces: first its segments, and then the lines of its long segments.
struct Pieces {
    const Segment* segments;
    const Start* starts;
    u32 short_ones, count, blocks;
    bool in_one;
    __device__ __forceinline__ Pieces(const DecodeOps& o, const u8* arena, const Start* all)
        : segments(segments_of(o, arena)), starts(all + o.at / LINE_BYTES + first_line(o)), short_ones(o.segments),
          blocks(o.blocks), in_one(o.longest < MIN_SPLIT_BYTES) {
        count = short_ones + (in_one ? 0 : o.bytes / LINE_BYTES + 1 - first_line(o));
    }
    // Returns a Start without blocks for a long segment, and for a line without a piece.
    __device__ __forceinline__ Start operator[](u32 i) const {
        if (i >= short_ones) return starts[i - short_ones];
        const Segment s = segments[i];
        return {s.byte * 8, (s.byte + s.bytes) * 8, s.first * blocks,
                in_one || s.bytes < LONG ? s.count() * blocks : 0, {0, 0, 0}, s.most_left()};
    }
};

// Stores the blocks of the lanes in `finished`, and sets them to 0. Eight lanes store one block, so
// that a warp writes whole cache lines.
__device__ __forceinline__ void store_blocks(Lanes& lanes, u32 finished, i16* coefficients) {
    const u32 lane = threadIdx.x % 32;
    if (finished >> lane & 1) {
        lanes.blocks[__popc(finished & ((1u << lane) - 1)) * Lanes::STRIDE + Lanes::LISTED] = lane;
    }
    __syncwarp();
    for (u32 i = lane / 8; i < __popc(finished); i += 4) {
        u32* const block = lanes.blocks + lanes.blocks[i * Lanes::STRIDE + Lanes::LISTED] * Lanes::STRIDE;
        uint4& eight = reinterpret_cast<uint4*>(block)[lane % 8];
        const u32 index = block[Lanes::INDEX];
        if (index != NOWHERE) reinterpret_cast<uint4*>(coefficients)[size_t(index) * 8 + lane % 8] = eight;
        eight = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
}

// Decodes pieces `i`, `i + step` and so on. Returns false if the bytes of a piece are invalid. To
// keep the warp converged, a lane that has finished its block waits until the warp has decoded
// ROUNDS symbols. Then all such lanes store their blocks and start the next ones. Coefficients stay
// in zigzag order, which `jpeg_idct` expects.
//
// With `Together`, the warp stores each block as a whole. This is faster for short segments, and
// slower for lines, in which more lanes finish at the same time (compute capability 9.0).
template <bool Together>
__device__ __forceinline__ bool decode(const Tables& tables, Lanes& lanes, const DecodeOps& o, const Pieces& pieces, u32 i,
                                       u32 step, const u8* arena, i16* coefficients) {
    const u32 lane = threadIdx.x % 32;
    u32* const words = lanes.blocks + lane * Lanes::STRIDE;
    uint4* const eights = reinterpret_cast<uint4*>(words);
    i16* const own = reinterpret_cast<i16*>(words);
    Bits bits(o, arena, 0, lanes.ring + lane);
    Place at(o, 0);
    u32 left = 0, last = 0, most_left = 0, block = NOWHERE, choice = 0, place = ENDED;
    u32 dc[3] = {0, 0, 0};
    bool sound = true;
    for (;;) {
        const bool finished = place >= DONE && place != ENDED;
        if (finished) {
            const u32 part = Tables::part_of(choice),
                      level = (part == 0 ? dc[0] : part == 1 ? dc[1] : dc[2]) + u32(own[0]);
            if (part == 0) dc[0] = level; else if (part == 1) dc[1] = level; else dc[2] = level;
            own[0] = i16(level);
            if (Together) {
                words[Lanes::INDEX] = block;
            } else {
                uint4* const to = reinterpret_cast<uint4*>(coefficients) + size_t(block) * 8;
                #pragma unroll
                for (u32 k = 0; k < 8; k++) {
                    if (block != NOWHERE) to[k] = eights[k];
                    eights[k] = make_uint4(0, 0, 0, 0);
                }
            }
            const bool fits = bits.position <= last && (left != 0 || last - bits.position <= most_left);
            if (!is_sound(place) || !fits) sound = false, left = 0;
        }
        if (Together) store_blocks(lanes, __ballot_sync(~0u, finished), coefficients);
        if (place >= DONE) {
            place = ENDED;
            while (left == 0 && i < pieces.count) {
                const Start start = pieces[i];
                i += step;
                if (start.count == 0) continue;
                left = start.count;
                bits = Bits(o, arena, start.bit, lanes.ring + lane);
                last = start.end - bits.origin, most_left = start.most_left;
                at = Place(o, start.block);
                dc[0] = start.dc[0], dc[1] = start.dc[1], dc[2] = start.dc[2];
            }
            if (left != 0) {
                choice = tables.choice[at.b];
                block = at.block();
                at.next();
                left--;
                place = 0;
            }
        }
        if (!__any_sync(~0u, place != ENDED)) return sound;
        if (!decode_some(tables, bits, choice, place, own)) place = ASIDE;
    }
}

extern "C" __global__ void __launch_bounds__(128)
jpeg_huffman(i16* coefficients, u32* faults, const Built* built, const u8* arena, const DecodeOps* all, Samples samples,
             const Start* starts) {
    __shared__ Tables tables;
    __shared__ Lanes warps[4];
    Lanes& lanes = warps[threadIdx.x / 32];
    for (u32 i = threadIdx.x % 32; i < 32 * Lanes::STRIDE; i += 32) lanes.blocks[i] = 0;
    for (Share share = Share::begin<Bytes>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind != JPEG) continue;
        // A different thread block may set the fault right now, so one thread reads it for the
        // whole block.
        const bool lost = threadIdx.x == 0 && faults[o.place] != 0;
        if (lost && o.place != n) faults[n] = 1;
        const Pieces pieces(o, arena, starts);
        const u32 first = share.block() * blockDim.x;
        if (first >= pieces.count || __syncthreads_or(lost)) continue;
        built[n].copy<false>(tables);
        const u32 begin = first + threadIdx.x, step = share.blocks() * blockDim.x;
        const bool sound = pieces.in_one ? decode<true>(tables, lanes, o, pieces, begin, step, arena, coefficients)
                                         : decode<false>(tables, lanes, o, pieces, begin, step, arena, coefficients);
        if (!sound) faults[n] = 1;
    }
}

// --- the inverse transform -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ int narrow(int sum) { return i16(sum); }

template <int Shift> __device__ __forceinline__ int scaled(u32 sum) {
    return min(max(int(sum + (1u << (Shift - 1))) >> Shift, -32768), 32767);
}

// One-dimensional transform, in place, of eight values that are `Step` apart (Loeffler, Ligtenberg
// and Moschytz, 1989; 13-bit constants).
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

// Row-major index of each zigzag position in a block.
#define ZIGZAG                                                                                                                          \
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49,    \
    56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63

// The plane of a component. The planes of a sample are stored one after the other.
struct Plane {
    u32 first;          // index of its first block
    u32 wide, high;     // in blocks
    __device__ __forceinline__ Plane(const DecodeOps& o, u32 part) {
        const Component& p = o.parts[part];
        first = o.block + o.columns * o.rows * p.first;
        wide = o.columns * p.h, high = o.rows * p.v;
    }
};

extern "C" __global__ void __launch_bounds__(128)
jpeg_idct(u8* planes, const i16* coefficients, const u32* faults, const u8* arena, const DecodeOps* all, Samples samples) {
    __shared__ u16 quant[3 * 64];
    constexpr u8 zigzag[64] = {ZIGZAG};
    for (Share share = Share::begin<Blocks>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind != JPEG || faults[n] != 0) continue;
        __syncthreads();
        for (u32 i = threadIdx.x; i < o.count * 64; i += blockDim.x) quant[i] = reinterpret_cast<const u16*>(arena + o.at)[i];
        __syncthreads();
        const u32 blocks = o.columns * o.rows * o.blocks;
        for (u32 i = share.block() * blockDim.x + threadIdx.x; i < blocks; i += share.blocks() * blockDim.x) {
            // Adjacent threads transform adjacent blocks of one component.
            u32 part = 0;
            if (o.count == 3) part = (i >= o.columns * o.rows * o.parts[1].first) + (i >= o.columns * o.rows * o.parts[2].first);
            const Component& p = o.parts[part];
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

enum { ROWS = 8 };  // rows of the output per block
enum { GROUP = 4 }; // rows that share horizontal weights
enum { WEIGHTS = 128 / ROWS };  // threads that compute the vertical weights of one row
enum { ANY = 255 }; // template parameter: read the value from the record

__device__ __forceinline__ u32 word(const u8* at) { return __ldg(reinterpret_cast<const u32*>(at)); }

// `evens` and `odds` return bytes 0 and 2, or 1 and 3, of a word as two 16-bit numbers.
// `interleave` does the reverse, and truncates to 8 bits. Weighted sums of bytes are computed for
// two such numbers at once.
__device__ __forceinline__ u32 evens(u32 bytes) { return bytes & 0x00ff00ff; }
__device__ __forceinline__ u32 odds(u32 bytes) { return bytes >> 8 & 0x00ff00ff; }
__device__ __forceinline__ u32 interleave(u32 even, u32 odd) { return (even & 0x00ff00ff) | (odd & 0x00ff00ff) << 8; }
__device__ __forceinline__ u32 both(u32 value) { return value | value << 16; }

// Loads one component's samples for four adjacent pixels of the stored image. If `up` is a
// constant, the compiler keeps only the code for that case.
struct Four {
    const u8* zero;     // row 0 of the component, at a multiple of 4 bytes
    u32 stride;
    u32 down, last;     // rows of pixels per sample; the last row
    // For the triangle filter, `pick` selects four adjacent samples from two words: the two samples
    // of these pixels, and one on either side. For REPLICATE, `behind` is the first pixel, and
    // `pick` is the number of pixels per sample.
    u32 behind, pick;

    // `x` must be a multiple of 4, and the whole row of the plane must be readable.
    __device__ __forceinline__ void prepare(const DecodeOps& o, const u8* planes, u32 part, u32 up, u32 x) {
        const Component& p = o.parts[part];
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
            // At an edge, the edge sample replaces the missing neighbor.
            const int own = x / 2, from = (own - 1) & ~3, right = p.width - 1;
            const int low = max(from, left), high = min(from + 4, left + int(stride) - 4);
            pick = u32(max(own - 1, left) - from) | u32(own - from) << 4 | u32(max(min(own + 1, right) - from, 0)) << 8 |
                   u32(max(min(own + 2, right) - from, 0)) << 12;
            zero += low, behind = high - low;
        }
        // Prevents the compiler from computing this address again for each row.
        asm("" : "+l"(zero));
    }
    __device__ __forceinline__ u32 around(u32 row) const {
        const u8* const at = zero + u64(row) * stride;
        return __byte_perm(word(at), word(at + behind), pick);
    }
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
        // The samples of the first two and the last two pixels, and their left and right neighbors.
        const u32 own = __byte_perm(even, odd, 0x3254), before = __byte_perm(even, odd, 0x5410), after = __byte_perm(even, odd, 0x7632);
        const u32 shift = up == H2V1 ? 2 : 4;
        return interleave((3 * own + before + both(up == H2V1 ? 1 : 8)) >> shift, (3 * own + after + both(up == H2V1 ? 2 : 7)) >> shift);
    }
};

__device__ __forceinline__ int signed_byte(u32 bytes, int i) { return (signed char)(bytes >> (8 * i)); }
__device__ __forceinline__ u32 byte(int value) { return u32(max(min(value, 255), 0)); }

// Weighted sums of pixels. A pixel is red | green << 8 | blue << 16, and its top byte is arbitrary.
// Weights are not negative. A sum always rounds to a byte, because its weights, of which there are
// at most 64, add up to at most 1 plus 32 units of 2^-14.
struct Sums {
    u32 red, green, blue;
    __device__ __forceinline__ void clear(u32 precision) { red = green = blue = 1u << (precision - 1); }
    __device__ __forceinline__ void add(u32 r, u32 g, u32 b, u32 weight) { red += r * weight, green += g * weight, blue += b * weight; }
    // `weights` contains the weights of the two pixels, as two 16-bit numbers.
    __device__ __forceinline__ void add_pair(u32 first, u32 second, u32 weights) {
        const u32 red_green = __byte_perm(first, second, 0x5140), blues = __byte_perm(first, second, 0x0062);
        red = __dp2a_lo(weights, red_green, red), green = __dp2a_hi(weights, red_green, green), blue = __dp2a_lo(weights, blues, blue);
    }
    __device__ __forceinline__ u32 pixel(u32 precision) const {
        return red >> precision | green >> precision << 8 | blue >> precision << 16;
    }
    // Returns the pixel, for sums with a precision of 24 bits.
    __device__ __forceinline__ u32 tops() const { return __byte_perm(__byte_perm(red, green, 0x0073), blue, 0x0710); }
};

// --- EXIF orientation and video frames

// The samples of a video frame. The arithmetic is the same as in `video/src/rgb.rs`.
struct Frame {
    const u8* data;
    const YuvHead& head;
    __device__ __forceinline__ Frame(const DecodeOps& o, const u8* arena)
        : data(arena + o.at), head(*reinterpret_cast<const YuvHead*>(arena + o.at)) {}
    __device__ __forceinline__ int sample(u32 at) const {
        return head.sample_bytes == 1 ? data[at] : *reinterpret_cast<const u16*>(data + at);
    }
    __device__ __forceinline__ void pixel(u32 x, u32 y, u32 (&rgb)[3]) const {
        const u32 at = (y >> head.chroma_y) * head.chroma_stride + (x >> head.chroma_x) * head.chroma_step;
        const int cb = sample(head.cb + at) - int(head.center), cr = sample(head.cr + at) - int(head.center);
        const int luma = sample(head.luma + y * head.luma_stride + x * head.sample_bytes) * int(head.luma_weight) + int(head.rounding);
        rgb[0] = byte((luma + cr * int(head.red_cr)) >> 20);
        rgb[1] = byte((luma + cr * int(head.green_cr) + cb * int(head.green_cb)) >> 20);
        rgb[2] = byte((luma + cb * int(head.blue_cb)) >> 20);
    }
};

// Writes the region's upright pixels over the coefficients, which are not needed anymore.
extern "C" __global__ void __launch_bounds__(128)
jpeg_turn(u8* turned, const u8* planes, const u32* faults, const u8* arena, const DecodeOps* all, Samples samples) {
    for (Share share = Share::begin<Blocks>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind == 0 || (o.turned == 0 && o.kind != YUV) || faults[n] != 0) continue;
        const bool transposed = o.turned & TRANSPOSED, mirrored = o.turned & MIRRORED, flipped = o.turned & FLIPPED;
        const u32 width = o.region.width, height = o.region.height;
        const u32 wide = transposed ? height : width, high = transposed ? width : height;   // as stored
        const u32 stride = (width + 7) / 8 * 8, plane = stride * ((height + 7) / 8 * 8);
        const u32 left = o.region.x / 4 * 4, quads = (o.region.x + wide - left + 3) / 4;
        u8* const out = turned + size_t(o.block) * 128;
        const u32 first = share.block() * blockDim.x + threadIdx.x, step = share.blocks() * blockDim.x;
        for (u32 i = first; i < quads * high; i += step) {
            const u32 quad = transposed ? i / high : i % quads, row = transposed ? i % high : i / quads;
            u32 values[3] = {0, 0, 0};
            for (u32 part = 0; part < o.count && o.kind == JPEG; part++) {
                const u32 up = o.parts[part].upsampling;
                Four four;
                four.prepare(o, planes, part, up, left + quad * 4);
                values[part] = four.at(up, o.region.y + row);
            }
            for (u32 k = 0; k < 4; k++) {
                const u32 column = left + quad * 4 + k - o.region.x;
                if (column >= wide) continue;
                u32 x = transposed ? row : column, y = transposed ? column : row;
                if (mirrored) x = width - 1 - x;
                if (flipped) y = height - 1 - y;
                u32 rgb[3];
                for (u32 c = 0; c < 3; c++) rgb[c] = values[c] >> (8 * k) & 255;
                if (o.kind == YUV) {
                    Frame(o, arena).pixel(o.region.x + column, o.region.y + row, rgb);
                } else if (o.color == YCBCR) {
                    const int luma = int(rgb[0] << 16) + 32768, cb = int(rgb[1]) - 128, cr = int(rgb[2]) - 128;
                    rgb[0] = byte((luma + 91881 * cr) >> 16);
                    rgb[1] = byte((luma - 22554 * cb - 46802 * cr) >> 16);
                    rgb[2] = byte((luma + 116130 * cb) >> 16);
                }
                for (u32 c = 0; c < o.count; c++) out[size_t(c) * plane + size_t(y) * stride + x] = u8(rgb[c]);
            }
        }
        // `jpeg_resize` reads four pixels at a time.
        const u32 unused = (4 - width % 4) % 4;
        for (u32 i = first; i < height * unused * o.count; i += step) {
            const u32 row = i / unused, c = row / height;
            out[size_t(c) * plane + size_t(row - c * height) * stride + width + i % unused] = 0;
        }
    }
}

// --- the resize

// Rows of the output, in the order of their source rows, so that one pass over the source computes
// all vertical sums.
struct Strip {
    u32 rows;
    bool reversed;      // whether the output order is reversed
    u32 starts[ROWS], ends[ROWS];
    // For each source row of an output row, its weight in that row and in the next one, with a
    // precision of 24 bits.
    uint2 weights[ROWS][MAX_TAPS];
};

// Writes a line of vertical sums, rounded to bytes, for each row of the strip. The first column is
// `x`, and a thread processes groups of four columns. When downscaling, a source pixel contributes
// to two output rows, but is converted only once.
template <u32 Luma, u32 Chroma, u32 Colors>
__device__ __forceinline__ void sum_down(uint4* lines, u32 quads, u32 x, const Strip& strip, const DecodeOps& o, const u8* planes) {
    const u32 first = Luma == ANY ? o.parts[0].upsampling : Luma;
    const u32 second = Chroma == ANY ? o.parts[1].upsampling : Chroma, third = Chroma == ANY ? o.parts[2].upsampling : Chroma;
    const u32 color = Colors == ANY ? o.color : Colors;
    const u32 rows = strip.rows;
    for (u32 quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        Four a, b, c;
        a.prepare(o, planes, 0, first, x + quad * 4);
        if (color != GRAY) b.prepare(o, planes, 1, second, x + quad * 4), c.prepare(o, planes, 2, third, x + quad * 4);
        u32 y = strip.starts[0], begin = y, half = 32768;
        asm("" : "+r"(half));      // as a constant it would evict other constants from registers
        const auto clear = [&](Sums (&sums)[4]) {
            #pragma unroll
            for (int i = 0; i < 4; i++) sums[i].clear(24);
        };
        // `now` contains the sums of output row `k`, and `next` those of row `k + 1`.
        const auto step = [&](Sums (&now)[4], Sums (&next)[4], u32 k) {
            const u32 end = strip.ends[k], following = k + 1 < rows ? strip.starts[k + 1] : end;
            u32 tap = y - strip.starts[k];
            #pragma unroll 1
            for (; y < end; y++, tap++) {
                const u32 one = a.at(first, y), two = color == GRAY ? 0 : b.at(second, y), three = color == GRAY ? 0 : c.at(third, y);
                const uint2 weights = strip.weights[k][tap];
                const u32 cbs = two ^ 0x80808080, crs = three ^ 0x80808080;
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 red, green, blue;
                    if (color == YCBCR) {
                        // The factors come from JFIF 1.02, and are multiplied by 2^16. So is
                        // `luma`, which includes one half for rounding.
                        const int luma = __byte_perm(one, half, 0x4054 | i << 8), cb = signed_byte(cbs, i), cr = signed_byte(crs, i);
                        red = byte((luma + 91881 * cr) >> 16);
                        green = byte((luma - 22554 * cb - 46802 * cr) >> 16);
                        blue = byte((luma + 116130 * cb) >> 16);
                    } else {
                        red = one >> (8 * i) & 255;
                        green = color == GRAY ? red : two >> (8 * i) & 255;
                        blue = color == GRAY ? red : three >> (8 * i) & 255;
                    }
                    now[i].add(red, green, blue, weights.x);
                    next[i].add(red, green, blue, weights.y);
                }
            }
            lines[(strip.reversed ? rows - 1 - k : k) * quads + quad] =
                make_uint4(now[0].tops(), now[1].tops(), now[2].tops(), now[3].tops());
            clear(now);
            // Carry over the next row's partial sum, unless that row also needs source rows before
            // `begin`.
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

// Horizontal sums are computed from lines of vertical sums in dynamic shared memory. This memory
// has space for `words` pixels and 16 more bytes, enough for the line of the widest region with
// both ends rounded to multiples of 4. Fewer than 7 blocks per multiprocessor hide less latency;
// more than 7 spill too many registers (measured on an H200).
extern "C" __global__ void __launch_bounds__(128, 7)
jpeg_resize(u8* out, const u32* faults, const u8* planes, const u8* axes, const DecodeOps* all, Samples samples, u32 height, u32 width,
            u32 words) {
    extern __shared__ uint4 lines[];
    __shared__ Strip strip;
    const u32 top = blockIdx.x * ROWS, bottom = min(height, top + ROWS);
    for (Share share = Share::begin<Blocks>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = *view_of(const_cast<u8*>(axes), n, width, height);
        if (o.kind == 0 || faults[n] != 0) continue;
        const u8* const wide = axis_of(const_cast<u8*>(axes), n, 0, width, height);
        const u8* const tall = axis_of(const_cast<u8*>(axes), n, 1, width, height);
        const Axis across = *reinterpret_cast<const Axis*>(wide), down = *reinterpret_cast<const Axis*>(tall);
        const uint2* const across_starts = reinterpret_cast<const uint2*>(wide + sizeof(Axis));
        const uint2* const down_starts = reinterpret_cast<const uint2*>(tall + sizeof(Axis));
        const u32* const across_pairs = reinterpret_cast<const u32*>(across_starts + width);
        const u16* const down_taps = reinterpret_cast<const u16*>(down_starts + height);
        const Rect shown = o.shown;
        const bool flipped = o.flipped, ycc = o.color == YCBCR && o.parts[0].upsampling == NONE;
        const u32 second = o.parts[1].upsampling, third = o.parts[2].upsampling;
        // Lines begin at a multiple of four pixels in the stored image.
        const u32 left = (o.region.x + across.start) / 4 * 4, origin = left - o.region.x;
        const u32 quads = (across.end - origin + 3) / 4;
        const u32 most = max(min(words / 4 / quads, u32(ROWS)), 1u), fill = o.fill;
        for (u32 from = top + share.index * most; from < bottom; from += share.count * most) {
            // The rows of the output in which the image is visible.
            const u32 low = max(from, shown.y), high = min(min(from + most, bottom), shown.y + shown.height);
            __syncthreads();
            if (low < high) {
                if (threadIdx.x == 0) strip.rows = high - low, strip.reversed = flipped;
                const u32 k = threadIdx.x / WEIGHTS;
                if (k < high - low) {
                    const auto row = [&](u32 k) { return (flipped ? high - 1 - k : low + k) - shown.y; };
                    const auto weight = [&](u32 row, u32 tap, u32 taps) {
                        return tap < taps ? u32(down_taps[(tap / 2 * shown.height + row) * 2 + tap % 2]) << (24 - down.precision) : 0;
                    };
                    const uint2 reach = down_starts[row(k)], next = k + 1 < high - low ? down_starts[row(k + 1)] : make_uint2(0, 0);
                    strip.starts[k] = reach.x + o.region.y, strip.ends[k] = reach.x + reach.y + o.region.y;
                    for (u32 tap = threadIdx.x % WEIGHTS; tap < reach.y; tap += WEIGHTS) {
                        strip.weights[k][tap] = make_uint2(weight(row(k), tap, reach.y), weight(row(k + 1), reach.x + tap - next.x, next.y));
                    }
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
            // Keep the warp converged: its threads exchange pixels below.
            const u32 lane = threadIdx.x % 32, end = min(from + most, bottom);
            for (u32 x = threadIdx.x; x - lane < width; x += blockDim.x) {
                const u32 column = x - shown.x;
                const bool inside = column < shown.width;
                const uint2 reach = inside ? across_starts[column] : make_uint2(origin, 0);
                u8* to = out + ((size_t(n) * height + from) * width + x) * 3;
                // Most columns have at most four taps, and all rows share their weights.
                const u32* const pairs = across_pairs + column;
                const u32 pair0 = reach.y > 0 ? __ldg(pairs) : 0, pair1 = reach.y > 2 ? __ldg(pairs + shown.width) : 0;
                for (u32 group = from; group < end; group += GROUP) {
                    Sums sums[GROUP];
                    const u32* line[GROUP];
                    #pragma unroll
                    for (u32 i = 0; i < GROUP; i++) {
                        sums[i].clear(across.precision);
                        line[i] = reinterpret_cast<const u32*>(lines + (min(max(group + i, low), high - 1) - low) * quads) +
                                  (reach.x - origin);
                    }
                    const u32 taps = low < high && group < high && group + GROUP > low ? reach.y : 0;
                    const auto add = [&](u32 tap, u32 weights) {
                        #pragma unroll
                        for (u32 i = 0; i < GROUP; i++) sums[i].add_pair(line[i][tap], line[i][tap + 1], weights);
                    };
                    if (taps > 0) add(0, pair0);
                    if (taps > 2) add(2, pair1);
                    #pragma unroll 1
                    for (u32 tap = 4; tap < taps; tap += 2) add(tap, __ldg(pairs + tap / 2 * shown.width));
                    #pragma unroll
                    for (u32 i = 0; i < GROUP; i++) {
                        const u32 y = group + i;
                        if (y >= end) break;
                        const u32 pixel = inside && y >= low && y < high ? sums[i].pixel(across.precision) : fill;
                        if (width % 4 == 0) {
                            // Four pixels are 12 bytes, so three of four threads store a word.
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
