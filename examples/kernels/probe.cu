// Kernels for the device tests and benchmarks: a checksum of a buffer, a kernel of a given
// duration, and kernels that use a given number of registers. They are compiled like
// src/device/nvidia/kernels/convert.cu; see the README in that folder.

typedef unsigned int u32;
typedef unsigned long long u64;

// Adds the output of SplitMix64's finalizer for each (32-bit word, index) pair to `sum`. A torn,
// stale or misplaced word almost certainly changes the sum. The caller must set `sum` to 0.
extern "C" __global__ void checksum(const u32* words, u64 count, u64* sum) {
    u64 mine = 0;
    for (u64 i = blockIdx.x * u64(blockDim.x) + threadIdx.x; i < count; i += u64(gridDim.x) * blockDim.x) {
        u64 z = (u64(words[i]) << 32 | u32(i)) + 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        mine += z ^ (z >> 31);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_down_sync(0xffffffffu, mine, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

// Simulates a training step: keeps its blocks busy for `nanoseconds` of the device's clock.
extern "C" __global__ void spin(u64 nanoseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

// Keeps R running sums live, to use about R registers per thread.
template <int R> __device__ __forceinline__ void live(float* data, u32 count) {
    float sum[R];
    #pragma unroll
    for (int r = 0; r < R; r++) sum[r] = data[r];
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        #pragma unroll
        for (int r = 0; r < R; r++) sum[r] = fmaf(sum[r], data[i], sum[(r + 1) % R]);
    }
    #pragma unroll
    for (int r = 0; r < R; r++) data[r * 1024 + threadIdx.x] = sum[r];
}
#define LIVE(R) extern "C" __global__ void live_##R(float* data, u32 count) { live<R>(data, count); }
LIVE(4)
LIVE(16)
LIVE(28)
LIVE(44)
LIVE(60)
LIVE(92)
LIVE(140)
LIVE(220)
