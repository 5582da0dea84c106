// Written by the tests of `device/nvidia/headers.rs` with WARPFEED_BLESS=1. Do not edit.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A rectangle in pixels.
struct Rect { u32 x, y, width, height; };

// An effect of any operation.
struct __align__(16) Effect {
    // The record of the effect.
    u32 words[11];
    // Number of the operation among those that run in the same place, from 1 on.
    u32 code;
};
static_assert(sizeof(Effect) == 48, "Effect");

// Work of the device on one sample besides normalizing: one record per sample, copied to the
// device with its batch. If the host mixes, the effects on values wait in the same record.
//
// The order is fixed: effects on pixels, normalization, effects on values, then mixing with a
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
    Effect values[3];
    Effect pixels[16];
};
static_assert(sizeof(SampleOps) == 944, "SampleOps");

enum { MIX = 1, CUT = 2 };

enum { TRANSPOSED = 1, MIRRORED = 2, FLIPPED = 4 };

// One component on the grid of MCUs.
struct Component {
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
    // Samples that hold pixels of the image.
    u32 width;
    u32 height;
};
static_assert(sizeof(Component) == 32, "Component");

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
    // MCUs in a row of the whole image.
    u32 mcus;
    // The window, in MCUs.
    u32 column;
    u32 columns;
    u32 row;
    u32 rows;
    // Blocks in an MCU.
    u32 blocks;
    // 0 is gray, 1 YCbCr, 2 RGB.
    u32 color;
    // Number of parts.
    u32 count;
    // Huffman tables in the head.
    u32 tables;
    // Place in the batch for which the record was written. A copy of the record keeps it.
    u32 place;
    // Number of blocks in the window.
    u32 kept;
    Component parts[3];
    // DC table of each part, plus 256 times its AC table.
    u32 choice[3];
    // Bytes of the longest segment.
    u32 longest;
    // The part of the image that the resize may read: its corner in the stored image, and
    // its size in the upright image.
    Rect region;
    // The part of the output that shows the image, after flips.
    Rect shown;
    u32 mirrored;
    u32 flipped;
    // Color of the rest of the output: red, plus 2^8 times green, plus 2^16 times blue.
    u32 fill;
    // Steps from the stored image to the upright one: TRANSPOSED, MIRRORED and FLIPPED.
    u32 turned;
    // The part of the region that becomes the output: start and end.
    double across[2];
    double down[2];
};
static_assert(sizeof(DecodeOps) == 256, "DecodeOps");

enum { BRIGHTNESS, CONTRAST, POSTERIZE, SOLARIZE, ADD, INVERT, AUTOCONTRAST, EQUALIZE };
enum { SATURATION, HUE, GRAYSCALE, PERMUTED };
enum { FILLED = 16777216, BILINEAR = 33554432, PERSPECTIVE = 67108864 };

// Replaces each level by another one, which may depend on the levels of the whole image.
struct Tone {
    // BRIGHTNESS and the other numbers.
    u32 kind;
    // BRIGHTNESS: the factor. CONTRAST: shares of the image and of its mean gray. POSTERIZE:
    // the bits that are kept, as a mask. SOLARIZE: the threshold. ADD: what is added, and the
    // level from which on nothing is added.
    float by[2];
};
static_assert(sizeof(Tone) == 12, "Tone");

// Changes the color of each pixel on its own.
struct Tint {
    // SATURATION and the other numbers.
    u32 kind;
    // SATURATION: shares of the pixel and of its gray. HUE: the turn of the color circle, in
    // circles.
    float by[2];
    // PERMUTED: the old channel of each new one, in two bits each from the lowest on.
    u32 channels;
};
static_assert(sizeof(Tint) == 16, "Tint");

// torchvision's `adjust_sharpness`: blends with a smoothed image.
struct Sharpen {
    // Share of the smoothed image.
    float share;
};
static_assert(sizeof(Sharpen) == 4, "Sharpen");

// torchvision's `gaussian_blur` with the same standard deviation across and down.
struct Blur {
    // Weight of the neighbors at distance 1, in units of the pixel's own weight.
    double near;
    // Largest distance of a pixel that is added.
    u32 radius;
    u32 unused;
};
static_assert(sizeof(Blur) == 16, "Blur");

// Moves the pixels of the image: each pixel of the output is read from another position.
//
// Positions are computed as in torchvision's `_affine_grid`, `_perspective_grid` and PyTorch's
// `grid_sample`, with the same sums and products of 32-bit floats.
struct Warp {
    // The first six numbers map a position of the output to a source position, in units of
    // half the image. The last two divide it if PERSPECTIVE is set.
    float map[8];
    // Red, green and blue of positions outside the image, from the lowest byte on, and the
    // bits FILLED, BILINEAR and PERSPECTIVE.
    u32 mode;
};
static_assert(sizeof(Warp) == 36, "Warp");

// A rectangle of the output that is filled with one value.
struct Erase {
    // The rectangle, in pixels of the output.
    Rect rect;
    // Red, green and blue in the units of the batch: normalized floats, or 0 to 255 in a batch
    // of bytes.
    float value[3];
};
static_assert(sizeof(Erase) == 28, "Erase");

// A rectangle of the output that is filled with noise: each value is drawn for itself.
struct Noise {
    // The rectangle, in pixels of the output.
    Rect rect;
    // Mean of the red, green and blue values, in the units of `Erase`.
    float mean[3];
    // Standard deviation of the values.
    float deviation;
    // Random numbers of the rectangle.
    u32 seed[2];
};
static_assert(sizeof(Noise) == 40, "Noise");
