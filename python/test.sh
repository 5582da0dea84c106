#!/usr/bin/env bash
# Builds the Python package in a virtual environment of its own and tests it. WARPFEED_TORCH=1 installs PyTorch for that (several
# hundred MB to some GB); without it the tests that need PyTorch run where the interpreter already has it, and are skipped elsewhere.
#     python/test.sh [arguments of pytest]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=${PYTHON:-python3}
venv=${WARPFEED_VENV:-$root/target/python}
# In the workspace's own folder, so that nothing is built twice.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}

# What the interpreter already has is used, PyTorch above all.
[ -x "$venv/bin/python" ] || "$python" -m venv --system-site-packages "$venv"
missing=()
for module in numpy pytest maturin mypy; do
    "$venv/bin/python" -c "import $module" 2>/dev/null || missing+=("$module")
done
[ -z "${WARPFEED_TORCH:-}" ] || "$venv/bin/python" -c "import torch" 2>/dev/null || missing+=(torch)
[ ${#missing[@]} -eq 0 ] || "$venv/bin/python" -m pip install --quiet "${missing[@]}"

cargo build --quiet --all-features --example raw_batches
(cd python && VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH" "$venv/bin/python" -m maturin develop --quiet)
export WARPFEED_RAW_BATCHES=$CARGO_TARGET_DIR/debug/examples/raw_batches
"$venv/bin/python" -m pytest -q "$@" python/tests
