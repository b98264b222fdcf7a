#!/usr/bin/env bash
# Every figure that needs a GPU, in one command on a machine that has one; it takes a few minutes.
#
#   cuda-runtime/measure.sh build     builds what is measured into target/gpu; needs Rust, no CUDA, no GPU
#   cuda-runtime/measure.sh run       runs it and prints its tables as Markdown; needs nothing but target/gpu and a driver,
#                                     and for the rows of PyTorch a python3 with torch and torchvision (SUBLET_PYTHON)
#
# A part that fails or is skipped says so; the others run all the same, and the exit status tells.
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
    # The tests of the CUDA backend, which run a program on a GPU where there is one.
    local test
    test=$(cargo test --locked -p sublet-cuda --test driver --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*driver-[^"]*\)".*/\1/p' | tail -n 1)
    cp "$test" "$to/driver"
    strip "$to/driver" "$to/relu_bandwidth" "$to/migration"
    git describe --always --dirty > "$to/commit"
    du -sh "$to"
}

failed=0
part() {
    local title=$1
    shift
    echo
    echo "### $title"
    echo
    echo "    $*"
    echo
    "$@" 2>&1 | sed 's/^/    /' || {
        echo "    failed: $title"
        failed=1
    }
}

run() {
    echo "Commit $(cat "$to/commit"), $(date -u +%F), $(uname -m)"
    nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader ||
        echo "no nvidia-smi"
    part "A program on this GPU, every byte looked at" \
        "$to/driver" --exact without_a_driver_there_is_an_error_and_with_a_gpu_a_program_runs --nocapture
    part "ReLU with a mask" "$to/relu_bandwidth"
    part "Plans that run: blocks of 64 MiB" "$to/migration" 16 65536
    part "Plans that run: blocks of 8 MiB" "$to/migration" 32 8192
    part "ResNet-50 in PyTorch, batch 64" \
        "${SUBLET_PYTHON:-python3}" examples/pytorch/train.py --library "$to/libsublet.so" --batch 64
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
