// Decodes baseline JPEGs to u8 (H, W, 3): Huffman decoding, inverse DCT, upsampling, color
// conversion, crop, resize and flip. Video frames arrive decoded: they are only converted to RGB,
// cropped, resized and flipped.
//
// Huffman decoding is serial within a segment, so a JPEG without restart markers would occupy a
// single thread. But a decoder that starts at a wrong bit usually synchronizes with the codes soon.
// So `jpeg_follow` divides a long segment into lines, decodes all lines in parallel from guessed
// states, and repeats this until the states agree (Weissenberger and Schmidt, "Massively Parallel
// Huffman Decoding on GPUs", 2018). The result is exact. The cost is that each line is decoded at
// least twice: once for its state, and once for its coefficients. The host decodes samples that
// synchronize too slowly.
//
// Vocabulary:
//   sample   an image of the batch (a component sample is one value of a color component)
//   block    8x8 coefficients (a CUDA block is always called a thread block)
//   segment  entropy-coded bytes between two restart markers
//   line     LINE_BYTES bytes of a sample's data, at a multiple of LINE_BYTES
//   piece    the data that one thread decodes at a time: a short segment, or about one line of a
//            long segment
//   tile     the lines that one thread block of `jpeg_follow` decodes
//   share    the part of a large sample that one row of the grid processes
//   lane     a thread of a warp
//
// Up to eight kernels run in this order. The host may queue the last six separately for parts of a
// batch. Each kernel skips samples that a worker has decoded. blockIdx.y selects the sample; extra
// rows of the grid process further shares of large samples.
//   jpeg_axes     computes the resize filter of each axis
//   jpeg_tables   builds the Huffman tables for the next three kernels
//   jpeg_follow   finds the decoder state at the start of each line of the long segments
//   jpeg_starts   finds the blocks that begin in each line, from these states
//   jpeg_huffman  decodes bytes to coefficients, one piece per thread
//   jpeg_idct     transforms coefficients to component samples, one block per thread
//   jpeg_turn     writes upright RGB pixels of images with an EXIF orientation and of video frames
//   jpeg_resize   resizes to the output, up to ROWS rows per thread block
//
// The pixels are bit-identical to the host's. The host decodes in `jpeg/src/kernels/scalar.rs` and
// `jpeg/src/rows.rs`, and resizes in `src/transform/resize/axis.rs` and `scalar.rs`. This file is
// compiled without contraction of multiply-adds (see README.md).
//
// Records come from the host and are trusted. Entropy-coded bytes are not trusted: whatever they
// contain, decoding terminates and stays in bounds. If they are invalid or cannot be decoded in
// parallel, kernels set the sample's flag in `faults` and skip the sample, and the host decodes it.

#include "records.cuh"

typedef signed short i16;

// The samples of a launch, `first..end`. A sample has 1 + work / `work_per_share` shares, or 1
// share if `work_per_share` is 0. The host passes the fields in this order.
struct Samples { u32 end, first, work_per_share; };

// Measures of work: bytes of entropy-coded data, or blocks of coefficients or pixels.
struct WorkInBytes { static __device__ __forceinline__ u32 of(const DecodeOps& o) { return o.kind == JPEG ? o.bytes : 0; } };
struct WorkInBlocks { static __device__ __forceinline__ u32 of(const DecodeOps& o) { return o.kept; } };

// The samples that a thread block processes, and its share of each.
// The grid is sized for the average sample. A 24-megapixel photograph can be a hundred times the
// work and would delay the whole batch. So the grid has extra rows: row y processes the first
// share of sample `first + y`, and the rows after that process the remaining shares of large
// samples, in order. The host computes an upper bound of the number of extra rows.
struct Share {
    u32 n;              // index of the sample, or `end` if there is none
    u32 index, count;   // index of this share, and number of shares of the sample

    template <class Work>
    __device__ __forceinline__ static u32 extra_shares(const DecodeOps* all, const Samples& samples, u32 n) {
        return samples.work_per_share == 0 || all[n].kind == 0 ? 0 : Work::of(all[n]) / samples.work_per_share;
    }
    template <class Work>
    __device__ __forceinline__ static Share begin(const DecodeOps* all, const Samples& samples) {
        const u32 rows = samples.end - samples.first, lane = threadIdx.x % 32;
        if (blockIdx.y < rows) {
            const u32 n = samples.first + blockIdx.y;
            return {n, 0, 1 + extra_shares<Work>(all, samples, n)};
        }
        u32 before = 0;     // shares of the samples before `from`
        const u32 wanted = blockIdx.y - rows;
        for (u32 from = samples.first; from < samples.end; from += 32) {
            const u32 n = from + lane, own = n < samples.end ? extra_shares<Work>(all, samples, n) : 0;
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
    // Advances to the next sample of this grid row, or ends the loop. If the grid has fewer rows
    // than samples, every sample has only one share.
    __device__ __forceinline__ void next() { n += gridDim.y; }
    // Index of this thread block among the thread blocks of the sample.
    __device__ __forceinline__ u32 thread_block() const { return index * gridDim.x + blockIdx.x; }
    __device__ __forceinline__ u32 thread_blocks() const { return count * gridDim.x; }
};

enum Upsampling { NONE, H2V1, H1V2, H2V2, REPLICATE };
enum Color { GRAY, YCBCR, RGB };

// A sample's data starts with its quantization tables, its Huffman tables (`Spec`), and the list of
// its segments.
struct Spec { u8 counts[16], symbols[256]; };
struct Segment {
    u32 byte, bytes;    // offset in the sample's data, and size
    u32 first_mcu;      // index in the image
    u32 count_and_cut;  // number of needed MCUs | CUT if the segment continues after them
    enum : u32 { CUT = 1u << 31 };
    __device__ __forceinline__ u32 mcus() const { return count_and_cut & ~CUT; }
    // After the last MCU of a complete segment, only padding up to the next byte is allowed.
    __device__ __forceinline__ u32 max_leftover_bits() const { return count_and_cut & CUT ? ~0u : 7; }
};

__device__ __forceinline__ const Spec* specs_of(const DecodeOps& o, const u8* arena) {
    return reinterpret_cast<const Spec*>(arena + o.at + o.count * 128);
}

__device__ __forceinline__ const Segment* segments_of(const DecodeOps& o, const u8* arena) {
    return reinterpret_cast<const Segment*>(specs_of(o, arena) + o.tables);
}

// --- the resize filter -----------------------------------------------------------------------------------------------------------

enum { MAX_TAPS = 64 };

// Header of the resize filter along one axis of the output, which has n pixels. Layout:
//   this header
//   n pairs (first source pixel, number of taps)
//   MAX_TAPS / 2 rows of at most n pairs of coefficients; an odd last tap is paired with a zero
// Only output pixels that show the image have a filter. Each sample has its record for
// `jpeg_resize`, and then the tables of both axes. `DecodeOps::axes_bytes` returns the total size.
struct __align__(16) Axis { u32 precision, start, end, unused; };
__device__ __forceinline__ u32 axis_bytes(u32 n) { return (16 + n * (8 + MAX_TAPS * 2) + 15) / 16 * 16; }
__device__ __forceinline__ u8* axis_of(u8* axes, u32 sample, u32 axis, u32 width, u32 height) {
    const u32 across = axis_bytes(width);
    return axes + size_t(sample) * (sizeof(DecodeOps) + across + axis_bytes(height)) + sizeof(DecodeOps) + (axis ? across : 0);
}

// Returns the address of a sample's record for `jpeg_resize`.
__device__ __forceinline__ DecodeOps* resize_record_of(u8* axes, u32 sample, u32 width, u32 height) {
    return reinterpret_cast<DecodeOps*>(axis_of(axes, sample, 0, width, height)) - 1;
}
// Writes the record for `jpeg_resize`. `planes` is the distance from the coefficients to the
// planes, in units of 64 bytes. If `jpeg_turn` processes the sample, the record refers to the
// upright pixels instead, which replace the coefficients, one plane per color.
__device__ __forceinline__ void write_resize_record(DecodeOps* to, const DecodeOps& o, u32 planes) {
    *to = o;
    to->block = planes + o.block;
    if (o.turned == 0 && o.kind != YUV) return;
    to->block = o.block * 2;
    to->columns = (o.region.width + 7) / 8, to->rows = (o.region.height + 7) / 8;
    to->column = to->row = to->region.x = to->region.y = 0;
    to->color = o.color == GRAY ? GRAY : RGB;
    for (u32 i = 0; i < o.count; i++) to->parts[i] = {1, 1, i, 1, 1, NONE, o.region.width, o.region.height};
}

// Calls `each(tap, weight)` for each positive weight of an output pixel. The weights are not yet
// normalized to a sum of 1. Returns the position of the first weight.
template <class Each>
__device__ __forceinline__ u32 for_each_weight(double middle, double radius, double inverse_radius, u32 length, Each each) {
    const u32 low = u32(fmax(middle - radius, 0.0));
    const double top = fmin(middle + radius, double(length));
    u32 high = u32(top), start = low, taps = 0;
    if (double(high) < top) high++;
    for (u32 x = low; x < high; x++) {
        const double weight = 1.0 - fabs((double(x) - (middle - 0.5)) * inverse_radius);
        if (weight > 0.0) {
            each(taps++, weight);
        } else if (taps == 0) {
            start = x + 1;
        }
    }
    return start;
}

extern "C" __global__ void __launch_bounds__(128)
jpeg_axes(u8* axes, u32* faults, const DecodeOps* all, u32 count, u32 height, u32 width, u32 planes) {
    __shared__ u64 largest;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (blockIdx.x == 0 && threadIdx.x == 0) write_resize_record(resize_record_of(axes, n, width, height), o, planes);
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
        const double radius = fmax(scale, 1.0), inverse_radius = 1.0 / radius;
        __syncthreads();
        if (threadIdx.x == 0) largest = 0;
        __syncthreads();
        for (u32 output = threadIdx.x; output < outputs; output += blockDim.x) {
            double sum = 0.0, most = 0.0;
            u32 taps = 0;
            const double middle = start + (double(output) + 0.5) * scale;
            const u32 first = for_each_weight(middle, radius, inverse_radius, length, [&](u32, double weight) {
                sum += weight, most = fmax(most, weight), taps++;
            });
            // Only the largest weight needs a division, because division is monotonic. `atomicMax`
            // compares bit patterns, which sort like the doubles because no weight is negative.
            atomicMax(&largest, u64(__double_as_longlong(most / sum)));
            if (output == 0) head.start = first;
            if (output == outputs - 1) head.end = first + taps;
            if (taps > MAX_TAPS) faults[n] = 1;
            starts[reversed ? outputs - 1 - output : output] = make_uint2(first, min(taps, u32(MAX_TAPS)));
        }
        __syncthreads();
        // The host rounds half up and compares with 32768, which is the same as comparing the
        // unrounded product with 32767.5.
        u32 precision = 0;
        const double most = __longlong_as_double((long long)largest);
        while (precision < 21 && most * double(2u << precision) < 32767.5) precision++;
        if (threadIdx.x == 0) head.precision = precision, head.unused = 0;
        const double unit = double(1u << precision);
        for (u32 output = threadIdx.x; output < outputs; output += blockDim.x) {
            const double middle = start + (double(output) + 0.5) * scale;
            double sum = 0.0;
            for_each_weight(middle, radius, inverse_radius, length, [&](u32, double weight) { sum += weight; });
            i16* const to = coefficients + (reversed ? outputs - 1 - output : output) * 2;
            u32 taps = 0;
            for_each_weight(middle, radius, inverse_radius, length, [&](u32 tap, double weight) {
                if (tap < MAX_TAPS) to[tap / 2 * outputs * 2 + tap % 2] = i16(weight / sum * unit + 0.5);
                taps = tap + 1;
            });
            if (taps % 2 && taps < MAX_TAPS) to[taps / 2 * outputs * 2 + 1] = 0;
        }
    }
}

// --- Huffman decoding ------------------------------------------------------------------------------------------------------------

// Minimum sizes of a long segment, and of the longest segment in a sample with long segments. Below
// these sizes, finding the pieces would cost more time than it saves.
enum { LONG_SEGMENT_BYTES = 1024, MIN_SPLIT_BYTES = 2048 };

enum { MAX_TABLES = 4 };    // two DC tables and two AC tables
enum { DC_BITS = 9, AC_BITS = 11 };    // bits per table lookup
enum { LONG_CODE = 9 };    // codes at least this long do not always fit into one lookup

// `decoded` is the number of coefficients of a block that have been decoded, including zeros. A
// code adds END_OF_BLOCK if it ends the block, and NEEDS_SEARCH if it must be searched for. IDLE is
// a lane without a block: a block that has ended has at least one coefficient. A lane with nothing
// to store writes element DUMMY - 1 instead of branching. DUMMY as `decoded` marks an invalid
// block.
enum { FULL = 64, DUMMY = 65, IDLE = 128, END_OF_BLOCK = 128, NEEDS_SEARCH = 192 };

// Returns the table entry for the bits `pattern`:
//   bits 0-4    length of the code and its value
//   bits 8-15   number to add to `decoded`
//   bits 16-31  number to add to the bits of code and value to get the value
// If the pattern does not cover the code and the sign (the first bit of the value), the entry is
// NEEDS_SEARCH, and the decoder searches by code length.
__device__ __forceinline__ u32 table_entry(u32 length, u32 symbol, u32 bits, u32 pattern, bool dc) {
    const u32 size = symbol & 15, run = dc ? 0 : symbol >> 4;
    if (length + (size != 0) > bits) return NEEDS_SEARCH << 8;
    const u32 advance = size == 0 && run < 15 && !dc ? u32(END_OF_BLOCK) : run + 1;
    const u32 code = pattern >> (bits - length), negative = size != 0 && !(pattern >> (bits - length - 1) & 1);
    return (length + size) | advance << 8 | (negative * (1 - (1u << size)) - (code << size)) << 16;
}

// The tables of a sample. `jpeg_tables` writes them, and later kernels copy them to shared memory.
struct __align__(16) Tables {
    // For each code length from LONG_CODE on: `limit` is one past the last code, left-aligned in 16
    // bits, and `offset` is the index of a symbol minus its code.
    u32 limit[MAX_TABLES][17 - LONG_CODE];
    u32 offset[MAX_TABLES][17 - LONG_CODE];
    u8 symbols[MAX_TABLES][256];
    // For each block in an MCU:
    //   bits 0-11   offset of its DC table in `dc`
    //   bits 12-23  offset of its AC table in `ac`
    //   bits 24-25  index of the DC table
    //   bits 26-27  index of the AC table
    //   bits 28-31  component
    u32 choice[12];
    u32 dc[2 << DC_BITS];
    u32 ac[2 << AC_BITS];

    __device__ __forceinline__ static u32 dc_of(u32 choice) { return choice & 4095; }
    __device__ __forceinline__ static u32 ac_of(u32 choice) { return choice >> 12 & 4095; }
    __device__ __forceinline__ static u32 part_of(u32 choice) { return choice >> 28; }
    __device__ __forceinline__ static u32 number_of(u32 choice, bool dc) { return choice >> (dc ? 24 : 26) & 3; }

    // Finds the code of at least LONG_CODE bits at the start of the 16-bit `window`. Returns length
    // | symbol << 8, or 0 if no code matches.
    __device__ __forceinline__ u32 find(u32 table, u32 window) const {
        u32 length = LONG_CODE;
        #pragma unroll
        for (u32 i = 0; i < 17 - LONG_CODE; i++) length += window >= limit[table][i];
        if (length > 16) return 0;
        const u32 index = (window >> (16 - length)) + offset[table][length - LONG_CODE];
        return length | u32(symbols[table][index & 255]) << 8;
    }
};

struct __align__(16) TableSet {
    Tables tables;
    // `jpeg_follow` and `jpeg_starts` skip coefficients, and use these in place of `dc` and `ac`.
    // If an end-of-block code directly follows the DC difference and both fit into the lookup, an
    // entry of `dc_pairs` skips both, and bits 5 to 7 contain the length of the end-of-block code.
    // The entry skips only the difference if the table is used with more than one AC table.
    u32 dc_pairs[2 << DC_BITS];
    // The lower 16 bits contain one symbol, as in `ac`. The upper 16 bits contain two symbols if
    // both fit into the lookup, and otherwise repeat the lower 16 bits.
    u32 ac_pairs[2 << AC_BITS];

    // Copies the tables. If `Pairs` is true, the tables of pairs replace `dc` and `ac`. All threads
    // of the thread block must call this.
    template <bool Pairs> __device__ __forceinline__ void copy(Tables& to) const {
        enum { ALL = sizeof(Tables) / 16, LOOKED_UP = (sizeof(tables.dc) + sizeof(tables.ac)) / 16 };
        for (u32 i = threadIdx.x; i < ALL; i += blockDim.x) {
            const uint4* const from = reinterpret_cast<const uint4*>(this) + i + (Pairs && i >= ALL - LOOKED_UP ? LOOKED_UP : 0);
            reinterpret_cast<uint4*>(&to)[i] = __ldg(from);
        }
        __syncthreads();
    }
};

static_assert(sizeof(TableSet) == 42288, "must equal DecodeOps::TABLES_BYTES");
enum { MAX_END_BITS = 7 };    // maximum length of an end-of-block code that `dc_pairs` covers

// blockIdx.x is the index of the table. A missing table is written as an empty one, because kernels
// copy all of `Tables` and must not read unwritten memory.
extern "C" __global__ void __launch_bounds__(128)
jpeg_tables(TableSet* table_sets, const u8* arena, const DecodeOps* all, u32 count) {
    __shared__ u32 limits[17], offsets[17];
    __shared__ u32 end_index, end_code, end_length;     // end-of-block code
    const u32 table = blockIdx.x;
    for (u32 n = blockIdx.y; n < count; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind != JPEG) continue;
        Tables& tables = table_sets[n].tables;
        const Spec& spec = specs_of(o, arena)[table];
        u32 dc = 0;     // one bit per table of DC differences
        for (u32 part = 0; part < o.count; part++) dc |= 1u << (o.choice[part] & 3);
        // Pad to two DC tables and two AC tables.
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
            for (u32 length = 1; length <= MAX_END_BITS && follower < o.tables; length++) {
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
        const auto look_up = [&](u32 looked) {
            const u32 window = looked << (16 - bits);
            u32 length = 1;
            #pragma unroll
            for (u32 shorter = 1; shorter <= AC_BITS; shorter++) length += window >= limits[shorter];
            if (length > bits) return u32(NEEDS_SEARCH << 8);
            const u32 index = (window >> (16 - length)) + offsets[length];
            return table_entry(length, spec.symbols[index & 255], bits, looked, is_dc);
        };
        u32* const singles = (is_dc ? tables.dc : tables.ac) + begin_of(table);
        u32* const pairs = (is_dc ? table_sets[n].dc_pairs : table_sets[n].ac_pairs) + begin_of(table);
        const bool has_pairs = o.longest >= MIN_SPLIT_BYTES;
        for (u32 i = threadIdx.x; i < 1u << bits; i += blockDim.x) {
            const u32 found = look_up(i), single = found & 0xffff, length = found & 31;
            singles[i] = found;
            if (!has_pairs) continue;
            if (is_dc) {
                const u32 both_lengths = length + end_length;
                const bool ends = single >> 8 < NEEDS_SEARCH && end_length != 0 && both_lengths <= bits &&
                                  (i >> (bits - both_lengths) & ((1u << end_length) - 1)) == end_code;
                pairs[i] = found + (ends ? end_length | end_length << 5 | END_OF_BLOCK << 8 : 0);
                continue;
            }
            u32 pair = single;
            if (single >> 8 < END_OF_BLOCK && length < bits) {
                const u32 next = look_up(i << length & ((1u << bits) - 1)) & 0xffff;
                if (next >> 8 < NEEDS_SEARCH && length + (next & 31) <= bits) pair += next;
            }
            pairs[i] = single | pair << 16;
        }
    }
}

// Reads the bits of a lane's piece. A lane that waits for memory stalls its whole warp, so the bits
// are prefetched, 16 bytes at a time, into a ring buffer in shared memory.
struct Bits {
    enum { RING = 16 };     // words
    // Maximum number of bits that are consumed between two calls of `fill` or `prefetch`: three
    // words by lookup, and then one code and its value by search.
    enum { LOOKED_UP = 96, MAX_BITS = LOOKED_UP + 31 };

    const uint4* chunks;
    u32 last;           // index of the last chunk that may be read
    u32* ring;          // word i is at ring[i % RING * 32]
    u32 filled;         // number of words put into the ring so far
    uint4 ahead;        // the next words
    u32 origin;         // offset of the first chunk in the sample's data, in bits
    u32 position;       // of the next bit, relative to `origin`

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
        static_assert(31 + MAX_BITS < 5 * 32 && 6 + 3 <= RING, "the ring holds the bits of one call, and one more chunk");
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

// Words in shared memory, with the address in a register. For an ordinary array, the compiler
// reloads the address in each iteration, which takes about as long as the load (on
// compute capability 9.0).
struct SharedWords {
    u32 at;
    __device__ __forceinline__ explicit SharedWords(const u32* words) : at(u32(__cvta_generic_to_shared(words))) {
        asm("" : "+r"(at));
    }
    __device__ __forceinline__ SharedWords(const SharedWords& from, u32 words) : at(from.at + words * 4) {}
    __device__ __forceinline__ u32 operator[](u32 i) const {
        u32 word;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at + i * 4));
        return word;
    }
};

// Decodes codes by table lookup, between two calls of `fill`. `progress` contains:
//   bits 0-7   128 minus the remaining bit budget, so that bit 7 is set once the budget is used up
//   bits 8-15  `decoded`
struct LookupDecoder {
    enum { WORDS = 4 };
    u32 words[WORDS];
    u32 progress, budget;
    enum { MAX_BITS = 25 };    // maximum number of bits that one lookup consumes
    static_assert(Bits::LOOKED_UP - 1 + MAX_BITS <= WORDS * 32, "the words cover the budget and one more lookup");

    __device__ __forceinline__ LookupDecoder(Bits& bits, u32 decoded, u32 left) {
        const u32 first = bits.position / 32;
        u32 high = bits.at(first);
        #pragma unroll
        for (u32 i = 0; i < WORDS; i++) {
            const u32 low = bits.at(first + i + 1);
            words[i] = __funnelshift_l(low, high, bits.position);
            high = low;
        }
        budget = min(u32(Bits::LOOKED_UP), left);
        progress = 128 - budget | decoded << 8;
    }
    __device__ __forceinline__ bool is_active() const { return (progress & 0xc080) == 0; }
    __device__ __forceinline__ void consume(u32 found) {
        #pragma unroll
        for (u32 i = 0; i < WORDS; i++) words[i] = __funnelshift_l(i + 1 < WORDS ? words[i + 1] : 0, words[i], found);
        progress += found & 0xff1f;
    }
    // Decodes one symbol, unless the block or the budget has ended. Returns the new `decoded`, or
    // DUMMY if there is no coefficient to store.
    __device__ __forceinline__ u32 decode_symbol(const u32* table, u32 shift, u32& value) {
        const bool was_active = is_active();
        const u32 entry = table[words[0] >> shift], found = was_active ? entry : 0;
        value = __funnelshift_l(words[0], 0, found) + (found >> 16);
        consume(found);
        return was_active && progress < DUMMY << 8 ? progress >> 8 : DUMMY;
    }
    // Returns a DC difference found in `dc_pairs`, or 0 if its code is not in the table. Skips an
    // end-of-block code after the difference, unless the budget ends before that code.
    __device__ __forceinline__ u32 decode_difference(const SharedWords& table) {
        const u32 found = table[words[0] >> (32 - DC_BITS)], end = found >> 5 & 7, own = (found & 31) - end;
        const u32 value = __funnelshift_l(words[0], 0, own) + (found >> 16);
        const bool stops = end != 0 && ((progress + own) & 128) != 0;
        consume(stops ? own | 1 << 8 : found);
        return progress < NEEDS_SEARCH << 8 ? value : 0;
    }
    // Skips one or two symbols without computing their values. Near the end of the block or of the
    // budget, skips only one.
    __device__ __forceinline__ void skip_symbols(const SharedWords& table) {
        const bool near_end = ((progress + (17 << 8 | AC_BITS)) & 0xc080) != 0;
        const u32 entry = table[words[0] >> (32 - AC_BITS)] >> (near_end ? 0 : 16);
        consume(is_active() ? entry : 0);
    }
    __device__ __forceinline__ void begin_block() { progress &= 255; }
    __device__ __forceinline__ u32 decoded() const { return progress >> 8; }
    __device__ __forceinline__ u32 consumed_bits() const { return (progress & 255) - (128 - budget); }
};

// Number of lookups in `decode_symbols`: MIN_SYMBOLS if they finish the blocks of all lanes,
// otherwise MAX_SYMBOLS. A code found by search may follow.
enum { MIN_SYMBOLS = 2, MAX_SYMBOLS = 12 };

// Finds a code by search, and reads the value after it. Returns false if no code matches.
__device__ __forceinline__ bool decode_by_search(const Tables& tables, Bits& bits, u32 choice, u32& decoded, u32& value) {
    decoded -= NEEDS_SEARCH;
    const u32 window = bits.peek(), found = tables.find(Tables::number_of(choice, decoded == 0), window >> 16);
    if (found == 0) return false;
    const u32 length = found & 255, size = found >> 8 & 15, run = decoded == 0 ? 0 : found >> 12;
    // EXTEND in T.81 F.2.2.1.
    const u32 after_code = window << length, negative = ~u32(int(after_code) >> 31);
    value = (after_code >> 1 >> (31 - size)) + (negative & (1 - (1u << size)));
    decoded += size == 0 && run < 15 && decoded != 0 ? u32(END_OF_BLOCK) : run + 1;
    bits.position += length + size;
    return true;
}

// Decodes symbols of a block to `own`. Returns false if a code is invalid.
__device__ __forceinline__ bool decode_symbols(const Tables& tables, Bits& bits, u32 choice, u32& decoded, i16* own) {
    const bool dc = decoded == 0;
    const u32* const ac = tables.ac + Tables::ac_of(choice);
    const auto store = [&](u32 count, u32 value) { own[int(count) - 1] = i16(value); };
    LookupDecoder lookups(bits, decoded, ~0u);
    bits.prefetch();
    u32 value = 0, count = lookups.decode_symbol(dc ? tables.dc + Tables::dc_of(choice) : ac, 32 - (dc ? DC_BITS : AC_BITS), value);
    store(count, value);
    const auto some = [&](u32 rest) {
        #pragma unroll
        for (u32 i = 0; i < rest; i++) count = lookups.decode_symbol(ac, 32 - AC_BITS, value), store(count, value);
    };
    some(MIN_SYMBOLS - 1);
    if (__any_sync(~0u, lookups.is_active())) some(MAX_SYMBOLS - MIN_SYMBOLS);
    decoded = lookups.decoded();
    bits.position += lookups.consumed_bits();
    if (decoded < NEEDS_SEARCH) return true;
    const bool found_code = decode_by_search(tables, bits, choice, decoded, value);
    store(found_code ? min(decoded, u32(DUMMY)) : DUMMY, value);
    return found_code;
}

// Returns whether the block is complete and has no run of zeros past its end.
__device__ __forceinline__ bool ends_correctly(u32 decoded) { return decoded == FULL || decoded >= END_OF_BLOCK; }

// A piece: consecutive blocks, from a known bit and with known preceding DC coefficients.
struct __align__(16) Start {
    u32 bit, end;       // start of the first block, end of the segment; in bits from the sample's start
    u32 block, count;   // index of the first block in the image, and number of blocks
    u32 dc[3];
    u32 max_leftover_bits;      // maximum number of bits after the last of these blocks
};

// --- starts of the pieces of long segments

// Bytes per line. The scratch memory contains one Start per line of the arena. Longer lines need
// fewer passes, but a pass takes as long as its slowest line. On compute capability 9.0, batches of
// photographs take 12% less time with 128 bytes than with 256.
enum { LINE_BYTES = 128 };

__device__ __forceinline__ u32 first_line(const DecodeOps& o) {
    return (o.count * 128 + o.tables * u32(sizeof(Spec)) + o.segments * u32(sizeof(Segment))) / LINE_BYTES;
}

// The part of a line that belongs to a piece.
struct Extent { u32 from, to; };    // bits
struct Line {
    Segment segment;
    Extent extent;
    bool has_piece, is_first;    // whether the line contains a piece, and whether it is the first of its segment

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
        has_piece = segment.bytes >= LONG_SEGMENT_BYTES && line >= begin && line * LINE_BYTES < end;
        is_first = has_piece && line == begin;
        extent = {(is_first ? segment.byte : line * LINE_BYTES) * 8, min((line + 1) * LINE_BYTES, end) * 8};
    }
};

// Decoder state at the end of a piece. The code 0 is the start of an MCU.
//   bits 0-7    `overrun`: bits consumed past the end of the piece
//   bits 8-15   `b`: index of the block in the MCU
//   bits 16-31  `decoded`
struct State {
    u32 overrun, b, decoded;
    __device__ __forceinline__ State(u32 code) : overrun(code & 255), b(code >> 8 & 255), decoded(code >> 16) {}
    __device__ __forceinline__ State(u32 overrun, u32 b, u32 decoded) : overrun(overrun), b(b), decoded(decoded) {}
    __device__ __forceinline__ u32 code() const { return overrun | b << 8 | decoded << 16; }
};

// The number of blocks that begin in a piece, and the sums of their DC differences.
struct BlockSums {
    u32 count, dc[3];
    __device__ __forceinline__ BlockSums operator+(const BlockSums& other) const {
        return {count + other.count, {dc[0] + other.dc[0], dc[1] + other.dc[1], dc[2] + other.dc[2]}};
    }
};

__device__ __forceinline__ void add(BlockSums& sums, u32 part, u32 difference) {
    sums.dc[0] += part == 0 ? difference : 0;
    sums.dc[1] += part == 1 ? difference : 0;
    sums.dc[2] += part == 2 ? difference : 0;
}

// Between two calls of `fill`, `follow` runs DC_LOOKUPS turns. Each turn makes at most one DC
// lookup and AC_LOOKUPS AC lookups.
enum { DC_LOOKUPS = 2, AC_LOOKUPS = 6 };

// Decodes a piece without storing coefficients. Returns its exit state, and writes the sums over
// its blocks to `sums`. If a block begins in the piece, writes the start of the first one to
// `first_bit`. Skips a bit that no code matches, and continues as if an MCU began after it.
__device__ __forceinline__ u32 follow(const Tables& tables, const DecodeOps& o, const u8* arena, u32* ring, const Extent& piece,
                                      u32 entry, BlockSums& sums, u32& first_bit) {
    const u32 blocks = o.blocks;
    const State state(entry);
    Bits bits(o, arena, piece.from + state.overrun, ring);
    const u32 limit = piece.to - bits.origin;
    const SharedWords choices(tables.choice), dcs(tables.dc), acs(tables.ac);
    u32 decoded = state.decoded, b = state.b, choice = choices[b];
    sums = {0, {0, 0, 0}};
    while (bits.position < limit) {
        bits.fill();
        LookupDecoder lookups(bits, decoded, limit - bits.position);
        // Each iteration decodes a small block or a part of a large one.
        #pragma unroll 1
        for (u32 turn = 0; turn < DC_LOOKUPS; turn++) {
            decoded = lookups.decoded();
            if (decoded == 0 && lookups.is_active()) {
                if (sums.count++ == 0) first_bit = bits.origin + bits.position + lookups.consumed_bits();
                add(sums, Tables::part_of(choice), lookups.decode_difference(SharedWords(dcs, Tables::dc_of(choice))));
            }
            if (lookups.is_active()) {
                const SharedWords ac(acs, Tables::ac_of(choice));
                #pragma unroll
                for (u32 i = 0; i < AC_LOOKUPS; i++) lookups.skip_symbols(ac);
            }
            decoded = lookups.decoded();
            if (decoded >= FULL && decoded < NEEDS_SEARCH) {
                b = ends_correctly(decoded) && b + 1 < blocks ? b + 1 : 0;
                choice = choices[b];
                decoded = 0;
                lookups.begin_block();
            }
        }
        bits.position += lookups.consumed_bits();
        if (decoded >= NEEDS_SEARCH) {
            const bool dc = decoded == NEEDS_SEARCH;
            u32 value = 0;
            const bool found_code = decode_by_search(tables, bits, choice, decoded, value);
            if (!found_code) bits.position++;
            if (dc && found_code) add(sums, Tables::part_of(choice), value);
            if (!found_code || decoded >= FULL) {
                b = found_code && ends_correctly(decoded) && b + 1 < blocks ? b + 1 : 0;
                choice = choices[b];
                decoded = 0;
            }
        }
    }
    return State(bits.position - limit, b, decoded).code();
}

// Results of `jpeg_follow` for a line. `jpeg_starts` overwrites them with a Start.
struct __align__(16) LineResult {
    u32 entry, exit;    // states
    u32 first_bit;      // start of the first block
    u32 unused;
    BlockSums sums;
};

static_assert(sizeof(LineResult) == sizeof(Start), "a Start overwrites a LineResult");

// A tile has TILE lines. The first OVERLAP of them are also the last lines of the previous tile, so
// that decoding has usually synchronized where the tile's own STEP lines begin.
enum { TILE = 128, OVERLAP = 16, STEP = TILE - OVERLAP };

// With regular patterns, decoding may never synchronize, and each pass makes just one more line
// final. So the host decodes a sample if PASSES passes of `jpeg_follow` over a tile, or CHAIN lines
// at the start of a tile in `jpeg_starts`, do not suffice. CHAIN is less than the number of a
// tile's own lines, so `jpeg_starts` never changes a tile's last line.
enum { PASSES = 96, CHAIN = 64 };
static_assert(CHAIN < STEP, "jpeg_starts must not change a tile's last line");

__device__ __forceinline__ u32 first_own_line(const DecodeOps& o, u32 i) {
    return first_line(o) + i * STEP + (i == 0 ? 0 : OVERLAP);
}

// Finds the decoder state at the start of each line. First, each line is decoded as if an MCU began
// at its start. Then the lines are decoded again, each from the exit state of the previous line,
// until no exit state changes. The tile's states are then final, unless the lines before it change.
// Between passes, the lines with a new entry state are packed onto the first threads, so that whole
// warps skip the pass.
//
// In JPEGs of high quality, which synchronize late, a line's entry state often alternates between a
// few values. So the results for its last two entry states are cached. On 500 photographs from
// ImageNet, the median is 5 passes, and the maximum 31.
extern "C" __global__ void __launch_bounds__(TILE)
jpeg_follow(LineResult* line_results, u32* faults, const TableSet* table_sets, const u8* arena, const DecodeOps* all, Samples samples) {
    __shared__ Tables tables;
    __shared__ u32 rings[TILE * Bits::RING];
    __shared__ Extent extents[TILE];
    __shared__ u32 entries[TILE], exits[TILE], list[TILE];
    __shared__ u32 listed;
    const u32 lane = threadIdx.x % 32;
    u32* const ring = rings + threadIdx.x / 32 * 32 * Bits::RING + lane;
    for (Share share = Share::begin<WorkInBytes>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind != JPEG || o.longest < MIN_SPLIT_BYTES || o.place != n) continue;
        const Segment* const segments = segments_of(o, arena);
        const u32 lines = o.bytes / LINE_BYTES + 1;
        bool copied = false, gives_up = false;      // uniform across the threads
        for (u32 tile = share.thread_block(); first_own_line(o, tile) < lines && !gives_up; tile += share.thread_blocks()) {
            const u32 begin = first_line(o) + tile * STEP;
            const Line line(o, segments, begin + threadIdx.x);
            if (!__syncthreads_or(line.has_piece)) continue;
            LineResult* const tile_results = line_results + o.at / LINE_BYTES + begin;
            const bool is_own = begin + threadIdx.x >= first_own_line(o, tile);
            if (!copied) table_sets[n].copy<true>(tables);
            copied = true;
            const bool starts_at_mcu = line.is_first || threadIdx.x == 0;
            // Results of this thread's line for its last two entry states. `written` is whether
            // `now` is stored in `line_results`.
            LineResult now = {~0u, 0, 0, 0, {0, {0, 0, 0}}}, earlier = now;
            bool written = true;
            extents[threadIdx.x] = line.extent;
            exits[threadIdx.x] = 0;
            for (u32 pass = 0;; pass++) {
                if (threadIdx.x == 0) listed = 0;
                u32 entry;
                for (;;) {
                    __syncthreads();
                    entry = starts_at_mcu ? 0 : exits[threadIdx.x - 1];
                    const bool repeats = line.has_piece && entry != now.entry && entry == earlier.entry;
                    if (!__syncthreads_or(repeats)) break;
                    if (repeats) {
                        const LineResult other = now;
                        now = earlier, earlier = other, written = !written;
                        exits[threadIdx.x] = now.exit;
                    }
                }
                const bool changed = line.has_piece && entry != now.entry;
                const u32 lanes = __ballot_sync(~0u, changed);
                u32 at = 0;
                if (lane == 0) at = atomicAdd(&listed, __popc(lanes));
                at = __shfl_sync(~0u, at, 0) + __popc(lanes & ((1u << lane) - 1));
                if (changed) list[at] = threadIdx.x, entries[threadIdx.x] = entry;
                __syncthreads();
                if (listed == 0) break;
                if (pass == PASSES) {
                    gives_up = true;
                    break;
                }
                if (threadIdx.x < listed) {
                    const u32 i = list[threadIdx.x];
                    LineResult own = {entries[i], 0, 0, 0, {0, {0, 0, 0}}};
                    exits[i] = own.exit = follow(tables, o, arena, ring, extents[i], own.entry, own.sums, own.first_bit);
                    if (begin + i >= first_own_line(o, tile)) tile_results[i] = own;
                }
                __syncthreads();
                if (changed) {
                    earlier = now, written = true;
                    if (is_own) now = tile_results[threadIdx.x]; else now.entry = entry, now.exit = exits[threadIdx.x];
                }
            }
            if (line.has_piece && is_own && !written) tile_results[threadIdx.x] = now;
            __syncthreads();
        }
        if (gives_up && threadIdx.x == 0) faults[n] = 1;
    }
}

enum { STARTS_THREADS = 256 };

// Returns the sum over the lines before this thread's line in its segment. `carried` is the sum
// before the first thread's line; on return, it is the sum before the next STARTS_THREADS lines.
__device__ __forceinline__ BlockSums sum_before(const BlockSums& own, bool is_first, BlockSums* sums, bool* firsts, BlockSums& carried) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    BlockSums sum = own;
    bool has_first = is_first;
    #pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        BlockSums other;
        other.count = __shfl_up_sync(~0u, sum.count, distance);
        for (u32 i = 0; i < 3; i++) other.dc[i] = __shfl_up_sync(~0u, sum.dc[i], distance);
        const bool other_has_first = __shfl_up_sync(~0u, has_first, distance);
        if (lane >= distance && !has_first) sum = sum + other, has_first = other_has_first;
    }
    sums[threadIdx.x] = sum;
    firsts[threadIdx.x] = has_first;
    __syncthreads();
    BlockSums before = carried;      // sum of all previous warps
    for (u32 i = 0; i < warp; i++) before = firsts[i * 32 + 31] ? sums[i * 32 + 31] : before + sums[i * 32 + 31];
    if (!has_first) sum = before + sum;
    __syncthreads();
    sums[threadIdx.x] = sum;
    __syncthreads();
    BlockSums result = threadIdx.x == 0 ? carried : sums[threadIdx.x - 1];
    if (is_first) result = {0, {0, 0, 0}};
    carried = sums[STARTS_THREADS - 1];
    __syncthreads();
    return result;
}

// Decodes the first lines of each tile again, until they agree with the end of the previous tile. A
// prefix sum over the lines then gives the first block of each piece.
extern "C" __global__ void __launch_bounds__(STARTS_THREADS)
jpeg_starts(Start* starts, u32* faults, const TableSet* table_sets, const u8* arena, const DecodeOps* all, Samples samples) {
    __shared__ Tables tables;
    __shared__ u32 rings[STARTS_THREADS * Bits::RING];
    __shared__ BlockSums sums[STARTS_THREADS];
    __shared__ bool firsts[STARTS_THREADS];
    u32* const ring = rings + threadIdx.x / 32 * 32 * Bits::RING + threadIdx.x % 32;
    for (u32 n = samples.first + blockIdx.y; n < samples.end; n += gridDim.y) {
        const DecodeOps& o = all[n];
        if (o.kind != JPEG || o.longest < MIN_SPLIT_BYTES || o.place != n || faults[n] != 0) continue;
        const Segment* const segments = segments_of(o, arena);
        const u32 begin = first_line(o), lines = o.bytes / LINE_BYTES + 1;
        Start* const own_starts = starts + o.at / LINE_BYTES;
        LineResult* const line_results = reinterpret_cast<LineResult*>(own_starts);
        // One thread per tile decodes lines again while the previous line's exit state differs from
        // the assumed one. The previous tile's last line is final (see CHAIN).
        bool changed = false, gives_up = false;
        const u32 from = first_own_line(o, 1 + threadIdx.x);
        for (u32 tile = from; tile < lines; tile += STARTS_THREADS * STEP) {
            const Line line(o, segments, tile);
            changed |= line.has_piece && !line.is_first && line_results[tile - 1].exit != line_results[tile].entry;
        }
        if (__syncthreads_or(changed)) {
            table_sets[n].copy<true>(tables);
            for (u32 tile = from; tile < lines; tile += STARTS_THREADS * STEP) {
                for (u32 i = tile; i < min(tile + STEP, lines); i++) {
                    const Line line(o, segments, i);
                    if (!line.has_piece || line.is_first || line_results[i - 1].exit == line_results[i].entry) break;
                    gives_up = i == tile + CHAIN;
                    if (gives_up) break;
                    LineResult own = {line_results[i - 1].exit, 0, 0, 0, {0, {0, 0, 0}}};
                    own.exit = follow(tables, o, arena, ring, line.extent, own.entry, own.sums, own.first_bit);
                    line_results[i] = own;
                }
                if (gives_up) break;
            }
        }
        if (__syncthreads_or(gives_up)) {
            if (threadIdx.x == 0) faults[n] = 1;
            continue;
        }
        BlockSums carried = {0, {0, 0, 0}};
        for (u32 i = begin + threadIdx.x; i - threadIdx.x < lines; i += STARTS_THREADS) {
            const Line line(o, segments, i);
            LineResult own = {0, 0, 0, 0, {0, {0, 0, 0}}};
            if (line.has_piece) own = line_results[i];
            const BlockSums before = sum_before(own.sums, line.is_first, sums, firsts, carried);
            const Segment& s = line.segment;
            const u32 total = s.mcus() * o.blocks, rest = line.has_piece ? total - min(total, before.count) : 0;
            const u32 end = (s.byte + s.bytes) * 8;
            if (i < lines) {
                own_starts[i] = {own.first_bit, end, s.first_mcu * o.blocks + before.count, min(own.sums.count, rest),
                                 {before.dc[0], before.dc[1], before.dc[2]},
                                 own.sums.count < rest ? ~0u : s.max_leftover_bits()};
            }
            // If the segment ends before its last block begins, the data is invalid.
            if (line.has_piece && line.extent.to == end && own.sums.count < rest) faults[n] = 1;
        }
    }
}

// --- coefficients

struct __align__(16) Lanes {
    enum { STRIDE = 36 };   // in words, padded against bank conflicts of 16-byte accesses
    // The words of a lane: 32 words of coefficients, initially 0; a word for DUMMY; INDEX, the
    // index of the block in the scratch memory; and LISTED, an entry of a list of lanes.
    enum { INDEX = 33, LISTED = 34 };
    u32 blocks[32 * STRIDE];
    u32 ring[Bits::RING * 32];
};

enum : u32 { NOT_STORED = ~0u };    // index of a block outside the decoded window

// Walks over the blocks of the image, and computes where they are stored. Fields of the record are
// copied to keep them in registers.
struct BlockWalker {
    u32 x, y, b;
    u32 mcus, blocks, row, rows, column, columns, first_block;
    __device__ __forceinline__ BlockWalker(const DecodeOps& o, u32 block)
        : mcus(o.mcus), blocks(o.blocks), row(o.row), rows(o.rows), column(o.column), columns(o.columns), first_block(o.block) {
        const u32 mcu = block / blocks;
        b = block - mcu * blocks;
        y = mcu / mcus, x = mcu - y * mcus;
    }
    __device__ __forceinline__ u32 index() const {
        const u32 down = y - row, across = x - column;
        return down < rows && across < columns ? first_block + (down * columns + across) * blocks + b : u32(NOT_STORED);
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
    u32 segment_count, count, blocks;
    bool unsplit;
    __device__ __forceinline__ Pieces(const DecodeOps& o, const u8* arena, const Start* all)
        : segments(segments_of(o, arena)), starts(all + o.at / LINE_BYTES + first_line(o)), segment_count(o.segments),
          blocks(o.blocks), unsplit(o.longest < MIN_SPLIT_BYTES) {
        count = segment_count + (unsplit ? 0 : o.bytes / LINE_BYTES + 1 - first_line(o));
    }
    // Returns a Start with count 0 for a long segment, and for a line without a piece.
    __device__ __forceinline__ Start operator[](u32 i) const {
        if (i >= segment_count) return starts[i - segment_count];
        const Segment s = segments[i];
        return {s.byte * 8, (s.byte + s.bytes) * 8, s.first_mcu * blocks,
                unsplit || s.bytes < LONG_SEGMENT_BYTES ? s.mcus() * blocks : 0, {0, 0, 0}, s.max_leftover_bits()};
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
        if (index != NOT_STORED) reinterpret_cast<uint4*>(coefficients)[size_t(index) * 8 + lane % 8] = eight;
        eight = make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
}

// Decodes pieces `i`, `i + step` and so on. Returns false if the bytes of a piece are invalid. To
// keep the warp converged, a lane that finishes its block early idles until `decode_symbols`
// returns. All lanes that have finished then store their blocks. Coefficients stay in zigzag order,
// which `jpeg_idct` expects.
//
// With `ByWarp`, the warp stores each block as a whole. This is faster for short segments, and
// slower for lines, in which more lanes finish at the same time (compute capability 9.0).
template <bool ByWarp>
__device__ __forceinline__ bool decode(const Tables& tables, Lanes& lanes, const DecodeOps& o, const Pieces& pieces, u32 i,
                                       u32 step, const u8* arena, i16* coefficients) {
    const u32 lane = threadIdx.x % 32;
    u32* const words = lanes.blocks + lane * Lanes::STRIDE;
    uint4* const vectors = reinterpret_cast<uint4*>(words);
    i16* const own = reinterpret_cast<i16*>(words);
    Bits bits(o, arena, 0, lanes.ring + lane);
    BlockWalker at(o, 0);
    u32 left = 0, last = 0, max_leftover_bits = 0, block = NOT_STORED, choice = 0, decoded = IDLE;
    u32 dc[3] = {0, 0, 0};
    bool valid = true;
    for (;;) {
        const bool finished = decoded >= FULL && decoded != IDLE;
        if (finished) {
            const u32 part = Tables::part_of(choice),
                      level = (part == 0 ? dc[0] : part == 1 ? dc[1] : dc[2]) + u32(own[0]);
            if (part == 0) dc[0] = level; else if (part == 1) dc[1] = level; else dc[2] = level;
            own[0] = i16(level);
            if (ByWarp) {
                words[Lanes::INDEX] = block;
            } else {
                uint4* const to = reinterpret_cast<uint4*>(coefficients) + size_t(block) * 8;
                #pragma unroll
                for (u32 k = 0; k < 8; k++) {
                    if (block != NOT_STORED) to[k] = vectors[k];
                    vectors[k] = make_uint4(0, 0, 0, 0);
                }
            }
            const bool fits = bits.position <= last && (left != 0 || last - bits.position <= max_leftover_bits);
            if (!ends_correctly(decoded) || !fits) valid = false, left = 0;
        }
        if (ByWarp) store_blocks(lanes, __ballot_sync(~0u, finished), coefficients);
        if (decoded >= FULL) {
            decoded = IDLE;
            while (left == 0 && i < pieces.count) {
                const Start start = pieces[i];
                i += step;
                if (start.count == 0) continue;
                left = start.count;
                bits = Bits(o, arena, start.bit, lanes.ring + lane);
                last = start.end - bits.origin, max_leftover_bits = start.max_leftover_bits;
                at = BlockWalker(o, start.block);
                dc[0] = start.dc[0], dc[1] = start.dc[1], dc[2] = start.dc[2];
            }
            if (left != 0) {
                choice = tables.choice[at.b];
                block = at.index();
                at.next();
                left--;
                decoded = 0;
            }
        }
        if (!__any_sync(~0u, decoded != IDLE)) return valid;
        if (!decode_symbols(tables, bits, choice, decoded, own)) decoded = DUMMY;
    }
}

extern "C" __global__ void __launch_bounds__(128)
jpeg_huffman(i16* coefficients, u32* faults, const TableSet* table_sets, const u8* arena, const DecodeOps* all, Samples samples,
             const Start* starts) {
    __shared__ Tables tables;
    __shared__ Lanes warps[4];
    Lanes& lanes = warps[threadIdx.x / 32];
    for (u32 i = threadIdx.x % 32; i < 32 * Lanes::STRIDE; i += 32) lanes.blocks[i] = 0;
    for (Share share = Share::begin<WorkInBytes>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind != JPEG) continue;
        // Another thread block may be setting the flag, and all threads must take the same branch,
        // so one thread reads it for the whole thread block.
        const bool faulty = threadIdx.x == 0 && faults[o.place] != 0;
        if (faulty && o.place != n) faults[n] = 1;
        const Pieces pieces(o, arena, starts);
        const u32 first_piece = share.thread_block() * blockDim.x;
        if (first_piece >= pieces.count || __syncthreads_or(faulty)) continue;
        table_sets[n].copy<false>(tables);
        const u32 begin = first_piece + threadIdx.x, step = share.thread_blocks() * blockDim.x;
        const bool valid = pieces.unsplit ? decode<true>(tables, lanes, o, pieces, begin, step, arena, coefficients)
                                         : decode<false>(tables, lanes, o, pieces, begin, step, arena, coefficients);
        if (!valid) faults[n] = 1;
    }
}

// --- the inverse DCT -------------------------------------------------------------------------------------------------------------

// Returns `value`, clamped to a byte.
__device__ __forceinline__ u32 byte(int value) { return u32(max(min(value, 255), 0)); }
__device__ __forceinline__ int wrap_to_i16(int sum) { return i16(sum); }

// One-dimensional inverse DCT, in place, of eight values that are `Step` apart (Loeffler,
// Ligtenberg and Moschytz, 1989; 13-bit constants).
template <int Shift, int Step> __device__ __forceinline__ void inverse_dct_1d(int* x) {
    const int x0 = x[0], x1 = x[Step], x2 = x[2 * Step], x3 = x[3 * Step];
    const int x4 = x[4 * Step], x5 = x[5 * Step], x6 = x[6 * Step], x7 = x[7 * Step];
    const int even2 = x2 * 4433 + x6 * (4433 - 15137), even3 = x2 * (4433 + 6270) + x6 * 4433;
    // One half, so that the shift rounds half up.
    const u32 half = 1u << (Shift - 1);
    const u32 even0 = wrap_to_i16(x0 + x4) * 8192 + half, even1 = wrap_to_i16(x0 - x4) * 8192 + half;
    const u32 even[4] = {even0 + even3, even1 + even2, even1 - even2, even0 - even3};
    const int z3 = wrap_to_i16(x7 + x3), z4 = wrap_to_i16(x5 + x1);
    const int z50 = z3 * (9633 - 16069) + z4 * 9633, z51 = z3 * 9633 + z4 * (9633 - 3196);
    const int odd[4] = {
        x7 * -7373 + x1 * (12299 - 7373) + z51,
        x5 * -20995 + x3 * (25172 - 20995) + z50,
        x5 * (16819 - 20995) + x3 * -20995 + z51,
        x7 * (2446 - 7373) + x1 * -7373 + z50,
    };
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i * Step] = int(even[i] + odd[i]) >> Shift;
        x[(7 - i) * Step] = int(even[i] - odd[i]) >> Shift;
    }
}

// Row-major index of each zigzag position in a block.
#define ZIGZAG                                                                                                                          \
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35, 42, 49,    \
    56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63

// The plane of a component. The planes of a sample are stored one after the other.
struct Plane {
    u32 first_block;    // index
    u32 width, height;  // in blocks
    __device__ __forceinline__ Plane(const DecodeOps& o, u32 part) {
        const Component& p = o.parts[part];
        first_block = o.block + o.columns * o.rows * p.first;
        width = o.columns * p.h, height = o.rows * p.v;
    }
};

extern "C" __global__ void __launch_bounds__(128)
jpeg_idct(u8* planes, const i16* coefficients, const u32* faults, const u8* arena, const DecodeOps* all, Samples samples) {
    __shared__ u16 quant[3 * 64];
    constexpr u8 zigzag[64] = {ZIGZAG};
    for (Share share = Share::begin<WorkInBlocks>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind != JPEG || faults[n] != 0) continue;
        __syncthreads();
        for (u32 i = threadIdx.x; i < o.count * 64; i += blockDim.x) quant[i] = reinterpret_cast<const u16*>(arena + o.at)[i];
        __syncthreads();
        const u32 blocks = o.columns * o.rows * o.blocks;
        for (u32 i = share.thread_block() * blockDim.x + threadIdx.x; i < blocks; i += share.thread_blocks() * blockDim.x) {
            // Adjacent threads transform adjacent blocks of one component.
            u32 part = 0;
            if (o.count == 3) part = (i >= o.columns * o.rows * o.parts[1].first) + (i >= o.columns * o.rows * o.parts[2].first);
            const Component& p = o.parts[part];
            const Plane plane(o, part);
            const u32 j = i - (plane.first_block - o.block), y = j / plane.width, x = j - y * plane.width;
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
                    const int row_major = zigzag[k * 8 + l];
                    const u32 pair = pairs[l / 2], step = quant[part * 64 + row_major];
                    // The product modulo 2^16, with its sign.
                    values[row_major] = l % 2 ? int((pair & 0xffff0000) * step) >> 16 : wrap_to_i16(pair * step);
                }
            }
            #pragma unroll
            for (int k = 0; k < 8; k++) inverse_dct_1d<11, 8>(values + k);
            #pragma unroll
            for (int k = 0; k < 64; k++) values[k] = min(max(values[k], -32768), 32767);
            u8* to = planes + size_t(plane.first_block) * 64 + size_t(y) * 8 * plane.width * 8 + x * 8;
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                inverse_dct_1d<18, 1>(values + k * 8);
                u32 half[2] = {0, 0};
                #pragma unroll
                for (int l = 0; l < 8; l++) half[l / 4] |= byte(values[k * 8 + l] + 128) << (l % 4 * 8);
                *reinterpret_cast<uint2*>(to) = make_uint2(half[0], half[1]);
                to += plane.width * 8;
            }
        }
    }
}

// --- pixels ----------------------------------------------------------------------------------------------------------------------

enum { ROWS = 8 };  // rows of the output per thread block
enum { GROUP = 4 }; // rows that a thread sums at once, with the same horizontal weights
enum { WEIGHT_THREADS = 128 / ROWS };  // threads that compute the vertical weights of one row
enum { FROM_RECORD = 255 }; // template parameter: read the value from the record

__device__ __forceinline__ u32 word(const u8* at) { return __ldg(reinterpret_cast<const u32*>(at)); }

// Weighted sums of bytes are computed for two 16-bit numbers at once.
//   evens       bytes 0 and 2 of a word, as two numbers
//   odds        bytes 1 and 3
//   interleave  the inverse, truncated to bytes
__device__ __forceinline__ u32 evens(u32 bytes) { return bytes & 0x00ff00ff; }
__device__ __forceinline__ u32 odds(u32 bytes) { return bytes >> 8 & 0x00ff00ff; }
__device__ __forceinline__ u32 interleave(u32 even, u32 odd) { return (even & 0x00ff00ff) | (odd & 0x00ff00ff) << 8; }
__device__ __forceinline__ u32 twice(u32 value) { return value | value << 16; }

// Loads one component's samples for four adjacent pixels of the stored image. If `up` is a
// constant, the compiler keeps only the code for that case.
struct ComponentLoader {
    const u8* row0;         // this thread's column in row 0 of the component, at a multiple of 4 bytes
    u32 stride;
    u32 rows_per_sample;    // rows of pixels per component sample
    u32 last_row;
    // H2V1, H2V2: `selector` picks two component samples, and one on either side, from two words.
    // `second_word` is the offset of the second one. REPLICATE: `x` is the first pixel's column.
    union { u32 second_word, x; };
    union { u32 selector, columns_per_sample; };

    // `x` must be a multiple of 4, and the whole row of the plane must be readable.
    __device__ __forceinline__ void prepare(const DecodeOps& o, const u8* planes, u32 part, u32 up, u32 x) {
        const Component& p = o.parts[part];
        const Plane plane(o, part);
        const int left = o.column * p.h * 8, top = o.row * p.v * 8;
        stride = plane.width * 8;
        row0 = planes + size_t(plane.first_block) * 64 - (long long)(top) * stride - left;
        rows_per_sample = p.down, last_row = p.height - 1;
        second_word = selector = 0;
        if (up == NONE || up == H1V2) {
            row0 += x;
        } else if (up == REPLICATE) {
            this->x = x, columns_per_sample = p.across;
        } else {
            // At an edge, the edge sample replaces the missing neighbor.
            const int own = x / 2, from = (own - 1) & ~3, right = p.width - 1;
            const int low = max(from, left), high = min(from + 4, left + int(stride) - 4);
            selector = u32(max(own - 1, left) - from) | u32(own - from) << 4 | u32(max(min(own + 1, right) - from, 0)) << 8 |
                       u32(max(min(own + 2, right) - from, 0)) << 12;
            row0 += low, second_word = high - low;
        }
        // Keep the compiler from computing this address again for each row.
        asm("" : "+l"(row0));
    }
    __device__ __forceinline__ u32 load_neighbors(u32 row) const {
        const u8* const at = row0 + u64(row) * stride;
        return __byte_perm(word(at), word(at + second_word), selector);
    }
    __device__ __forceinline__ u32 load(u32 up, u32 y) const {
        if (up == NONE) return word(row0 + u64(y) * stride);
        if (up == REPLICATE) {
            const u8* const row = row0 + u64(y / rows_per_sample) * stride;
            u32 samples = 0;
            #pragma unroll
            for (u32 i = 0; i < 4; i++) samples |= u32(__ldg(row + (x + i) / columns_per_sample)) << (8 * i);
            return samples;
        }
        const u32 near = y / 2, far = y % 2 ? min(near + 1, last_row) : near - min(near, 1u);
        if (up == H1V2) {
            const u32 a = word(row0 + u64(near) * stride), b = word(row0 + u64(far) * stride), bias = twice(1 + y % 2);
            return interleave((3 * evens(a) + evens(b) + bias) >> 2, (3 * odds(a) + odds(b) + bias) >> 2);
        }
        const u32 a = load_neighbors(up == H2V1 ? y : near);
        u32 even = evens(a), odd = odds(a);
        if (up == H2V2) {
            const u32 b = load_neighbors(far);
            even = 3 * even + evens(b), odd = 3 * odd + odds(b);
        }
        // Component samples of the first and the last two pixels, and of their neighbors.
        const u32 own = __byte_perm(even, odd, 0x3254), before = __byte_perm(even, odd, 0x5410), after = __byte_perm(even, odd, 0x7632);
        const u32 shift = up == H2V1 ? 2 : 4;
        return interleave((3 * own + before + twice(up == H2V1 ? 1 : 8)) >> shift, (3 * own + after + twice(up == H2V1 ? 2 : 7)) >> shift);
    }
};

__device__ __forceinline__ int signed_byte(u32 bytes, int i) { return (signed char)(bytes >> (8 * i)); }

// Weighted sums of pixels. A pixel is red | green << 8 | blue << 16, and its top byte is arbitrary.
// Weights are not negative. Sums need no clamping: at most 64 weights, each rounded by at most half
// of 2^-14, add up to at most 1 + 32 * 2^-14, and 255 times that still rounds to 255.
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
    __device__ __forceinline__ u32 top_bytes() const { return __byte_perm(__byte_perm(red, green, 0x0073), blue, 0x0710); }
};

// --- EXIF orientation and video frames

// Pixels of a video frame, converted from YUV with the arithmetic of `video/src/rgb.rs`.
struct Frame {
    const u8* data;
    const YuvHead& head;
    __device__ __forceinline__ Frame(const DecodeOps& o, const u8* arena)
        : data(arena + o.at), head(*reinterpret_cast<const YuvHead*>(arena + o.at)) {}
    __device__ __forceinline__ int value(u32 at) const {
        return head.sample_bytes == 1 ? data[at] : *reinterpret_cast<const u16*>(data + at);
    }
    __device__ __forceinline__ void pixel(u32 x, u32 y, u32 (&rgb)[3]) const {
        const u32 at = (y >> head.chroma_y) * head.chroma_stride + (x >> head.chroma_x) * head.chroma_step;
        const int cb = value(head.cb + at) - int(head.center), cr = value(head.cr + at) - int(head.center);
        const int luma = value(head.luma + y * head.luma_stride + x * head.sample_bytes) * int(head.luma_weight) + int(head.rounding);
        rgb[0] = byte((luma + cr * int(head.red_cr)) >> 20);
        rgb[1] = byte((luma + cr * int(head.green_cr) + cb * int(head.green_cb)) >> 20);
        rgb[2] = byte((luma + cb * int(head.blue_cb)) >> 20);
    }
};

// Overwrites the coefficients, which are no longer needed, with the region's upright pixels.
extern "C" __global__ void __launch_bounds__(128)
jpeg_turn(u8* turned, const u8* planes, const u32* faults, const u8* arena, const DecodeOps* all, Samples samples) {
    for (Share share = Share::begin<WorkInBlocks>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = all[n];
        if (o.kind == 0 || (o.turned == 0 && o.kind != YUV) || faults[n] != 0) continue;
        const bool transposed = o.turned & TRANSPOSED, mirrored = o.turned & MIRRORED, flipped = o.turned & FLIPPED;
        const u32 width = o.region.width, height = o.region.height;
        const u32 stored_width = transposed ? height : width, stored_height = transposed ? width : height;
        const u32 stride = (width + 7) / 8 * 8, plane = stride * ((height + 7) / 8 * 8);
        const u32 left = o.region.x / 4 * 4, quads = (o.region.x + stored_width - left + 3) / 4;
        u8* const out = turned + size_t(o.block) * 128;
        const u32 begin = share.thread_block() * blockDim.x + threadIdx.x, step = share.thread_blocks() * blockDim.x;
        for (u32 i = begin; i < quads * stored_height; i += step) {
            const u32 quad = transposed ? i / stored_height : i % quads, row = transposed ? i % stored_height : i / quads;
            u32 values[3] = {0, 0, 0};
            for (u32 part = 0; part < o.count && o.kind == JPEG; part++) {
                const u32 up = o.parts[part].upsampling;
                ComponentLoader loader;
                loader.prepare(o, planes, part, up, left + quad * 4);
                values[part] = loader.load(up, o.region.y + row);
            }
            for (u32 k = 0; k < 4; k++) {
                const u32 column = left + quad * 4 + k - o.region.x;
                if (column >= stored_width) continue;
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
        // Clear the padding of each row, because `jpeg_resize` reads four pixels at a time.
        const u32 unused = (4 - width % 4) % 4;
        for (u32 i = begin; i < height * unused * o.count; i += step) {
            const u32 row = i / unused, c = row / height;
            out[size_t(c) * plane + size_t(row - c * height) * stride + width + i % unused] = 0;
        }
    }
}

// --- the resize

// A strip: rows of the output, sorted by source row, so that one pass over the source computes all
// vertical sums.
struct Strip {
    u32 rows;
    bool reversed;      // whether the output order is reversed
    u32 starts[ROWS], ends[ROWS];
    // Weights of a tap's source row in output rows k and k + 1, with 24 fractional bits.
    uint2 weights[ROWS][MAX_TAPS];
};

// For each row of the strip, writes a row of vertical sums, rounded to bytes, to `out`. The
// first column is `x`, and a thread processes groups of four columns. When downscaling, up to two
// output rows need the same source pixel. It is converted to RGB only once.
template <u32 Luma, u32 Chroma, u32 Colors>
__device__ __forceinline__ void sum_vertically(uint4* out, u32 quads, u32 x, const Strip& strip, const DecodeOps& o, const u8* planes) {
    const u32 up0 = Luma == FROM_RECORD ? o.parts[0].upsampling : Luma;
    const u32 up1 = Chroma == FROM_RECORD ? o.parts[1].upsampling : Chroma, up2 = Chroma == FROM_RECORD ? o.parts[2].upsampling : Chroma;
    const u32 color = Colors == FROM_RECORD ? o.color : Colors;
    const u32 rows = strip.rows;
    for (u32 quad = threadIdx.x; quad < quads; quad += blockDim.x) {
        ComponentLoader a, b, c;
        a.prepare(o, planes, 0, up0, x + quad * 4);
        if (color != GRAY) b.prepare(o, planes, 1, up1, x + quad * 4), c.prepare(o, planes, 2, up2, x + quad * 4);
        u32 y = strip.starts[0], begin = y, half = 32768;
        asm("" : "+r"(half));      // a constant would evict other constants from registers
        const auto clear = [&](Sums (&sums)[4]) {
            #pragma unroll
            for (int i = 0; i < 4; i++) sums[i].clear(24);
        };
        // `now` contains the sums of output row `k`, and `next` the sums of row `k + 1`.
        const auto step = [&](Sums (&now)[4], Sums (&next)[4], u32 k) {
            const u32 end = strip.ends[k], following = k + 1 < rows ? strip.starts[k + 1] : end;
            u32 tap = y - strip.starts[k];
            #pragma unroll 1
            for (; y < end; y++, tap++) {
                const u32 one = a.load(up0, y), two = color == GRAY ? 0 : b.load(up1, y), three = color == GRAY ? 0 : c.load(up2, y);
                const uint2 weights = strip.weights[k][tap];
                const u32 cbs = two ^ 0x80808080, crs = three ^ 0x80808080;
                #pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 red, green, blue;
                    if (color == YCBCR) {
                        // JFIF 1.02, times 2^16. `luma` includes one half for rounding.
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
            out[(strip.reversed ? rows - 1 - k : k) * quads + quad] =
                make_uint4(now[0].top_bytes(), now[1].top_bytes(), now[2].top_bytes(), now[3].top_bytes());
            clear(now);
            // Reuse the next row's partial sum, unless it lacks source rows before `begin`.
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

// Sums vertically, and then horizontally. `lines` has rows of vertical sums, with space for
// `capacity` pixels plus 16 bytes. This holds at least one row of the widest region, with both ends
// rounded out to multiples of 4. On an H200, 7 thread blocks per multiprocessor are the best
// balance between hiding latency and spilling registers.
extern "C" __global__ void __launch_bounds__(128, 7)
jpeg_resize(u8* out, const u32* faults, const u8* planes, const u8* axes, const DecodeOps* all, Samples samples, u32 height, u32 width,
            u32 capacity) {
    extern __shared__ uint4 lines[];
    __shared__ Strip strip;
    const u32 top = blockIdx.x * ROWS, bottom = min(height, top + ROWS);
    for (Share share = Share::begin<WorkInBlocks>(all, samples); share.n < samples.end; share.next()) {
        const u32 n = share.n;
        const DecodeOps& o = *resize_record_of(const_cast<u8*>(axes), n, width, height);
        if (o.kind == 0 || faults[n] != 0) continue;
        const u8* const across_axis = axis_of(const_cast<u8*>(axes), n, 0, width, height);
        const u8* const down_axis = axis_of(const_cast<u8*>(axes), n, 1, width, height);
        const Axis across = *reinterpret_cast<const Axis*>(across_axis), down = *reinterpret_cast<const Axis*>(down_axis);
        const uint2* const across_filters = reinterpret_cast<const uint2*>(across_axis + sizeof(Axis));
        const uint2* const down_filters = reinterpret_cast<const uint2*>(down_axis + sizeof(Axis));
        const u32* const across_pairs = reinterpret_cast<const u32*>(across_filters + width);
        const u16* const down_taps = reinterpret_cast<const u16*>(down_filters + height);
        const Rect shown = o.shown;
        const bool flipped = o.flipped, ycc = o.color == YCBCR && o.parts[0].upsampling == NONE;
        const u32 up1 = o.parts[1].upsampling, up2 = o.parts[2].upsampling;
        // Rows of sums begin at a multiple of four pixels in the stored image.
        const u32 left = (o.region.x + across.start) / 4 * 4, origin = left - o.region.x;
        const u32 quads = (across.end - origin + 3) / 4;
        const u32 rows_per_pass = max(min(capacity / 4 / quads, u32(ROWS)), 1u), fill = o.fill;
        for (u32 from = top + share.index * rows_per_pass; from < bottom; from += share.count * rows_per_pass) {
            // The rows of the output in which the image is visible.
            const u32 low = max(from, shown.y), high = min(min(from + rows_per_pass, bottom), shown.y + shown.height);
            __syncthreads();
            if (low < high) {
                if (threadIdx.x == 0) strip.rows = high - low, strip.reversed = flipped;
                const u32 k = threadIdx.x / WEIGHT_THREADS;
                if (k < high - low) {
                    const auto row = [&](u32 k) { return (flipped ? high - 1 - k : low + k) - shown.y; };
                    const auto weight = [&](u32 row, u32 tap, u32 taps) {
                        return tap < taps ? u32(down_taps[(tap / 2 * shown.height + row) * 2 + tap % 2]) << (24 - down.precision) : 0;
                    };
                    const uint2 own = down_filters[row(k)], next = k + 1 < high - low ? down_filters[row(k + 1)] : make_uint2(0, 0);
                    strip.starts[k] = own.x + o.region.y, strip.ends[k] = own.x + own.y + o.region.y;
                    for (u32 tap = threadIdx.x % WEIGHT_THREADS; tap < own.y; tap += WEIGHT_THREADS) {
                        strip.weights[k][tap] = make_uint2(weight(row(k), tap, own.y), weight(row(k + 1), own.x + tap - next.x, next.y));
                    }
                }
                __syncthreads();
                if (ycc && up1 == NONE && up2 == NONE) {
                    sum_vertically<NONE, NONE, YCBCR>(lines, quads, left, strip, o, planes);
                } else if (ycc && up1 == H2V2 && up2 == H2V2) {
                    sum_vertically<NONE, H2V2, YCBCR>(lines, quads, left, strip, o, planes);
                } else {
                    sum_vertically<FROM_RECORD, FROM_RECORD, FROM_RECORD>(lines, quads, left, strip, o, planes);
                }
                __syncthreads();
            }
            // The condition keeps the warp together: its lanes exchange pixels below.
            const u32 lane = threadIdx.x % 32, end = min(from + rows_per_pass, bottom);
            for (u32 x = threadIdx.x; x - lane < width; x += blockDim.x) {
                const u32 column = x - shown.x;
                const bool inside = column < shown.width;
                const uint2 filter = inside ? across_filters[column] : make_uint2(origin, 0);
                u8* to = out + ((size_t(n) * height + from) * width + x) * 3;
                // Most columns have at most four taps, and all rows share their weights.
                const u32* const pairs = across_pairs + column;
                const u32 pair0 = filter.y > 0 ? __ldg(pairs) : 0, pair1 = filter.y > 2 ? __ldg(pairs + shown.width) : 0;
                for (u32 group = from; group < end; group += GROUP) {
                    Sums sums[GROUP];
                    const u32* row_sums[GROUP];
                    #pragma unroll
                    for (u32 i = 0; i < GROUP; i++) {
                        sums[i].clear(across.precision);
                        row_sums[i] = reinterpret_cast<const u32*>(lines + (min(max(group + i, low), high - 1) - low) * quads) +
                                      (filter.x - origin);
                    }
                    const u32 taps = low < high && group < high && group + GROUP > low ? filter.y : 0;
                    const auto add = [&](u32 tap, u32 weights) {
                        #pragma unroll
                        for (u32 i = 0; i < GROUP; i++) sums[i].add_pair(row_sums[i][tap], row_sums[i][tap + 1], weights);
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
