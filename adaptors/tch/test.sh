#!/usr/bin/env bash
# Runs `cargo test`, or cargo with the given arguments, such as `run --release --example train`.
# Uses the CPU libraries of libtorch 2.13.0. The first run downloads them to target/libtorch, in
# PyTorch's wheel from PyPI (530 MB).
set -euo pipefail
cd "$(dirname "$0")"
home=$PWD/target/libtorch
if [ ! -e "$home/lib/libtorch.so" ]; then
    mkdir -p "$home/lib"
    # libtorch's CPU libraries load CUDA's runtime and profiler libraries, which are small. They
    # need no driver.
    python3 -m pip install --no-deps --target "$home/wheels" \
        torch==2.13.0 "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*"
    wheels=$home/wheels
    ln -sf "$wheels"/torch/include "$home"/
    ln -sf "$wheels"/nvidia/cu13/lib/lib{cudart,cupti}.so.13 "$wheels"/torch/lib/lib{c10,torch_cpu}.so \
        "$wheels"/torch/lib/libgomp.so.1 "$home"/lib/
    # libtorch.so only refers to other libraries, including the one for CUDA.
    ln -sf libtorch_cpu.so "$home"/lib/libtorch.so
fi
export LIBTORCH=$home LD_LIBRARY_PATH=$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cargo "${@:-test}"
