// Written by the tests of `cuda/headers.rs` with WARPFEED_BLESS=1. Do not edit.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A rectangle in pixels.
struct Rect { u32 x, y, width, height; };

// An effect of any operation.
struct __align__(16) Effect {
    // The record of the effect.
    u32 words[7];
    // Number of the operation among those that run in the same place, from 1 on.
    u32 code;
};
static_assert(sizeof(Effect) == 32, "Effect");

// Work of the device on one sample besides normalising: one record per sample, copied to the
// device with its batch. If the host mixes, the effects on values wait in the same record.
//
// The order is fixed: effects on pixels, normalisation, effects on values, then mixing with a
// partner, which has its own record.
struct __align__(16) SampleOps {
    // 0, MIX or CUT.
    u32 mixing;
    // Place of the partner in the batch.
    u32 partner;
    // MIX: share of this sample. CUT: share of this sample's label.
    float weight;
    // Number of effects on pixels, plus 2^16 times the number of effects on values.
    u32 effects;
    // CUT: the part that shows the partner, in pixels of the output.
    Rect cut;
    Effect values[7];
    Effect pixels[8];
};
static_assert(sizeof(SampleOps) == 512, "SampleOps");

enum { MIX = 1, CUT = 2 };

enum { TRANSPOSED = 1, MIRRORED = 2, FLIPPED = 4 };

// One component on the grid of MCUs.
struct Part {
    // Blocks in an MCU, across and down.
    u32 h;
    u32 v;
    // Index of its first block in an MCU.
    u32 first;
    // Pixels per sample.
    u32 across;
    u32 down;
    // 0 is none, 1 twice across, 2 twice down, 3 both. 4 repeats samples.
    u32 upsampling;
    // Samples that hold pixels of the picture.
    u32 width;
    u32 height;
};
static_assert(sizeof(Part) == 32, "Part");

// Work of the decode kernels on one sample: one record per sample, copied to the device with
// its batch. A record of zeros leaves the sample unchanged, because its pixels crossed the
// bus.
struct __align__(16) DecodeOps {
    // 0: the pixels are in place.
    u32 kind;
    u32 segments;
    // Offset and size of the head and the data in the arena, in bytes.
    u32 at;
    u32 bytes;
    // The sample's first block in the scratch of coefficients and of planes.
    u32 block;
    // MCUs in a row of the whole picture.
    u32 mcus;
    // The window, in MCUs.
    u32 column;
    u32 columns;
    u32 row;
    u32 rows;
    // Blocks in an MCU.
    u32 blocks;
    // 0 is grey, 1 YCbCr, 2 RGB.
    u32 colour;
    // Number of parts.
    u32 count;
    // Huffman tables in the head.
    u32 tables;
    // Place in the batch for which the record was written. A copy of the record keeps it.
    u32 place;
    // Number of blocks in the window.
    u32 kept;
    Part parts[3];
    // DC table of each part, plus 256 times its AC table.
    u32 choice[3];
    // Bytes of the longest segment.
    u32 longest;
    // The part of the picture that the resize may read: its corner in the stored picture, and
    // its size in the upright picture.
    Rect region;
    // The part of the output that shows the picture, after flips.
    Rect shown;
    u32 mirrored;
    u32 flipped;
    // Colour of the rest of the output: red, plus 2^8 times green, plus 2^16 times blue.
    u32 fill;
    // Steps from the stored picture to the upright one: TRANSPOSED, MIRRORED and FLIPPED.
    u32 turned;
    // The part of the region that becomes the output: start and end.
    double across[2];
    double down[2];
};
static_assert(sizeof(DecodeOps) == 256, "DecodeOps");

// Colour jitter of one sample. Steps that are off have the factor 1, or the turn 0, and are not
// run.
struct Jitter {
    // The steps in their order, two bits each from the lowest on: 0 is brightness, 1 contrast, 2
    // saturation, 3 hue. Bit 8 + n is set if step n is on.
    u32 steps;
    float brightness;
    // Share of the image, and of its mean grey.
    float contrast[2];
    // Share of the pixel, and of its grey.
    float saturation[2];
    // Turn of the colour circle, in circles.
    float hue;
};
static_assert(sizeof(Jitter) == 28, "Jitter");

// A rectangle of the output that is filled with one value.
struct Erase {
    // The rectangle, in pixels of the output.
    Rect rect;
    // Red, green and blue in the units of the batch: normalised floats, or 0 to 255 in a batch of
    // bytes.
    float value[3];
};
static_assert(sizeof(Erase) == 28, "Erase");
