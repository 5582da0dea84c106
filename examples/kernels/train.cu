// The kernels of `examples/train_cuda`: a convolutional network in f32, forward and backward.
//
// Feature maps are (C, N, H, W), so a convolution is one matrix product over the whole batch. One
// thread writes each result, and values are added in a fixed order, so every run computes the same
// numbers. `naive.rs` contains the same network in plain loops.

typedef unsigned int u32;
typedef unsigned char u8;

// Copies 3x3 neighborhoods, with zero padding, to columns: (C * 9, N * side * side). The strides of
// images and channels allow for reading the loader's (N, C, H, W) directly.
extern "C" __global__ void im2col(float* columns, const float* maps, u32 channels, u32 count, u32 side,
                                  u32 channel_stride, u32 image_stride) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 plane = side * side, width = count * plane;
    if (i >= size_t(channels) * 9 * width) return;
    const u32 row = u32(i / width), at = u32(i % width);
    const u32 c = row / 9, n = at / plane;
    const int y = int(at % plane / side) + int(row % 9 / 3) - 1, x = int(at % side) + int(row % 3) - 1;
    const bool inside = y >= 0 && x >= 0 && y < int(side) && x < int(side);
    columns[i] = inside ? maps[size_t(c) * channel_stride + size_t(n) * image_stride + y * side + x] : 0.0f;
}

// Computes the gradient of `im2col`: each pixel of (C, N, side, side) is the sum of the entries
// that it was copied to.
extern "C" __global__ void col2im(float* maps, const float* columns, u32 channels, u32 count, u32 side) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 plane = side * side, width = count * plane;
    if (i >= size_t(channels) * width) return;
    const u32 c = u32(i / width), at = u32(i % width), n = at / plane;
    const int y = int(at % plane / side), x = int(at % side);
    float sum = 0.0f;
    for (int k = 0; k < 9; k++) {
        // Entry k of the neighborhood of (to_y, to_x) is this pixel.
        const int to_y = y + 1 - k / 3, to_x = x + 1 - k % 3;
        if (to_y < 0 || to_x < 0 || to_y >= int(side) || to_x >= int(side)) continue;
        sum += columns[size_t(c * 9 + k) * width + size_t(n) * plane + to_y * side + to_x];
    }
    maps[i] = sum;
}

// Computes out (rows, columns) = a (rows, depth) * b (depth, columns). Row and column strides allow
// for transposed inputs. Each block computes a tile of 64x64 values, and each of its 256 threads
// computes 4x4 of them. If the grid has more than one block in z, each z index handles `part`
// consecutive values of the depth, and writes its own matrix to `out`. `add_parts` adds these
// matrices.
extern "C" __global__ void matmul(float* out, const float* a, const float* b, u32 rows, u32 columns, u32 depth,
                                  u32 part, u32 a_row, u32 a_column, u32 b_row, u32 b_column) {
    __shared__ float a_tile[16][65];
    __shared__ float b_tile[16][65];
    const u32 t = threadIdx.x, tx = t % 16, ty = t / 16;
    const u32 first_row = blockIdx.y * 64, first_column = blockIdx.x * 64;
    const u32 from = blockIdx.z * part, to = min(from + part, depth);
    float sum[4][4] = {};
    for (u32 k0 = from; k0 < to; k0 += 16) {
        for (u32 e = t; e < 16 * 64; e += 256) {
            // Adjacent threads read along the axis that is contiguous in memory.
            const u32 ak = a_column == 1 ? e % 16 : e / 64, ai = a_column == 1 ? e / 16 : e % 64;
            const u32 bk = b_column == 1 ? e / 64 : e % 16, bj = b_column == 1 ? e % 64 : e / 16;
            const u32 i = first_row + ai, j = first_column + bj;
            a_tile[ak][ai] = i < rows && k0 + ak < to ? a[size_t(i) * a_row + size_t(k0 + ak) * a_column] : 0.0f;
            b_tile[bk][bj] = j < columns && k0 + bk < to ? b[size_t(k0 + bk) * b_row + size_t(j) * b_column] : 0.0f;
        }
        __syncthreads();
        for (u32 k = 0; k < 16; k++) {
            float x[4], y[4];
            for (u32 i = 0; i < 4; i++) x[i] = a_tile[k][ty * 4 + i];
            for (u32 j = 0; j < 4; j++) y[j] = b_tile[k][tx + j * 16];
            for (u32 i = 0; i < 4; i++)
                for (u32 j = 0; j < 4; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
    out += size_t(blockIdx.z) * rows * columns;
    for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++) {
            const u32 row = first_row + ty * 4 + i, column = first_column + tx + j * 16;
            if (row < rows && column < columns) out[size_t(row) * columns + column] = sum[i][j];
        }
}

// Computes out (count), the sum of `parts` consecutive arrays.
extern "C" __global__ void add_parts(float* out, const float* from, u32 count, u32 parts) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float sum = 0.0f;
    for (u32 p = 0; p < parts; p++) sum += from[size_t(p) * count + i];
    out[i] = sum;
}

// Applies bias, ReLU and 2x2 max pooling: (C, N, side, side) to (C, N, side / 2, side / 2).
// `winner` is the index of the largest of the four values, or 4 if ReLU clipped it to zero.
extern "C" __global__ void pool(float* out, u8* winner, const float* maps, const float* bias, u32 channels, u32 count,
                                u32 side) {
    const u32 half = side / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * count * half * half) return;
    const u32 x = i % half, y = i / half % half, plane = i / (half * half);
    const float* from = maps + size_t(plane) * side * side + size_t(y) * 2 * side + x * 2;
    const float four[4] = {from[0], from[1], from[side], from[side + 1]};
    u32 best = 0;
    for (u32 k = 1; k < 4; k++)
        if (four[k] > four[best]) best = k;
    const float value = four[best] + bias[plane / count];
    out[i] = value > 0.0f ? value : 0.0f;
    winner[i] = value > 0.0f ? best : 4;
}

// Computes the gradient of `pool`: the largest value gets the gradient of the pooled value, unless
// ReLU clipped it, and all other values get zero.
extern "C" __global__ void unpool(float* grad, const float* pooled, const u8* winner, u32 channels, u32 count, u32 side) {
    const u32 half = side / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * count * half * half) return;
    const u32 x = i % half, y = i / half % half, plane = i / (half * half);
    float* to = grad + size_t(plane) * side * side + size_t(y) * 2 * side + x * 2;
    to[0] = winner[i] == 0 ? pooled[i] : 0.0f;
    to[1] = winner[i] == 1 ? pooled[i] : 0.0f;
    to[side] = winner[i] == 2 ? pooled[i] : 0.0f;
    to[side + 1] = winner[i] == 3 ? pooled[i] : 0.0f;
}

// Computes out (rows), the sum of each row of a matrix, with one block of 256 threads per row.
extern "C" __global__ void row_sums(float* out, const float* from, u32 columns, u32 row_stride, u32 column_stride) {
    __shared__ float sums[256];
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < columns; i += 256)
        sum += from[size_t(blockIdx.x) * row_stride + size_t(i) * column_stride];
    sums[threadIdx.x] = sum;
    for (u32 step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

// Computes the mean of each plane: (C, N, plane) to features (N, C).
extern "C" __global__ void mean(float* features, const float* maps, u32 channels, u32 count, u32 plane) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * count) return;
    const u32 n = i / channels, c = i % channels;
    float sum = 0.0f;
    for (u32 k = 0; k < plane; k++) sum += maps[(size_t(c) * count + n) * plane + k];
    features[i] = sum / float(plane);
}

// Computes the gradient of `mean`.
extern "C" __global__ void spread(float* maps, const float* features, u32 channels, u32 count, u32 plane) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * count * plane) return;
    const u32 n = i / plane % count, c = i / plane / count;
    maps[i] = features[n * channels + c] / float(plane);
}

// Adds the bias to logits (count, classes), and replaces them with the gradient of the mean
// cross-entropy, with one thread per sample. Adds the cross-entropy of sample n of the batch to
// `loss[n]`, and 1 to `right[n]` if the sample is classified correctly. An invalid label makes the
// loss NaN, which is easy to notice.
extern "C" __global__ void softmax(float* logits, const float* bias, const long long* labels, float* loss, float* right,
                                   u32 count, u32 classes) {
    const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    float* row = logits + size_t(n) * classes;
    u32 best = 0;
    for (u32 k = 0; k < classes; k++) {
        row[k] += bias[k];
        if (row[k] > row[best]) best = k;
    }
    const float top = row[best];
    float total = 0.0f;
    for (u32 k = 0; k < classes; k++) total += expf(row[k] - top);
    const long long label = labels[n];
    const bool known = label >= 0 && label < (long long)(classes);
    loss[n] += known ? logf(total) + top - row[label] : nanf("");
    right[n] += label == (long long)(best) ? 1.0f : 0.0f;
    for (u32 k = 0; k < classes; k++)
        row[k] = (expf(row[k] - top) / total - (label == (long long)(k) ? 1.0f : 0.0f)) / float(count);
}

// Takes a step of stochastic gradient descent with momentum 0.9 and weight decay.
extern "C" __global__ void update(float* value, float* speed, const float* grad, u32 count, float rate, float decay) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    speed[i] = 0.9f * speed[i] + grad[i] + decay * value[i];
    value[i] -= rate * speed[i];
}
