#!/usr/bin/env bash
# What is checked before a change lands, in parts that run alone.
#
#   ./ci.sh check      formatting, lints, documentation
#   ./ci.sh test       all tests; counts what ran and what was skipped
#   ./ci.sh readme     the commands of README.md, exactly as printed there
#   ./ci.sh embedded   firmware on an emulated Cortex-M prints the host's plan; core's tests on 64-bit Arm
#   ./ci.sh tools      installs what the tests use beside Rust: Chromium, a MIP solver, emulators
#   ./ci.sh all        everything above but the tools
#
# Tests use these variables where they are set, and say what they skip where they are not:
#   SUBLET_DATA        folder of the larger corpus: traces/, minimalloc/, idealloc/, examples/
#   SUBLET_JUDGES      folder of check_plan.py and check_schedule.py
#   SUBLET_PYTHON      a Python that has highspy
#   SUBLET_CHROMIUM    the browser, if it is not called chromium
set -euo pipefail
cd "$(dirname "$0")"

oracles=target/oracles

check() {
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

test_all() {
    if [ -x "$oracles/bin/python" ]; then
        export SUBLET_PYTHON="${SUBLET_PYTHON:-$PWD/$oracles/bin/python}"
    fi
    local log
    log=$(mktemp)
    local status=0
    cargo test --workspace --locked -- --show-output 2>&1 | tee "$log" || status=$?
    echo
    echo "Skipped:"
    grep -hi '^skipped:' "$log" || echo "nothing"
    awk '/^test result:/ { passed += $4; failed += $6 }
         /^[Ss]kipped:/ { skipped++ }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
    rm -f "$log"
    return "$status"
}

# The lines of the first shell block in the README.
readme() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md | while IFS= read -r line; do
        echo "\$ $line"
        bash -euo pipefail -c "$line" < /dev/null
    done
}

# Debian's compiler brings the sources of the standard library, from which `core` is built for a microcontroller.
debian_cargo() {
    RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1 /usr/bin/cargo "$@"
}

embedded() {
    local out=$PWD/target/embedded
    mkdir -p "$out"
    (cd firmware && debian_cargo run --release --locked -Zbuild-std=core) > "$out/firmware.plan.csv"
    cargo run --release --locked --quiet -p sublet-cli -- \
        plan traces/chainer_googlenet_infer.csv --solver portfolio --output "$out/host.plan.csv" > /dev/null
    cmp "$out/firmware.plan.csv" "$out/host.plan.csv"
    echo "firmware: $(($(wc -l < "$out/host.plan.csv") - 1)) blocks, the same plan as the host's"
    arm-none-eabi-size firmware/target/thumbv7em-none-eabihf/release/sublet-firmware

    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static \
        debian_cargo test -p sublet-core --lib --locked --target aarch64-unknown-linux-gnu
}

# Each program that is needed, and the package of Debian that brings it.
packages() {
    local wanted=(
        chromium:chromium chromedriver:chromium-driver
        qemu-system-arm:qemu-system-arm ld.lld-14:lld-14 arm-none-eabi-size:binutils-arm-none-eabi
        qemu-aarch64-static:qemu-user-static aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu,libc6-dev-arm64-cross
        /usr/bin/rustc:rustc-web,cargo-web,rust-web-src,libstd-rust-web-dev,libstd-rust-web-dev:arm64
    )
    for entry in "${wanted[@]}"; do
        command -v "${entry%%:*}" > /dev/null || tr ',' '\n' <<< "${entry#*:}"
    done
}

tools() {
    local missing
    mapfile -t missing < <(packages)
    if [ "${#missing[@]}" -gt 0 ]; then
        dpkg --add-architecture arm64
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
    fi
    if [ ! -x "$oracles/bin/python" ]; then
        python3 -m venv "$oracles"
    fi
    "$oracles/bin/pip" install --quiet --disable-pip-version-check highspy
}

case "${1:-all}" in
    check) check ;;
    test) test_all ;;
    readme) readme ;;
    embedded) embedded ;;
    tools) tools ;;
    all)
        check
        readme
        embedded
        test_all
        ;;
    *)
        sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
        ;;
esac
