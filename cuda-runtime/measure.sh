#!/usr/bin/env bash
# Every figure that needs a GPU, in one command on a machine that has one; it takes a quarter of an hour.
#
#   cuda-runtime/measure.sh build     builds what is measured into target/gpu; needs Rust and Python, no CUDA, no GPU
#   cuda-runtime/measure.sh run       runs it and prints its tables as Markdown; needs nothing but target/gpu and a driver,
#                                     and for the rows of PyTorch a python3 with torch and torchvision (SUBLET_PYTHON)
#
# A part that fails or is skipped says so, and the others run all the same. The exit status is 0 where all that could run has
# passed, 1 where a part has failed, and 77 where nothing ran. PyTorch alone may be missing.
set -euo pipefail
cd "$(dirname "$0")/.."
to=target/gpu

build() {
    rm -rf "$to"
    mkdir -p "$to"
    cargo build --release --locked -p sublet-cuda --example relu_bandwidth --example migration
    cargo build --release --locked -p sublet-ffi --features cuda
    local built=${CARGO_TARGET_DIR:-target}/release
    cp "$built/examples/relu_bandwidth" "$built/examples/migration" "$built/libsublet.so" "$to"
    # The tests of a machine with a GPU.
    local test
    test=$(cargo test --locked -p sublet-cuda --test gpu --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*gpu-[^"]*\)".*/\1/p' | tail -n 1)
    cp "$test" "$to/gpu"
    cp examples/pytorch/train.py examples/pytorch/sublet_allocator.py "$to"
    # The Python package, unpacked, and the networks that it is tried on.
    ./ci.sh wheel "$to/python"
    python3 -m zipfile -e "$to"/python/sublet-*.whl "$to/python"
    rm "$to"/python/sublet-*.whl
    cp python/tests/gpu.py python/tests/networks.py python/tests/tape.py python/tests/train.py "$to/python"
    strip "$to/gpu" "$to/relu_bandwidth" "$to/migration"
    strip --strip-unneeded "$to/libsublet.so"
    git describe --always --dirty > "$to/commit"
    du -sh "$to"
}

failed=0 ran=0
# What a part prints where it is skipped begins with "skipped" or "Skipped", or its status is 77.
part() {
    local title=$1
    shift
    echo
    echo "### $title"
    echo
    echo "    $*"
    echo
    local status=0 log
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" | sed -u 's/^/    /' || status=$?
    if [ "$status" = 77 ] || { [ "$status" = 0 ] && grep -qi '^skipped' "$log"; }; then
        echo "    skipped: $title"
    elif [ "$status" = 0 ]; then
        ran=$((ran + 1))
    else
        echo "    failed: $title (status $status)"
        failed=1
    fi
    rm -f "$log"
}

run() {
    echo "Commit $(cat "$to/commit"), $(date -u +%F), $(uname -m)"
    # An idle GPU has its link at a lower generation than it copies at: the most that it can is told too.
    nvidia-smi --format=csv \
        --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current ||
        echo "no nvidia-smi"
    # One at a time: each has the device to itself.
    part "On this GPU: every byte looked at, growth, another program under work, a file, PyTorch's memory, a fault" \
        "$to/gpu" --show-output --test-threads=1
    part "ReLU with a mask" "$to/relu_bandwidth"
    part "Plans that run: blocks of 64 MiB" "$to/migration" 16 65536
    part "Plans that run: blocks of 8 MiB" "$to/migration" 32 8192
    local python=${SUBLET_PYTHON:-python3}
    if command -v "$python" > /dev/null; then
        part "ResNet-50 in PyTorch, batch 64" "$python" "$to/train.py" --library "$to/libsublet.so" --batch 64
        part "PyTorch within a limit" env PYTHONPATH="$to/python" "$python" -W ignore "$to/python/gpu.py"
    else
        echo "skipped: PyTorch ($python is not there)"
    fi
    if [ "$failed" = 0 ] && [ "$ran" = 0 ]; then
        echo "nothing ran" >&2
        return 77
    fi
    return "$failed"
}

case "${1:-}" in
    build) build ;;
    run) run ;;
    *)
        sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
        ;;
esac
