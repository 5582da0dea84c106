// A softmax classifier on 8x8 averages of the picture: the smallest training step that learns. One block a sample in `step`.

typedef unsigned int u32;

// images (N, 3, side, side) to features (N, 192): the mean of each of 8x8 cells of each colour. `side` is a multiple of 8.
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

// Logits, softmax, cross entropy and the gradient of weights (classes, 193; the last is the bias). At most 256 classes, a thread each.
extern "C" __global__ void step(const float* features, const long long* labels, const float* weights, float* gradient, float* loss,
                                u32 classes) {
    __shared__ float logit[256];
    const u32 n = blockIdx.x, k = threadIdx.x;
    const float* x = features + n * 192;
    if (k < classes) {
        const float* w = weights + k * 193;
        float sum = w[192];
        for (u32 i = 0; i < 192; i++) sum += w[i] * x[i];
        logit[k] = sum;
    }
    __syncthreads();
    float most = logit[0], total = 0.0f;
    for (u32 c = 1; c < classes; c++) most = fmaxf(most, logit[c]);
    for (u32 c = 0; c < classes; c++) total += __expf(logit[c] - most);
    if (k < classes) {
        const float p = __expf(logit[k] - most) / total, d = p - (labels[n] == k ? 1.0f : 0.0f);
        for (u32 i = 0; i < 192; i++) atomicAdd(gradient + k * 193 + i, d * x[i]);
        atomicAdd(gradient + k * 193 + 192, d);
        if (labels[n] == k) atomicAdd(loss, -__logf(fmaxf(p, 1e-20f)));
    }
}

// One step of gradient descent; the gradient is cleared for the next.
extern "C" __global__ void update(float* weights, float* gradient, u32 count, float rate) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    weights[i] -= rate * gradient[i];
    gradient[i] = 0.0f;
}
