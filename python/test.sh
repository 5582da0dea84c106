#!/usr/bin/env bash
# Tests the Python package in a separate virtual environment: python/test.sh [arguments of pytest]
#
# The extension module is built with the same options and in the same folder as by `cargo test
# --workspace --all-features`, so nothing is compiled twice. The environment inherits the packages of
# the interpreter.
#
#   WARPFEED_TORCH=1   installs PyTorch (up to several GB); without PyTorch, tests that need it are skipped
#   WARPFEED_WHEEL=1   builds, installs and tests the wheel, as `pip install ./python` does; takes minutes
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
venv=${WARPFEED_VENV:-$root/target/python${WARPFEED_WHEEL:+-wheel}}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
# Extension modules do not link to the interpreter's library.
export PYO3_BUILD_EXTENSION_MODULE=1

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv --system-site-packages "$venv"
missing=()
for module in numpy pytest mypy; do
    "$venv/bin/python" -c "import $module" 2>/dev/null || missing+=("$module")
done
[ -z "${WARPFEED_TORCH:-}" ] || "$venv/bin/python" -c "import torch" 2>/dev/null || missing+=(torch)
[ ${#missing[@]} -eq 0 ] || "$venv/bin/python" -m pip install --quiet "${missing[@]}"

cargo build --quiet --workspace --all-features --lib --example raw_batches
if [ -n "${WARPFEED_WHEEL:-}" ]; then
    "$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps ./python
else
    ln -sf "$CARGO_TARGET_DIR/debug/lib_warpfeed.so" python/warpfeed/_warpfeed.abi3.so
    # mypy needs this; PYTHONPATH is not enough for it.
    echo "$root/python" > "$("$venv/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/warpfeed.pth"
fi
export WARPFEED_RAW_BATCHES=$CARGO_TARGET_DIR/debug/examples/raw_batches
"$venv/bin/python" -m pytest -q "$@" python/tests
