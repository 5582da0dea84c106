#!/bin/sh
# Runs the tests that decode on a device under compute-sanitizer. Needs a GPU and the CUDA toolkit,
# but not Rust: the test binaries are built elsewhere.
#
#   cargo test --no-run --test gpu --lib    # prints their names
#   benches/sanitize.sh target/debug/deps/gpu-HASH target/debug/deps/warpfeed-HASH [FOLDER]
#
# FOLDER contains damaged JPEGs. TOOLS selects the tools, and SECONDS_EACH limits the duration of
# each run (default 40). The exit code is 1 if a tool reports an error, a test fails, or no test
# runs.
set -u
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
gpu=$1 library=$2 damaged=${3:-}
sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
# Without a driver, all tests would be skipped, so require one.
export WARPFEED_SANITIZE=1 WARPFEED_REQUIRE=cuda
failed=0

run() {
    tool=$1 name=$2
    shift 2
    log=$(mktemp)
    began=$(date +%s)
    timeout "${SECONDS_EACH:-40}" "$sanitizer" --tool "$tool" --print-limit 20 --error-exitcode 9 "$@" \
        --nocapture --test-threads 1 >"$log" 2>&1
    code=$?
    took=$(($(date +%s) - began))
    # Report a run in which no test ran as a failure.
    if [ $code -eq 0 ] && ! grep -q '^test .* ok$\|[1-9][0-9]* passed' "$log"; then
        code=8
    fi
    case $code in
        0) echo "$tool $name: clean, $took s" ;;
        124) echo "$tool $name: not done after $took s; nothing found so far: $(grep -c '========= .*error\|Error:' "$log") reports" ;;
        *) echo "$tool $name: exit status $code, $took s"; tail -60 "$log" ;;
    esac
    if [ $code -ne 0 ] && { [ $code -ne 124 ] || grep -q '========= \(Invalid\|Uninit\|Error\|Barrier\|Race\|Warning\)' "$log"; }; then
        failed=1
    fi
    rm -f "$log"
}

for tool in ${TOOLS:-memcheck initcheck racecheck synccheck}; do
    run "$tool" kernels "$library" nvidia::decode_tests
    run "$tool" loaders "$gpu" decode:: --skip files_given_by_the_environment
    if [ -n "$damaged" ]; then
        WARPFEED_DAMAGED=$damaged run "$tool" damaged "$gpu" decode::files_given_by_the_environment
    fi
done
exit $failed
