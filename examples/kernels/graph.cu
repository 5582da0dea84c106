// The training step of `examples/cuda_graph.rs`: a softmax classifier on 8x8 averages of the image.
// Values are added in a fixed order, so two runs on the same GPU are bit-identical.

typedef unsigned int u32;

// Computes features (N, 192) of images (N, 3, side, side): the mean of each color channel in each
// of 8x8 cells. `side` must be a multiple of 8.
extern "C" __global__ void pool(float* features, const float* images, u32 count, u32 side) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * 192) return;
    const u32 n = i / 192, c = i / 64 % 3, cy = i / 8 % 8, cx = i % 8, cell = side / 8;
    const float* from = images + (size_t(n) * 3 + c) * side * side + cy * cell * side + cx * cell;
    float sum = 0.0f;
    for (u32 y = 0; y < cell; y++)
        for (u32 x = 0; x < cell; x++) sum += from[y * side + x];
    features[i] = sum / float(cell * cell);
}

// Computes `errors` (N, classes), which are probabilities minus one-hot labels, and adds the
// cross-entropy of each sample to `loss` (N). Weights are (classes, 193), with the bias at the end
// of each row. One thread handles one sample.
extern "C" __global__ void errors(float* errors, float* loss, const float* features, const long long* labels,
                                  const float* weights, u32 count, u32 classes) {
    const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    const float* x = features + n * 192;
    float* row = errors + n * classes;
    float most = -1e30f, total = 0.0f;
    for (u32 k = 0; k < classes; k++) {
        const float* w = weights + k * 193;
        float sum = w[192];
        for (u32 i = 0; i < 192; i++) sum += w[i] * x[i];
        row[k] = sum;
        most = fmaxf(most, sum);
    }
    for (u32 k = 0; k < classes; k++) total += expf(row[k] - most);
    for (u32 k = 0; k < classes; k++) {
        const float p = expf(row[k] - most) / total;
        row[k] = p - (labels[n] == k ? 1.0f : 0.0f);
        if (labels[n] == k) loss[n] -= logf(fmaxf(p, 1e-20f));
    }
}

// Takes one step of gradient descent, with one thread per weight.
extern "C" __global__ void descend(float* weights, const float* errors, const float* features, u32 count, u32 classes,
                                   float rate) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= classes * 193) return;
    const u32 k = i / 193, at = i % 193;
    float sum = 0.0f;
    for (u32 n = 0; n < count; n++) sum += errors[n * classes + k] * (at == 192 ? 1.0f : features[n * 192 + at]);
    weights[i] -= rate * sum / float(count);
}
