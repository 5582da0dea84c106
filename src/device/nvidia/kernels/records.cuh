// Written by the tests of `device/nvidia/headers.rs` with WARPFEED_BLESS=1. Do not edit.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A rectangle in pixels.
struct Rect { u32 x, y, width, height; };

// The device's form of an effect: a code that says which effect it is, and its parameters.
struct __align__(16) Effect {
    // The parameters.
    u32 words[11];
    // Which effect this is. Pixel effects and value effects are numbered separately, each from
    // 1; 0 is "none".
    u32 code;
};
static_assert(sizeof(Effect) == 48, "Effect");

// The operations on one image in addition to normalization. There is one record per image, and
// for a clip one record per frame. The records are copied to the device together with the
// batch. If the host mixes the batch, the host reads the effects on values from the record.
//
// The order of the operations is fixed: effects on pixels, normalization, effects on values,
// and mixing. An image is mixed with the image of one other sample, its partner, which has its
// own record.
struct __align__(16) SampleOps {
    // Kind of mixing: 0 (none), MIX or CUT.
    u32 mixing;
    // Row of the partner in the batch.
    u32 partner;
    // MIX: weight of this sample. CUT: weight of this sample's label.
    float weight;
    // Number of effects on pixels in bits 0 to 15, and number of effects on values in bits 16
    // to 31.
    u32 effects;
    // CUT: the rectangle of the output that shows the partner, in pixels.
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
    // Horizontal distance between adjacent samples of the component, in pixels of the image.
    u32 across;
    // Vertical distance between adjacent samples of the component, in pixels of the image.
    u32 down;
    // Kind of upsampling. 0: none; 1: 2x horizontal; 2: 2x vertical; 3: 2x in both directions;
    // 4: any factor, by repeating samples.
    u32 upsampling;
    // Number of columns of component samples that belong to the image.
    u32 width;
    // Number of rows of component samples that belong to the image.
    u32 height;
};
static_assert(sizeof(Component) == 32, "Component");

// Instructions for decoding and resizing one image. There is one record per image. The records
// are copied to the device together with the batch. If a record is all zeros, the host writes
// the image, and the kernels skip it.
struct __align__(16) DecodeOps {
    // Task of the kernels: JPEG to decode a JPEG, YUV to convert a video frame, or 0 to skip
    // the image.
    u32 kind;
    // Number of segments into which restart markers divide the data of a JPEG; 0 for a video
    // frame.
    u32 segments;
    // Byte offset of the image's data in the arena. The data of a JPEG starts with the
    // decoding tables, and the data of a video frame with a `YuvHead`.
    u32 at;
    // Size of the image's data in the arena, in bytes.
    u32 bytes;
    // Index of the image's first block in the scratch memory. The memory for coefficients and
    // the memory for planes use the same index.
    u32 block;
    // Number of MCUs per row of the whole image.
    u32 mcus;
    // First column of the decoded window, in MCUs.
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
    // Number of Huffman tables in the image's data.
    u32 tables;
    // Index, in the batch, of the image that the record was written for. If the image also
    // replaces a failed sample, the copy of the record in the row of this sample has the same
    // index.
    u32 place;
    // Number of blocks of coefficients that the image uses in the scratch memory: all blocks
    // of the window. For a video frame, enough blocks for the RGB pixels of the region.
    u32 kept;
    Component parts[3];
    // For each element of `parts`, the index of its DC table in bits 0 to 7, and the index of
    // its AC table in bits 8 to 15.
    u32 choice[3];
    // Size of the longest segment in bytes.
    u32 longest;
    // Rectangle of the image that the resize may read. `width` and `height` are in pixels of
    // the upright image. `x` and `y` are a position in the stored image. For a video frame,
    // this position is relative to the first luma sample in the arena.
    Rect region;
    // Rectangle of the output that the source image covers. Its position already includes the
    // flips.
    Rect shown;
    u32 mirrored;
    u32 flipped;
    // Color of the output outside `shown`, packed as 0x00BBGGRR.
    u32 fill;
    // The steps that turn the stored image upright: any of TRANSPOSED, MIRRORED and FLIPPED.
    u32 turned;
    // Range of columns, relative to the region, that is resized to the width of `shown`.
    double across[2];
    // Range of rows, relative to the region, that is resized to the height of `shown`.
    double down[2];
};
static_assert(sizeof(DecodeOps) == 256, "DecodeOps");

enum { JPEG = 1, YUV = 2 };

// Header of a video frame's data in the arena. Weights and `rounding` are signed; weights have
// 20 fractional bits. Offsets are relative to the header. Offsets, distances and sizes are in
// bytes.
struct YuvHead {
    u32 luma_weight;
    // Constant that is added to the weighted samples.
    u32 rounding;
    // Value of a chroma sample that means no color.
    u32 center;
    u32 red_cr;
    u32 green_cr;
    u32 green_cb;
    u32 blue_cb;
    // Size of a sample: 1 or 2.
    u32 sample_bytes;
    // Distance between two rows of luma.
    u32 luma_stride;
    // Offset of the first sample of luma.
    u32 luma;
    // Offset of the first sample of Cb.
    u32 cb;
    // Offset of the first sample of Cr.
    u32 cr;
    // Distance between two rows of chroma.
    u32 chroma_stride;
    // Distance between two samples in a row of chroma.
    u32 chroma_step;
    // Right shift that turns a column of luma into a column of chroma.
    u32 chroma_x;
    // Right shift that turns a row of luma into a row of chroma.
    u32 chroma_y;
};
static_assert(sizeof(YuvHead) == 64, "YuvHead");

enum { BRIGHTNESS, CONTRAST, POSTERIZE, SOLARIZE, ADD, INVERT, AUTOCONTRAST, EQUALIZE };
enum { SATURATION, HUE, GRAYSCALE, PERMUTED };
enum { FILLED = 16777216, BILINEAR = 33554432, PERSPECTIVE = 67108864 };

// Maps each level to a new level. The mapping may depend on the levels of the whole image.
struct Tone {
    // Kind of effect, such as BRIGHTNESS.
    u32 kind;
    // BRIGHTNESS: the factor. CONTRAST: the weights of the image and of its mean gray.
    // POSTERIZE: the mask of the bits that are kept. SOLARIZE: the threshold. ADD: the number
    // that is added, and the lowest level to which nothing is added.
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
    // PERMUTED: the source channel of each output channel, packed as 2-bit fields, with the
    // first channel in the lowest bits.
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

// A rectangle of the output that is filled with one color.
struct Erase {
    // The rectangle, in pixels of the output.
    Rect rect;
    // Red, green and blue in the batch's units: normalized floats, or 0 to 255 for `u8`.
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
