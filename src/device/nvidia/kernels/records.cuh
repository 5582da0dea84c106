// Written by the tests of `device/nvidia/headers.rs` with WARPFEED_BLESS=1. Do not edit.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A rectangle in pixels.
struct Rect { u32 x, y, width, height; };

// An effect of any kind.
struct __align__(16) Effect {
    // The record of the effect.
    u32 words[11];
    // Code of the kind of effect, counted from 1 separately for effects on pixels and effects
    // on values.
    u32 code;
};
static_assert(sizeof(Effect) == 48, "Effect");

// What the device does with one sample in addition to normalizing it. Each sample has one
// record, which is copied to the device with its batch. If the host mixes the batch, the
// record stores the effects on values until the batch is mixed.
//
// The order of the operations is fixed: effects on pixels, normalization, effects on values,
// then mixing. The partner that a sample is mixed with has its own record.
struct __align__(16) SampleOps {
    // Kind of mixing: 0 (none), MIX or CUT.
    u32 mixing;
    // The partner's row in the batch.
    u32 partner;
    // MIX: weight of this sample. CUT: weight of this sample's label.
    float weight;
    // Number of effects on pixels, plus 2^16 times the number of effects on values.
    u32 effects;
    // CUT: the part of the output that shows the partner, in pixels.
    Rect cut;
    Effect values[3];
    Effect pixels[16];
};
static_assert(sizeof(SampleOps) == 944, "SampleOps");

enum { MIX = 1, CUT = 2 };

enum { TRANSPOSED = 1, MIRRORED = 2, FLIPPED = 4 };

// Layout of one color component in the MCUs of an image.
struct Component {
    // Number of blocks across an MCU.
    u32 h;
    // Number of blocks down an MCU.
    u32 v;
    // Index of the component's first block within an MCU.
    u32 first;
    // Number of pixels per component sample, horizontally.
    u32 across;
    // Number of pixels per component sample, vertically.
    u32 down;
    // Kind of upsampling. 0: none, 1: 2x horizontally, 2: 2x vertically, 3: 2x in both
    // directions, 4: repeats samples.
    u32 upsampling;
    // Number of columns of component samples that belong to the image.
    u32 width;
    // Number of rows of component samples that belong to the image.
    u32 height;
};
static_assert(sizeof(Component) == 32, "Component");

// What the decode kernels do with one sample. Each sample has one record, which is copied to
// the device with its batch. Kernels skip a record of zeros, which marks a sample whose pixels
// were decoded on the host and copied to the device.
struct __align__(16) DecodeOps {
    // 0 if the pixels are already on the device, so that there is nothing to decode.
    u32 kind;
    u32 segments;
    // Offset of the head and its data in the arena, in bytes.
    u32 at;
    // Size of the head and its data in the arena, in bytes.
    u32 bytes;
    // Index of the sample's first block, both in the scratch memory for coefficients and in
    // the scratch memory for planes.
    u32 block;
    // Number of MCUs per row of the whole image.
    u32 mcus;
    // First column of the window that is decoded, in MCUs.
    u32 column;
    // Width of the window, in MCUs.
    u32 columns;
    // First row of the window, in MCUs.
    u32 row;
    // Height of the window, in MCUs.
    u32 rows;
    // Number of blocks per MCU.
    u32 blocks;
    // Color space. 0: gray, 1: YCbCr, 2: RGB.
    u32 color;
    // Number of elements of `parts` that are used.
    u32 count;
    // Number of Huffman tables in the head.
    u32 tables;
    // Row in the batch for which the record was written. If the record is copied to another
    // row, the copy keeps this value.
    u32 place;
    // Number of blocks in the window.
    u32 kept;
    Component parts[3];
    // For each element of `parts`, the index of its DC table plus 256 times the index of its
    // AC table.
    u32 choice[3];
    // Size of the longest segment in bytes.
    u32 longest;
    // Part of the image that the resize may read. The corner is in coordinates of the stored
    // image, and the size is that of the upright image.
    Rect region;
    // Part of the output that shows the source image, after flips.
    Rect shown;
    u32 mirrored;
    u32 flipped;
    // Color of the output outside `shown`: red, plus 2^8 times green, plus 2^16 times blue.
    u32 fill;
    // Steps that turn the stored image into the upright one: any of TRANSPOSED, MIRRORED and
    // FLIPPED.
    u32 turned;
    // Start and end of the region's columns that are resized to the output.
    double across[2];
    // Start and end of the region's rows that are resized to the output.
    double down[2];
};
static_assert(sizeof(DecodeOps) == 256, "DecodeOps");

enum { BRIGHTNESS, CONTRAST, POSTERIZE, SOLARIZE, ADD, INVERT, AUTOCONTRAST, EQUALIZE };
enum { SATURATION, HUE, GRAYSCALE, PERMUTED };
enum { FILLED = 16777216, BILINEAR = 33554432, PERSPECTIVE = 67108864 };

// Maps each level to a new level. The mapping may depend on the levels of the whole image.
struct Tone {
    // Kind of effect, such as BRIGHTNESS.
    u32 kind;
    // BRIGHTNESS: the factor. CONTRAST: the weights of the image and of its mean gray.
    // POSTERIZE: the mask of the bits that are kept. SOLARIZE: the threshold. ADD: the number
    // that is added, and the level from which on nothing is added.
    float by[2];
};
static_assert(sizeof(Tone) == 12, "Tone");

// Changes the color of each pixel independently.
struct Tint {
    // Kind of effect, such as SATURATION.
    u32 kind;
    // SATURATION: weights of the pixel and of its gray value. HUE: rotation of the hue, in
    // full turns.
    float by[2];
    // PERMUTED: for each new channel, the index of the old channel in two bits, starting with
    // the lowest bits.
    u32 channels;
};
static_assert(sizeof(Tint) == 16, "Tint");

// torchvision's `adjust_sharpness`: blends with a smoothed image.
struct Sharpen {
    // Weight of the smoothed image.
    float share;
};
static_assert(sizeof(Sharpen) == 4, "Sharpen");

// torchvision's `gaussian_blur` with the same standard deviation along both axes.
struct Blur {
    // Weight of the neighbors at distance 1, relative to the weight of the pixel itself.
    double near;
    // Radius of the kernel.
    u32 radius;
    u32 unused;
};
static_assert(sizeof(Blur) == 16, "Blur");

// Moves the pixels of the image: each output pixel is read from a source position.
//
// Positions are computed as in torchvision's `_affine_grid`, `_perspective_grid` and PyTorch's
// `grid_sample`, with the same sums and products of 32-bit floats.
struct Warp {
    // The first six numbers map an output position to a source position, in units of half the
    // image's sides. With PERSPECTIVE, the last two numbers define the divisor.
    float map[8];
    // Color of positions outside the image (red in the lowest byte, then green and blue), and
    // the bits FILLED, BILINEAR and PERSPECTIVE.
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

// A rectangle of the output that is filled with noise. Each value is drawn separately.
struct Noise {
    // The rectangle, in pixels of the output.
    Rect rect;
    // Mean of the red, green and blue values, in the units of `Erase`.
    float mean[3];
    // Standard deviation of the values.
    float deviation;
    // Seed of the rectangle.
    u32 seed[2];
};
static_assert(sizeof(Noise) == 40, "Noise");
