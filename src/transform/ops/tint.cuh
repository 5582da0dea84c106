// Device code of `tint.rs`, in the same order of operations.

__device__ __forceinline__ void turn_hue(u32 (&rgb)[3], float turn) {
    const float r = __fdiv_rn(float(rgb[0]), 255.0f), g = __fdiv_rn(float(rgb[1]), 255.0f), b = __fdiv_rn(float(rgb[2]), 255.0f);
    const float most = fmaxf(fmaxf(r, g), b), least = fminf(fminf(r, g), b);
    if (most == least) return;
    const float range = most - least, saturation = __fdiv_rn(range, most);
    const float rc = __fdiv_rn(most - r, range), gc = __fdiv_rn(most - g, range), bc = __fdiv_rn(most - b, range);
    const float sector = most == r ? bc - gc : most == g ? 2.0f + rc - bc : 4.0f + gc - rc;
    const float turned = __fdiv_rn(sector, 6.0f) + 1.0f;
    // `turned` is positive.
    const float h = turned - floorf(turned) + turn;
    const float h6 = (h - floorf(h)) * 6.0f, whole = floorf(h6), f = h6 - whole;
    const auto unit = [](float v) { return fminf(fmaxf(v, 0.0f), 1.0f); };
    const float p = unit(most * (1.0f - saturation)), q = unit(most * (1.0f - saturation * f));
    const float t = unit(most * (1.0f - saturation * (1.0f - f)));
    const u32 sextant = u32(whole) % 6;
    const float red = sextant == 0 || sextant == 5 ? most : sextant == 1 ? q : sextant == 4 ? t : p;
    const float green = sextant == 1 || sextant == 2 ? most : sextant == 0 ? t : sextant == 3 ? q : p;
    const float blue = sextant == 3 || sextant == 4 ? most : sextant == 2 ? t : sextant == 5 ? q : p;
    rgb[0] = u32(red * 255.999f), rgb[1] = u32(green * 255.999f), rgb[2] = u32(blue * 255.999f);
}

__device__ __forceinline__ void run(const Tint& tint, const Image& image, Scratch&) {
    if (tint.kind == SATURATION) {
        image.map([&](u32 (&rgb)[3]) {
            const float own = float(gray(rgb));
            #pragma unroll
            for (int c = 0; c < 3; c++) rgb[c] = level(blend(float(rgb[c]), own, tint.by));
        });
    } else if (tint.kind == HUE) {
        image.map([&](u32 (&rgb)[3]) { turn_hue(rgb, tint.by[0]); });
    } else if (tint.kind == GRAYSCALE) {
        image.map([&](u32 (&rgb)[3]) { rgb[0] = rgb[1] = rgb[2] = gray(rgb); });
    } else {
        image.map([&](u32 (&rgb)[3]) {
            const u32 all = rgb[0] | rgb[1] << 8 | rgb[2] << 16;
            #pragma unroll
            for (int c = 0; c < 3; c++) rgb[c] = all >> ((tint.channels >> (2 * c) & 3) * 8) & 255;
        });
    }
}
