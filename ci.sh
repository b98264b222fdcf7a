#!/usr/bin/env bash
# What is checked before a change lands, in parts that run alone.
#
#   ./ci.sh check      formatting, lints, documentation
#   ./ci.sh test       all tests; counts what ran and what was skipped
#   ./ci.sh readme     the commands of README.md, exactly as printed there
#   ./ci.sh fuzz       each fuzz target for SUBLET_FUZZ_SECONDS (60), with the nightly toolchain
#   ./ci.sh tools      installs what the tests use beside Rust: Chromium, a MIP solver, C tools
#   ./ci.sh all        everything above but fuzzing and the tools
#
#   ./ci.sh install PREFIX    builds the C library and installs it with its headers, for pkg-config and CMake,
#                             on Linux; DESTDIR is put in front of PREFIX
#
# Tests use these variables where they are set, and say what they skip where they are not:
#   SUBLET_DATA        folder of the larger corpus: traces/, minimalloc/, idealloc/, examples/
#   SUBLET_JUDGES      folder of check_plan.py and check_schedule.py
#   SUBLET_PYTHON      a Python that has highspy
#   SUBLET_STREAMS     how many streams are searched for false periods, 20000 if not set
#   SUBLET_CHROMIUM    the browser, if it is not called chromium
set -euo pipefail
from=$PWD
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

# One fuzz target from its committed inputs; new ones gather in fuzz/corpus, which git ignores.
fuzz_target() {
    local target=$1 log=fuzz/target/$1.log
    local options=(-max_total_time="${SUBLET_FUZZ_SECONDS:-60}" -timeout=60 -print_final_stats=1)
    if [ -f "fuzz/$target.dict" ]; then
        options+=("-dict=fuzz/$target.dict")
    fi
    mkdir -p fuzz/target "fuzz/corpus/$target"
    if ! cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- "${options[@]}" > "$log" 2>&1; then
        echo "$target: a finding, or no run; the log ends with"
        tail -n 60 "$log"
        return 1
    fi
    sed -n "s/^stat::number_of_executed_units: */$target: executions: /p" "$log"
}

fuzz() {
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo clippy --manifest-path fuzz/Cargo.toml --locked -- -D warnings
    cargo +nightly fuzz build
    export -f fuzz_target
    cargo +nightly fuzz list | xargs -P 2 -I '{}' bash -euo pipefail -c 'fuzz_target {}'
}

tools() {
    if ! command -v chromium > /dev/null || ! command -v chromedriver > /dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver > /dev/null
    fi
    if [ ! -x "$oracles/bin/python" ]; then
        python3 -m venv "$oracles"
    fi
    if ! command -v c++ > /dev/null || ! command -v valgrind > /dev/null || ! command -v cmake > /dev/null ||
        ! command -v pkg-config > /dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            gcc g++ libc6-dev make cmake pkg-config valgrind > /dev/null
    fi
    "$oracles/bin/pip" install --quiet --disable-pip-version-check highspy
    fuzz_tools
}

fuzz_tools() {
    rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
    command -v cargo-fuzz > /dev/null || cargo install --quiet --locked cargo-fuzz
}

install_library() {
    local prefix=$1 version so
    case "$prefix" in /*) ;; *) prefix=$from/$prefix ;; esac
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
    so=${version%%.*}
    local series=$so
    if [ "$so" = 0 ]; then series=${version%.*}; fi

    cargo build --release --locked -p sublet-ffi
    local built=${CARGO_TARGET_DIR:-target}/release to=${DESTDIR:-}$prefix
    install -d "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/sublet"
    install -m 644 include/sublet.h include/sublet.hpp "$to/include"
    install -m 644 "$built/libsublet.a" "$to/lib"
    install -m 755 "$built/libsublet.so" "$to/lib/libsublet.so.$version"
    ln -sf "libsublet.so.$version" "$to/lib/libsublet.so.$so"
    ln -sf "libsublet.so.$so" "$to/lib/libsublet.so"
    fill() {
        sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@SOVERSION@|$so|; s|@SERIES@|$series|" \
            "ffi/packaging/$1.in" > "$to/lib/$2/$1"
    }
    fill sublet.pc pkgconfig
    fill sublet-config.cmake cmake/sublet
    fill sublet-config-version.cmake cmake/sublet
}

case "${1:-all}" in
    check) check ;;
    test) test_all ;;
    readme) readme ;;
    fuzz) fuzz ;;
    tools) tools ;;
    install) install_library "${2:?install needs a PREFIX}" ;;
    all)
        check
        readme
        test_all
        ;;
    *)
        sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
        ;;
esac
