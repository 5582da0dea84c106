// Device code of `tone.rs`, in the same order of operations.

__device__ __forceinline__ void run(const Tone& tone, const Image& image, Scratch& scratch) {
    const float a = tone.by[0], b = tone.by[1];
    if (tone.kind == AUTOCONTRAST || tone.kind == EQUALIZE) {
        image.count_levels(scratch);
        // Three threads compute the table of one channel each.
        for (u32 channel = threadIdx.x; channel < 3; channel += blockDim.x) {
            const u32* const counts = scratch.counts[channel];
            u8* const table = scratch.table[channel];
            u32 least = 0, most = 255;
            while (least < 255 && counts[least] == 0) least++;
            while (most > 0 && counts[most] == 0) most--;
            u32 below = 0;
            for (u32 v = 0; v < most; v++) below += counts[v];
            const u32 stride = below / 255;
            const float scale = float(most - least) * float(1.0 / 255.0);
            below = 0;
            for (u32 v = 0; v < 256; v++) {
                if (tone.kind == AUTOCONTRAST) {
                    table[v] = u8(least >= most ? v : level(__fdiv_rn(float(v) - float(least), scale)));
                } else {
                    table[v] = u8(stride == 0 ? v : min((below + stride / 2) / stride, 255u));
                    below += counts[v];
                }
            }
        }
        __syncthreads();
        image.look_up(scratch, 3);
        return;
    }
    float mean = 0.0f;
    if (tone.kind == CONTRAST) mean = float(double(image.sum(scratch, gray)) / double(image.pixels));
    image.map_levels(scratch, [&](u32 level_of) {
        const float v = float(level_of);
        switch (tone.kind) {
            case BRIGHTNESS: return level(v * a);
            case CONTRAST: return level(blend(v, mean, tone.by));
            case POSTERIZE: return level_of & u32(a);
            case SOLARIZE: return v >= a ? 255 - level_of : level_of;
            case ADD: return v < b ? level(v + a) : level_of;
            default: return 255 - level_of;
        }
    });
}
